"""Random values there and back, and random bytes in: only CodecError may come out, and no more memory than the limits."""

from __future__ import annotations

import collections
import datetime
import struct
import tracemalloc
import types
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sameness import difference
from test_codec_plain import packed, through
from test_codec_tensors import of_dtype
from test_codec_types import Frozen, Outer, Point, Rows

from splitter_runtime import codec_wire as wire
from splitter_runtime.codec import Limits, decode, encode, payload_size
from splitter_runtime.codec_tensors import DTYPES
from splitter_runtime.errors import CodecError

QUICK = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
SMALL = Limits(max_payload=1 << 20, max_header=1 << 16, max_depth=50, max_nodes=20_000)

TEXT = st.text(st.characters(exclude_categories=()), max_size=20)  # surrogates too
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    TEXT,
    st.binary(max_size=50),
    st.datetimes(),
    st.timedeltas(),
    st.decimals(),
    st.fractions(),
    st.uuids(),
    st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 9)),
)
KEYS = st.one_of(st.none(), st.booleans(), st.integers(), TEXT, st.binary(max_size=9), st.tuples(TEXT, st.integers()))


# dtypes of every size that hypothesis can print
VIEWED = [torch.uint8, torch.int16, torch.bfloat16, torch.float32, torch.int64, torch.complex64, torch.complex128]


@st.composite
def views(draw: st.DrawFn) -> list[Any]:
    """Tensors and arrays over a few common storages, with any strides that stay inside."""
    storages = [of_dtype(torch.uint8, size).untyped_storage() for size in draw(st.lists(st.integers(64, 4000), max_size=3))]
    made: list[Any] = []
    for storage in storages:
        for _ in range(draw(st.integers(1, 4))):
            dtype = draw(st.sampled_from(VIEWED))
            room = storage.nbytes() // dtype.itemsize
            sizes, strides = [], []
            for _ in range(draw(st.integers(0, 4))):
                stride = draw(st.integers(0, room - 1))
                most = (room - 1) // stride + 1 if stride else 5
                size = draw(st.integers(0, min(most, 6)))
                sizes.append(size)
                strides.append(stride)
                room -= max(size - 1, 0) * stride
            tensor = torch.empty(0, dtype=dtype)
            tensor.set_(storage, draw(st.integers(0, room - 1)), sizes, strides)  # type: ignore[call-overload]
            as_array = dtype in (torch.float32, torch.int64, torch.uint8) and draw(st.booleans())
            made.append(tensor.numpy() if as_array else tensor)
    return made


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.dictionaries(KEYS, inner, max_size=4)
    items = st.lists(inner, max_size=5)
    return st.one_of(
        items,
        items.map(tuple),
        items.map(Rows),
        items.map(collections.deque),
        pairs,
        pairs.map(collections.OrderedDict),
        pairs.map(lambda value: collections.defaultdict(list, value)),
        st.builds(Point, inner, inner),
        st.builds(Frozen, TEXT, items.map(tuple)),
        st.dictionaries(st.from_regex("[a-z]+", fullmatch=True), inner).map(lambda value: types.SimpleNamespace(**value)),
        st.frozensets(KEYS, max_size=4),
        inner.map(lambda value: [value, value]),
    )


NESTED = st.recursive(st.one_of(LEAVES, views()), containers, max_leaves=20)


@QUICK
@given(NESTED)
def test_nested_values_arrive(value: Any) -> None:
    assert difference(value, through(value)) is None


@QUICK
@given(views())
def test_views_arrive_and_share_memory_as_before(value: list[Any]) -> None:
    assert difference(value, through(value)) is None


@QUICK
@given(st.one_of(st.lists(st.integers(), min_size=8), st.lists(st.floats(), min_size=8), st.lists(st.integers() | st.floats())))
def test_lists_of_numbers_arrive(value: list[Any]) -> None:
    assert difference([value, tuple(value)], through([value, tuple(value)])) is None


@QUICK
@given(NESTED)
def test_the_same_value_gives_the_same_bytes(value: Any) -> None:
    first = encode(value)
    again = encode(value)
    assert first.header == again.header and list(map(bytes, first.buffers)) == list(map(bytes, again.buffers))


# --- hostile bytes


def quantized(*sizes: int) -> torch.Tensor:
    values = torch.arange(float(np.prod(sizes))).reshape(sizes)
    return torch.quantize_per_channel(values, torch.ones(sizes[0]), torch.zeros(sizes[0]), 0, torch.qint8)


