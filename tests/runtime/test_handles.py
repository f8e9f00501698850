"""RemoteDataset and replicated: what a script does to a dataset besides loading it."""

from __future__ import annotations

import subprocess
import sys

from pairs import Pair, assert_same, run_both
from scratch import Scratch

MOVED = '''
class Table(Dataset):
    """A dataset with all that scripts ask of one."""

    classes = ["ant", "bee"]

    def __init__(self, n, names=None):
        print("building", n)
        self.values = torch.randn(n) + random.random() + np.random.rand()
        self.names = names
        self.options = {"size": (3, 4), 5: [1.5, None]}
        self.lock = __import__("threading").Lock()

    def __repr__(self):
        return f"Table of {len(self.values)}"

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return self.values[i]
        if not -len(self) <= i < len(self):
            raise IndexError(f"no row {i}")
        return self.values[i], i

    def __contains__(self, i):
        return i in (1, 2)

    def weights(self, *, power=1):
        return self.values.abs() ** power

    def shuffled(self):
        self.values = self.values[torch.randperm(len(self.values))]
        return self

    def without(self, count):
        made = Table(len(self) - count)
        made.parent = self
        return made

    def rows(self):
        for value in self.values:
            print("row")
            yield value + torch.rand(1)


class Unsized(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(3))


class Joined(Dataset):
    def __init__(self, parts):
        self.parts = parts

    def __len__(self):
        return 2 * min(len(part) for part in self.parts)

    def __getitem__(self, i):
        return self.parts[i % 2][i // 2][0] * 2

    def __getitems__(self, indices):
        return [self[i] + 100 for i in indices]
'''

BUILDERS = """
@splitter_runtime.dataset("table")
def table(args, names):
    return Table(args.size.rows, names)


@splitter_runtime.dataset("unsized")
def unsized():
    return Unsized()


@splitter_runtime.dataset("joined")
def joined(first, others):
    return Joined([first, others[0]])
"""

SWAPS = (
    ("Table(6, {1: 'x'})", "splitter_runtime.RemoteDataset('table', {'args.size.rows': 6, 'names': {1: 'x'}})"),
    ("Unsized()", 'splitter_runtime.RemoteDataset("unsized")'),
    (
        "Joined([dataset, Subset(dataset, [3, 4])])",
        "splitter_runtime.RemoteDataset('joined', {'first': dataset, 'others': [Subset(dataset, [3, 4])]})",
    ),
)


def case(body: str) -> Pair:
    return Pair(MOVED, BUILDERS, body, tuple(swap for swap in SWAPS if swap[0] in body))


def test_everything_that_scripts_do(scratch: Scratch) -> None:
    body = """
print("before")
dataset = Table(6, {1: 'x'})
print("after", dataset, repr(dataset), type(dataset).__name__, isinstance(dataset, Dataset), isinstance(dataset, IterableDataset))
see([dataset.values, dataset.names, dataset.options, dataset.classes, len(dataset)])
see([dataset[2], dataset[-1], dataset[1:3], 2 in dataset, 5 in dataset])
see([dataset.weights(power=2), dataset.weights(), getattr(dataset, "missing", 7), hasattr(dataset, "names"), hasattr(dataset, "other")])
assert dataset.shuffled() is dataset
dataset.names = ["a", torch.zeros(2)]
see([dataset.names, list(dataset), [value for value in dataset.rows()]])
del dataset.names
print(hasattr(dataset, "names"), hasattr(dataset, "__getitems__"), callable(dataset), bool(dataset))
smaller = dataset.without(2)
print(len(smaller), smaller, smaller.parent is dataset)
for batch in DataLoader(smaller, batch_size=3, num_workers=1):
    see(batch)
plain = Unsized()
for attempt in ("dataset[99]", "dataset.nothing", "dataset.weights(3)", "len(plain)", "plain[0]"):
    try:
        eval(attempt)
    except Exception as error:
        print(attempt, type(error).__name__, error, error.args)
print(isinstance(plain, IterableDataset), hasattr(plain, "__len__"), list(plain), next(iter(plain)))
show()
"""
    # Python names the class of an object without a length by itself; here too it is the user's.
    assert_same(scratch, case(body))


