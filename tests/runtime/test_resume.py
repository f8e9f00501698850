"""A loader that was saved in the middle of an epoch goes on in another process, with the batches that it would have given."""

from __future__ import annotations

import io
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pairs import Pair
from resume_program import BODY, BUILDERS, MOVED
from scratch import Scratch
from torch.utils.data import DataLoader, RandomSampler, Sampler

from splitter_runtime import ambient
from splitter_runtime.resume_states import Shelf, own_generators, set_state, state_of


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
        assert joined == expected, case
        read = next(int(line.split()[-1]) for line in second.stderr.splitlines() if line.startswith(f"{case.name} read "))
        if case.kind in ("noise", "plain") and "persistent" not in case.name and "replacing" not in case.name:
            assert read == 21 - 3 * case.step, case  # nothing was read again


EDGES = """
from splitter_runtime.errors import ConfigError


def go_on_with(state, keywords="num_workers=2, shuffle=True", kind="noise"):
    loader = eval(f"DataLoader(splitter_runtime.RemoteDataset(kind), batch_size=3, {keywords})")
    loader.load_state_dict(state)
    return loader


def stopped(keywords="num_workers=2, shuffle=True", kind="noise", epochs=0, steps=2):
    torch.manual_seed(7)
    loader = eval(f"DataLoader(splitter_runtime.RemoteDataset(kind), batch_size=3, {keywords})")
    for _ in range(epochs):
        list(loader)
    if steps:
        for _, batch in zip(range(steps), loader):
            pass
    return loader


def refused(work):
    try:
        work()
    except ConfigError as error:
        print(str(error).rpartition(". ")[0])
    else:
        print("not refused")


# Saved before the first epoch and between two: the next one begins.
loader = stopped(steps=0)
fresh = loader.state_dict()
list(loader)
between = loader.state_dict()
print(fresh == between, len(list(go_on_with(between))))

# A loaded state that nothing was done with; saved again after going on.
loader = stopped()
state = loader.state_dict()
second = go_on_with(state)
print(second.state_dict()["batches"], len(second))
iterator = iter(second)
taken = [digest(next(iterator)) for _ in range(2)]
again = second.state_dict()
left = [digest(batch) for batch in iterator]
print(len(left), left == [digest(batch) for batch in go_on_with(again)])
print(taken + left == [digest(batch) for batch in go_on_with(state)])

refused(lambda: go_on_with({"version": 0}))
refused(lambda: go_on_with({**state, "generators": state["generators"][:50]}))
refused(lambda: go_on_with({**state, "batch_size": 4}))
refused(lambda: go_on_with(state, "num_workers=2", "shards"))
refused(lambda: list(go_on_with(state, kind="counted")))
refused(lambda: list(go_on_with(state, "num_workers=2")))
refused(lambda: list(go_on_with(stopped("num_workers=2, sampler=Moody()").state_dict(), "num_workers=2, sampler=Moody()")))
refused(lambda: list(go_on_with(state, "num_workers=2, shuffle=True, generator=torch.Generator()")))
refused(lambda: stopped("num_workers=2, shuffle=True, in_order=False").state_dict())
refused(lambda: stopped("num_workers=2, persistent_workers=True", "counted", epochs=1).state_dict())
refused(lambda: stopped("num_workers=2, sampler=Marker()", "counted").state_dict())
refused(lambda: DataLoader(range(4), feed=None).state_dict())

shards = stopped("num_workers=1", "shards", steps=4).state_dict()
data = splitter_runtime.RemoteDataset("shards")
data.sizes = [2, 1]
shorter = DataLoader(data, batch_size=3, num_workers=1)
shorter.load_state_dict(shards)
refused(lambda: list(shorter))

interleaved = DataLoader(splitter_runtime.RemoteDataset("counted"), batch_size=3)
for _, batch in zip(range(3), interleaved):
    torch.rand(1)
refused(lambda: list(go_on_with(interleaved.state_dict(), "num_workers=0", "counted")))
refused(lambda: stopped("num_workers=0", "counted").state_dict())
"""
REFUSED = [
    "R603: loader noise can't go on from the saved state: it is not a state of this version (1)",
    "R603: loader noise can't go on from the saved state: it is damaged (the generator states are cut short)",
    "R603: loader noise can't go on from the saved state: batch_size was 4 and is 3",
    "R603: loader shards can't go on from the saved state: iterable was False and is True",
    "R603: loader counted can't go on from the saved state: its code kept no state, and it is other code now",
    "R603: loader noise can't go on from the saved state: its sampler gives other indices than it gave",
    "R603: loader noise can't go on from the saved state: its sampler gives other indices than it gave",
    "R603: loader noise can't go on from the saved state: loader and samplers had 0 generators, and have 1",
    "R602: the state of loader noise can't be saved: with in_order=False its batches come in no certain order",
    "R602: the state of loader counted can't be saved: with persistent_workers, its dataset keeps state of the epochs before",
    "R602: the state of loader counted can't be saved: its dataset keeps state, so batches are made again",
    "R602: the state of loader range can't be saved: its batches are made by torch's own loader",
    "R603: loader shards can't go on from the saved state: its dataset gives fewer batches than it gave",
    "R603: loader counted can't go on from the saved state: its dataset draws random numbers, and so does the script",
    "R602: the state of loader counted can't be saved: with num_workers=0, its dataset keeps state of the epochs before",
]


