"""Frames: what trainer, templates and streams say to each other inside the bytes of a channel (see feed.proto).

    parts = pack(Kind.ITEM, 7, encode(batch))     # a list of buffers, nothing copied
    for frame in assembler.feed(chunk): ...       # chunks of any size in, whole frames out

No I/O here, and no torch until a payload arrives.
"""

from __future__ import annotations

import ctypes
import enum
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from .codec import DEFAULT_LIMITS, Accept, Encoded, Limits, decode, encode, payload_size, segment_sizes
from .codec_wire import ALIGN, padded
from .errors import CodecError

PREFIX = struct.Struct("<2sBBIQQ")
MAGIC, VERSION = b"SF", 1
CHUNK = 1 << 20  # bytes of a channel in one message
_SMALL = 16 << 10  # bytes
_EMPTY = memoryview(bytearray())

Buffer: TypeAlias = "bytes | bytearray | memoryview"


class Kind(enum.IntEnum):
    """What a frame is; feed.proto says more about each."""

    CONTEXT = 1
    CALL = 2
    OPEN = 3
    INDEX = 4
    RESUME = 5
    DONE = 6
    FINISH = 7
    FREE = 8
    LEAVE = 9
    AGAIN = 10
    FORGET = 11
    OUTPUT = 16
    STATES = 17
    RESULT = 18
    MARKED = 19
    RAISED = 20
    DREW = 21
    ITEM = 22
    STOP = 23
    FAULT = 24
    RESUMED = 25
    BYE = 26
    NEARBY = 27
    CURSOR = 28
    LEFT = 29
    RAN = 30
    TOOK = 31


_KINDS = {int(kind): kind for kind in Kind}
_KINDS_FROM_AFAR = {number: kind for number, kind in _KINDS.items() if kind is not Kind.NEARBY}
LAST_OF_CALL = frozenset({Kind.RESULT, Kind.MARKED, Kind.RAISED, Kind.DREW})


class Frame(NamedTuple):
    """One frame. `payload` is the one allocation that the tensors of the value will be views of; `offsets` says where its segments lie
    in it when they don't lie one after another.
    """

    kind: Kind
    number: int
    header: bytes
    payload: Buffer
    offsets: tuple[int, ...] | None = None

    @property
    def value(self) -> Any:
        """The value that the frame carries, None for none. CodecError when it is damaged."""
        return self.read()

    def read(self, accept: Accept | None = None) -> Any:
        """The same, and `accept` is asked about each class in it."""
        return decode(self.header, self.payload, accept=accept, offsets=self.offsets) if self.header else None  # type: ignore[arg-type]

    @property
    def nbytes(self) -> int:
        """Bytes of the payload, as the connection carries them."""
        return len(self.payload) if self.offsets is None else payload_size(self.header)

    def parts(self) -> list[Buffer]:
        """The same frame as the buffers that make it up, its segments one after another."""
        prefix = PREFIX.pack(MAGIC, VERSION, self.kind, len(self.header), self.nbytes, self.number)
        if self.offsets is None:
            return [prefix + self.header, self.payload]
        view, sizes = memoryview(self.payload), segment_sizes(self.header)
        pieces = [view[start : start + padded(size)] for start, size in zip(self.offsets, sizes, strict=True)]
        return [prefix + self.header, *pieces]


def pack(kind: Kind, number: int = 0, encoded: Encoded | None = None) -> list[Buffer]:
    """The buffers that make up one frame, to be written one after another."""
    if encoded is None:
        return [PREFIX.pack(MAGIC, VERSION, kind, 0, 0, number)]
    prefix = PREFIX.pack(MAGIC, VERSION, kind, len(encoded.header), encoded.nbytes, number)
    return [prefix + encoded.header, *encoded.parts()]


def pack_value(kind: Kind, number: int, value: object, name: str = "value") -> list[Buffer]:
    """pack() of a value. CodecError, which names the place in the value, when it can't be sent."""
    return pack(kind, number, encode(value, name=name))


def is_one(raw: Buffer, kind: Kind) -> bool:
    """Whether bytes are one whole frame of that kind, as far as its prefix tells."""
    if len(raw) < PREFIX.size:
        return False
    magic, version, found, header_size, size, _ = PREFIX.unpack_from(raw)
    return bool((magic, version, found) == (MAGIC, VERSION, kind) and len(raw) == PREFIX.size + header_size + size)


