"""Arrays, scalars and dtypes of numpy; memory is referred to, not copied."""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import Any

import numpy as np

from . import codec_wire as wire
from .codec_memory import refuse_shared
from .codec_reader import ATOMS as READ_ATOM
from .codec_reader import NODES as READ_NODE
from .codec_reader import Reader, damaged
from .codec_writer import FAMILIES, Put, Refusal, Region, Writer
from .codec_writer import NODES as WRITE_NODE

_PLAIN = re.compile(r"[<>|=][?bBhHiuflqQLcmMSUV]\d*(\[[0-9a-zA-Z]*\])?")
_HEAD = struct.Struct("<BBIQ")  # flags, dimensions, segment, offset
WRITEABLE, EMPTY, COMPACT, FORTRAN = 1, 2, 4, 8
_GAPS = 64 << 10


@lru_cache(maxsize=64)
def _shape(dimensions: int) -> struct.Struct:
    return struct.Struct(f"<{2 * dimensions}q")


# --- dtypes


def describe(dtype: np.dtype[Any]) -> Any:
    """A dtype as plain data.

    Its string, ("sub", base, shape), or ("fields", names, dtypes, offsets, titles, itemsize, aligned, whether of records).
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return ("sub", describe(base), shape)
    if dtype.fields is not None:
        names = dtype.names or ()
        fields = [dtype.fields[name] for name in names]
        titles = tuple(field[2] if len(field) > 2 else None for field in fields)
        record = dtype.type is np.record
        kinds = tuple(describe(field[0]) for field in fields)
        offsets = tuple(int(field[1]) for field in fields)
        return ("fields", names, kinds, offsets, titles, dtype.itemsize, dtype.isalignedstruct, record)
    if dtype.kind not in "?biufcmMSUVO" or dtype.kind == "O":
        raise Refusal("R101", type=f"numpy dtype {dtype}")
    return dtype.str


def build(described: Any) -> np.dtype[Any]:
    """The dtype of a description; CodecError when it is none."""
    if isinstance(described, str):
        if not _PLAIN.fullmatch(described):
            raise damaged("an unknown numpy dtype")
        return np.dtype(described)
    if described[0] == "sub":
        _, base, shape = described
        return np.dtype((build(base), shape))
    _, names, kinds, offsets, titles, itemsize, aligned, record = described
    spec: dict[str, Any] = {"names": list(names), "formats": [build(kind) for kind in kinds], "offsets": list(offsets)}
    if any(title is not None for title in titles):
        spec["titles"] = list(titles)
    spec["itemsize"] = itemsize
    new: Any = np.dtype
    made = new(spec, align=aligned)
    return new((np.record, made)) if record else made  # type: ignore[no-any-return]


def _put_dtype(w: Writer, dtype: np.dtype[Any]) -> None:
    w.out.append(wire.DTYPE)
    w.put("|O" if dtype == np.dtype(object) else describe(dtype))


def _get_dtype(r: Reader) -> np.dtype[Any]:
    described = r.get()
    return np.dtype(object) if described == "|O" else build(described)


# --- arrays


def reach(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Bytes before and after the address of the first element that a non-empty array touches."""
    low, high = 0, itemsize
    for size, stride in zip(shape, strides, strict=True):
        if stride < 0:
            low -= (size - 1) * stride
        else:
            high += (size - 1) * stride
    return low, high


def _put_array(w: Writer, array: np.ndarray[Any, Any]) -> None:
    if array.dtype.hasobject:
        _put_objects(w, array)
        return
    w.out.append(wire.ARRAY)
    w.put(describe(array.dtype))
    flags = WRITEABLE if array.flags.writeable else 0
    head = len(w.out)
    dimensions = array.ndim
    if array.size == 0 or array.dtype.itemsize == 0:
        w.out += _HEAD.pack(flags | EMPTY, dimensions, wire.NO_SEGMENT, 0)
        w.out += _shape(dimensions).pack(*array.shape, *array.strides)
        return
    w.out += _HEAD.pack(flags, dimensions, 0, 0)
    w.out += _shape(dimensions).pack(*array.shape, *array.strides)
    low, high = reach(array.shape, array.strides, array.dtype.itemsize)
    address = array.__array_interface__["data"][0] - low
    if w.code:
        refuse_shared(w, address)
    # the offset is that of the lowest byte; the reader adds what negative strides need
    alignment = array.dtype.alignment if array.flags.aligned else 1
    region = Region(address, low + high, array, head + 2, address, alignment, None)
    if low + high - array.nbytes > max(_GAPS, array.nbytes):
        region.compact = lambda: _compact(w.out, head, array)
    w.regions.append(region)


def _compact(out: bytearray, head: int, array: np.ndarray[Any, Any]) -> Region:
    copy = np.ascontiguousarray(array)
    out[head] |= COMPACT
    return Region(copy.ctypes.data, copy.nbytes, copy, head + 2, copy.ctypes.data, 1, None)


