"""What the loaders of one loop agree on, and what of it lands in the plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from splitter.compile import compile_script
from splitter.finish import parted
from splitter.graph import Graph, Operation, Side, Step, Value
from splitter.ir import Plan
from splitter.ir_cut import Profile, TriedHead

SCRIPT = """
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.zeros(4), i


def run(loader):
    for x, y in loader:
        x = x * 2
        y = y + 1
        kept = x - 1
        x = kept * y
        print(x, y)


train = DataLoader(Rows(), batch_size=2)
test = DataLoader(Rows(), batch_size=2)
run(train)
run(test)
"""
READS = (("x0",), ("y0",), ("x1",), ("kept", "y1"))
WRITES = ("x1", "y1", "kept", "x2")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    script = tmp_path_factory.mktemp("plan") / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    return compile_script(script)


def recorded(plan: Plan, feed: str, pins: dict[int, Side], microseconds: float = 5.0) -> Graph:
    """A graph in which a sample is made, and the statements run; each costs as much, and nothing that crosses does."""
    head = next(head for head in plan.heads if head.feed == feed)
    steps = (Step("read", "read", None, 1.0), *(Step(f"s{n}", "loop", own.span, microseconds) for n, own in enumerate(head.statements)))
    operations = (
        Operation("read", 0, (), ("x0", "y0"), frozenset({"reads"}), 1.0),
        *(
            Operation(f"s{n}", n + 1, READS[n], (WRITES[n],), frozenset({"pointwise"}), microseconds, pins.get(n))
            for n in range(len(head.statements))
        ),
    )
    values = tuple(Value(name, 8, "float32 1") for name in ("x0", "y0", *WRITES))
    return Graph(feed, 4, steps, operations, values, ("x2", "y1"), ((3, 4),))


def moved(plan: Plan, train: dict[int, Side], test: dict[int, Side] | None = None, price: float = 0.1) -> dict[str, tuple[int, ...]]:
    graphs = [("train", recorded(plan, "train", train)), *([("test", recorded(plan, "test", test))] if test is not None else [])]
    profile = Profile(
        "", price, tuple((name, graph, ()) for name, graph in graphs), heads=tuple((n, TriedHead("[x, y]")) for n, _ in graphs)
    )
    return {name: head.statements for name, head in parted(plan, profile).moved_heads().items()}


def test_all_of_both(plan: Plan) -> None:
    assert moved(plan, {}, {}) == {"train": (0, 1, 2, 3), "test": (0, 1, 2, 3)}


def test_what_one_keeps_both_keep(plan: Plan) -> None:
    assert moved(plan, {}, {0: "trainer"}) == {"train": (1,), "test": (1,)}


def test_nothing_without_the_other(plan: Plan) -> None:
    assert moved(plan, {}) == {}


def test_a_temporary_keeps_its_reader(plan: Plan) -> None:
    assert moved(plan, {3: "trainer"}, {}) == {"train": (0, 1), "test": (0, 1)}


def test_a_price_that_nothing_is_worth(plan: Plan) -> None:
    dear = tuple(replace(recorded(plan, name, {}), values=(*_larger(plan, name),)) for name in ("train", "test"))
    profile = Profile("", 1000.0, tuple((g.feed, g, ()) for g in dear), heads=tuple((g.feed, TriedHead("[x, y]")) for g in dear))
    made = parted(plan, profile)
    assert (made.moved_heads(), made.removals, made.worker.builders) == ({}, (), plan.worker.builders)


def _larger(plan: Plan, feed: str) -> list[Value]:
    return [replace(value, bytes=8 if value.name.endswith("0") else 8000) for value in recorded(plan, feed, {}).values]


def test_the_plan(plan: Plan) -> None:
    graphs = [("train", recorded(plan, "train", {})), ("test", recorded(plan, "test", {}))]
    profile = Profile("", 0.1, tuple((n, g, ()) for n, g in graphs), heads=tuple((n, TriedHead("[x, y]")) for n, _ in graphs))
    made = parted(plan, profile)
    assert [(r.fragment.first, r.fragment.last) for r in made.removals] == [(16, 19)]
    assert [b.name for b in made.worker.builders if b.kind == "loader"] == ["train", "test"]
    assert [edit.feed for edit in made.loaders] == ["train", "test"]
    assert made.digest == plan.digest and made.agreed != plan.agreed


def test_settled_again(plan: Plan, tmp_path: Path) -> None:
    """What stays is pinned in the graphs, so that they show what was decided."""
    graphs = [("train", recorded(plan, "train", {})), ("test", recorded(plan, "test", {0: "trainer"}))]
    profile = Profile("", 0.1, tuple((n, g, ()) for n, g in graphs), heads=tuple((n, TriedHead("[x, y]")) for n, _ in graphs))
    for feed in parted(plan, profile).feeds:
        assert feed.crossing is not None
        assert [operation.pin for operation in feed.crossing.graph.operations[1:]] == ["trainer", "worker", "trainer", "trainer"]