def allocate(size: int) -> memoryview:
    """`size` bytes of fresh memory, aligned and not zeroed, as torch takes it for its own tensors. CodecError when there is none."""
    if size == 0:
        return _EMPTY
    if size < _SMALL:  # where the call of torch takes longer than the zeros
        raw = bytearray(size + ALIGN)
        start = -ctypes.addressof(ctypes.c_char.from_buffer(raw)) % ALIGN
        return memoryview(raw)[start : start + size]
    import torch

    try:
        memory: Any = torch.empty(size, dtype=torch.uint8, device="cpu").numpy()
    except (RuntimeError, MemoryError):
        raise CodecError.of("R112", what="the payload", size=f"{size} bytes", limit="the memory that is free here") from None
    return memoryview(memory)


class Assembler:
    """Puts the frames of one channel together again. Every payload is copied once, from the chunks into its allocation."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS, take: Callable[[int], memoryview] = allocate, nearby: bool = False) -> None:
        """`take` gives the memory of a payload. Values in segments (NEARBY) come only from processes of this machine."""
        self._limits, self._take = limits, take
        self._kinds = _KINDS if nearby else _KINDS_FROM_AFAR
        self._pending = bytearray()  # of prefix and header
        self._frame: Frame | None = None  # waits for its payload
        self._filled = 0

    def feed(self, chunk: Buffer) -> Iterator[Frame]:
        """Frames that are complete with this chunk. CodecError on bytes that are no frames or sizes above the limits."""
        rest = memoryview(chunk)
        while len(rest):
            if self._frame is None:
                rest = self._start(rest)
            else:
                rest = self._fill(self._frame, rest)
            if self._frame is not None and self._filled == len(self._frame.payload):
                frame, self._frame = self._frame, None
                yield frame

    def _start(self, rest: memoryview) -> memoryview:
        """Take prefix and header; sets self._frame once both are there."""
        if not self._pending and len(rest) >= PREFIX.size:  # the usual case: nothing of it needs to be kept
            fields = self._check(rest)
            end = PREFIX.size + fields[3]
            if len(rest) >= end:
                self._begin(fields, bytes(rest[PREFIX.size : end]))
                return rest[end:]
        wanted = PREFIX.size
        if len(self._pending) >= PREFIX.size:
            wanted += PREFIX.unpack_from(self._pending)[3]
        missing = wanted - len(self._pending)
        self._pending += rest[:missing]
        rest = rest[missing:]
        if len(self._pending) >= PREFIX.size:
            fields = self._check(self._pending)
            if len(self._pending) == PREFIX.size + fields[3]:
                self._begin(fields, bytes(self._pending[PREFIX.size :]))
                self._pending.clear()
        return rest

    def _check(self, start: Buffer) -> tuple[Any, ...]:
        """The fields of a prefix."""
        fields = PREFIX.unpack_from(start)
        magic, version, kind, header_size, size, _ = fields
        if magic != MAGIC or version != VERSION or kind not in self._kinds:
            raise CodecError.of("R110", why="a frame does not start where it should")
        limits = self._limits
        if header_size > limits.max_header:
            raise CodecError.of("R112", what="the header", size=f"{header_size} bytes", limit=f"{limits.max_header} bytes")
        if size > limits.max_payload:
            raise CodecError.of("R112", what="the payload", size=f"{size} bytes", limit=f"{limits.max_payload} bytes")
        return fields

    def _begin(self, fields: tuple[Any, ...], header: bytes) -> None:
        """Prefix and header are there."""
        _, _, kind, _, size, number = fields
        # What follows the header of a value that lies elsewhere says where.
        expected = size if kind == Kind.NEARBY else payload_size(header, limits=self._limits) if header else 0
        if size != expected or (kind == Kind.NEARBY and size > CHUNK):
            raise CodecError.of("R114", size=size, expected=expected)
        self._frame, self._filled = Frame(self._kinds[kind], number, header, self._take(size)), 0

    def _fill(self, frame: Frame, rest: memoryview) -> memoryview:
        piece = rest[: len(frame.payload) - self._filled]
        frame.payload[self._filled : self._filled + len(piece)] = piece  # type: ignore[index]
        self._filled += len(piece)
        return rest[len(piece) :]