def test_edges(scratch: Scratch) -> None:
    folder = Pair(MOVED, BUILDERS, BODY[: BODY.index("def loader_of")] + EDGES, ()).write(scratch.folder / "edges")
    ended = scratch.run([sys.executable, "train_trainer.py"], folder)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[:4] == ["True 7", "2 7", "3 True", "True"]
    for line, expected in zip(lines[4:], REFUSED, strict=True):
        assert line.startswith(expected)


def test_states_are_shelved() -> None:
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    for draws in (0, 1, 5):
        for _ in range(draws):
            torch.randn(1), np.random.randn(), random.gauss(0, 1)
        states = ambient.states()
        shelf = Shelf()
        where = [shelf.put(states), shelf.put({"other": b"\x00\x01\x00"}), shelf.put(states)]
        assert where[0] == where[2]
        again = Shelf(shelf.tensor())
        assert again.get(where[0]) == states and again.get(where[1]) == {"other": b"\x00\x01\x00"}
    assert Shelf(Shelf().tensor()).get({}) == {}


def test_eight_streams_that_draw_from_three_generators_are_under_64_kib() -> None:
    shelf, file = Shelf(), io.BytesIO()
    streams = []
    for seed in range(8):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        torch.randn(3), np.random.randn(3), random.gauss(0, 1)
        streams.append({"count": 10000, "withhold": 0, "printed": (0, 0), "quiet": True, "states": shelf.put(ambient.states())})
    shelf.put({"torch": torch.Generator().get_state().numpy().tobytes()})
    state = {"mode": "cursors", "batches": 80000, "streams": streams, "steps": ("iter", "seed", "iter"), "generators": shelf.tensor()}
    state |= {
        "indices": "0" * 32,
        "base_seed": 1 << 62,
        "drawn": 80016,
        "exhausted": False,
        "own": [],
        "first": 3,
        "workers": 8,
        "drew": "",
    }
    torch.save(state, file)
    assert len(file.getvalue()) < 1 << 16


def test_generators_of_samplers_are_found_and_set() -> None:
    class Own(Sampler[int]):
        def __init__(self) -> None:
            self.rng, self.old, self.python = np.random.default_rng(1), np.random.RandomState(2), random.Random(3)
            self.below = RandomSampler(range(4), generator=torch.Generator())

        def __iter__(self) -> Iterator[int]:
            return iter(range(4))

    loader = DataLoader(range(4), sampler=Own(), generator=torch.Generator())  # type: ignore[arg-type, var-annotated]
    found = own_generators(loader)
    assert len(found) == 5
    before = [state_of(generator) for generator in found]
    file = io.BytesIO()
    torch.save(before, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)

    def draw(generator: Any) -> Any:
        return torch.rand(1, generator=generator).item() if isinstance(generator, torch.Generator) else generator.random()

    first = [draw(generator) for generator in found]
    for generator, state in zip(found, saved, strict=True):
        set_state(generator, state)
    assert [draw(generator) for generator in found] == first
