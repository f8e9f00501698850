"""An exception of moved code says which samples were being fetched, and is the script's in all else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import Dataset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from splitter_runtime.codec import decode, encode
from splitter_runtime.failures import LineMap, StreamFailure, rebuild, record_exception, record_wrapper, samples


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ([4, 5, 6], "4, 5, 6"),
        (7, "7"),
        ([np.int64(3), torch.tensor(4)], "3, 4"),
        (["a", ("b", 2)], "'a', ('b', 2)"),
        ([None, None], ""),
        (None, ""),
        ([], ""),
        ([object(), 2.5], "object, float"),
        (list(range(40)), ", ".join(map(str, range(32))) + ", ... (40 in all)"),
    ],
)
def test_in_words(index: object, expected: str) -> None:
    assert samples(index) == expected


class Bad(Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        raise ValueError(f"row {index} is bad")


def caught(index: list[int]) -> ExceptionWrapper:
    """What torch's loop makes of the exception of a fetch."""
    try:
        _MapDatasetFetcher(Bad(), True, list, False).fetch(index)
    except ValueError:
        return ExceptionWrapper(where="in DataLoader worker process 0")
    raise AssertionError


def sent(record: dict[str, Any]) -> dict[str, Any]:
    encoded = encode(record)
    found: Any = decode(encoded.header, memoryview(bytearray(b"".join(encoded.buffers))))
    return dict(found)


def lines() -> LineMap:
    program: Any = SimpleNamespace(program="w.py", lines=())
    return LineMap(program, "/")


def test_of_a_stream() -> None:
    wrapper = caught([4, 5])
    with pytest.raises(ValueError, match="row 4 is bad") as script:
        wrapper.reraise()
    with pytest.raises(ValueError, match="row 4 is bad") as split:
        StreamFailure(sent(record_wrapper(wrapper, [4, 5])), lines()).reraise()
    assert str(split.value) == str(script.value) and type(split.value) is type(script.value)
    assert split.value.__notes__ == ["splitter: while these samples were fetched: 4, 5"]


def test_not_when_nothing_was_fetched() -> None:
    """torch sends what worker_init_fn raised in the place of the first batch."""
    try:
        raise ValueError("init")
    except ValueError:
        wrapper = ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(ValueError, match="init") as split:
        StreamFailure(sent(record_wrapper(wrapper, [4, 5])), lines()).reraise()
    assert not hasattr(split.value, "__notes__")


def test_of_a_call() -> None:
    error = rebuild(sent(record_exception(KeyError("b"), [4, 5])), lines())
    assert type(error) is KeyError and error.args == ("b",)
    assert error.__notes__ == ["splitter: while these samples were fetched: 4, 5"]
    assert not hasattr(rebuild(sent(record_exception(KeyError("b"))), lines()), "__notes__")
