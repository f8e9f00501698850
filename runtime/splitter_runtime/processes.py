"""Small pieces of Linux that the worker's processes stand on: dying with the parent, exit statuses, passing descriptors, writing."""

from __future__ import annotations

import array
import ctypes
import os
import select
import signal
import socket
import time
from collections.abc import Sequence

from .frames import Buffer

_PR_SET_PDEATHSIG = 1
_IOV_MAX = 1024
_DESCRIPTOR = array.array("i").itemsize  # bytes of one
_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent `parent` ends, however it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the request was made
        os._exit(1)


def write_all(descriptor: int, parts: Sequence[Buffer]) -> None:
    """Write all the buffers, one after another. BrokenPipeError when nobody reads any more."""
    views = [memoryview(part).cast("B") for part in parts if len(part)]
    first = 0
    while first < len(views):
        written = os.writev(descriptor, views[first : first + _IOV_MAX])
        while first < len(views) and written >= len(views[first]):
            written -= len(views[first])
            first += 1
        if written:
            views[first] = views[first][written:]


def send_with(sock: socket.socket, body: Buffer, descriptors: Sequence[int]) -> None:
    """Send all of `body`; the descriptors travel with its first byte."""
    rights = array.array("i", descriptors)
    sent = sock.sendmsg([body], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    if sent < len(body):
        sock.sendall(memoryview(body)[sent:])


def receive_with(sock: socket.socket, size: int, room: int = 16) -> tuple[bytes, list[int]]:
    """Receive up to `size` bytes, and the descriptors that came along. b"" at the end."""
    body, ancillary, _, _ = sock.recvmsg(size, socket.CMSG_SPACE(room * _DESCRIPTOR), socket.MSG_CMSG_CLOEXEC)
    if not ancillary:
        return body, []
    rights = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            rights.frombytes(data[: len(data) - len(data) % rights.itemsize])
    return body, list(rights)


def readable(descriptor: int, seconds: float | None) -> bool:
    """Wait until there is something to read (or the end); False after `seconds`, None for no limit."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else max(0, int(seconds * 1000))))


def status_text(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return f"exit status {os.WEXITSTATUS(status)}"


def state_of(pid: int) -> str:
    """The kernel's letter for what a process does: R, S, D, T (stopped), Z (ended); "" when there is none of that number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""


def cpu_ticks(pid: int) -> int:
    """Time that a process has computed, in ticks of the kernel's clock; 0 when there is none of that number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def hung_up(sock: socket.socket) -> bool:
    """Whether nobody holds the other end any more."""
    poll = select.poll()
    poll.register(sock, 0)
    return bool(poll.poll(0))


class Stopped:
    """For how long a process has been seen stopped (by SIGSTOP, or a debugger)."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._since: float | None = None

    def seconds(self) -> float:
        """Since it was first seen so; 0 when it isn't."""
        if state_of(self._pid) not in ("T", "t"):
            self._since = None
            return 0.0
        self._since = self._since or time.monotonic()
        return time.monotonic() - self._since
