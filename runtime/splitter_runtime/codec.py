"""Values and batches to buffers and back: no pickle, a closed set of types, exact.

    encoded = encode(batch, name="batch")          # header, and views of the tensors' own memory
    payload = bytearray(payload_size(header))      # checked against Limits before memory is taken
    batch = decode(header, payload)                # tensors and arrays are views of payload

The payload is the buffers one after another, each padded with zeros to 64 bytes; `Encoded.parts` gives it piece by piece
and `Encoded.copy_into` writes it. The format of the header is in `codec_wire`; what is sent how is in `codec_plain` (plain
data, containers, standard library), `codec_types` (instances, enums, subclasses, pytrees), `codec_tensors`,
`codec_arrays` (numpy), `codec_images` (Pillow); with `code`: `codec_functions`, `codec_objects` (generators, partial objects) and
`codec_datasets` (pandas, Hugging Face).

Kept: types, order, bits, dtypes, shapes, exact strides, which tensors share memory, which objects are one object. Classes are found by
name among modules that are already imported (libraries of options aside), and no code of theirs runs (`__getstate__` aside, on the
sending side, when `pickled`). Not kept: `.grad` and hooks of
tensors, the memory that a view does not reach, the factory of a defaultdict that isn't a plain type (refused).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# each adds its types to the tables
from . import (  # noqa: F401
    codec_arrays,
    codec_datasets,
    codec_functions,
    codec_images,
    codec_lists,
    codec_objects,
    codec_plain,
    codec_tables,
    codec_tensors,
    codec_types,
)
from .codec_quick import copied, follow, header_of, holds_ints, keep_header, keep_plan, look, plan_of, read_ints, write_ints
from .codec_reader import Accept, Frame, Reader, damaged
from .codec_wire import ALIGN, DEFAULT_LIMITS, SENT_LIMITS, Limits, padded
from .codec_writer import Refusal, Writer
from .errors import CodecError

__all__ = ["ALIGN", "DEFAULT_LIMITS", "SENT_LIMITS", "Accept", "Encoded", "Limits", "decode", "encode", "payload_size", "segment_sizes"]

_ZEROS = memoryview(bytes(ALIGN))
# what reading hostile bytes with struct, numpy, torch and the constructors of values can raise
_BAD_BYTES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
)


class Encoded(NamedTuple):
    """A value ready to be sent. Its buffers are views of the value's memory: send or copy them before that changes. Those of a small value
    may be one copy.
    """

    header: bytes
    buffers: tuple[memoryview, ...]
    nbytes: int  # of the payload, padding included

    def parts(self) -> Iterator[memoryview]:
        """The payload in pieces, padding included."""
        for view in self.buffers:
            yield view
            gap = padded(view.nbytes) - view.nbytes
            if gap:
                yield _ZEROS[:gap]

    def copy_into(self, target: memoryview | bytearray) -> None:
        """Write the payload to the start of `target`, a writable buffer of at least `nbytes` bytes."""
        out = memoryview(target)
        start = 0
        for view in self.parts():
            out[start : start + view.nbytes] = view
            start += view.nbytes


def encode(value: object, *, name: str = "value", limits: Limits | None = None, code: bool = False, pickled: bool = False) -> Encoded:
    """Encode a value; CodecError names the place in it that can't be sent, e.g. batch[0]["x"].

    With `code` it may be a whole dataset: functions and modules travel by name, random generators with their state, and parameters
    and shared memory, which the copy would not share, are refused. `limits` are those of a batch, or
    of a dataset with `code`. With `pickled` instances arrive as they would out of pickle, through which torch's own worker processes send
    their batches (see `codec_pickled`).
    """
    seen = None
    if limits is None and not code:
        if type(value) is list and (ints := write_ints(value)) is not None:
            return Encoded(ints, (), 0)
        seen = look(value)
        if seen is not None and (known := header_of(seen[0])) is not None:
            payload = copied(seen[1])
            return Encoded(known, (memoryview(payload),), len(payload))
    writer = Writer(limits or (SENT_LIMITS if code else DEFAULT_LIMITS), code, pickled)
    try:
        writer.put(value)
        encoded = Encoded(*writer.finish())
        if seen is not None:
            keep_header(seen[0], encoded.header)
        return encoded
    except Refusal as refusal:
        raise refusal.error(name) from None
    except RecursionError:
        raise CodecError.of("R104", path=name, what="its depth", size="more", limit="Python's stack") from None


def payload_size(header: bytes, *, limits: Limits = DEFAULT_LIMITS) -> int:
    """Bytes of payload that belong to a header; CodecError when the header is damaged or above the limits."""
    if limits is DEFAULT_LIMITS:
        plan = plan_of(header)
        if plan is not None:
            return plan.total
        if holds_ints(header):
            return 0
    return Frame(header, limits).total


def segment_sizes(header: bytes) -> Sequence[int]:
    """Bytes of each segment of a payload, without padding; CodecError when the header is damaged."""
    return Frame(header, DEFAULT_LIMITS).sizes


def decode(
    header: bytes,
    payload: bytearray | memoryview,
    *,
    limits: Limits | None = None,
    code: bool = False,
    accept: Accept | None = None,
    offsets: Sequence[int] | None = None,
) -> object:
    """The value of a header and its payload, which is writable and has exactly `payload_size` bytes.

    With `offsets` the payload may be any memory in which the segments lie at these places, multiples of 64.
    Tensors and arrays are views of the payload and keep it alive. `code` allows what encode() allows with it. `accept` is asked with
    module and qualified name for every class and function, and with ("pandas", "") for a library whose objects are made again.
    Raises CodecError, and nothing else, whatever the bytes are.
    """
    view = payload if type(payload) is memoryview else memoryview(payload)  # its owner may wait for this very view to go
    usual = limits is None and not code and offsets is None and not view.readonly and view.ndim == 1 and view.format == "B"
    if usual:
        plan = plan_of(header)
        if plan is not None and plan.total == view.nbytes:
            return follow(plan, view)
        if not view.nbytes and (ints := read_ints(header)) is not None:
            return ints
    limits = limits or (SENT_LIMITS if code else DEFAULT_LIMITS)
    frame = Frame(header, limits)
    if offsets is not None:
        frame.lie_at(offsets, view.nbytes)
    elif view.nbytes != frame.total:
        raise CodecError.of("R114", size=view.nbytes, expected=frame.total)
    if view.readonly:
        raise damaged("the payload is read-only memory")
    if view.ndim != 1 or view.format != "B":
        view = view.cast("B")
    reader = Reader(frame, view, limits, code, accept)
    try:
        value = reader.get()
    except CodecError:
        raise
    except _BAD_BYTES as error:
        raise damaged(f"{type(error).__name__}: {error}") from error
    if reader.pos != len(reader.buf):
        raise damaged("there are bytes behind the value")
    if usual:
        keep_plan(header, value, reader)
    return value
