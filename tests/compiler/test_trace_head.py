"""Heads of loops on recorded batches, in real child processes: what statements cost and give, and why some must stay."""

from __future__ import annotations

import pytest

from splitter.compile import compile_script
from splitter.graph import Graph
from splitter.ir import Plan
from splitter.sides import at_loader
from splitter.trace import Traced, trace

SCRIPT = """
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, default_collate


class Rows(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return torch.arange(4000, dtype=torch.float32) / (i + 3), i % 10, f"row {i}"


def whole(samples):
    return tuple(default_collate(samples))

"""
BODIES = {
    "exact": ["x = (x - 0.5) / 3", "label = F.one_hot(label, 10)"],
    "mean": ["label = label + 1", "x = x - x.mean()"],
    "matrix": ["x = x @ x.T"],
    "exponential": ["x = torch.exp(x)"],
    "whole_numbers": ["label = label.cumsum(0)"],
    "strings": ["text = [int(one.split()[1]) for one in text]"],
    "numpy_array": ["x = x.numpy()"],
    "fails": ["label = label + 1", "x = x.reshape(7, 11, 13)", "label = label * 2"],
    "in_place": ["x /= 3"],
    "view": ["x = x[:, ::2]"],
    "kept": ["kept = x", "x = kept"],
    "generator": ["x = x[:, torch.arange(3999, -1, -1)]"],
}
OWN = {"own_in_place": ["x /= 3"], "own": ["x = x / 3"]}


def script_of() -> str:
    made = "".join(f"{name}_loader = DataLoader(Rows(), batch_size=4)\n" for name in BODIES)
    made += "".join(f"{name}_loader = DataLoader(Rows(), batch_size=4, collate_fn=whole)\n" for name in OWN)
    loops = ""
    for name, body in {**BODIES, **OWN}.items():
        lines = "".join(f"    {line}\n" for line in body)
        loops += f"for x, label, text in {name}_loader:\n{lines}    print(x, label, text)\n"
    return SCRIPT + made + loops


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Traced]:
    script = tmp_path_factory.mktemp("heads") / "train.py"
    script.write_text(script_of(), encoding="utf-8")
    plan = compile_script(script)
    return plan, trace(plan, script, (), samples=6, seconds=60)


def stay(traced: tuple[Plan, Traced], name: str) -> dict[int, str]:
    head = traced[1][name].head
    assert head is not None
    return dict(head.stay)


def graph(traced: tuple[Plan, Traced], name: str) -> Graph:
    found = traced[1][name].graph
    assert found is not None, traced[1][name].reason
    return found


@pytest.mark.parametrize("name", ["exact", "whole_numbers", "strings", "in_place", "view", "kept", "generator", "own"])
def test_the_same_bits(name: str, traced: tuple[Plan, Traced]) -> None:
    assert stay(traced, name) == {}
    made = graph(traced, name)
    assert [made.steps[made.operations[index].step].part for index in at_loader(made)] == ["loop"] * len({**BODIES, **OWN}[name])


STAYING = {
    "mean": (1, "bits of mean"),
    "matrix": (0, "bits of mm"),
    "exponential": (0, "bits of exp"),
    "numpy_array": (0, "something else than tensors"),
    "fails": (1, "could not be run"),
    "own_in_place": (0, "collate function may share"),
}


@pytest.mark.parametrize("name", STAYING)
def test_other_bits(name: str, traced: tuple[Plan, Traced]) -> None:
    number, why = STAYING[name]
    found = stay(traced, name)
    assert min(found) == number and why in found[number]


def test_what_fails_ends_the_head(traced: tuple[Plan, Traced]) -> None:
    assert set(stay(traced, "fails")) == {1, 2}
    assert len(at_loader(graph(traced, "fails"))) == 1


def test_values(traced: tuple[Plan, Traced]) -> None:
    made = graph(traced, "exact")
    sizes = {value.name: value.bytes for value in made.values}
    (one, two) = [made.operations[index] for index in at_loader(made)]
    assert [sizes[name] for name in (*one.inputs, *one.outputs)] == [16000, 16000]
    assert [sizes[name] for name in (*two.inputs, *two.outputs)] == [8, 80]
    assert {*one.outputs, *two.outputs} < set(made.returns) and len(made.returns) == 3
    assert one.microseconds > 0


def test_how_a_batch_is_put_together(traced: tuple[Plan, Traced]) -> None:
    batches = {name: head.batch for name in ("exact", "own") if (head := traced[1][name].head) is not None}
    assert batches == {"exact": "[x, label, text]", "own": "(x, label, text)"}
