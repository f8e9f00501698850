"""How random programs go through a loader: each idiom once, the plain one first."""

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
    "two iterators": """\
one, two = iter($loader), iter($loader)
batch = next(one)
train([batch, next(two)])
$each
""",
    "iterator for nothing": """\
iter($loader)
for batch in $loader:
    train(batch)
    $each
""",
    "own wrapper": """\
class Shown:
    def __init__(self, loader):
        self.loader = loader

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        for number, batch in enumerate(self.loader):
            print("batch", number)
            yield batch

for batch in Shown($loader):
    train(batch)
    $each
""",
    "chain": """\
for batch in itertools.chain($loader, $second):
    train(batch)
    $each
""",
    "dict of loaders": """\
for phase, each_loader in {"train": $loader, "val": $second}.items():
    for batch in each_loader:
        train(batch)
        $each
    print(phase)
""",
    "conditional": """\
for batch in $loader if epoch else $second:
    train(batch)
    $each
""",
    "sum": """\
print(sum(1 for _ in $loader), states())
for batch in $loader:
    train(batch)
    $each
""",
    "sent to a generator": """\
def running():
    mean = 0.0
    while True:
        batch = yield mean
        mean = 0.9 * mean + 0.1 * total(batch)

average = running()
next(average)
for batch in $loader:
    train(batch)
    print(average.send(batch))
    $each
""",
}
