"""What the trainer of a random program does beside training: each idiom once, the plain one first."""

from __future__ import annotations

# What the trainer does meanwhile: where ("each" batch, "before" or "after" an epoch), the text, and what the dataset must have.
MEANWHILE = {
    "nothing": ("before", "pass", ""),
    "draws torch": ("each", "print(torch.rand(1).item())", ""),
    "draws numpy and random": ("each", "print(np.random.rand(), random.random())", ""),
    "draws before": (
        "before",
        """\
torch.randn(3)
random.random()
""",
        "",
    ),
    "reseeds": (
        "before",
        """\
random.seed(epoch)
np.random.seed(epoch)
torch.manual_seed(epoch)
""",
        "",
    ),
    "reads the length": ("each", "print(len($data))", "len"),
    "reads a row": ("before", "print(described($data[1]))", "index"),
    "reads a row in the middle": ("each", "print(described($data[2]))", "index"),
    "reads an attribute": ("before", "print($data.level)", "level"),
    "reads an attribute in the middle": ("each", "print($data.level)", "level"),
    "writes an attribute": ("before", "$data.level = epoch + 2", "level"),
    "writes an attribute in the middle": ("each", "$data.level += 1", "level"),
    "setattr": ("before", 'setattr($data, "level", epoch)', "level"),
    "appends": ("before", "$data.rows.append(50.0 + epoch)", "rows"),
    "appends in the middle": ("each", "$data.rows.append(70.0)", "rows"),
    "replaces the list": ("before", "$data.rows = $data.rows[epoch:]", "rows"),
    "shuffles the list": ("before", "random.shuffle($data.rows)", "rows"),
    "in a function": ("before", "raise_level($data, epoch)", "level"),
    "through the loader": ("before", "$loader.dataset.level = epoch + 7", "level"),
    "through another name": ("before", "same = $data\nsame.level = epoch + 5", "level"),
    "in a loop over datasets": (
        "before",
        """\
for each in ($data,):
    each.level += 3
""",
        "level",
    ),
    "through __dict__": ("before", '$data.__dict__["level"] = epoch + 4', "level"),
    "through vars": ("before", "vars($data).update(level=epoch + 6)", "level"),
    "a list's item": ("before", "$data.rows[1] = 30.0 + epoch", "rows"),
    "deletes a row": ("before", "del $data.rows[0]", "rows"),
    "adds to the list": ("before", "$data.rows += [81.0, 82.0]", "rows"),
    "sorts the list": ("before", "$data.rows.sort(reverse=True)", "rows"),
    "through a name of the list": ("before", "rows = $data.rows\nrows.append(90.0)", "rows"),
    "through getattr": ("before", 'getattr($data, "rows").append(91.0)', "rows"),
    "in a comprehension": ("before", "[$data.rows.append(value) for value in (92.0, 93.0)]", "rows"),
    "extends with rows": ("before", "$data.rows.extend([row for row in $data.rows[:2]])", "rows"),
    "replaces a method": ("before", "Rows.__getitem__ = lambda self, i: torch.tensor([self.rows[i], 5])", "method"),
    "class attribute through the object": ("before", "type($data).scale = epoch + 3", "Scaled.scale"),
    "in a callback": (
        "before",
        """\
for callback in [lambda number: setattr($data, "level", number)]:
    callback(epoch + 8)
""",
        "level",
    ),
    "only sometimes": ("before", "if epoch == 1:\n    $data.level = 9", "level"),
    "copies the dataset": ("before", "other = copy.copy($data)\nprint(len(other))", "len"),
    "copies it deeply": ("before", "other = copy.deepcopy($data)\nprint(described(other[0]))", "index"),
    "goes through the rows": ("before", "print(sum(total($data[i]) for i in range(3)))", "index"),
    "iterates over the dataset": ("before", "print(len([row for row in $data][:2]))", "iterable"),
    "another loader of it": (
        "before",
        """\
for other in DataLoader($data, batch_size=5):
    train(other)
""",
        "len",
    ),
    "keeps the rows": ("before", "kept.append($data[1])\nprint(described(kept))", "index"),
    "set_epoch": ("before", "$data.set_epoch(epoch)", "set_epoch"),
    "set_epoch in the middle": ("each", "$data.set_epoch(3)", "set_epoch"),
    "switches the transform off": (
        "before",
        """\
if epoch:
    $data.transform = None
""",
        "transform",
    ),
    "switches the transform": ("before", "$data.transform = (lambda x: x + 1) if epoch else (lambda x: x - 1)", "transform"),
    "reads the counter": ("after", "print($data.served)", "served"),
    "clears the cache": ("after", "$data.cache.clear()", "cache"),
    "reads the cache": ("after", "print(sorted($data.cache))", "cache"),
    "reads the cursor": ("after", "print($data.at)", "at"),
    "class attribute": ("before", "Scaled.scale = epoch + 3", "Scaled.scale"),
    "class attribute on the object": ("before", "$data.scale = epoch + 3", "Scaled.scale"),
    "global dict": ("before", 'config["offset"] = epoch', "config"),
    "reads the log": ("after", "print(len(log))", "log"),
    "changes the batch": ("each", "scale_in_place(batch)", ""),
    "changes the batch's tensor": (
        "each",
        """\
if isinstance(batch, torch.Tensor):
    batch.mul_(2)
""",
        "",
    ),
    "adds to the batch's tensor": (
        "each",
        """\
if torch.is_tensor(batch):
    batch += 1
""",
        "",
    ),
    "changes a row": (
        "before",
        """\
first = $data[0]
if isinstance(first, torch.Tensor):
    first += 1
""",
        "index",
    ),
    "keeps batches": (
        "each",
        """\
kept.append(batch)
print(len(kept))
""",
        "",
    ),
    "default dtype": ("before", "torch.set_default_dtype(torch.float64 if epoch else torch.float32)", ""),
    "grad mode": ("before", "torch.set_grad_enabled(True)", ""),
    "length of the loader": ("before", "print(len($loader))", "len"),
    "changes the global": ("before", "change_offset(epoch)", "OFFSET"),
    "changes the global of collate": ("before", "change_base(epoch)", "collate global"),
    "hasattr": ("before", 'print(hasattr($data, "level"), hasattr($data, "__getitems__"))', ""),
    "type": ("before", "print(isinstance($data, Dataset))", ""),
}
HELPERS = {
    "scale_in_place": """\
def scale_in_place(value):
    if isinstance(value, torch.Tensor):
        value.mul_(3)
    elif isinstance(value, (list, tuple)):
        for part in value:
            scale_in_place(part)
""",
    "kept": "kept = []",
    "raise_level": """\
def raise_level(data, epoch):
    data.level = epoch + 5
""",
    "change_offset": """\
def change_offset(value):
    global OFFSET
    OFFSET = value
""",
    "change_base": """\
def change_base(value):
    global BASE
    BASE = value
""",
}
