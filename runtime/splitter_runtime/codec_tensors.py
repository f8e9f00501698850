"""Tensors: exact dtype, shape and strides; memory is referred to, not copied.

On the wire a tensor is dtype, flags, dimensions, segment, offset in it, sizes, strides. What arrives owns the storage of its
segment, with the other tensors of that segment; it is no autograd view.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from . import codec_wire as wire
from .codec_classes import set_state, state_of
from .codec_memory import refuse_tensor, refuse_trained
from .codec_plain import add_row
from .codec_reader import ATOMS as READ_ATOM
from .codec_reader import NODES as READ_NODE
from .codec_reader import Reader, damaged
from .codec_writer import ATOMS as WRITE_ATOM
from .codec_writer import FAMILIES, Put, Refusal, Region, Writer, attribute_step
from .codec_writer import NODES as WRITE_NODE
from .errors import CodecError

# the number of a dtype on the wire is its place here: append only
DTYPES = (
    "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool "
    "complex32 complex64 complex128 "
    "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 "
    "qint8 quint8 qint32 quint4x2 quint2x4 bits8 bits16 bits1x8 bits2x4 bits4x2 "
    "int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7"
).split()
_KNOWN = [getattr(torch, name, None) for name in DTYPES]
_QUANTIZED = frozenset(number for number, name in enumerate(DTYPES) if name.startswith("q"))
_NUMBER = {dtype: number for number, dtype in enumerate(_KNOWN) if dtype is not None}
# carries the bits of any dtype of that size through a copy
_CARRIER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
_LAYOUTS = ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
_FORMATS = ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format")

GRAD, CONJ, NEG, COMPACT, QUANTIZED, EMPTY = 1, 2, 4, 8, 16, 32
_FLAGS_AT = 1  # of the flags in the head
_GAPS = 64 << 10  # a dense copy is worth it when the gaps are larger than this and than the data
_MAX = 1 << 62
HAS_NAMES = hasattr(torch.Tensor, "has_names")  # newer versions of torch have no named tensors


@lru_cache(maxsize=64)
def _shape(dimensions: int) -> struct.Struct:
    return struct.Struct(f"<{2 * dimensions}q")


def reach(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to behind the last that a non-empty tensor touches."""
    last = 0
    for size, stride in zip(sizes, strides, strict=True):
        last += (size - 1) * stride
    return last + 1


def dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether these are the strides that torch gives a new tensor."""
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if stride != expected:
            return False
        expected *= size if size else 1
    return True


# --- writing


def _put_tensor(w: Writer, tensor: torch.Tensor) -> None:
    if tensor.layout is not torch.strided:
        _put_sparse(w, tensor)
    elif tensor.__dict__:
        _put_subclass(w, tensor)
    else:
        w.out.append(wire.TENSOR)
        _put_strided(w, tensor)


def _put_strided(w: Writer, tensor: torch.Tensor) -> None:
    number = _NUMBER.get(tensor.dtype)
    flags = _flags(tensor)
    if w.code:
        refuse_tensor(w, tensor)
    if number is None:
        raise Refusal("R103", what=str(tensor.dtype))
    sizes = tensor.size()
    strides = tensor.stride()
    out = w.out
    head = len(out)
    dimensions = len(sizes)
    if tensor.numel() == 0:
        out += wire.TENSOR_HEAD.pack(number, flags | EMPTY, dimensions, wire.NO_SEGMENT, 0)
        out += _shape(dimensions).pack(*sizes, *strides)
    else:
        out += wire.TENSOR_HEAD.pack(number, flags, dimensions, 0, 0)
        out += _shape(dimensions).pack(*sizes, *strides)
        itemsize = tensor.dtype.itemsize
        nbytes = reach(sizes, strides) * itemsize
        address = tensor.data_ptr()
        base = address - int(tensor.storage_offset()) * itemsize
        region = Region(address, nbytes, tensor, head + 4, base, itemsize, None)
        gaps = nbytes - tensor.numel() * itemsize
        if gaps > _GAPS and 2 * gaps > nbytes and not flags & QUANTIZED:
            region.compact = lambda: _compact(out, head, tensor)
        w.regions.append(region)
    if flags & QUANTIZED:
        _put_quantizer(w, tensor)


def _flags(tensor: torch.Tensor) -> int:
    """Flags of a tensor that can be sent; Refusal otherwise."""
    flags = 0
    if tensor.requires_grad:
        if tensor.grad_fn is not None:
            raise Refusal("R102", grad_fn=tensor.grad_fn.name())
        flags |= GRAD
    if tensor.device.type != "cpu":
        raise Refusal("R103", what=tensor.device.type)
    if tensor.is_quantized:
        flags |= QUANTIZED
    if tensor.is_conj():
        flags |= CONJ
    if tensor.is_neg():
        flags |= NEG
    if HAS_NAMES and tensor.has_names():  # type: ignore[attr-defined]
        raise Refusal("R103", what="named")
    if tensor.is_nested:
        raise Refusal("R103", what="nested")
    return flags


def _compact(out: bytearray, head: int, tensor: torch.Tensor) -> Region:
    """A dense copy, whose elements are spread again on arrival."""
    out[head + _FLAGS_AT] |= COMPACT
    itemsize = tensor.dtype.itemsize
    carrier = torch.empty(0, dtype=_CARRIER[itemsize], device="cpu")
    copy = carrier.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()).contiguous()
    return Region(copy.data_ptr(), copy.numel() * itemsize, copy, head + 4, copy.data_ptr(), itemsize, None)


def _put_quantizer(w: Writer, tensor: torch.Tensor) -> None:
    scheme = tensor.qscheme()
    if scheme is torch.per_tensor_affine:
        w.put((tensor.q_scale(), tensor.q_zero_point()))
    elif scheme in (torch.per_channel_affine, torch.per_channel_affine_float_qparams):
        scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        w.put((scales, zeros, tensor.q_per_channel_axis()))
    else:
        raise Refusal("R103", what=str(scheme))


def _put_sparse(w: Writer, tensor: torch.Tensor) -> None:
    if tensor.__dict__ or type(tensor) is not torch.Tensor:
        raise Refusal("R103", what=f"{tensor.layout} subclass")
    if tensor.requires_grad and tensor.grad_fn is not None:
        raise Refusal("R102", grad_fn=tensor.grad_fn.name())
    if tensor.device.type != "cpu":
        raise Refusal("R103", what=tensor.device.type)
    grad = tensor.requires_grad
    if w.code:
        refuse_trained(tensor)
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        w.out.append(wire.SPARSE_COO)
        w.items((tuple(tensor.shape), grad, tensor.is_coalesced(), tensor._indices(), tensor._values()))
        return
    name = str(tensor.layout).removeprefix("torch.")
    if name not in _LAYOUTS:
        raise Refusal("R103", what=name)
    w.out.append(wire.SPARSE_COMPRESSED)
    rows = name in ("sparse_csr", "sparse_bsr")
    outer = tensor.crow_indices() if rows else tensor.ccol_indices()
    inner = tensor.col_indices() if rows else tensor.row_indices()
    w.items((tuple(tensor.shape), grad, _LAYOUTS.index(name), outer, inner, tensor.values()))


def _put_subclass(w: Writer, tensor: torch.Tensor) -> None:
    cls = type(tensor)
    _check_subclass(cls)
    w.out.append(wire.SUBTENSOR)
    w.class_ref(cls)
    w.pairs(state_of(tensor).items(), attribute_step)
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.layout is not torch.strided:
            raise Refusal("R103", what=f"{tensor.layout} subclass")
        _put_strided(w, tensor)


def _check_subclass(cls: type) -> None:
    dispatch = getattr(cls, "__torch_dispatch__", None)
    if dispatch is not torch.Tensor.__torch_dispatch__:
        raise Refusal("R107", type=cls.__qualname__, why="its class has a __torch_dispatch__")
    if hasattr(cls, "__del__"):
        raise Refusal("R107", type=cls.__qualname__, why="its class has a __del__")


def _subclass_family(cls: type) -> tuple[Put, bool] | None:
    return (_put_subclass, False) if issubclass(cls, torch.Tensor) else None


# --- reading


def _get_tensor(r: Reader, slot: int) -> torch.Tensor:
    return _get_strided(r)


def _get_strided(r: Reader) -> torch.Tensor:
    number, flags, dimensions, segment, offset = wire.TENSOR_HEAD.unpack_from(r.buf, r.pos)
    r.pos += wire.TENSOR_HEAD.size
    layout = _shape(dimensions)
    numbers = layout.unpack_from(r.buf, r.pos)
    r.pos += layout.size
    sizes, strides = numbers[:dimensions], numbers[dimensions:]
    dtype = _KNOWN[number]
    if dtype is None:
        raise CodecError.of("R116", name=DTYPES[number], library="torch")
    if dimensions and (min(numbers) < 0 or max(numbers) > _MAX):
        raise damaged("a tensor with a negative or huge size")
    if bool(flags & EMPTY) != (0 in sizes):
        raise damaged("a tensor that is not as empty as it says")
    if bool(flags & QUANTIZED) != (number in _QUANTIZED):  # torch would crash
        raise damaged("a quantized tensor of a plain dtype, or the reverse")
    if flags & QUANTIZED:
        tensor = _quantized(r, dtype, segment, offset, sizes, strides, bool(flags & EMPTY))
    elif flags & EMPTY:
        tensor = torch.empty_strided(sizes, strides, dtype=dtype, device="cpu")
    elif flags & COMPACT:
        tensor = _spread(r, dtype, segment, sizes, strides)
    else:
        tensor = _view(r, dtype, segment, offset, sizes, strides)
    return _flagged(tensor, flags) if flags & (NEG | CONJ | GRAD) else tensor


def _flagged(tensor: torch.Tensor, flags: int) -> torch.Tensor:
    if flags & NEG:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            raise damaged("a negated tensor of integers")
        tensor = torch._neg_view(tensor)
    if flags & CONJ:
        if not tensor.is_complex():
            raise damaged("a conjugate of a tensor that is not complex")
        tensor = torch._conj(tensor)
    return tensor.requires_grad_() if flags & GRAD else tensor


def _elements(r: Reader, segment: int, offset: int, sizes: Sequence[int], strides: Sequence[int], itemsize: int) -> int:
    """Offset in elements of a view; CodecError when it reaches out of its segment."""
    if offset % itemsize or offset + reach(sizes, strides) * itemsize > r.sizes[segment]:
        raise damaged("a tensor reaches out of its segment")
    return int(offset // itemsize)


def _base(r: Reader, segment: int) -> torch.Tensor:
    """The tensor that owns the storage of a segment."""
    base = r.bases.get(segment)
    if base is None:
        nbytes = r.sizes[segment]
        base = torch.frombuffer(r.payload, dtype=torch.uint8, count=nbytes, offset=r.offsets[segment])
        r.bases[segment] = base
    return base


def _view(r: Reader, dtype: torch.dtype, segment: int, offset: int, sizes: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    itemsize = dtype.itemsize
    start = _elements(r, segment, offset, sizes, strides, itemsize)
    if segment not in r.bases and dense(sizes, strides):
        count = reach(sizes, strides)
        if count * itemsize == r.sizes[segment]:
            tensor = torch.frombuffer(r.payload, dtype=dtype, count=count, offset=r.offsets[segment])
            r.bases[segment] = tensor
            # resize_ to as many elements copies nothing and makes no view
            return tensor if len(sizes) == 1 else tensor.resize_(sizes)
    return _at(_base(r, segment).untyped_storage(), dtype, start, sizes, strides)


def _at(storage: torch.UntypedStorage, dtype: torch.dtype, start: int, sizes: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """A tensor over a storage that is no view of another tensor."""
    empty: Any = torch.empty(0, dtype=dtype, device="cpu")
    return empty.set_(storage, start, sizes, strides)  # type: ignore[no-any-return]


def _spread(r: Reader, dtype: torch.dtype, segment: int, sizes: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """A tensor with gaps, from its elements without gaps."""
    itemsize = dtype.itemsize
    count = math.prod(sizes)
    if count * itemsize != r.sizes[segment]:
        raise damaged("a tensor and its segment differ in size")
    nbytes = reach(sizes, strides) * itemsize
    r.take(nbytes)
    carrier = _CARRIER[itemsize]
    source = torch.frombuffer(r.payload, dtype=carrier, count=count, offset=r.offsets[segment])
    storage = torch.zeros(nbytes, dtype=torch.uint8, device="cpu").untyped_storage()
    _at(storage, carrier, 0, sizes, strides).copy_(source.view(sizes))
    return _at(storage, dtype, 0, sizes, strides)


def _quantized(
    r: Reader, dtype: torch.dtype, segment: int, offset: int, sizes: Sequence[int], strides: Sequence[int], empty: bool
) -> torch.Tensor:
    parameters = r.get()
    r.take(math.prod(sizes) * dtype.itemsize)
    if len(parameters) == 2:
        scale, zero = parameters
        make: Any = torch._empty_affine_quantized
        tensor = make(sizes, scale=scale, zero_point=zero, dtype=dtype, device="cpu")
    else:
        scales, zeros, axis = parameters
        if scales.dim() != 1 or scales.shape != zeros.shape or scales.shape[0] != sizes[axis]:
            raise damaged("a quantized tensor whose scales do not fit")
        make = torch._empty_per_channel_affine_quantized
        tensor = make(sizes, scales=scales, zero_points=zeros, axis=axis, dtype=dtype, device="cpu")
    if empty:
        return tensor  # type: ignore[no-any-return]
    start = _elements(r, segment, offset, sizes, strides, dtype.itemsize)
    return tensor.set_(_base(r, segment).untyped_storage(), start, sizes, strides)  # type: ignore[no-any-return]


def _part(r: Reader, part: Any) -> torch.Tensor:
    """A tensor inside a sparse one; checking what it points at reads all its elements, so they count as memory."""
    if type(part) is not torch.Tensor:
        raise damaged("a sparse tensor whose parts are no tensors")
    r.take(part.numel() * part.dtype.itemsize)
    return part


def _get_coo(r: Reader, slot: int) -> torch.Tensor:
    shape, grad, coalesced, indices, values = r.items()
    tensor = torch.sparse_coo_tensor(_part(r, indices), _part(r, values), shape, check_invariants=True, is_coalesced=coalesced)
    return tensor.requires_grad_() if grad else tensor


def _get_compressed(r: Reader, slot: int) -> torch.Tensor:
    shape, grad, layout, outer, inner, values = r.items()
    kind = getattr(torch, _LAYOUTS[layout])
    parts = (_part(r, outer), _part(r, inner), _part(r, values))
    tensor = torch.sparse_compressed_tensor(*parts, shape, layout=kind, check_invariants=True)
    return tensor.requires_grad_() if grad else tensor


def _get_subclass(r: Reader, slot: int) -> torch.Tensor:
    cls = r.class_ref()
    if not issubclass(cls, torch.Tensor):
        raise damaged(f"{cls.__qualname__} is not a tensor class")
    try:
        _check_subclass(cls)
    except Refusal as refusal:
        raise refusal.error(cls.__qualname__) from None
    state: dict[Any, Any] = {}
    r.pairs_into(state.__setitem__)
    plain = _get_strided(r)
    grad = plain.requires_grad
    tensor = plain if cls is torch.Tensor else torch.Tensor._make_subclass(cls, plain.detach(), grad)
    set_state(tensor, state)
    return tensor


WRITE_NODE[torch.Tensor] = _put_tensor
READ_NODE[wire.TENSOR] = _get_tensor
READ_NODE[wire.SUBTENSOR] = _get_subclass
READ_NODE[wire.SPARSE_COO] = _get_coo
READ_NODE[wire.SPARSE_COMPRESSED] = _get_compressed
FAMILIES.append(_subclass_family)


# --- what describes tensors


_CONSTANTS = frozenset((*DTYPES, *_FORMATS, *_LAYOUTS, "strided", "sparse_coo"))


def _put_dtype(w: Writer, dtype: torch.dtype) -> None:
    w.out.append(wire.CONSTANT)
    w.text(str(dtype).removeprefix("torch."))


def _get_constant(r: Reader) -> Any:
    name = r.text()
    found = getattr(torch, name, None) if name in _CONSTANTS else None
    if found is None:
        raise CodecError.of("R116", name=f"torch.{name}", library="torch")
    return found


WRITE_ATOM[torch.dtype] = WRITE_ATOM[torch.memory_format] = WRITE_ATOM[torch.layout] = _put_dtype
READ_ATOM[wire.CONSTANT] = _get_constant
add_row(32, torch.device, lambda v: (str(v),), torch.device)
add_row(33, torch.Size, tuple, lambda *sizes: torch.Size(sizes))
