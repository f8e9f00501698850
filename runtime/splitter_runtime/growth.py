"""How much memory a stream's process has copied of what it shared with its template when it was forked.

Counting a reference writes to the page that the object is in, so that a process which reads a long list of paths in the end has a list of
its own. Code that keeps no state can go on in a new fork at any batch: growth = Growth(); if growth.too_much(): leave.
"""

from __future__ import annotations

import resource
import time

LIMIT = 16 << 20  # bytes
SETTLE = 4  # batches until a process has the buffers that it works with, which another one would make as well
LIFETIME = 3.0  # seconds that a process lives at least: a fork and its first batch take about 1/50 of that


class Growth:
    """Asked between two batches. Page faults are counted first, which costs a microsecond; the kernel's sum of pages is read when these
    would be enough to pass the limit.
    """

    def __init__(self) -> None:
        self._born = time.monotonic()
        self._batches = 0
        self._settled = 0  # bytes then
        self._faults = 0
        self._enough = LIMIT // resource.getpagesize()

    def too_much(self) -> bool:
        """Whether more than LIMIT bytes were copied since the process has settled."""
        self._batches += 1
        if self._batches <= SETTLE:
            if self._batches == SETTLE:
                self._settled, self._faults = private_bytes(), _faults()
            return False
        if _faults() - self._faults < self._enough or time.monotonic() - self._born < LIFETIME:
            return False
        if private_bytes() - self._settled > LIMIT:
            return True
        self._faults = _faults()
        self._enough *= 2  # memory that comes and goes; don't look as often
        return False


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def private_bytes() -> int:
    """Bytes of memory that this process alone has; 0 when the kernel doesn't say."""
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            return 1024 * sum(int(line.split()[1]) for line in file if line.startswith(b"Private_Dirty"))
    except OSError:
        return 0
