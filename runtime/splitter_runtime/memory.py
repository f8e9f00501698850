"""Memory for batches that come over the network, used again: fresh pages cost more than the copy into them.

buffers = Buffers(); view = buffers.take(nbytes)      free again once no tensor lies in it
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

from .frames import allocate

KEPT = 6  # buffers that wait for their next use
SMALLEST = 64 << 10  # bytes; malloc has smaller ones at hand
_PAGE = 4096


class Buffers:
    """Buffers of one link. The memory of a batch is the program's own until its last tensor is gone."""

    def __init__(self) -> None:
        self._free: deque[Any] = deque(maxlen=KEPT)

    def take(self, size: int) -> memoryview:
        """`size` bytes, aligned and not zeroed."""
        if size < SMALLEST:
            return allocate(size)
        import torch

        memory = self._find(size)
        if memory is None:
            memory = torch.empty(size + size // 8 + _PAGE, dtype=torch.uint8, device="cpu").numpy()
        view = memoryview(memory[:size])
        # Called by the garbage collector, in any thread.
        weakref.finalize(view, self._free.append, memory).atexit = False
        return view

    def _find(self, size: int) -> Any:
        for _ in range(len(self._free)):
            try:
                memory = self._free.popleft()
            except IndexError:  # another thread took it
                return None
            if size <= len(memory) <= 2 * size + _PAGE:
                return memory
            self._free.append(memory)
        return None
