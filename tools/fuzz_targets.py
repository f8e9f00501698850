"""What tools/fuzz.py gives hostile bytes to: one function per reader of bytes that come from the network.

A target takes any bytes and returns; whatever it raises is a finding. The one error that the readers may raise is CodecError (for
messages also protobuf's DecodeError), and a CodecError that stands for memory that could not be had is a finding too, since sizes are
to be checked before memory is taken.

    value, code    u8 segments | u16 bytes of each | u16 n, n bytes that the payload repeats | tree    codec.decode
    header         a header as it is                                                                   codec.decode
    frames         u8 n | frames, fed in pieces of n + 1 bytes                                         Assembler.feed
    messages       a message                                                                           load_from_trainer, load_from_worker
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from splitter_runtime import codec_wire as wire
from splitter_runtime.codec import Limits, decode, payload_size
from splitter_runtime.errors import CodecError
from splitter_runtime.frames import Assembler
from splitter_runtime.wire import load_from_trainer, load_from_worker

LIMITS = Limits(max_payload=1 << 20, max_header=1 << 16, max_depth=50, max_nodes=20_000)
_MEMORY = ("MemoryError", "can't allocate", "Unable to allocate", "not enough memory")


def value(data: bytes) -> None:
    """A tree of plain data."""
    _decode(*split(data), code=False)


def code(data: bytes) -> None:
    """A tree that may name functions of libraries that are imported here."""
    _decode(*split(data), code=True)


def header(data: bytes) -> None:
    """A header, with a payload of the size that it asks for."""
    try:
        size = payload_size(data, limits=LIMITS)
    except CodecError as error:
        _check(error)
        return
    _decode(data, bytearray(size), code=False)


def frames(data: bytes) -> None:
    """Bytes of a channel."""
    step = data[0] + 1 if data else 1
    assembler = Assembler(LIMITS)
    try:
        for start in range(1, len(data), step):
            for frame in assembler.feed(data[start : start + step]):
                if frame.header:
                    decode(frame.header, frame.payload, limits=LIMITS, accept=_accept)  # type: ignore[arg-type]
    except CodecError as error:
        _check(error)


def messages(data: bytes) -> None:
    """A message of either side."""
    for load in (load_from_trainer, load_from_worker):
        try:
            load(data)
        except DecodeError:
            pass


TARGETS: dict[str, Callable[[bytes], None]] = {target.__name__: target for target in (value, code, header, frames, messages)}


def split(data: bytes) -> tuple[bytes, bytearray]:
    """Header and payload of the input of `value` and `code`."""
    count = data[0] % 16 if data else 0
    sizes = struct.unpack_from(f"<{count}H", data.ljust(1 + 2 * count, b"\0"), 1)
    at = 3 + 2 * count
    pattern = data[at : at + int.from_bytes(data[at - 2 : at], "little")]
    tree = data[at + len(pattern) :] or b"\0"
    length = wire.FRAME.size + 8 * count + len(tree)
    head = wire.FRAME.pack(wire.MAGIC, wire.FORMAT, wire.ORDER, 0, length, count) + struct.pack(f"<{count}Q", *sizes)
    total = sum(map(wire.padded, sizes))
    return head + tree, bytearray((pattern * (total // max(len(pattern), 1) + 1))[:total].ljust(total, b"\1"))


def join(encoded_header: bytes, payload: bytes) -> bytes:
    """The input of `value` that is read as this header, and its payload."""
    count = wire.FRAME.unpack_from(encoded_header)[5]
    start = wire.FRAME.size + 8 * count
    sizes = struct.unpack_from(f"<{count}Q", encoded_header, wire.FRAME.size)
    assert len(payload) < 1 << 16
    return bytes([count]) + struct.pack(f"<{count}HH", *sizes, len(payload)) + payload + encoded_header[start:]


def _accept(module: str, name: str) -> bool:
    """What a worker accepts, without its imports; nothing that runs what a name of the input leads to."""
    return module in sys.modules


def _decode(encoded: bytes, payload: bytearray, *, code: bool) -> Any:
    try:
        return decode(encoded, payload, limits=LIMITS, code=code, accept=_accept)
    except CodecError as error:
        _check(error)


def _check(error: CodecError) -> None:
    text = str(error)
    assert text.startswith("R1"), text
    assert not any(sign in text for sign in _MEMORY), text
