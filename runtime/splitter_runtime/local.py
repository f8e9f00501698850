"""Processes of a worker on this machine, as their reader sees them: the trainer for its own workers, the gRPC process for others' ones.

    tree = Tree(launcher)                  a template
    wire = tree.open(channel, frame)       a stream, forked from it
    wire.send(parts); wire.receive()       frames there and back; neither waits

A wire is one end of a Unix socket. Large payloads lie in segments, whose descriptors come over the socket. Processes are known by pidfd, so
a number that was given to another process is never hit.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Sequence

from .causes import ending, watch
from .errors import CodecError
from .frames import Assembler, Buffer, Frame, Kind, pack
from .inbox import Ended
from .launcher import Launcher
from .processes import Stopped, hung_up, readable, receive_with
from .segments import Loan, Shelf

TEMPLATE = 0  # its channel
LEAVE = 3.0  # seconds that a template gets to leave by itself
_PIECE = 1 << 18
_WRITES = 64  # buffers in one system call

_open: weakref.WeakSet[Wire] = weakref.WeakSet()


def _let_go() -> None:
    """In a forked child of the program: its copies of the sockets would keep the processes alive after the program has gone."""
    for wire in list(_open):
        wire.socket.close()


os.register_at_fork(after_in_child=_let_go)


class Wire:
    """This side's end of the socket to a template or stream."""

    def __init__(self, channel: int) -> None:
        """Makes both ends; .theirs is to be handed over, and closed here."""
        self.channel = channel
        self.socket, self.theirs = socket.socketpair()
        self.socket.setblocking(False)
        self.pid = 0  # not known before the process has said it
        self._handle = self._log = -1
        self._killed = ""
        self._assembler = Assembler(nearby=True)
        self._descriptors: deque[int] = deque()
        self._shelf = Shelf()
        self._outgoing: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._waiting = 0
        self._lock = threading.Lock()
        self._stopped: Stopped | None = None
        self._closed = False
        _open.add(self)
        watch()

    def __repr__(self) -> str:
        return f"<Wire {self.channel} to process {self.pid}{', closed' if self._closed else ''}>"

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def unsent(self) -> bool:
        """Whether something waits for room in the socket."""
        return bool(self._outgoing)

    @property
    def unread(self) -> int:
        """Bytes that wait for room in the socket."""
        return self._waiting

    def send(self, parts: Sequence[Buffer], descriptors: Sequence[int] = ()) -> None:
        """Send one frame or several; what the socket has no room for goes with flush(). The descriptors travel with the first byte, and
        are closed here when it has gone.
        """
        with self._lock:
            if self._closed:
                _close(descriptors)
                return
            for number, keep in self._shelf.returns():
                parts = [*pack(Kind.FREE, 2 * number + keep), *parts]
            for part in parts:
                if len(part):
                    self._outgoing.append((memoryview(part).cast("B"), descriptors))
                    self._waiting += self._outgoing[-1][0].nbytes
                    descriptors = ()
            self._flush()

    def flush(self) -> None:
        """Send what waits, as far as there is room."""
        with self._lock:
            self._flush()

    def give_back(self) -> None:
        """Return segments that nothing uses any more, now."""
        if self._shelf.waiting:
            self.send(())

    def _flush(self) -> None:
        while self._outgoing and not self._closed:
            descriptors = self._outgoing[0][1]
            views: list[memoryview] = []
            for view, others in itertools.islice(self._outgoing, _WRITES):
                if others and views:
                    break
                views.append(view)
            try:
                sent = socket.send_fds(self.socket, views, list(descriptors)) if descriptors else self.socket.sendmsg(views)
            except BlockingIOError:
                return
            except OSError:  # it has ended; the end of its socket says so
                self._forget_outgoing()
                return
            _close(descriptors)
            self._waiting -= sent
            self._outgoing[0] = (self._outgoing[0][0], ())
            while self._outgoing and sent >= len(self._outgoing[0][0]):
                sent -= len(self._outgoing.popleft()[0])
            if sent:
                self._outgoing[0] = (self._outgoing[0][0][sent:], ())

    def _forget_outgoing(self) -> None:
        for _, descriptors in self._outgoing:
            _close(descriptors)
        self._outgoing.clear()
        self._waiting = 0

    def receive(self) -> list[Frame | Ended | CodecError]:
        """What has come; Ended is the last thing that comes."""
        try:
            chunk, descriptors = receive_with(self.socket, _PIECE)
        except BlockingIOError:
            return []
        except OSError:
            chunk, descriptors = b"", []
        self._descriptors.extend(descriptors)
        if chunk and self.pid == 0:
            chunk = self._meet(chunk)
        elif not chunk:
            return [Ended(self.why(), started=self.pid != 0)]
        found: list[Frame | Ended | CodecError] = []
        try:
            for frame in self._assembler.feed(chunk):
                found.append(self._bring(frame) if frame.kind is Kind.NEARBY else frame)
        except CodecError as error:
            self.kill()
            found.append(error)
        return found

    def _meet(self, chunk: bytes) -> bytes:
        """Take the process's first bytes, its pid, and with them its log."""
        self.pid = int.from_bytes(chunk[:4], "little")  # they were written at once, so they come at once
        self._log = self._descriptors.popleft() if self._descriptors else -1
        self._stopped = Stopped(self.pid)
        with contextlib.suppress(ProcessLookupError):
            self._handle = os.pidfd_open(self.pid)
        return chunk[4:]

    def _bring(self, frame: Frame) -> Frame:
        loan = Loan.unpack(frame.payload)  # type: ignore[arg-type]
        return Frame(Kind(loan.kind), frame.number, frame.header, self._shelf.take(loan, self._descriptors), loan.offsets)

    def stopped_for(self) -> float:
        """Seconds since the process was first seen stopped."""
        return self._stopped.seconds() if self._stopped is not None else 0.0

    def kill(self, why: str = "") -> None:
        """End the process at once, when it is known; else its input, which ends it when it looks. `why` is what why() will say."""
        self._killed = why
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        else:
            self.cut()

    def cut(self) -> None:
        """End its input."""
        with contextlib.suppress(OSError):  # the process may have ended first
            self.socket.shutdown(socket.SHUT_WR)

    def why(self) -> str:
        """How it ended."""
        if self._handle < 0:
            return "it ended before it started"
        return self._killed or str(ending(self._handle, self.pid, LEAVE, self._log if self._log >= 0 else None))

    def alive(self) -> bool:
        """Whether the process, when it is known, still runs, and holds its end of the socket, which goes first when it ends."""
        return not self._closed and (self._handle < 0 or not readable(self._handle, 0)) and not hung_up(self.socket)

    def hand_over(self) -> None:
        """Close the other end here."""
        self.theirs.close()

    def close(self) -> None:
        """Give up all descriptors."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._forget_outgoing()
        self._shelf.close()
        self.socket.close()
        _close(self._descriptors)
        self._descriptors.clear()
        _close(descriptor for descriptor in (self._handle, self._log) if descriptor >= 0)
        self._handle = self._log = -1


class Tree:
    """A template and its streams."""

    def __init__(self, launcher: Launcher) -> None:
        """Fork the template. OSError when the launcher is gone."""
        self._launcher = launcher
        self.template = Wire(TEMPLATE)
        self._pid = launcher.fork_template(self.template.theirs.fileno())
        self.template.hand_over()

    def open(self, channel: int, parts: Sequence[Buffer]) -> Wire:
        """Have a stream forked; `parts` is the OPEN frame."""
        wire = Wire(channel)
        self.template.send(parts, [os.dup(wire.theirs.fileno())])
        wire.hand_over()
        return wire

    def close(self) -> None:
        """Let the template leave, taking what it still prints, and see to it that it does. Doesn't raise."""
        self.template.cut()
        until = time.monotonic() + LEAVE
        while readable(self.template.fileno(), until - time.monotonic()):
            if any(isinstance(event, Ended) for event in self.template.receive()):
                break
        with contextlib.suppress(OSError):  # the launcher is gone, and took the template along
            self._launcher.end_template(self._pid)
        self.template.close()


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
