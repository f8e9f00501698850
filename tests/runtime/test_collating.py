"""The short way of collating gives what torch's default_collate gives: the same types, bits and errors."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sameness import difference
from torch.utils.data._utils import collate

from splitter_runtime.collating import alike, shortened
from splitter_runtime.errors import ConfigError

Pair = namedtuple("Pair", "x y")

BATCHES: dict[str, Callable[[], Any]] = {
    "rows": lambda: [(torch.rand(20), number) for number in range(64)],
    "numbers": lambda: [1, 2, 3],
    "floats": lambda: [(1.5, -0.0), (float("nan"), 2.0)],
    "tensors": lambda: [torch.rand(3), torch.rand(3)],
    "truth": lambda: [(True, 1), (False, 2)],
    "truth and numbers": lambda: [(True, 1.0), (2, 2)],
    "numbers and floats": lambda: [1, 2.5],
    "large numbers": lambda: [2**63, 1],
    "lists": lambda: [[1, torch.rand(2)], [2, torch.rand(2)]],
    "nested": lambda: [(1, (2, torch.rand(2))), (3, (4, torch.rand(2)))],
    "dictionaries": lambda: [{"x": 1}, {"x": 2}],
    "named": lambda: [Pair(1, 2.0), Pair(3, 4.0)],
    "named and not": lambda: [(1, 2), Pair(3, 4)],
    "texts": lambda: [("a", 1), ("b", 2)],
    "numpy": lambda: [(np.float32(1), np.ones(3)), (np.float32(2), np.zeros(3))],
    "other sizes": lambda: [(1, 2), (1,)],
    "other shapes": lambda: [(torch.rand(2), 1), (torch.rand(3), 2)],
    "other dtypes": lambda: [torch.rand(2), torch.rand(2).double()],
    "gradient": lambda: [torch.rand(2, requires_grad=True), torch.rand(2)],
    "no tuples": lambda: [(), ()],
    "nothing": lambda: [],
    "not a list": lambda: torch.rand(3, 2),
    "not collatable": lambda: [(1, object()), (2, object())],
}


def outcome(function: Callable[[Any], Any], batch: Any) -> Any:
    try:
        return function(batch)
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("name", BATCHES)
def test_the_same_as_torch(name: str) -> None:
    batch = BATCHES[name]()
    short = shortened(collate.default_collate)
    assert short is not collate.default_collate
    assert difference(outcome(short, batch), outcome(collate.default_collate, batch)) is None


@given(st.lists(st.tuples(st.integers(), st.floats(), st.one_of(st.integers(0, 9), st.booleans())), min_size=1))
def test_any_numbers(batch: list[Any]) -> None:
    found, expected = outcome(shortened(collate.default_collate), batch), outcome(collate.default_collate, batch)
    assert difference(found, expected) is None


def test_what_the_user_has_changed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(collate.default_collate_fn_map, int, lambda batch, *, collate_fn_map: "mine")
    assert shortened(collate.default_collate) is collate.default_collate
    monkeypatch.undo()
    short = shortened(collate.default_collate)
    monkeypatch.setitem(collate.default_collate_fn_map, tuple, lambda batch, *, collate_fn_map: "mine")
    assert short([(1, 2)]) == "mine"
    mine: Any = lambda batch: "mine"  # noqa: E731
    assert shortened(mine) is mine


@pytest.mark.parametrize(
    "samples",
    [
        [torch.zeros(2), torch.zeros(2, dtype=torch.float64)],
        [(torch.zeros(2), 1), (torch.zeros(2, dtype=torch.uint8), 2)],
        [{"a": [torch.zeros(1, dtype=torch.int32)]}, {"a": [torch.zeros(1)]}],
    ],
)
def test_samples_that_are_to_be_finished_are_of_one_type(samples: list[object]) -> None:
    with pytest.raises(ConfigError, match=r"R604: tensors of torch\.\w+ and torch\.\w+ in one batch"):
        alike(collate.default_collate)(samples)


def test_samples_of_one_type_are_collated() -> None:
    samples = [(torch.ones(2), {"a": 1, "b": torch.zeros(1)}), (torch.zeros(2), {"a": 2, "b": torch.ones(1)})]
    made, expected = alike(collate.default_collate)(samples), collate.default_collate(samples)
    assert str(made) == str(expected)
