"""Exceptions and prints of moved code: as in the script, with the user's own file and lines."""

from __future__ import annotations

import re
import sys

import pytest
from pairs import Pair, assert_same, run_both
from scratch import Scratch

MOVED = """
class Broken(ValueError):
    def __init__(self, row, why="no reason"):
        super().__init__(row, why)
        self.row = row


class Odd(Exception):
    pass


class Rows(Dataset):
    def __init__(self, how):
        self.how = how
        if how == "init":
            raise FileNotFoundError(2, "No such file or directory", "/data/labels.csv")

    def __len__(self):
        return 12

    def __getitem__(self, i):
        if i == 5 and self.how == "value":
            raise ValueError(f"row {i} is bad")
        if i == 5 and self.how == "key":
            {"a": 1}["b"]
        if i == 5 and self.how == "broken":
            raise Broken(i, why="torn")
        if i == 5 and self.how == "odd":
            raise Odd("odd one")
        if i == 5 and self.how == "exit":
            raise SystemExit("enough")
        if i == 5 and self.how == "stop":
            raise StopIteration
        if i == 5 and self.how == "divide":
            return helper(i, 0)
        return torch.tensor(i)


def helper(above, below):
    return above // below


def collate(samples):
    if 5 in [int(sample) for sample in samples]:
        raise RuntimeError("can't collate")
    return torch.stack(samples)
"""
BUILDERS = """
@splitter_runtime.dataset("rows")
def rows(how):
    return Rows(how)


@splitter_runtime.loader("rows")
def rows_loader(how):
    return splitter_runtime.Loader(collate_fn=collate if how == "collate" else None)
"""
BODY = """
import sys, traceback
how, count = sys.argv[1], int(sys.argv[2])
try:
    dataset = Rows(how)
    loader = DataLoader(dataset, batch_size=4, num_workers=count, collate_fn=collate if how == "collate" else None)
    for batch in loader:
        see(batch)
        print("batch", batch.tolist())
except (Exception, SystemExit) as error:
    print(type(error).__name__, error.args, {name: value for name, value in vars(error).items() if name != "__notes__"})
    print(traceback.format_exc())
print("rng", torch.rand(1).item())
show()
"""
NOTE = "splitter: while these samples were fetched: 4, 5, 6, 7"
SWAPS = (
    ("Rows(how)", 'splitter_runtime.RemoteDataset("rows", {"how": how})'),
    ("collate if how", "print if how"),
    ("else None)", 'else None, env={"how": how})'),
)
# The trainer keeps the classes of exceptions that it may name.
KEPT = MOVED[: MOVED.index("class Odd")]


def case() -> Pair:
    return Pair(MOVED, BUILDERS, BODY, SWAPS)


@pytest.mark.parametrize("how", ["value", "key", "divide", "collate", "odd", "stop"])
def test_in_a_stream(scratch: Scratch, how: str) -> None:
    """Type and text, which holds the traceback on the worker, are the script's to the letter."""
    script, split = run_both(scratch, case(), how, "2")
    if how == "stop":  # torch raises it again, and that ends the loop
        assert split.stdout == script.stdout, split.stderr
        return
    assert "Original Traceback" in script.stdout
    for text in (script.stdout, split.stdout):
        assert "pair/train.py" in text
    if how == "odd":  # a class that the trainer doesn't have
        assert "in DataLoader worker process 1" in split.stdout and "Odd: odd one" in split.stdout
        return
    assert message(split.stdout) == message(script.stdout), split.stderr
    assert NOTE in split.stdout or sys.version_info < (3, 11)


def message(text: str) -> str:
    """What was raised, without the traceback of the trainer itself, and without the note that says which samples were fetched."""
    return "\n".join(line for line in text.split("\n") if not line.startswith(("Traceback", "  ")) and line != NOTE)


@pytest.mark.parametrize("how", ["value", "key", "divide", "collate", "init", "exit", "stop"])
def test_in_the_main_process(scratch: Scratch, how: str) -> None:
    script, split = run_both(scratch, case(), how, "0")
    assert script.stdout.splitlines()[-1] == split.stdout.splitlines()[-1], split.stderr + split.stdout
    first = [line for line in script.stdout.splitlines() if re.match(r"\w+(Error|Exit) ", line)]
    assert all(line in split.stdout.splitlines() for line in first), split.stdout
    if how not in ("stop", "init"):
        places = re.findall(r'File ".*/pair/train.py", line \d+, in (?:__getitem__|helper|collate)', script.stdout)
        assert places and all(place in split.stdout for place in places), split.stdout
        assert NOTE in split.stdout or sys.version_info < (3, 11)


def test_a_class_of_the_user(scratch: Scratch) -> None:
    """Rebuilt without calling its constructor, attributes included, when the trainer has the class."""
    pair = case()
    folder = pair.write(scratch.folder / "pair")
    kept = Pair(MOVED, BUILDERS, KEPT + BODY, SWAPS)
    script, split = run_both(scratch, kept, "broken", "0")
    assert folder.exists() and "Broken (5, 'torn') {'row': 5}" in script.stdout
    assert "Broken (5, 'torn') {'row': 5}" in split.stdout, split.stdout


def test_a_base_of_the_user_s_class(scratch: Scratch) -> None:
    _, split = run_both(scratch, case(), "broken", "0")
    assert "ValueError" in split.stdout and "torn" in split.stdout


def test_prints_of_streams(scratch: Scratch) -> None:
    """As processes with a pipe for standard output: what a worker prints comes when it ends, before what the loop prints later."""
    moved = """
class Talks(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        print("item", i, "naïve ✓")
        return torch.tensor(i)
"""
    builders = """
@splitter_runtime.dataset("talks")
def talks():
    return Talks()
"""
    body = """
print("start")
for epoch in range(2):
    for batch in DataLoader(Talks(), batch_size=2, num_workers=1):
        print("batch", batch.tolist())
print("end")
"""
    pair = Pair(moved, builders, body, (("Talks()", 'splitter_runtime.RemoteDataset("talks")'),))
    assert_same(scratch, pair, quick=False, PYTHONUNBUFFERED="")


def test_a_batch_that_can_not_be_sent(scratch: Scratch) -> None:
    moved = """
class Opens(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return {"x": torch.tensor(i), "file": open("/dev/null")}


def same(samples):
    return samples
"""
    builders = """
@splitter_runtime.dataset("opens")
def opens():
    return Opens()


@splitter_runtime.loader("opens")
def opens_loader():
    return splitter_runtime.Loader(collate_fn=same)
"""
    body = """
for count in (0, 1):
    try:
        for batch in DataLoader(Opens(), batch_size=2, num_workers=count, collate_fn=same):
            pass
    except RuntimeError as error:
        print(error)
"""
    swaps = (("Opens()", 'splitter_runtime.RemoteDataset("opens")'), ("collate_fn=same", "collate_fn=print"))
    folder = Pair(moved, builders, body, swaps).write(scratch.folder / "pair")
    split = scratch.run([sys.executable, "train_trainer.py"], folder)  # with the script's two processes torch waits for ever
    assert re.findall(r"^R10\d: (batch.*?):", split.stdout, re.MULTILINE) == ['batch[0]["file"]'] * 2, split.stdout + split.stderr
