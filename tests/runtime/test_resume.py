"""A loader that was saved in the middle of an epoch goes on in another process, with the batches that it would have given."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pairs import Pair
from scratch import Scratch

MOVED = '''
class Noise(Dataset):
    """Draws from three generators and keeps no state; writes down what it reads."""

    def __len__(self):
        return 21

    def __getitem__(self, i):
        with open("reads", "a") as file:
            file.write(f"{i}\\n")
        return torch.randn(5) + i + random.random() + np.random.rand(), i


class Plain(Dataset):
    def __len__(self):
        return 21

    def __getitem__(self, i):
        with open("reads", "a") as file:
            file.write(f"{i}\\n")
        return torch.arange(5) + i


class Counted(Dataset):
    """Keeps state."""

    def __init__(self):
        self.read = 0

    def __len__(self):
        return 21

    def __getitem__(self, i):
        self.read += 1
        return torch.tensor([i, self.read]) + torch.rand(2)


class Shards(IterableDataset):
    sizes = [7, 2, 5, 1, 4]

    def __iter__(self):
        info = get_worker_info()
        mine = self.sizes if info is None else self.sizes[info.id :: info.num_workers]
        for size in mine:
            for number in range(size):
                yield torch.tensor([size, number]) + torch.rand(2)


class Marked(IterableDataset):
    """Can say where it is."""

    def __iter__(self):
        info = get_worker_info()
        return Marks(range(24)[info.id :: info.num_workers] if info else range(24))


class Marks:
    def __init__(self, numbers):
        self.numbers, self.at = numbers, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == len(self.numbers):
            raise StopIteration
        self.at += 1
        with open("reads", "a") as file:
            file.write(f"{self.numbers[self.at - 1]}\\n")
        return self.numbers[self.at - 1] + torch.rand(1)

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]
'''
KINDS = {
    "noise": ("Noise", "stateless=True"),
    "plain": ("Plain", "stateless=True, draws=()"),
    "counted": ("Counted", ""),
    "shards": ("Shards", ""),
    "marked": ("Marked", ""),
}
BUILDERS = "".join(
    f'\n@splitter_runtime.dataset("{name}", {options})\ndef {name}():\n    return {kind}()\n' for name, (kind, options) in KINDS.items()
)

BODY = """
import hashlib
import io
import os
import sys


class Lengths:
    def __init__(self):
        self.random = random.Random(3)

    def __iter__(self):
        numbers = list(range(21))
        self.random.shuffle(numbers)
        return iter(numbers)

    def __len__(self):
        return 21


class Marker:
    '''A sampler that says where it is.'''

    def __init__(self):
        self.order, self.at = [], 0

    def __iter__(self):
        if not self.order:
            self.order = torch.randperm(21).tolist()
        while self.at < 21:
            self.at += 1
            yield self.order[self.at - 1]
        self.order, self.at = [], 0

    def __len__(self):
        return 21

    def state_dict(self):
        return {"order": list(self.order), "at": self.at}

    def load_state_dict(self, state):
        self.order, self.at = list(state["order"]), state["at"]


class Moody(Lengths):
    '''Draws from a generator that nobody knows.'''

    def __iter__(self):
        return iter([int.from_bytes(os.urandom(4), "little") % 21 for _ in range(21)])


def digest(value):
    made = hashlib.sha256()

    def add(part):
        if isinstance(part, torch.Tensor):
            made.update(part.numpy().tobytes())
        elif isinstance(part, (list, tuple)):
            [add(one) for one in part]
        else:
            made.update(repr(part).encode())

    add(value)
    return made.hexdigest()[:12]


def states():
    return [torch.get_rng_state(), np.random.get_state(), random.getstate()]


def restore(saved):
    torch.set_rng_state(saved[0])
    np.random.set_state(saved[1])
    random.setstate(saved[2])


def loader_of(case, part):
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    return eval(f"DataLoader(splitter_runtime.RemoteDataset(case[1]), batch_size=3, {case[3] if part == 'go_on' else case[2]})")


def epoch_of(case, loader, epoch, until=None):
    for step, batch in enumerate(loader):
        print(case[0], epoch, digest(batch))
        if case[0].startswith("plain"):
            torch.rand(1)
        if step + 1 == until:
            break


def whole(case):
    loader = loader_of(case, "whole")
    for epoch in range(case[4] + 2):
        epoch_of(case, loader, epoch)
    print(case[0], "end", digest(str(states())))


