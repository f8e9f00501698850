"""Graph and Cut through JSON: the same comes back, and what isn't one is refused with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from graphs import IMAGES, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from splitter.cut import cut
from splitter.graph import Cut, Graph
from splitter.graph_json import cut_from, cut_json, graph_from, graph_json


def through_text(value: object) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_a_graph_comes_back(of: Graph) -> None:
    back = graph_from(through_text(graph_json(of)))
    assert (back, repr(graph_json(back))) == (of, repr(graph_json(of)))


NUMBERS = st.floats(0, allow_infinity=False, allow_nan=False)
CUTS = st.builds(
    Cut,
    trainer=st.lists(st.integers(0)).map(tuple),
    crossing=st.lists(st.text()).map(tuple),
    bytes=st.integers(0),
    bytes_at_loader=st.integers(0),
    microseconds_left=NUMBERS,
    microseconds_taken=NUMBERS,
    objective=NUMBERS,
)


@given(CUTS)
def test_a_cut_comes_back(of: Cut) -> None:
    assert cut_from(through_text(cut_json(of))) == of


def test_a_step_is_written_with_the_names_of_its_fields() -> None:
    steps = graph_json(IMAGES)["steps"]
    assert isinstance(steps, list)
    assert steps[1] == {
        "name": "RandomResizedCrop",
        "part": "sample",
        "span": {"path": "train.py", "line": 2, "column": 0, "end_line": 2, "end_column": 9},
        "microseconds": 2100.0,
        "draws": ["torch"],
    }
    assert cut_from(through_text(cut_json(cut(IMAGES)))) == cut(IMAGES)


def change(*path: Any) -> Callable[[Any], None]:
    *way, last, new = path

    def apply(value: Any) -> None:
        for key in way:
            value = value[key]
        value[last] = new

    return apply


WRONG = {
    "graph.samples: True instead of a whole number": change("samples", True),
    "graph.feed: None instead of a string": change("feed", None),
    "graph.steps: {} instead of a list": change("steps", {}),
    "graph.steps[0]: 3 instead of an object": change("steps", 0, 3),
    "graph.steps[0].part: 'yard' instead of one of read, sample, collate, loop, prefix": change("steps", 0, "part", "yard"),
    "graph.steps[0].microseconds: 'long' instead of a number": change("steps", 0, "microseconds", "long"),
    "graph.steps[0].microseconds: nan is no finite number": change("steps", 0, "microseconds", float("nan")),
    "graph.steps[0].span: span ends before it begins": change("steps", 0, "span", "line", 9),
    "graph.steps[0].span.line: 1.5 instead of a whole number": change("steps", 0, "span", "line", 1.5),
    "graph.operations[1].traits[0]: 'brave' instead of one of": change("operations", 1, "traits", ["brave"]),
    "graph.operations[1].pin: [] instead of one of worker, trainer": change("operations", 1, "pin", []),
    "graph.values[0].shape[1]: '3' instead of a whole number": change("values", 0, "shape", [None, "3"]),
    "graph.steps[0].microseconds: 1000": change("steps", 0, "microseconds", 10**400),
    "graph: int too large": change("values", 0, "bytes", 10**400),
    "graph.values[0]: size is unknown": change("values", 0, "size", 3),
    "graph: train: RandomHorizontalFlip reads ['cropped'] before it is made": change("operations", 1, "outputs", []),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_no_graph(message: str) -> None:
    value = through_text(graph_json(IMAGES))
    WRONG[message](value)
    with pytest.raises(ValueError) as raised:
        graph_from(value)
    assert str(raised.value).startswith(message)


def test_what_is_no_cut() -> None:
    value = through_text(cut_json(cut(IMAGES)))
    del value["bytes"]
    with pytest.raises(ValueError, match=r"^cut: bytes is missing$"):
        cut_from(value)
    with pytest.raises(ValueError, match=r"^cut: \[\] instead of an object$"):
        cut_from([])