def _get_array(r: Reader, slot: int) -> np.ndarray[Any, Any]:
    dtype = build(r.get())
    flags, dimensions, segment, offset = _HEAD.unpack_from(r.buf, r.pos)
    r.pos += _HEAD.size
    layout = _shape(dimensions)
    numbers = layout.unpack_from(r.buf, r.pos)
    r.pos += layout.size
    shape, strides = numbers[:dimensions], numbers[dimensions:]
    if dimensions and min(shape) < 0:
        raise damaged("an array with a negative size")
    if flags & EMPTY:
        if 0 not in shape and dtype.itemsize:
            raise damaged("an empty array that is not empty")
        array: np.ndarray[Any, Any] = np.ndarray(shape, dtype)
    else:
        low, high = reach(shape, strides, dtype.itemsize)
        if 0 in shape or not dtype.itemsize:
            raise damaged("an array that is empty")
        if flags & COMPACT:
            source: np.ndarray[Any, Any] = np.ndarray(shape, dtype, buffer=r.segment(segment))
            r.take(low + high)
            array = np.ndarray(shape, dtype, np.zeros(low + high, np.uint8).data, low, strides)
            array[...] = source
        else:
            if offset + low + high > r.sizes[segment]:
                raise damaged("an array reaches out of its segment")
            array = np.ndarray(shape, dtype, r.payload, r.offsets[segment] + offset + low, strides)
    if not flags & WRITEABLE:
        array.flags.writeable = False
    return array


def _put_objects(w: Writer, array: np.ndarray[Any, Any]) -> None:
    if array.dtype.kind != "O":
        raise Refusal("R101", type=f"numpy dtype {array.dtype}")
    number = len(w.memo) - 1
    w.out.append(wire.OBJECT_ARRAY)
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    w.out.append((WRITEABLE if array.flags.writeable else 0) | (FORTRAN if fortran else 0))
    w.put(tuple(array.shape))
    w.opened.add(number)
    w.items(array.ravel().tolist())
    w.opened.discard(number)


def _get_objects(r: Reader, slot: int) -> np.ndarray[Any, Any]:
    flags = r.buf[r.pos]
    r.pos += 1
    shape = r.get()
    values = r.items()
    flat: np.ndarray[Any, Any] = np.empty(len(values), object)
    for index, value in enumerate(values):
        flat[index] = value
    array = flat.reshape(shape)
    if flags & FORTRAN:
        array = np.asfortranarray(array)
    if not flags & WRITEABLE:
        array.flags.writeable = False
    return array


# subclasses of numpy's own, whose state is their memory
_VIEWS = {"matrix": np.matrix, "recarray": np.recarray, "memmap": np.memmap}


def _put_subarray(w: Writer, array: np.ndarray[Any, Any]) -> None:
    w.out.append(wire.SUBARRAY)
    if type(array) is np.ma.MaskedArray:
        w.text("masked")
        mask = None if array.mask is np.ma.nomask else array.mask
        w.items((array.data, mask, array.fill_value, bool(array.hardmask)))
    else:
        w.text(next(name for name, cls in _VIEWS.items() if cls is type(array)))
        w.items((array.view(np.ndarray),))


def _get_subarray(r: Reader, slot: int) -> np.ndarray[Any, Any]:
    name = r.text()
    if name == "masked":
        data, mask, fill, hard = r.items()
        if not isinstance(data, np.ndarray) or not (mask is None or isinstance(mask, np.ndarray)):
            raise damaged("a masked array without an array")
        if mask is not None and (mask.shape != data.shape or mask.dtype != np.ma.make_mask_descr(data.dtype)):
            raise damaged("a mask of another shape or dtype")  # numpy would convert it
        if isinstance(fill, np.ndarray) and fill.ndim:
            raise damaged("more than one value to fill with")
        return np.ma.MaskedArray(data, mask=np.ma.nomask if mask is None else mask, fill_value=fill, hard_mask=hard)
    (array,) = r.items()
    if not isinstance(array, np.ndarray):
        raise damaged("an array that is none")
    return array.view(_VIEWS[name])


def _put_scalar(w: Writer, value: np.generic) -> None:
    w.out.append(wire.SCALAR)
    array = np.asarray(value)  # an empty text has a size only as an array
    w.put(describe(array.dtype))
    w.data(array.tobytes())


def _get_scalar(r: Reader) -> Any:
    dtype = build(r.get())
    raw = bytes(r.data())
    if len(raw) != dtype.itemsize:
        raise damaged("a numpy scalar of another size")
    scalar: np.ndarray[Any, Any] = np.ndarray((), dtype, raw)
    return scalar[()].copy() if dtype.fields is not None else scalar[()]


def _array_family(cls: type) -> tuple[Put, bool] | None:
    if issubclass(cls, np.generic) and cls.__module__.split(".")[0] == "numpy":
        return _put_scalar, True
    if issubclass(cls, np.dtype):
        return _put_dtype, True
    if cls in (*_VIEWS.values(), np.ma.MaskedArray):
        return _put_subarray, False
    return None


WRITE_NODE[np.ndarray] = _put_array
READ_NODE[wire.ARRAY] = _get_array
READ_NODE[wire.OBJECT_ARRAY] = _get_objects
READ_NODE[wire.SUBARRAY] = _get_subarray
READ_ATOM[wire.DTYPE] = _get_dtype
READ_ATOM[wire.SCALAR] = _get_scalar
FAMILIES.append(_array_family)
