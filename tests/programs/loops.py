"""What random programs do with a loader, and what else they do meanwhile: each idiom once. Plain ones come first in each table."""

from __future__ import annotations

# How an epoch goes through the loader. $each is what the trainer does for each batch beside training.
LOOPS = {
    "for": """\
for batch in $loader:
    train(batch)
    $each
""",
    "enumerate": """\
for step, batch in enumerate($loader):
    train(batch)
    $each
print(step)
""",
    "next": """\
batch = next(iter($loader))
train(batch)
$each
""",
    "next of a stored iterator": """\
it = iter($loader)
for _ in range(2):
    batch = next(it)
    train(batch)
    $each
""",
    "while": """\
it = iter($loader)
while True:
    try:
        batch = next(it)
    except StopIteration:
        break
    train(batch)
    $each
""",
    "break": """\
for step, batch in enumerate($loader):
    if step == 2:
        break
    train(batch)
    $each
""",
    "continue": """\
for step, batch in enumerate($loader):
    if step % 2:
        continue
    train(batch)
    $each
""",
    "islice": """\
for batch in itertools.islice($loader, 2):
    train(batch)
    $each
""",
    "cycle": """\
for batch in itertools.islice(itertools.cycle($loader), 7):
    train(batch)
    $each
""",
    "list": """\
batches = list($loader)
for batch in batches:
    train(batch)
    $each
""",
    "own endless generator": """\
def endless(loader):
    while True:
        for batch in loader:
            yield batch

batches = endless($loader)
for _ in range(6):
    batch = next(batches)
    train(batch)
    $each
""",
    "prefetching generator": """\
def ahead(loader):
    it = iter(loader)
    following = next(it, None)
    while following is not None:
        batch = following
        following = next(it, None)
        yield batch

for batch in ahead($loader):
    train(batch)
    $each
""",
    "through a function": """\
def one_epoch(loader):
    for batch in loader:
        train(batch)
        $each
    return len(list(loader))

print(one_epoch($loader))
""",
    "twice at once": """\
for a, b in zip($loader, $loader):
    train([a, b])
    batch = a
    $each
""",
    "nested": """\
for a in $loader:
    for batch in itertools.islice($loader, 1):
        train([a, batch])
        $each
""",
    "zip of two": """\
for batch, other in zip($loader, $second):
    train(batch)
    train(other)
    $each
""",
    "validation after": """\
for batch in $loader:
    train(batch)
    $each
for batch in $second:
    train(batch)
""",
    "validation in the middle": """\
for step, batch in enumerate($loader):
    train(batch)
    $each
    if step == 1:
        for other in $second:
            train(other)
""",
    "validation without grad": """\
for batch in $loader:
    train(batch)
    $each
with torch.no_grad():
    print(sum(total(batch) for batch in $second))
""",
    "len": """\
print(len($loader), len($loader.dataset))
for batch in $loader:
    train(batch)
    $each
""",
    "comprehension": """\
print([round(total(batch), 3) for batch in $loader])
print(states())
""",
    "map": """\
for value in map(total, $loader):
    print(value, states())
""",
    "else": """\
for batch in $loader:
    train(batch)
    $each
else:
    print('done')
""",
    "catches errors": """\
try:
    for batch in $loader:
        train(batch)
        $each
except ValueError as error:
    print('caught', type(error).__name__)
""",
    "settings": """\
print($loader.batch_size, $loader.num_workers, type($loader.sampler).__name__)
for batch in $loader:
    train(batch)
    $each
""",
    "starred": """\
first, *others = $loader
train(first)
print(len(others))
""",
}

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
