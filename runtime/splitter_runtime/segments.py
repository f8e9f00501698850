"""Batches between processes of one machine: through memory that is used again, instead of through the connection.

    stream:   images = arena.empty((64, 3, 224, 224), torch.float32)    # collated where the reader can map it
              loan = arena.lend(encoded)                                # what lies elsewhere is copied there; the loan says where
    reader:   payload, offsets = shelf.take(loan, descriptors)          # maps a segment the first time it comes
              shelf.returns()                                           # segments that no tensor uses any more

A segment is memory without a name in no file system (memfd), so that no limit of /dev/shm holds, and it goes with the last process that
maps it, however that ends. Its descriptor is passed once, over a Unix socket. Used again, its pages are there already: making fresh
pages costs more than the copy into them.
"""

from __future__ import annotations

import math
import os
import struct
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .codec import Encoded
from .codec_wire import padded
from .errors import CodecError

SMALLEST = 64 << 10  # bytes; a smaller payload goes through the socket, which takes that much without waiting
KEPT = 6  # free segments that a reader keeps mapped for each process
_HEAD = struct.Struct("<QQIB")  # number of the segment, its bytes when its descriptor comes along (else 0), number of offsets, kind
_PAGES = 2 << 20


def _mapped(descriptor: int, size: int) -> Any:
    """Shared memory of a descriptor. torch's mapping keeps no descriptor open, as Python's does."""
    tensor = torch.from_file(f"/proc/self/fd/{descriptor}", shared=True, size=size, dtype=torch.uint8)
    return tensor.numpy()


@dataclass(frozen=True)
class Loan:
    """Where a payload lies: offsets of its buffers in a segment. `descriptor` is passed along when the reader doesn't know the segment."""

    kind: int  # of the frame that it is the payload of
    segment: int
    size: int  # of the segment, 0 when the reader knows it
    offsets: tuple[int, ...]
    descriptor: int | None = None

    def pack(self) -> bytes:
        return _HEAD.pack(self.segment, self.size, len(self.offsets), self.kind) + struct.pack(f"<{len(self.offsets)}Q", *self.offsets)

    @classmethod
    def unpack(cls, raw: bytes | memoryview) -> Loan:
        """CodecError when it isn't one."""
        try:
            number, size, count, kind = _HEAD.unpack_from(raw)
            return cls(kind, number, size, struct.unpack(f"<{count}Q", raw[_HEAD.size :]))
        except struct.error:
            raise CodecError.of("R110", why="a loan has another length than it says") from None


class _Segment:
    """One segment of this process, and the newest view that tensors were made over."""

    def __init__(self, number: int, size: int) -> None:
        """Make it. OSError when there is no memory for it."""
        self.number, self.size = number, size
        descriptor = os.memfd_create("splitter-batches")
        try:
            os.posix_fallocate(descriptor, 0, size)  # an error here, rather than SIGBUS later
            self.memory: Any = _mapped(descriptor, size)
        except (OSError, RuntimeError) as error:
            os.close(descriptor)
            raise OSError(f"no memory for a segment: {error}") from error
        self.descriptor: int | None = descriptor
        self.address: int = self.memory.ctypes.data
        self.view = memoryview(self.memory)

    def in_use(self) -> bool:
        """Whether the user's code has kept a tensor that lies here."""
        seen = weakref.ref(self.view)
        self.view = memoryview(self.memory)
        return seen() is not None


