"""Short ways for what is sent with every batch: a list of indices, and small plain tensors that look as those of the batch before.

    header = write_ints(indices); indices = read_ints(header)
    seen, spans = look(batch)            what its header depends on, and where its bytes lie
    header_of(seen), copied(spans)       header and payload, when such a batch has been sent
    follow(plan_of(header), payload)     the batch, when such a one has come

Nothing new is on the wire. A batch's header depends only on the types, shapes and strides in it, so the one that `codec_writer` made for
the first batch fits the next; and what `codec_reader` found in a header holds for the same bytes again. Both tables are bounded.
"""

from __future__ import annotations

import ctypes
import itertools
from array import array
from struct import Struct
from typing import Any, NamedTuple

import torch

from . import codec_wire as wire
from .codec_lists import PACK_FROM
from .codec_reader import Reader
from .codec_tensors import HAS_NAMES, dense

LARGEST = 32 << 10  # bytes of payload; what is larger is not copied
_MOST = 16  # tensors
_KEPT = 64  # headers
_INTS = Struct("<8sIIBI")  # a header without segments that holds packed ints: its start, its length, segments, tag, bytes
_START = wire.FRAME.pack(wire.MAGIC, wire.FORMAT, wire.ORDER, 0, 0, 0)[:8]
_LONGEST = 2048  # bytes of a header
_ZEROS = bytes(wire.ALIGN)

Look = tuple[Any, ...]


class Plan(NamedTuple):
    """What a header says: a container of tensors, each of which has a segment of its own."""

    kind: type
    keys: tuple[str, ...]  # of a dict
    tensors: tuple[tuple[torch.dtype, int, int, torch.Size], ...]  # dtype, elements, offset in the payload, shape
    total: int  # bytes of the payload


_headers: dict[Look, bytes] = {}
_plans: dict[bytes, Plan] = {}


def write_ints(values: list[Any]) -> bytes | None:
    """The header of a short list of ints; None when it is anything else."""
    if not PACK_FROM <= len(values) <= wire.INLINE // 8 or set(map(type, values)) != {int}:
        return None
    try:
        numbers = array("q", values).tobytes()
    except OverflowError:
        return None
    return _INTS.pack(_START, _INTS.size + len(numbers), 0, wire.INTS, len(numbers)) + numbers


def holds_ints(header: bytes) -> bool:
    """Whether it is such a header."""
    if not _INTS.size < len(header) <= _INTS.size + wire.INLINE:
        return False
    start, length, segments, tag, size = _INTS.unpack_from(header)
    return bool((start, length, segments, tag, size) == (_START, len(header), 0, wire.INTS, len(header) - _INTS.size) and size % 8 == 0)


def read_ints(header: bytes) -> list[int] | None:
    """The list in such a header; None when it is anything else."""
    if not holds_ints(header):
        return None
    numbers = array("q")
    numbers.frombytes(header[_INTS.size :])
    return numbers.tolist()


def _tensors(value: Any) -> tuple[Any, ...] | list[Any] | None:
    kind = type(value)
    if kind is list or kind is tuple:
        found = value
    elif kind is dict:
        found = list(value.values()) if all(type(key) is str for key in value) else ()
    else:
        found = (value,)
    return found if 0 < len(found) <= _MOST else None


def look(value: object) -> tuple[Look, list[tuple[int, int]]] | None:
    """All that the header of small plain tensors depends on, and where each lies: (address, bytes). None for anything else."""
    tensors = _tensors(value)
    if tensors is None:
        return None
    seen: list[Any] = [type(value)]
    spans = []
    total = 0
    for tensor in tensors:
        if type(tensor) is not torch.Tensor or not _is_plain(tensor):
            return None
        seen.append((tensor.dtype, tensor.shape, tensor.stride()))
        nbytes = tensor.nbytes
        total += nbytes
        if not 0 < nbytes <= total <= LARGEST:
            return None
        spans.append((tensor.data_ptr(), nbytes))
    if len(spans) > 1 and any(start + nbytes > after for (start, nbytes), (after, _) in itertools.pairwise(sorted(spans))):
        return None  # they share memory
    if type(value) is dict:
        seen.append(tuple(value))
    return tuple(seen), spans


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether it is at the beginning of its storage, so that no other one which is has that storage, too."""
    return (
        tensor.layout is torch.strided
        and tensor.is_cpu
        and tensor.is_contiguous()
        and not (
            tensor.requires_grad
            or tensor.is_quantized
            or tensor.is_nested
            or tensor.is_conj()
            or tensor.is_neg()
            or tensor.storage_offset()
            or tensor.__dict__
            or (HAS_NAMES and tensor.has_names())  # type: ignore[attr-defined]
        )
    )


def header_of(seen: Look) -> bytes | None:
    """The header that such a value had before."""
    return _headers.get(seen)


def keep_header(seen: Look, header: bytes) -> None:
    """It is that of all such values."""
    if len(_headers) >= _KEPT:
        _headers.clear()
    _headers[seen] = header


def copied(spans: list[tuple[int, int]]) -> bytes:
    """The payload of tensors that lie there."""
    pieces = []
    for address, nbytes in spans:
        pieces.append(ctypes.string_at(address, nbytes))
        pieces.append(_ZEROS[: -nbytes % wire.ALIGN])
    return b"".join(pieces)


def plan_of(header: bytes) -> Plan | None:
    """What is known of a header."""
    return _plans.get(header)


def keep_plan(header: bytes, value: Any, reader: Reader) -> None:
    """A header has been read in full, and gave this value."""
    tensors = _tensors(value)
    owners = list(reader.bases.items())
    if tensors is None or len(header) > _LONGEST or not len(tensors) == len(owners) == len(reader.sizes):
        return
    if len(reader.memo) != len(tensors) + (value is not tensors[0]):
        return
    found = []
    for tensor, (segment, owner) in zip(tensors, owners, strict=True):
        # One that owns all of its segment was made of nothing but dtype, offset and shape.
        if owner is not tensor or not _is_plain(tensor) or not dense(tensor.shape, tensor.stride()):
            return
        found.append((tensor.dtype, tensor.numel(), reader.offsets[segment], tensor.shape))
    if len(_plans) >= _KEPT:
        _plans.clear()
    keys = tuple(value) if type(value) is dict else ()
    _plans[header] = Plan(type(value), keys, tuple(found), reader.payload.nbytes)


def follow(plan: Plan, payload: memoryview) -> Any:
    """The value of a header whose plan this is; the payload has as many bytes as it says."""
    tensors = []
    for dtype, count, offset, shape in plan.tensors:
        # numpy would be faster, but keeps alive what lies behind the payload instead of the payload, whose owner waits for it to go.
        tensor = torch.frombuffer(payload, dtype=dtype, count=count, offset=offset)
        tensors.append(tensor if len(shape) == 1 else tensor.resize_(shape))
    if plan.kind is list:
        return tensors
    if plan.kind is tuple:
        return tuple(tensors)
    return dict(zip(plan.keys, tensors, strict=True)) if plan.kind is dict else tensors[0]
