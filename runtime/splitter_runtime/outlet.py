"""What a template or stream says: whole frames, written to its socket by any of its threads, and what it prints."""

from __future__ import annotations

import io
import os
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .causes import begin
from .codec import Encoded
from .frames import Buffer, Kind, pack, pack_value
from .segments import SMALLEST, Arena

_WRITES = 64  # buffers in one system call


class Outlet:
    """The writing side of the socket. Large payloads go through segments of `arena` where the reader can map them."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()
        self.arena = Arena()
        self.log = begin()

    def introduce(self) -> None:
        """Say first which process this is, and hand over its log."""
        self.send([os.getpid().to_bytes(4, "little")], self.log.duplicate())

    def send(self, parts: Sequence[Buffer], descriptor: int | None = None) -> None:
        """Write frames; a descriptor that travels with them is closed here. BrokenPipeError when the reader is gone."""
        with self._lock:
            if descriptor is not None:
                sent = socket.send_fds(self._socket, parts[:_WRITES], [descriptor])
                os.close(descriptor)
            else:
                sent = self._socket.sendmsg(parts[:_WRITES])
            if sent == sum(map(len, parts)):
                return
            views = [memoryview(part).cast("B") for part in parts if len(part)]
            first = 0
            while True:
                while first < len(views) and sent >= len(views[first]):
                    sent -= len(views[first])
                    first += 1
                if first == len(views):
                    return
                views[first] = views[first][sent:]
                sent = self._socket.sendmsg(views[first : first + _WRITES])

    def deliver(self, kind: Kind, number: int, encoded: Encoded, before: Sequence[Buffer] = ()) -> None:
        """Write a frame with a value, behind the frames `before`."""
        loan = self.arena.lend(kind, encoded) if encoded.nbytes >= SMALLEST else None
        if loan is None:  # small, or there is no memory for a second copy; the socket needs none
            self.send([*before, *pack(kind, number, encoded)])
        else:
            self.send([*before, *pack_loan(number, encoded.header, loan.pack())], loan.descriptor)


def pack_loan(number: int, header: bytes, loan: bytes) -> list[Buffer]:
    """The NEARBY frame of a value that lies in a segment."""
    from .frames import MAGIC, PREFIX, VERSION

    return [PREFIX.pack(MAGIC, VERSION, Kind.NEARBY, len(header), len(loan), number) + header + loan]


class Output(io.RawIOBase):
    """Standard output or error of a process whose text goes to the trainer; the first `skip` bytes have been there before."""

    def __init__(self, outlet: Outlet, descriptor: int, skip: int) -> None:
        self._outlet, self._descriptor = outlet, descriptor
        self.skip, self.number = skip, 0
        self.held: list[tuple[int, bytes]] | None = None  # collects what is written, while a fetch runs ahead

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        text = bytes(data)
        if self.held is not None:
            self.held.append((self._descriptor, text))
            return len(text)
        new, self.skip = text[self.skip :], max(0, self.skip - len(text))
        if self._descriptor == 2:
            self._outlet.log.write(new)
        try:
            if new:
                self._outlet.send(pack_value(Kind.OUTPUT, self.number, (self._descriptor, new)))
        except BrokenPipeError:
            pass  # nobody is there to read it
        return len(text)


@dataclass(frozen=True)
class Console:
    """How the trainer's sys.stdout or sys.stderr writes, so that a stream's does the same."""

    encoding: str
    errors: str
    line_buffering: bool
    write_through: bool


LINES = Console("utf-8", "surrogatepass", line_buffering=True, write_through=False)


def redirect(outlet: Outlet, consoles: tuple[Console, Console], skip: tuple[int, int] = (0, 0)) -> tuple[Output, Output]:
    """Send what this process prints to the trainer from now on, but for the first bytes of both."""
    raws = Output(outlet, 1, skip[0]), Output(outlet, 2, skip[1])
    made = []
    for raw, console in zip(raws, consoles, strict=True):
        buffer: Any = raw if console.write_through else io.BufferedWriter(raw)
        options: Any = {"line_buffering": console.line_buffering, "write_through": console.write_through}
        made.append(io.TextIOWrapper(buffer, console.encoding, console.errors, **options))
    sys.stdout, sys.stderr = made
    return raws