class Arena:
    """The segments of a stream or template."""

    def __init__(self) -> None:
        self._free: list[_Segment] = []
        self._lent: dict[int, _Segment] = {}
        self._current: _Segment | None = None  # of the batch that is being made
        self._used = 0
        self._wanted = 0  # bytes that a batch takes
        self._made = 0

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor | None:
        """An uninitialised tensor in the segment of the batch that is being made; None when it has no room, or small ones do."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < SMALLEST:
            return None
        segment = self._current or self._begin()
        if segment is None or self._used + nbytes > segment.size:
            return None
        made = torch.frombuffer(segment.view, dtype=dtype, count=nbytes // dtype.itemsize, offset=self._used)
        self._used += padded(nbytes)
        return made.view(tuple(shape))

    def lend(self, kind: int, encoded: Encoded) -> Loan | None:
        """Have the payload of a frame in a segment; None when there is no memory for it."""
        places = [self._place(view) for view in encoded.buffers]
        more = sum(padded(view.nbytes) for view, place in zip(encoded.buffers, places, strict=True) if place is None)
        self._wanted = max(self._wanted, self._used + more, encoded.nbytes)
        if self._current is None or self._used + more > self._current.size:
            self._give_up_current()
            places = [None] * len(places)
            try:
                self._current = self._take(self._wanted) or self._make()
            except OSError:
                return None
        segment = self._current
        offsets = []
        for view, place in zip(encoded.buffers, places, strict=True):
            if place is None:
                place, self._used = self._used, self._used + padded(view.nbytes)
                segment.memory[place : place + view.nbytes] = np.frombuffer(view, np.uint8)
            offsets.append(place)
        self._lent[segment.number] = segment
        self._current, self._used = None, 0
        descriptor, segment.descriptor = segment.descriptor, None
        return Loan(kind, segment.number, segment.size if descriptor is not None else 0, tuple(offsets), descriptor)

    def returned(self, number: int, *, keep: bool) -> None:
        """The reader has no more use for a batch in that segment, nor for the segment itself unless `keep`."""
        segment = self._lent.pop(number, None)
        if segment is not None and keep and not segment.in_use():
            self._free.append(segment)

    def _begin(self) -> _Segment | None:
        if self._wanted == 0:
            return None  # the first batch tells how large they are
        try:
            self._current = self._take(self._wanted) or self._make()
        except OSError:
            return None
        return self._current

    def _take(self, nbytes: int) -> _Segment | None:
        for at, segment in enumerate(self._free):
            if segment.size >= nbytes:
                return self._free.pop(at)
        return None

    def _make(self) -> _Segment:
        self._made += 1
        self._free.clear()  # all too small; the reader drops its own when they don't come again
        return _Segment(self._made, max(self._wanted + self._wanted // 8, SMALLEST) + _PAGES - 1 & -_PAGES)

    def _give_up_current(self) -> None:
        """The batch turned out to need another segment; the tensors that lie in this one keep it until they are copied."""
        if self._current is not None and self._current.descriptor is not None:
            os.close(self._current.descriptor)
        self._current, self._used = None, 0

    def _place(self, view: memoryview) -> int | None:
        if self._current is None or view.nbytes < SMALLEST:
            return None
        address: int = np.frombuffer(view, np.uint8).ctypes.data
        start = address - self._current.address
        return start if 0 <= start and start + view.nbytes <= self._used else None


class Shelf:
    """The reader's side: segments of one process, mapped, and those that are to be returned. A batch's memory is its reader's own."""

    def __init__(self) -> None:
        self._mapped: dict[int, Any] = {}
        self._back: deque[int] = deque()  # filled by the garbage collector, in any thread
        self._out = 0

    def take(self, loan: Loan, descriptors: deque[int]) -> memoryview:
        """The segment of a loan. CodecError when it isn't known, or smaller than it says."""
        if loan.size:
            if not descriptors:
                raise CodecError.of("R110", why="a segment comes without its descriptor")
            descriptor = descriptors.popleft()
            try:
                if os.fstat(descriptor).st_size < loan.size:
                    raise CodecError.of("R110", why="a segment is smaller than it says")
                self._mapped[loan.segment] = _mapped(descriptor, loan.size)
            finally:
                os.close(descriptor)
        if loan.segment not in self._mapped:
            raise CodecError.of("R110", why="a segment is not known")
        view = memoryview(self._mapped[loan.segment])
        self._out += 1
        weakref.finalize(view, self._back.append, loan.segment).atexit = False
        return view

    def returns(self) -> list[tuple[int, bool]]:
        """Segments that are free again, and whether they stay mapped here."""
        found = []
        while self._back:
            number = self._back.popleft()
            self._out -= 1
            keep = len(self._mapped) - self._out <= KEPT
            if not keep:
                self._mapped.pop(number, None)
            found.append((number, keep))
        return found

    def close(self) -> None:
        """Map nothing any more, but for what tensors still lie in."""
        self._mapped.clear()

    @property
    def waiting(self) -> int:
        """How many segments wait to be returned."""
        return len(self._back)