def samples() -> list[Any]:
    """One value of every kind that the reader knows."""
    own = Outer.Inner()
    own.__dict__["me"] = [own]
    record = np.dtype([("x", "<f4"), ("y", ">i8", (2,))])
    return [
        [1, 2**80, 0.5, 1j, "text", b"raw", None, True, ..., range(3), slice(1), bytearray(b"x")],
        [list(range(9)), [0.5] * 9, tuple(range(9)), {1}, frozenset({2}), {"k": 1}, "x" * 5000, list(range(1000))],
        [collections.OrderedDict(a=1), collections.defaultdict(list), collections.Counter("a"), collections.deque([1], 3)],
        [Point(1), Rows([1]), Frozen("k"), own, int, types.SimpleNamespace(a=1), torch.ones(3).sort(), datetime.date.max],
        [torch.ones(3, 4), torch.ones(3, 4).t(), torch.ones(0, 3), torch.ones(3, requires_grad=True), torch.float32],
        [torch.ones(300, 400)[::7, ::9], torch.ones(3, 2, dtype=torch.complex64).conj(), torch.Size([1]), torch.device("cpu")],
        [torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.qint8), quantized(3, 4), torch.nn.Parameter(torch.ones(2))],
        [torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (4,)), torch.eye(4).to_sparse_csr(), torch.eye(4).to_sparse_bsc((2, 2))],
        [np.arange(5), np.arange(9)[::-2], np.zeros(2, record), np.array(["a"]), np.array([1, "a"], object), np.ones((2, 0))],
        [np.float32(1), np.zeros(1, record)[0], record, np.ma.MaskedArray([1, 2], mask=[0, 1]), np.zeros(2, record).view(np.recarray)],
        [np.zeros((300, 400))[::7, ::9], *through_images()],
    ]


def through_images() -> list[Any]:
    from PIL import Image

    return [Image.new("RGB", (4, 4)), Image.new("P", (3, 3))]


ENCODED = [(encoded.header, bytes(packed(encoded))) for encoded in map(encode, samples())]


def attempt(header: bytes, payload: bytes, limits: Limits = SMALL) -> None:
    """Decode what may be anything; CodecError is the one exception that may come out."""
    tracemalloc.start()
    try:
        decode(header, bytearray(payload), limits=limits)
    except CodecError as error:
        assert str(error).startswith("R1")
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # Python's own objects take up to 60 bytes for a byte of the header; numpy reports what it takes, torch is counted by the reader
    assert peak < 2 * limits.max_payload + 100 * limits.max_header


def with_payload(header: bytes, payload: bytes) -> bytes:
    """The payload in the size that the header asks for, so that the reader gets to the tree."""
    try:
        size = payload_size(header, limits=SMALL)
    except CodecError:
        return payload
    return (payload * (size // max(len(payload), 1) + 1))[:size].ljust(size, b"\x01")


@pytest.mark.filterwarnings("ignore")
@settings(QUICK, max_examples=1500)
@given(
    st.sampled_from(ENCODED),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4),
    st.booleans(),
)
def test_changed_headers(sample: tuple[bytes, bytes], changes: list[tuple[float, int]], tree_only: bool) -> None:
    header, payload = bytearray(sample[0]), sample[1]
    start = wire.FRAME.size if tree_only else 0
    for place, byte in changes:
        header[start + int(place * (len(header) - start))] = byte
    attempt(bytes(header), with_payload(bytes(header), payload))


@pytest.mark.filterwarnings("ignore")
@QUICK
@given(st.sampled_from(ENCODED), st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=12), st.integers(0, 12))
def test_inserted_and_removed_bytes(sample: tuple[bytes, bytes], place: float, new: bytes, removed: int) -> None:
    header, payload = sample
    segments = wire.FRAME.unpack_from(header)[5]
    start = wire.FRAME.size + 8 * segments
    at = start + int(place * (len(header) - start))
    tree = header[start:at] + new + header[at + removed :]
    table = header[wire.FRAME.size : start]
    head = wire.FRAME.pack(wire.MAGIC, wire.FORMAT, wire.ORDER, 0, start + len(tree), segments)
    attempt(head + table + tree, payload)


@QUICK
@given(st.binary(max_size=400), st.integers(0, 3), st.binary(max_size=300))
@example(b"", 0, b"")
def test_random_trees(tree: bytes, segments: int, payload: bytes) -> None:
    sizes = [64 * (index + 1) for index in range(segments)]
    head = wire.FRAME.pack(wire.MAGIC, wire.FORMAT, wire.ORDER, 0, wire.FRAME.size + 8 * segments + len(tree), segments)
    header = head + struct.pack(f"<{segments}Q", *sizes) + tree
    attempt(header, with_payload(header, payload))


@QUICK
@given(st.binary(max_size=100), st.binary(max_size=100))
def test_random_bytes(header: bytes, payload: bytes) -> None:
    attempt(header, payload)


