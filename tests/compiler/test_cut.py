"""The cut: that it moves what pays in typical pipelines, and that on random graphs nothing legal is cheaper."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from graphs import AUDIO, IMAGES, NOISE, TEXT, graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from splitter.cut import DEFAULT_PRICE, cut, pinned
from splitter.graph import Cut, Graph, Operation, Trait

ROOT = Path(__file__).parents[2]


def trainer_runs(found: Cut, of: Graph) -> list[str]:
    return [of.operations[index].outputs[0] if of.operations[index].outputs else of.operations[index].name for index in found.trainer]


def test_images_cross_as_bytes() -> None:
    found = cut(IMAGES)
    assert trainer_runs(found, IMAGES) == ["floats", "normal", "batch", "model"]
    assert (found.crossing, found.bytes, found.bytes_at_loader) == (("bytes",), 150_528, 602_112)
    assert (found.microseconds_left, found.microseconds_taken) == (140.0, 0.0)
    assert found.objective == pytest.approx(140 + DEFAULT_PRICE * 147, abs=0.001)


def test_images_cross_as_floats_when_the_wire_costs_little() -> None:
    found = cut(IMAGES, price=0.1)
    assert (trainer_runs(found, IMAGES), found.crossing, found.bytes) == (["model"], ("batch",), 602_112)


def test_audio_stays_on_the_worker() -> None:
    found = cut(AUDIO)
    assert (found.trainer, found.crossing, found.bytes, found.bytes_at_loader) == ((), ("batch",), 320_320, 320_320)
    assert (found.microseconds_left, found.microseconds_taken) == (0.0, 0.0)


def test_tokenizing_leaves_the_loop_of_the_trainer() -> None:
    found = cut(TEXT)
    assert (trainer_runs(found, TEXT), found.crossing) == (["embed"], ("padded",))
    assert (found.bytes, found.bytes_at_loader) == (2_048, 1_900)
    assert (found.microseconds_left, found.microseconds_taken) == (700.0, 352.0)


def test_padding_stays_when_sending_it_costs_more() -> None:
    found = cut(TEXT, price=16.0)
    assert (trainer_runs(found, TEXT), found.crossing, found.microseconds_taken) == (["padded", "embed"], ("ids",), 340.0)


def test_noise_keeps_everything_on_the_worker() -> None:
    found = cut(NOISE, price=1000.0)
    assert (found.trainer, found.crossing, found.bytes, found.bytes_at_loader) == ((), ("batch",), 602_112, 602_112)


def test_a_value_that_two_operations_use_crosses_once() -> None:
    rows = [
        ("read: read", "", "image", "reads", 9.0),
        ("left: sample", "image", "a", "pointwise", 1.0),
        ("right: sample", "image", "b", "pointwise", 1.0),
    ]
    twice = graph(rows, {"image": (3072, "uint8"), "a": (2048, "float32"), "b": (2048, "float32")}, "a b")
    found = cut(twice, price=10.0)
    assert (found.trainer, found.crossing, found.objective) == ((1, 2), ("image",), 32.0)


def test_among_cuts_of_one_cost_the_trainer_runs_least() -> None:
    rows = [("read: read", "", "a", "reads", 1.0), ("scale: sample", "a", "b", "pointwise", 1.0), ("view: sample", "b", "c", "layout", 0.0)]
    even = graph(rows, {"a": (1024, "x"), "b": (2048, "x"), "c": (2048, "x")}, "c")
    assert (cut(even, price=1.0).trainer, cut(even, price=1.001).trainer) == ((), (1, 2))


def test_what_makes_only_constants_costs_nothing_at_the_crossing() -> None:
    assert cut(IMAGES).crossing == ("bytes",)  # `mean` is made on the worker and read on the trainer
    rows = [("read: read", "", "a", "reads", 1.0), ("scale: sample", "a mean", "b", "pointwise", 1.0), ("mean: sample", "", "std", "", 1.0)]
    late = graph(rows, {"a": (1024, "x"), "mean": (0, "x"), "std": (0, "x"), "b": (9999, "x")}, "b std", together=((1, 2),))
    assert cut(late).trainer == (1, 2)  # and it may be on the trainer, though it has no trait that commutes
    assert cut(late).crossing == ("a",)


def test_operations_that_stay_together_end_on_one_side() -> None:
    assert cut(replace(IMAGES, together=((3, 4),))).crossing == ("batch",)
    assert cut(replace(IMAGES, together=((4, 6),))).crossing == ("bytes",)


CONTRADICTIONS = {
    "model belongs to the trainer and RandomResizedCrop to the worker": replace(IMAGES, together=((1, 8),)),
    "to the trainer and RandomResizedCrop to the worker": replace(IMAGES, together=((4, 1), (6, 8), (4, 6))),
    "draw depends on it": graph([("move: loop", "", "a", "trainer", 1.0), ("draw: loop", "a", "", "random", 1.0)], {"a": (1, "x")}, ""),
    "crop is pinned to the trainer, but doesn't commute": graph([("crop: sample", "", "a", "trainer random", 1.0)], {"a": (1, "x")}, ""),
    "one and two both make a": graph([("one: loop", "", "a", "", 1.0), ("two: loop", "a", "a", "", 1.0)], {"a": (1, "x")}, ""),
}


@pytest.mark.parametrize("message", CONTRADICTIONS)
def test_contradictions(message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cut(CONTRADICTIONS[message])


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_a_price_is_a_number(price: float) -> None:
    with pytest.raises(ValueError, match="price"):
        cut(IMAGES, price)


def test_a_graph_refuses_costs_and_groups_that_are_none() -> None:
    with pytest.raises(ValueError, match="cost"):
        replace(IMAGES, steps=(replace(IMAGES.steps[0], microseconds=float("nan")), *IMAGES.steps[1:]))
    with pytest.raises(ValueError, match="cost"):
        replace(IMAGES, values=(*IMAGES.values, replace(IMAGES.values[0], name="other", bytes=-1)))
    with pytest.raises(ValueError, match="together"):
        replace(IMAGES, together=((0, 9),))


@pytest.mark.parametrize(
    ("traits", "side"),
    [
        ("random", "worker"),
        ("reads", "worker"),
        ("depends", "worker"),
        ("unknown pointwise", "worker"),
        ("pointwise layout reduction", None),
    ],
)
def test_pins(traits: str, side: str | None) -> None:
    words: frozenset[Trait] = frozenset(traits.split())  # type: ignore[arg-type]
    operation = Operation("op", 0, (), (), words, 1.0)
    assert pinned(operation) == side
    assert pinned(replace(operation, pin="trainer")) == "trainer"


def test_nothing_to_cut() -> None:
    assert cut(Graph("train", 0, (), (), (), ())) == Cut((), (), 0, 0, 0.0, 0.0, 0.0)


# Against brute force. What follows states the rules again, in the plainest way, over every choice of operations.


def legal(of: Graph) -> Iterator[frozenset[int]]:
    constants = {value.name for value in of.values if value.constant}
    allowed, needed, edges = [], set(), []
    for index, operation in enumerate(of.operations):
        late = of.steps[operation.step].part in ("loop", "prefix")
        commutes = operation.traits and not operation.traits - {"pointwise", "layout"}
        makes_constants = operation.outputs and constants >= set(operation.outputs)
        to_worker = operation.pin == "worker" or (operation.pin is None and operation.traits & {"random", "reads", "depends", "unknown"})
        if (late or commutes or makes_constants) and not to_worker:
            allowed.append(index)
        if operation.pin == "trainer":
            needed.add(index)
        edges += [(index, j) for j, user in enumerate(of.operations) if set(user.inputs) & set(operation.outputs) - constants]
    for number in range(1 << len(allowed)):
        chosen = frozenset(index for place, index in enumerate(allowed) if number >> place & 1)
        forward = all(user in chosen for maker, user in edges if maker in chosen)
        if forward and needed <= chosen and all(chosen.issuperset(group) or chosen.isdisjoint(group) for group in of.together):
            yield chosen


def cost(of: Graph, trainer: frozenset[int], price: Fraction) -> tuple[Fraction, set[str]]:
    crosses = set()
    for value in of.values:
        made_there = any(value.name in operation.outputs for i, operation in enumerate(of.operations) if i in trainer)
        wanted = value.name in of.returns or any(value.name in of.operations[i].inputs for i in trainer)
        if wanted and not made_there and not value.constant:
            crosses.add(value.name)
    sizes = sum(value.bytes for value in of.values if value.name in crosses)
    tenths = sum(round(of.operations[i].microseconds * 10) for i in trainer)
    return Fraction(tenths, 10) + price * Fraction(sizes, 1024), crosses


@settings(max_examples=300, deadline=None)
@given(graphs(), st.sampled_from(("0", "0.1", "1.6", "10")))
def test_no_legal_cut_is_cheaper_or_as_cheap_with_less_on_the_trainer(of: Graph, price: str) -> None:
    choices = [(*cost(of, chosen, Fraction(price)), chosen) for chosen in legal(of)]
    if not choices:
        with pytest.raises(ValueError):
            cut(of, float(price))
        return
    best, crosses, chosen = min(choices, key=lambda choice: (choice[0], len(choice[2])))
    assert sum(choice[0] == best and len(choice[2]) == len(chosen) for choice in choices) == 1  # the smallest is one
    found = cut(of, float(price))
    assert (frozenset(found.trainer), set(found.crossing)) == (chosen, crosses)
    assert Fraction(found.objective).limit_denominator(10_000) == best
    assert found.bytes == sum(value.bytes for value in of.values if value.name in crosses)


@settings(max_examples=50, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_the_order_of_descriptions_changes_nothing(of: Graph, random: object) -> None:
    def outcome(graph: Graph) -> Cut | str:
        try:
            return cut(graph)
        except ValueError as error:
            return str(error)

    values = list(of.values)
    random.shuffle(values)  # type: ignore[attr-defined]
    again = replace(of, values=tuple(values), returns=of.returns[::-1], together=of.together[::-1])
    assert isinstance(outcome(of), Cut) == isinstance(outcome(again), Cut)
    assert isinstance(outcome(of), str) or outcome(of) == outcome(again)


SHOW = "from graphs import *; from splitter.cut import cut; print([cut(g) for g in (IMAGES, NOISE, AUDIO, TEXT)])"


def python(program: str, **environment: str) -> str:
    path = os.pathsep.join([str(ROOT), str(ROOT / "runtime"), str(Path(__file__).parent)])
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path, **environment}, check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout


def test_the_hash_seed_changes_nothing() -> None:
    assert len({python(SHOW, PYTHONHASHSEED=seed) for seed in ("0", "1", "2")}) == 1


def test_the_command_line_does_not_import_networkx() -> None:
    assert python("import sys, splitter.cli; print('networkx' in sys.modules)") == "False\n"
