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
    "doubles the tensor": ("before", "x_a.mul_(2)", "x"),
    "adds to the tensor": ("before", "x_a += 1", "x"),
    "writes into the tensor": ("before", "x_a[0] = 50.0 + epoch", "x"),
    "writes through a view": ("before", "x_a.view(-1)[1:3].fill_(epoch)", "x"),
    "writes through numpy": ("before", "x_a.numpy()[1] = 7.0", "x"),
    "writes with out": ("before", "torch.add(x_a, 1, out=x_a)", "x"),
    "writes through detach": ("before", "x_a.detach().zero_()", "x"),
    "writes the dataset's tensor": ("before", "$data.x[2] = 60.0", "x FromArray"),
    "normalizes the dataset's tensor": ("before", "$data.x.sub_(1)", "x FromArray"),
    "replaces the dataset's tensor": ("before", "$data.x = $data.x * 2", "x FromArray"),
    "writes the array": ("before", "y_a[0] = 50.0 + epoch", "y"),
    "scales the array": ("before", "y_a *= 2", "y"),
    "copies into the array": ("before", "np.copyto(y_a, y_a + 1)", "y"),
    "appends to the list": ("before", "list_a.append(torch.tensor([1.0, 2.0]))", "list"),
    "replaces an item of the list": ("before", "list_a[0] = list_a[1]", "list"),
    "changes an item of the list": ("before", "list_a[0] += 1", "list"),
    "clears part of the list": ("before", "list_a[8:] = []", "list"),
    "shuffles the script's list": ("before", "random.shuffle(list_a)", "list"),
    "changes the list in a function": ("before", "grow(list_a)", "list"),
    "writes the inner dataset": ("before", "base_a.level = epoch + 3", "base"),
    "appends to the inner dataset": ("before", "base_a.rows.append(80.0)", "base"),
    "writes the object": ("before", "add_a.amount = epoch", "add"),
    "writes the object through the dataset": ("before", "$data.transform.amount = epoch", "add"),
    "changes the object's list": ("before", "add_a.parts.append(epoch)", "add"),
    "calls a method": ("before", "print($data.grow(99.0 + epoch))", "grow"),
    "calls a method that draws": ("before", "$data.mix()", "grow"),
    "changes what a method gives": ("before", "$data.all_rows().append(98.0)", "grow"),
    "method of list": ("before", "list.append($data.rows, 97.0)", "rows"),
    "setitem": ("before", "$data.rows.__setitem__(0, 96.0)", "rows"),
    "in a dict": ("before", 'held_by = {"data": $data}\nheld_by["data"].level = epoch + 2', "level"),
    "in a list": ("before", "held_by = [$data]\nheld_by[0].level = epoch + 2", "level"),
    "in an object": ("before", "holder = Holder($data)\nholder.data.level = epoch + 2", "level"),
    "unpacked": ("before", "same, number = $data, 3\nsame.level = number + epoch", "level"),
    "through getattr of the loader": ("before", 'getattr($loader, "dataset").level = epoch', "level"),
    "swap": ("before", "$data.rows[0], $data.rows[1] = $data.rows[1], $data.rows[0]", "rows"),
    "with a target": ("before", "for $data.level in (epoch, epoch + 2):\n    pass", "level"),
    "deletes the attribute's slice": ("before", "del $data.rows[-1:]", "rows"),
    "inserts": ("before", "bisect.insort($data.rows, 2.5)", "rows"),
    "changes the class's list": ("before", 'Masked.words.append(f"word {epoch}")', "Masked.words"),
    "changes the class's list through the object": ("before", '$data.words.append(f"word {epoch}")', "Masked.words"),
    "reseeds the generator": ("before", "shared.manual_seed(epoch)", "batches shared generator"),
    "reseeds the loader's generator": ("before", "$loader.generator.manual_seed(epoch)", "batches shared generator"),
    "changes the weights": ("before", "$loader.sampler.weights[0] = 50.0", "batches weighted"),
    "changes the subset": ("before", "$loader.sampler.indices = [1, 2, 3 + epoch]", "batches SubsetRandomSampler"),
    "epoch of the sampler": ("before", "$loader.sampler.set_epoch(epoch)", "batches distributed"),
    "changes the collate object": ("before", "batches.extra = epoch + 5", "collate bound method"),
    "attribute of the collate function": ("before", "pair.scale = epoch", "collate function"),
    "keeps what the batches were": ("each", "kept.append(batch)\nprint(described(kept[0])[:60])", ""),
    "fills the batch's rows": (
        "each",
        "for part in batch if isinstance(batch, (list, tuple)) else []:\n    if torch.is_tensor(part):\n        part.zero_()",
        "",
    ),
    "saves and restores the states": ("each", "state = torch.get_rng_state()\ntorch.rand(2)\ntorch.set_rng_state(state)", ""),
    "draws from numpy's generator": ("each", "print(np.random.default_rng(epoch).random())", ""),
    "repr": ("before", "print(str($data)[:6] if isinstance($data, list) else type($data).__name__)", ""),
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
    "grow": """\
def grow(rows):
    rows.append(rows[0])
""",
    "Holder": """\
class Holder:
    def __init__(self, data):
        self.data = data
""",
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
