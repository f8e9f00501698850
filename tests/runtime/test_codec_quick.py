"""The short ways of the codec give what the long ones give: the same bytes, the same values, the same errors."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sameness import difference
from test_codec_random import QUICK, views

from splitter_runtime import codec_quick
from splitter_runtime.codec import DEFAULT_LIMITS, decode, encode
from splitter_runtime.errors import CodecError

BATCHES: dict[str, Callable[[], Any]] = {
    "list": lambda: [torch.rand(64, 20), torch.arange(64)],
    "tuple": lambda: (torch.rand(3, 2), torch.arange(5, dtype=torch.int16)),
    "dictionary": lambda: {"x": torch.rand(3, 1, 2), "y": torch.tensor([True, False])},
    "one tensor": lambda: torch.rand(2, 3),
    "bfloat16": lambda: [torch.rand(5).bfloat16()],
    "no dimensions": lambda: [torch.tensor(1.5), torch.tensor(3)],
}
OTHERS: dict[str, Callable[[], Any]] = {
    "grad": lambda: [torch.rand(3, requires_grad=True)],
    "negative": lambda: [torch.rand(3, dtype=torch.complex64).conj().imag],
    "conjugate": lambda: [torch.rand(3, dtype=torch.complex64).conj()],
    "empty": lambda: [torch.empty(0, 3), torch.rand(2)],
    "strides": lambda: [torch.rand(4, 3).t(), torch.rand(2)],
    "twice": lambda: [(x := torch.rand(3)), x],
    "halves of one": lambda: [(x := torch.rand(4))[:2], x[2:]],
    "overlapping": lambda: [(x := torch.rand(4)), x[:2]],
    "attributes": lambda: [torch.rand(3).__class__._make_subclass(torch.nn.Parameter, torch.rand(2), False)],
    "nested": lambda: [[torch.rand(3)], torch.rand(2)],
    "numbers": lambda: [1, 2, True],
    "large number": lambda: [1, 2**63],
    "none": lambda: [],
    "keys": lambda: {1: torch.rand(2)},
}


def there_and_back(value: Any) -> Any:
    encoded = encode(value)
    slow = encode(value, limits=DEFAULT_LIMITS)
    payload = bytearray(b"".join(encoded.parts()))
    assert encoded.header == slow.header
    assert bytes(payload) == b"".join(slow.parts())
    assert encoded.nbytes == len(payload)
    found = decode(encoded.header, payload)
    assert difference(found, decode(encoded.header, bytearray(payload), limits=DEFAULT_LIMITS)) is None
    return found


@pytest.mark.parametrize("name", [*BATCHES, *OTHERS])
def test_the_same_again_and_again(name: str) -> None:
    make = {**BATCHES, **OTHERS}[name]
    for _ in range(3):
        value = make()
        assert difference(value, there_and_back(value)) is None


@pytest.mark.parametrize("name", BATCHES)
def test_the_second_batch_takes_the_short_way(name: str) -> None:
    first = BATCHES[name]()
    there_and_back(first)
    seen = codec_quick.look(BATCHES[name]())
    assert seen is not None
    header = codec_quick.header_of(seen[0])
    assert header is not None
    assert codec_quick.plan_of(header) is not None


@given(views())
@settings(QUICK)
def test_views_of_common_memory(value: list[Any]) -> None:
    for _ in range(2):
        assert difference(value, there_and_back(value)) is None


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=600))
@settings(QUICK)
def test_indices(values: list[int]) -> None:
    assert there_and_back(values) == values


@pytest.mark.parametrize("name", BATCHES)
@given(place=st.integers(0, 1 << 30), byte=st.integers(0, 255))
def test_a_changed_byte_is_read_as_ever(name: str, place: int, byte: int) -> None:
    encoded = encode(BATCHES[name]())
    payload = b"".join(encoded.parts())
    decode(encoded.header, bytearray(payload))
    header = bytearray(encoded.header)
    header[place % len(header)] = byte
    same_outcome(bytes(header), payload)


@given(place=st.integers(0, 1 << 30), byte=st.integers(0, 255))
def test_a_changed_byte_of_indices_is_read_as_ever(place: int, byte: int) -> None:
    header = bytearray(encode(list(range(20))).header)
    header[place % len(header)] = byte
    same_outcome(bytes(header), b"")


def same_outcome(header: bytes, payload: bytes) -> None:
    """Both ways give the same value or error."""
    found: list[Any] = []
    for limits in (None, DEFAULT_LIMITS):
        try:
            found.append(decode(header, bytearray(payload), limits=limits))
        except CodecError as error:
            found.append(str(error))
    assert difference(*found) is None


def test_a_payload_of_another_size_is_refused() -> None:
    encoded = encode(BATCHES["list"]())
    payload = bytearray(b"".join(encoded.parts()))
    decode(encoded.header, payload)
    with pytest.raises(CodecError, match="R114"):
        decode(encoded.header, payload + bytes(64))
    with pytest.raises(CodecError, match="read-only"):
        decode(encoded.header, bytes(payload))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", BATCHES)
def test_tensors_keep_the_very_view_of_the_payload(name: str) -> None:
    for _ in range(3):
        encoded = encode(BATCHES[name]())
        payload = memoryview(bytearray(b"".join(encoded.parts())))
        seen = weakref.ref(payload)
        value = decode(encoded.header, payload)
        del payload
        assert seen() is not None
        del value
        assert seen() is None


def test_what_is_kept_is_bounded() -> None:
    for size in range(1, 300):
        there_and_back([torch.rand(size)])
    assert len(codec_quick._headers) <= codec_quick._KEPT
    assert len(codec_quick._plans) <= codec_quick._KEPT
