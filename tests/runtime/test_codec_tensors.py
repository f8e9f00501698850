"""Tensors of every dtype, layout and stride; sharing of memory; nothing copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sameness import difference, extent
from test_codec_plain import packed, through
from torch.nn.utils.rnn import pack_sequence

from splitter_runtime.codec import decode, encode
from splitter_runtime.codec_tensors import DTYPES
from splitter_runtime.errors import CodecError

PLAIN = [dtype for name in DTYPES if (dtype := getattr(torch, name, None)) is not None and not name.startswith("q")]


def of_dtype(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    """A tensor of any dtype with all kinds of bits."""
    nbytes = int(np.prod(sizes)) * dtype.itemsize
    raw = (torch.arange(nbytes) * 7 % 251).to(torch.uint8)
    if dtype is torch.bool:
        raw = raw % 2
    return torch.empty(0, dtype=dtype).set_(raw.untyped_storage(), 0, sizes)  # type: ignore[call-overload,no-any-return]


def base(*sizes: int) -> torch.Tensor:
    return torch.arange(int(np.prod(sizes)), dtype=torch.float32).reshape(sizes)


@pytest.mark.parametrize("dtype", PLAIN, ids=str)
def test_every_dtype_arrives(dtype: torch.dtype) -> None:
    value = of_dtype(dtype, 3, 5)
    strided = torch.empty(0, dtype=dtype).set_(value.untyped_storage(), 1, (5, 2), (1, 6))  # type: ignore[call-overload]
    for tensor in (value, strided, of_dtype(dtype, 4)):
        assert difference([tensor, dtype], through([tensor, dtype])) is None
    empty = torch.empty_strided((0, 3), (3, 1), dtype=dtype)
    assert difference(empty, through(empty)) is None


SHAPES: dict[str, Callable[[], torch.Tensor]] = {
    "0-dim": lambda: torch.tensor(3.5),
    "empty": lambda: torch.empty(0),
    "empty shapes": lambda: torch.empty(3, 0, 2),
    "size 1": lambda: torch.ones(1, 1, 1),
    "odd strides of size 1": lambda: torch.ones(4).as_strided((1, 4), (77, 1)),
    "contiguous": lambda: base(2, 3, 4),
    "transposed": lambda: base(4, 5).t(),
    "channels last": lambda: base(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "channels last 3d": lambda: base(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d),
    "expanded": lambda: base(3, 1).expand(3, 1000),
    "expanded 0-dim": lambda: torch.tensor(1.0).expand(10, 10),
    "offset": lambda: base(100)[40:60],
    "stepped": lambda: base(100)[3::7],
    "column": lambda: base(10, 10)[:, 3],
    "overlapping windows": lambda: base(20).unfold(0, 5, 2),
    "permuted": lambda: base(2, 3, 4).permute(2, 0, 1),
    "large gaps": lambda: base(300, 400)[::7, ::9],
    "large gaps in bfloat16": lambda: base(300, 400).bfloat16()[5::7, 1::9],
    "crop": lambda: base(3, 500, 500)[:, 100:120, 200:230],
    "conjugate": lambda: torch.view_as_complex(base(5, 2)).conj(),
    "large gaps in a conjugate": lambda: torch.view_as_complex(base(300, 400, 2))[::7, ::9].conj(),
    "negated view": lambda: torch.view_as_complex(base(5, 2)).conj().imag,
    "needs gradients": lambda: base(5).requires_grad_(),
    "NaN with bits": lambda: torch.tensor([0x7FC00001, -0x3FFFFF], dtype=torch.int32).view(torch.float32),
    "complex": lambda: torch.tensor([1 + 2j, -0.0 + 0j]),
    "many dimensions": lambda: base(*[2] * 12).permute(*reversed(range(12))),
    "per tensor": lambda: torch.quantize_per_tensor(base(4, 5), 0.5, 3, torch.qint8),
    "per tensor, strided": lambda: torch.quantize_per_tensor(base(4, 5), 0.5, 3, torch.quint8).t()[1:],
    "per tensor, qint32": lambda: torch.quantize_per_tensor(base(4), 0.25, 0, torch.qint32),
    "per tensor, empty": lambda: torch.quantize_per_tensor(base(0), 0.25, 0, torch.qint8),
    "per channel": lambda: torch.quantize_per_channel(base(3, 4), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2]), 0, torch.qint8),
    "per channel of floats": lambda: torch.quantize_per_channel(
        base(3, 4), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.0, 1.5, 2.0]), 0, torch.quint8
    ),
    "coo": lambda: torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3)),
    "coo, coalesced": lambda: torch.sparse_coo_tensor([[1, 0, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3)).coalesce(),
    "coo, dense part": lambda: torch.sparse_coo_tensor([[2, 0, 2]], base(3, 4), (5, 4)),
    "coo, empty": lambda: torch.sparse_coo_tensor(size=(3, 4)),
    "coo, needs gradients": lambda: torch.sparse_coo_tensor([[0]], [1.0], (3,)).requires_grad_(),
    "csr": lambda: base(4, 5).relu().to_sparse_csr(),
    "csc": lambda: base(4, 5).to_sparse_csc(),
    "bsr": lambda: base(4, 6).to_sparse_bsr((2, 3)),
    "bsc": lambda: base(4, 6).to_sparse_bsc((2, 3)),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("make", SHAPES.values(), ids=SHAPES)
def test_shapes_strides_and_layouts_arrive(make: Callable[[], torch.Tensor]) -> None:
    value = make()
    arrived = through({"x": value, "again": value})
    assert difference({"x": value, "again": value}, arrived) is None
    tensor = arrived["x"]  # type: ignore[index]
    assert tensor is arrived["again"]  # type: ignore[index]
    if tensor.layout is torch.strided and not (tensor.is_conj() or tensor.is_neg()):
        assert not tensor._is_view() and tensor.is_leaf


def halves() -> list[torch.Tensor]:
    whole = base(10, 4)
    return [whole[:5], whole[5:]]


def fields() -> list[Any]:
    whole = base(8, 6)
    return [whole, whole[:, 2:4], whole.t(), whole.view(torch.uint8), whole.numpy(), whole[3:5, 1:].numpy()]


SHARED: dict[str, Callable[[], list[Any]]] = {
    "views and their base": fields,
    "disjoint halves": halves,
    "columns": lambda: list(base(6, 3).unbind(1)),
    "neighbours": lambda: [base(4), base(4), base(4)],
    "two views of an array": lambda: [(array := np.arange(20))[::2], array[1::2], array[::-1]],
    "views far apart": lambda: [(whole := base(100_000))[:10], whole[-10:]],
    "bytes at an odd place below floats": lambda: [(raw := base(10)).view(torch.uint8)[5:], raw[2:]],
    "gaps that another view fills": lambda: [(whole := base(300, 400))[::7, ::9], whole],
    "sparse parts": lambda: [(coo := torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (3,)))._values(), coo],
    "packed": lambda: [pack_sequence([base(3), base(2)])],
}


@pytest.mark.parametrize("make", SHARED.values(), ids=SHARED)
def test_sharing_of_memory_arrives(make: Callable[[], list[Any]]) -> None:
    value = make()
    assert difference(value, through(value)) is None


def test_writing_through_one_view_is_seen_through_the_others() -> None:
    whole, column, array = through((x := base(4, 3), x[:, 1], x.numpy()))  # type: ignore[misc]
    whole[2, 1] = 99
    assert column[2] == 99 and array[2, 1] == 99


def test_disjoint_views_of_one_storage_share_a_storage() -> None:
    left, right = through(halves())  # type: ignore[misc]
    assert left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()
    first, last = through(SHARED["views far apart"]())  # type: ignore[misc]
    assert first.untyped_storage().nbytes() == last.untyped_storage().nbytes() == 40


def test_a_view_sends_only_what_it_covers() -> None:
    assert encode(base(1_000_000)[500:520]).nbytes == 128
    assert encode(base(3, 1).expand(3, 1000)).nbytes == 64


def test_a_large_batch_is_not_copied() -> None:
    batch = torch.empty(64, 3, 224, 224)
    encoded = encode([batch, torch.arange(64)])
    view = max(map(np.asarray, encoded.buffers), key=len)
    assert view.ctypes.data == batch.data_ptr() and view.nbytes == batch.nbytes
    payload = packed(encoded)
    arrived = decode(encoded.header, payload)
    start = np.frombuffer(payload, np.uint8).ctypes.data
    assert start <= arrived[0].data_ptr() < start + len(payload)  # type: ignore[index]


def test_buffers_keep_the_memory_of_the_value() -> None:
    encoded = encode(torch.full((100_000,), 7, dtype=torch.uint8))
    assert bytes(encoded.buffers[0]) == b"\x07" * 100_000


def test_tensors_keep_the_payload() -> None:
    arrived = through(torch.full((100_000,), 7, dtype=torch.uint8))
    assert arrived.sum() == 700_000  # type: ignore[attr-defined]


def test_encoding_leaves_the_tensor_as_it_was() -> None:
    value = torch.arange(10.0)
    encode(value)
    assert value.untyped_storage().resizable() and extent(value.resize_(20))[1] > 0


def test_descriptions_of_tensors_arrive() -> None:
    value = [torch.Size([2, 3]), torch.device("cuda", 1), torch.device("cpu"), torch.channels_last, torch.sparse_csr]
    arrived = through(value)
    assert arrived == value and [type(item) for item in arrived] == [type(item) for item in value]  # type: ignore[attr-defined]


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "graph": (lambda: base(3).requires_grad_() * 2, r'R102: batch\["x"\]: .*grad_fn=MulBackward0'),
    "sparse graph": (lambda: SHAPES["coo"]().requires_grad_() * 2, r'R102: batch\["x"\]: .*grad_fn='),
    "meta": (lambda: torch.empty(3, device="meta"), r'R103: batch\["x"\]: a meta tensor'),
    "nested": (lambda: torch.nested.nested_tensor([base(2), base(3)]), r'R103: batch\["x"\]: a nested tensor'),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_tensors_that_cannot_be_sent(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(CodecError, match="^" + message):
        encode({"x": make()}, name="batch")
