"""Why a process ended: its signal or exit status, what is likely behind it, and the last that it said.

In a template or stream:

    log = begin()                     before anything else; its .duplicate() goes to the reader with the first bytes
    log.arm()                         a fatal signal writes the Python stack there, then does what it did before
    log.write(text)                   what it prints to standard error, kept besides

In the reader, when the end of the socket has come:

    str(ending(handle, pid, seconds, log))

    killed by SIGSEGV, probably by a fault in native code; the last that it said: Fatal Python error: Segmentation fault
    | File "train_worker.py", line 12 in __getitem__                                          (all in one line)

The log is memory without a name (memfd): it costs no file, can't fill a disk or block, goes with the last process that holds it, and what
is in it is there after kill -9. Standard error itself, file descriptor 2, is left as it is, so that the text of native code reaches the
terminal, or the log of the worker, at once and whole; the price is that such text is not in the log here.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .processes import readable, status_text

LINES = 10
_MOST = 64 << 10  # bytes of a log
_READ = 8 << 10
_SOON = 2.0  # seconds: deaths so soon after the kernel's counter went up are its doing
_FATAL = "Fatal Python error:"
_NOISE = ("Extension modules:", "Stack (", "Current thread")

_CAUSES: dict[int, str] = {
    signal.SIGSEGV: "a fault in native code",
    signal.SIGBUS: "a mapped file that was cut short, or shared memory that could not be had",
    signal.SIGABRT: "native code that gave up",
    signal.SIGFPE: "a division by zero in native code",
    signal.SIGILL: "native code built for another CPU",
    signal.SIGKILL: "somebody's kill -9, or the end of its parent",
    signal.SIGTERM: "somebody who asked it to end",
    signal.SIGXCPU: "its limit of CPU time",
    signal.SIGXFSZ: "its limit of file sizes",
    signal.SIGSYS: "a system call that is forbidden here",
}


def cause(status: int | None, out_of_memory: bool) -> str:
    """What is likely behind a wait status (None: not known); "" when it tells nothing."""
    killed = status is not None and os.WIFSIGNALED(status)
    if out_of_memory and (status is None or (killed and os.WTERMSIG(status) == signal.SIGKILL)):
        return "the kernel, which ran out of memory"
    return _CAUSES.get(os.WTERMSIG(status), "") if status is not None and killed else ""


@dataclass(frozen=True)
class Ending:
    """How a process ended."""

    how: str  # "killed by SIGKILL", "exit status 1", "it ended"
    cause: str = ""
    lines: Sequence[str] = ()

    def __str__(self) -> str:
        text = f"{self.how}, probably by {self.cause}" if self.cause else self.how
        return f"{text}; the last that it said: {' | '.join(self.lines)}" if self.lines else text


class Kills:
    """The kernel's count of processes killed for want of memory, in the control group of this process or, without one, in the system."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._files = _counters(root)
        self._clock = clock
        self._count = self._read()
        self._when = float("-inf")

    def lately(self) -> bool:
        """Whether it went up since the last look, or did so a moment ago: one kill may end several processes."""
        count, now = self._read(), self._clock()
        if count > self._count:
            self._count, self._when = count, now
        return now - self._when < _SOON

    def _read(self) -> int:
        for path in self._files:
            try:
                fields = dict(line.split(" ", 1) for line in path.read_text().splitlines() if " " in line)
                return int(fields["oom_kill"])
            except (OSError, KeyError, ValueError):
                continue  # not this kind of system
        return 0


def _counters(root: Path) -> list[Path]:
    """Where the count may stand, the narrowest first."""
    found = []
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        groups = []
    for group in groups:
        number, kinds, path = group.split(":", 2)
        home = root / "sys/fs/cgroup"
        if number == "0":
            found += [home / part / path.lstrip("/") / "memory.events" for part in ("", "unified")]
        elif "memory" in kinds.split(","):
            found.append(home / "memory" / path.lstrip("/") / "memory.oom_control")
    # In a container the group may be at the root of what is mounted, whatever its name is outside.
    found += [root / "sys/fs/cgroup/memory.events", root / "sys/fs/cgroup/memory/memory.oom_control", root / "proc/vmstat"]
    return found


class Log:
    """The log of one process, made by itself. OSError when there is no descriptor left for it."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("splitter-log")
        self._size = 0

    def duplicate(self) -> int:
        """A descriptor to hand over."""
        return os.dup(self._descriptor)

    def arm(self) -> None:
        """Have fatal signals write the Python stack here, then do what they do now."""
        faulthandler.disable()  # an option of the interpreter may have it written elsewhere
        faulthandler.enable(self._descriptor, all_threads=False)

    def write(self, text: bytes) -> None:
        """Add text; the oldest goes when it gets long."""
        with contextlib.suppress(OSError):  # no memory, or a limit of file sizes: it is a help only
            self._add(text[-_READ:])

    def _add(self, text: bytes) -> None:
        if self._size + len(text) > _MOST:
            kept = os.pread(self._descriptor, _READ, max(0, self._size - _READ))
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            self._size = os.write(self._descriptor, kept)
        self._size += os.write(self._descriptor, text)

    def close(self) -> None:
        """Give up this process's descriptor."""
        os.close(self._descriptor)


_own: Log | None = None


def begin() -> Log:
    """The log of this process from now on; one that it was forked with is its parent's."""
    global _own
    if _own is not None:
        _own.close()
    faulthandler.disable()
    _own = Log()
    return _own


def last_lines(descriptor: int, count: int = LINES) -> list[str]:
    """The last lines of a log; of the stack that a fatal signal has written, the innermost ones."""
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, _READ, max(0, size - _READ)).decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    fatal = [number for number, line in enumerate(lines) if line.startswith(_FATAL)]
    if not fatal:
        return lines[-count:]
    return [line for line in lines[fatal[-1] :] if not line.startswith(_NOISE)][:count]


_kills: Kills | None = None


def watch() -> None:
    """Start to look at the kernel's counter; call it before the processes start. A second call changes nothing."""
    global _kills
    _kills = _kills or Kills()


def ending(handle: int, pid: int, seconds: float, log: int | None = None) -> Ending:
    """How the process `pid`, no child of this one, ended; waits up to `seconds` for it. `handle` is its pidfd, `log` the descriptor that
    it sent of its Log.

    The kernel keeps the wait status of a process that its parent hasn't waited for in /proc; the parent may be busy with the user's
    code and not get to it.
    """
    if not readable(handle, seconds):
        return Ending("it closed its connection")
    status = _wait_status(pid)
    out_of_memory = _kills is not None and _kills.lately()
    how = "it ended" if status is None else status_text(status)
    return Ending(how, cause(status, out_of_memory), tuple(last_lines(log)) if log is not None else ())


def _wait_status(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[-1]) if fields[0] in (b"Z", b"X") else None
