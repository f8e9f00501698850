"""Batches between processes of one machine: through memory instead of through the connection.

    stream:   offer = lender.lend(number, encoded)     # the batch is in a memory file of the stream; the offer says where
    trainer:  payload = borrow(offer)                  # maps it, by way of /proc; then tells the stream, which closes its end

The memory has no name and lies in no file system (memfd), so that no limit of /dev/shm holds, and it goes with the last process that maps
it, however that ends. The trainer does this with workers that it started itself, when it may look into their descriptors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from .codec import Encoded
from .processes import write_all

SMALLEST = 256 << 10  # bytes; below this the connection is as fast


@dataclass(frozen=True)
class Offer:
    """Where a payload is: descriptor `descriptor` of process `pid`. `header` is the codec's."""

    pid: int
    descriptor: int
    header: bytes
    size: int


class Lender:
    """The memory files of a stream that the trainer has not mapped yet."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}

    def lend(self, number: int, encoded: Encoded) -> Offer:
        """Write a payload where the trainer can map it. OSError when there is no memory for it."""
        descriptor = os.memfd_create("splitter-batch")
        try:
            write_all(descriptor, list(encoded.parts()))
        except OSError:
            os.close(descriptor)
            raise
        self._open[number] = descriptor
        return Offer(os.getpid(), descriptor, encoded.header, encoded.nbytes)

    def taken(self, number: int) -> None:
        """The trainer has mapped that one."""
        os.close(self._open.pop(number))


def visible(pid: int) -> bool:
    """Whether this process may open the descriptors of another one."""
    try:
        os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    return True


def borrow(offer: Offer) -> memoryview:
    """Map a payload; it is writable, and nobody else's. FileNotFoundError when the process that holds it has ended."""
    import torch

    path = f"/proc/{offer.pid}/fd/{offer.descriptor}"
    try:
        # torch's mapping keeps no descriptor, as Python's does; a program may keep thousands of batches.
        mapped: Any = torch.from_file(path, shared=True, size=offer.size, dtype=torch.uint8).numpy()
    except RuntimeError:
        os.stat(path)  # raises FileNotFoundError
        raise
    return memoryview(mapped)