def stop(case):
    loader = loader_of(case, "stop")
    for epoch in range(case[4]):
        epoch_of(case, loader, epoch)
    epoch_of(case, loader, case[4], case[5])
    torch.save(loader.state_dict(), f"{case[0]}.loader")
    torch.save(states(), f"{case[0]}.generators")


def go_on(case):
    loader = loader_of(case, "go_on")
    restore(torch.load(f"{case[0]}.generators", weights_only=False))
    loader.load_state_dict(torch.load(f"{case[0]}.loader", weights_only=True))
    open("reads", "w").close()
    epoch_of(case, loader, case[4])
    print(case[0], "read", len(open("reads").readlines()), file=sys.stderr)
    for epoch in range(case[4] + 1, case[4] + 2):
        epoch_of(case, loader, epoch)
    print(case[0], "end", digest(str(states())))


open("reads", "w").close()
for case in eval(open("cases").read()):
    globals()[sys.argv[1]](case)
"""


@dataclass(frozen=True)
class Case:
    """A loader that stops after `step` batches of `epoch`; `then` is what it goes on with, when that is something else."""

    name: str
    kind: str
    keywords: str
    epoch: int = 1
    step: int = 3
    then: str = ""

    def line(self) -> tuple[object, ...]:
        return self.name, self.kind, self.keywords, self.then or self.keywords, self.epoch, self.step


CASES = (
    Case("noise", "noise", "num_workers=2, shuffle=True"),
    Case("noise-elsewhere", "noise", "num_workers=2, shuffle=True", then="num_workers=3, shuffle=True"),
    Case("noise-inline", "noise", "num_workers=2, shuffle=True", then="shuffle=True"),
    Case("noise-again", "noise", "shuffle=True", then="num_workers=2, shuffle=True"),
    Case("plain-elsewhere", "plain", "num_workers=2, shuffle=True", then="num_workers=3, shuffle=True"),
    Case("noise-ends", "noise", "num_workers=2, shuffle=True", step=7),
    Case("noise-late", "noise", "num_workers=2, shuffle=True", step=6),
    Case("noise-persistent", "noise", "num_workers=2, shuffle=True, persistent_workers=True", step=1),
    Case("noise-main", "noise", "shuffle=True"),
    Case("noise-marker", "noise", "num_workers=2, sampler=Marker()"),
    Case("noise-marker-late", "noise", "num_workers=2, sampler=Marker()", step=5),
    Case("noise-lengths", "noise", "num_workers=2, sampler=Lengths()"),
    Case("noise-generator", "noise", "num_workers=2, shuffle=True, generator=torch.Generator().manual_seed(1)"),
    Case("noise-replacing", "noise", "num_workers=2, sampler=torch.utils.data.RandomSampler(range(21), replacement=True)"),
    Case("counted", "counted", "num_workers=2, shuffle=True", then="num_workers=1, shuffle=True"),
    Case("counted-persistent", "counted", "num_workers=2, shuffle=True, persistent_workers=True", epoch=0),
    Case("shards", "shards", "num_workers=3", step=5),
    Case("shards-late", "shards", "num_workers=3", step=6),
    Case("marked", "marked", "num_workers=2"),
    Case("marked-again", "shards", "num_workers=0", epoch=0),
    Case("marked-main", "marked", "num_workers=0"),
)


@pytest.fixture
def folder(scratch: Scratch) -> Path:
    return Pair(MOVED, BUILDERS, BODY, ()).write(scratch.folder / "pair")


def run(scratch: Scratch, folder: Path, part: str, cases: Sequence[Case], **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "cases").write_text(repr([case.line() for case in cases]))
    ended = scratch.run([sys.executable, "train_trainer.py", part], folder, **environment)
    assert ended.returncode == 0, ended.stderr
    return ended


def of(case: Case, ended: subprocess.CompletedProcess[str]) -> list[str]:
    """What it printed about a case."""
    return [line for line in ended.stdout.splitlines() if line.startswith(f"{case.name} ")]


def test_batches_are_the_same(scratch: Scratch, folder: Path) -> None:
    whole = run(scratch, folder, "whole", CASES)
    first = run(scratch, folder, "stop", CASES)
    second = run(scratch, folder, "go_on", CASES, SPLITTER_WORKERS="local:2")
    for case in CASES:
        expected, joined = of(case, whole), of(case, first) + of(case, second)
        if case.then:  # later epochs have another number of workers
            expected, joined = ([line for line in lines if f" {case.epoch} " in line] for lines in (expected, joined))
        print(case.name, (folder / f"{case.name}.loader").stat().st_size)
        assert joined == expected, case
    print(second.stderr)