def test_datasets_made_of_others(scratch: Scratch) -> None:
    body = """
dataset = Table(6, {1: 'x'})
joined = Joined([dataset, Subset(dataset, [3, 4])])
see([len(joined), joined[1], joined.__getitems__([0, 1])])
for count in (0, 2):
    for batch in DataLoader(joined, batch_size=2, num_workers=count):
        see(batch)
print(joined.parts[0] is dataset)
show()
"""
    script, split = run_both(scratch, case(body.replace("print(joined.parts[0] is dataset)\n", "")))
    assert (split.stdout, split.returncode) == (script.stdout, 0), split.stderr


def test_replicated(scratch: Scratch) -> None:
    body = """
dataset = Table(6, {1: 'x'})
print(type(dataset) is Table, dataset.lock.locked())
for count in (0, 2):
    for batch in DataLoader(Subset(dataset, [5, 1, 2]), batch_size=2, num_workers=count, shuffle=True):
        see(batch)
see(dataset.values)
show()
"""
    pair = case(body)
    local = "splitter_runtime.replicated('table', {'args.size.rows': 6, 'names': {1: 'x'}}, lambda: Table(6, {1: 'x'}))"
    swaps = ((SWAPS[0][0], local),)
    # The trainer keeps the class.
    trainer = Pair("", pair.builders, MOVED + body, swaps)
    folder = pair.write(scratch.folder / "pair")
    (folder / "train_trainer.py").write_text(trainer.trainer())
    script, split = (scratch.run([sys.executable, name], folder) for name in ("train.py", "train_trainer.py"))
    assert script.returncode == 0, script.stderr
    assert (split.stdout, split.returncode) == (script.stdout, 0), split.stderr


def fails(scratch: Scratch, body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the trainer program of a body that must end with an error."""
    folder = case(body).write(scratch.folder / "pair")
    ended = scratch.run([sys.executable, "train_trainer.py"], folder, **environment)
    assert ended.returncode == 1, ended.stderr
    return ended


def test_values_that_can_not_be_sent(scratch: Scratch) -> None:
    ended = fails(scratch, "dataset = Table(6, {1: 'x'})\ndataset.lock\n")
    assert "CodecError: R1" in ended.stderr and "table.lock: _thread.lock" in ended.stderr
    ended = fails(scratch, "dataset = Table(6, {1: 'x'})\ndataset.names = [1, lambda: 2]\n")
    assert "CodecError: R1" in ended.stderr and "function" in ended.stderr


def test_values_of_classes_that_the_worker_has_not_imported(scratch: Scratch) -> None:
    """Those of libraries arrive; for those of the script's own modules the call fails, and the worker lives on."""
    body = """
import plistlib

import own

dataset = Table(6, {1: 'x'})
dataset.names = {1: plistlib.FMT_XML}
print(dataset.names[1] is plistlib.FMT_XML)
try:
    dataset.names = own.Own()
except RuntimeError as error:
    print(type(error).__name__, error)
try:
    list(DataLoader(dataset, sampler=[own.Own()], num_workers=1))
except RuntimeError as error:
    print(type(error).__name__, error)
print(dataset.names[1] is plistlib.FMT_XML)
"""
    folder = case(body).write(scratch.folder / "pair")
    (folder / "own.py").write_text("class Own:\n    pass\n")
    ended = scratch.run([sys.executable, "train_trainer.py"], folder)
    first, *errors, last = ended.stdout.splitlines()[-4:]
    assert (first, last) == ("True", "True"), ended.stderr
    for error in errors:
        assert error.startswith("CodecError R113: the class own.Own of the value received is not known here"), ended.stderr


def test_a_builder_that_is_not_there(scratch: Scratch) -> None:
    ended = fails(scratch, 'splitter_runtime.RemoteDataset("tabel")\n')
    assert "'tabel'" in ended.stderr and "'table'" in ended.stderr


def test_a_collate_function_that_is_not_on_the_worker(scratch: Scratch) -> None:
    ended = fails(scratch, "dataset = Table(6, {1: 'x'})\nDataLoader(dataset, collate_fn=lambda samples: samples)\n")
    assert "R601" in ended.stderr and "collate_fn" in ended.stderr


def test_a_handle_can_not_be_copied(scratch: Scratch) -> None:
    ended = fails(scratch, "import copy\ncopy.deepcopy(Table(6, {1: 'x'}))\n")
    assert "R601" in ended.stderr