@pytest.mark.parametrize("sample", ENCODED)
def test_every_truncation(sample: tuple[bytes, bytes]) -> None:
    header, payload = sample
    for size in range(len(header)):
        with pytest.raises(CodecError):
            decode(header[:size], bytearray(payload), limits=SMALL)
    for size in {0, len(payload) // 2, max(len(payload) - 1, 0)} - {len(payload)}:
        with pytest.raises(CodecError, match=r"^R114: "):
            decode(header, bytearray(payload[:size]), limits=SMALL)
    with pytest.raises(CodecError, match=r"^R114: "):
        decode(header, bytearray(payload + b"x"), limits=SMALL)
    with pytest.raises(CodecError, match=r"^R110: "):
        decode(header + b"x", bytearray(payload), limits=SMALL)


def tree(*parts: bytes | int, sizes: tuple[int, ...] = ()) -> bytes:
    """A header by hand."""
    body = b"".join(bytes([part]) if isinstance(part, int) else part for part in parts)
    table = struct.pack(f"<{len(sizes)}Q", *sizes)
    length = wire.FRAME.size + len(table) + len(body)
    return wire.FRAME.pack(wire.MAGIC, wire.FORMAT, wire.ORDER, 0, length, len(sizes)) + table + body


def u32(number: int) -> bytes:
    return wire.U32.pack(number)


def tensor(dtype: str, sizes: tuple[int, ...], strides: tuple[int, ...], flags: int = 0, offset: int = 0) -> bytes:
    head = wire.TENSOR_HEAD.pack(DTYPES.index(dtype), flags, len(sizes), 0, offset)
    return bytes([wire.TENSOR]) + head + struct.pack(f"<{2 * len(sizes)}q", *sizes, *strides)


BOMBS = {
    "long list": (tree(wire.LIST, u32(10**9), wire.NONE), "longer than the header"),
    "deep list": (tree(*[bytes([wire.LIST]) + u32(1)] * 60, wire.NONE), "depth"),
    "many nodes": (tree(*[bytes([wire.LIST]) + u32(6000) + bytes([wire.NONE]) * 5999] * 4, wire.NONE), "number of nodes"),
    "huge payload": (tree(wire.NONE, sizes=(1 << 40,)), "payload of the value received is"),
    "many segments": (wire.FRAME.pack(wire.MAGIC, wire.FORMAT, wire.ORDER, 0, 17, 0xFFFFFFFF) + b"\0", "length"),
    "long text": (tree(wire.STR, u32(10**9), b"x"), "longer than the header"),
    "large tensor": (tree(tensor("float32", (1 << 40,), (1,)), sizes=(64,)), "out of its segment"),
    "overflowing tensor": (tree(tensor("float32", (1 << 61, 1 << 61), (8, 8)), sizes=(64,)), "out of its segment"),
    "negative size": (tree(tensor("float32", (-1,), (1,)), sizes=(64,)), "negative"),
    "negative stride": (tree(tensor("float32", (2,), (-1,)), sizes=(64,)), "negative"),
    "odd offset": (tree(tensor("float32", (1,), (1,), offset=2), sizes=(64,)), "out of its segment"),
    "no such segment": (tree(tensor("float32", (1,), (1,))), "IndexError"),
    "quantized without scale": (tree(tensor("qint8", (4, 2), (2, 1)), sizes=(8,)), "quantized tensor of a plain dtype"),
    "scale without quantized": (tree(tensor("int8", (8,), (1,), flags=16), sizes=(8,)), "quantized tensor of a plain dtype"),
    "gaps": (tree(tensor("float32", (16,), (1 << 40,), flags=8), sizes=(64,)), "memory of the value"),
    "no such dtype": (tree(wire.TENSOR, b"\xff", bytes(15)), "IndexError"),
    "no such tag": (tree(63), "KeyError"),
    "open reference": (tree(wire.TUPLE, u32(1), wire.REF, u32(0)), "contains itself"),
    "forward reference": (tree(wire.LIST, u32(1), wire.REF, u32(7)), "IndexError"),
    "list as key": (tree(wire.DICT, u32(1), wire.LIST, u32(0), wire.NONE), "TypeError"),
    "text that is none": (tree(wire.STR, u32(1), b"\xff"), "UnicodeDecodeError"),
    "behind the value": (tree(wire.NONE, wire.NONE), "behind the value"),
    "one segment, many copies": (
        tree(wire.LIST, u32(40), *[bytes([wire.BYTES]) + u32(0xFFFFFFFF) + u32(0)] * 40, sizes=(1 << 19,)),
        "memory of the value",
    ),
    "another class than asked for": (
        tree(wire.INSTANCE, u32(0), u32(4), b"math", u32(2), b"pi", u32(0)),
        "R113: the class math.pi",
    ),
    "extension type": (tree(wire.INSTANCE, u32(0), u32(7), b"sqlite3", u32(10), b"Connection", u32(0)), "extension module"),
    "finaliser": (tree(wire.INSTANCE, u32(0), u32(10), b"subprocess", u32(5), b"Popen", u32(0)), "__del__"),
    "other format": (b"SPLv\x09" + tree(wire.NONE)[5:], "R111: "),
    "not ours": (b"\x80\x04]" + bytes(40), "R110: "),
}


@pytest.mark.parametrize(("header", "message"), BOMBS.values(), ids=BOMBS)
def test_bombs(header: bytes, message: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode(header, bytearray(payload_size(header, limits=SMALL)), limits=SMALL)
    assert message in str(caught.value)
    attempt(header, with_payload(header, b""))
