"""Bringing the records of several samples into one graph: pure, with records made by hand."""

from __future__ import annotations

import pytest

from splitter.graph import Graph, Trait
from splitter.trace import describe
from splitter.trace_events import READ, Call, Enter, Event, Leaf, Leave, Record, Result, Seen
from splitter.trace_merge import DifferentError, merge, uneven

STEPS = {name: Seen(name, "sample", None) for name in (READ, "crop", "flip", "scale")}


def image(number: int, size: int = 100) -> Leaf:
    return Leaf(("o", number), size, f"PIL L {size}x1")


def tensor(number: int, size: int = 100, digest: str | None = None) -> Leaf:
    return Leaf(("t", number), size, f"uint8 {size}", "uint8", (size,), number, digest)


def call(name: str, inputs: list[Leaf], output: Leaf, *traits: Trait, constants: str = "") -> Call:
    return Call(name, constants, tuple(inputs), (output,), frozenset(traits), 1.0)


def step(name: str, given: Leaf, made: Leaf, *calls: Call, draws: tuple[str, ...] = (), changes: bool = True) -> list[Event]:
    return [Enter(name, (given,), True), *calls, Leave(name, (Result(made, "out 0"),), changes, draws)]


def record(*events: Event, returns: Leaf) -> Record:
    return Record((Enter(READ, (), False), *events, Leave(READ, (), False)), (returns,))


def merged(*records: Record) -> Graph:
    return merge("train", records, None, STEPS, {"crop": 10.0, "scale": 4.0})


def text(graph: Graph) -> list[str]:
    return [line.strip() for line in describe(graph).splitlines()[1:]]


def test_python_steps_and_calls() -> None:
    def sample(size: int) -> Record:
        first = step("crop", image(1, size), image(2, 50))
        unseen = Leaf(("t", size), 100, "uint8 100", "uint8", (100,), size)  # other memory in each sample
        second = step("scale", image(2, 50), tensor(4), call("mul", [unseen], tensor(4), "pointwise"))
        return record(*first, *second, returns=tensor(4))

    graph = merged(sample(80), sample(100), sample(90))
    assert text(graph) == [
        "read read [library]",
        "read() -> v0: PIL L ?x1 (90 B)  reads",
        "sample crop [library]",
        "crop(v0) -> v1: PIL L 50x1 (50 B)  unknown",
        "sample scale [library]",
        "scale(v1) -> v2: uint8 100 (100 B)  unknown",
        "mul(v2) -> v3: uint8 100 (100 B)  pointwise",
        "returns v3",
    ]
    assert [operation.microseconds for operation in graph.operations] == [0.0, 10.0, 0.0, 4.0]


def test_a_step_that_differs_is_folded_and_what_follows_is_not() -> None:
    def sample(flips: bool) -> Record:
        calls = [call("flip", [tensor(1)], tensor(2), "layout")] if flips else []
        out = tensor(2 if flips else 1)
        scaled = step("scale", out, tensor(3), call("mul", [out], tensor(3), "pointwise"))
        return record(*step("flip", tensor(1), out, *calls, draws=("torch",)), *scaled, returns=tensor(3))

    graph = merged(sample(True), sample(False))
    assert [(o.name, sorted(o.traits)) for o in graph.operations[1:]] == [
        ("flip", ["depends", "random", "unknown"]),
        ("mul", ["pointwise"]),
    ]


def test_a_step_that_draws_and_did_nothing_is_there_all_the_same() -> None:
    sample = record(*step("flip", tensor(1), tensor(1), draws=("random",)), returns=tensor(1))
    graph = merged(sample, sample)
    assert [(o.name, sorted(o.traits)) for o in graph.operations[1:]] == [("flip", ["depends", "random", "unknown"])]
    assert graph.returns == graph.operations[1].outputs


def test_a_step_that_hands_on_tensors_is_left_out() -> None:
    sample = record(*step("flip", tensor(1), tensor(1)), returns=tensor(1))
    assert [operation.name for operation in merged(sample, sample).operations] == [READ]


@pytest.mark.parametrize(
    ("numbers", "digests", "constant"),
    [((7, 7), (None, None), True), ((7, 8), ("same", "same"), True), ((7, 8), ("one", "other"), False), ((7, 8), (None, None), False)],
)
def test_constants_are_the_same_memory_or_the_same_bits(numbers: tuple[int, int], digests: tuple[str, str], constant: bool) -> None:
    def sample(number: int, digest: str) -> Record:
        mean = tensor(number, 4, digest)
        return record(*step("scale", tensor(1), tensor(3), call("sub", [tensor(1), mean], tensor(3), "pointwise")), returns=tensor(3))

    graph = merged(*map(sample, numbers, digests))
    assert [value.bytes for value in graph.values if value.constant] == ([4] if constant else [])
    assert [operation.name for operation in graph.operations] == [READ, *(() if constant else ("scale",)), "sub"]


def test_writing_to_a_view_makes_a_new_version_of_what_it_is_a_view_of() -> None:
    whole, view = tensor(1), Leaf(("t", 1, "row"), 10, "uint8 10", "uint8", (10,), 1)
    written = Call("mul_", "", (view,), (view,), frozenset({"pointwise"}), 1.0, writes=True)
    calls = [call("select", [whole], view, "layout"), written, call("add", [whole], tensor(3), "pointwise")]
    sample = record(*step("scale", whole, tensor(3), *calls), returns=tensor(3))
    graph = merged(sample, sample)
    select, mul, add = graph.operations[1:]
    assert len(mul.outputs) == 2 and add.inputs == (mul.outputs[1],)
    assert set(mul.inputs) == {*select.outputs, *graph.operations[0].outputs}


def test_samples_that_take_different_steps() -> None:
    with_flip = record(*step("flip", tensor(1), tensor(2)), returns=tensor(2))
    without = record(*step("scale", tensor(1), tensor(2)), returns=tensor(2))
    assert uneven([with_flip, with_flip]) == ()
    assert uneven([with_flip, without]) == ("flip", "scale")
    with pytest.raises(DifferentError, match="the samples take different steps"):
        merged(with_flip, without)
