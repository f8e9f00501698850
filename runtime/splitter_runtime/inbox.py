"""Inbox: what one consumer waits on, whatever its events come by.

Sockets to processes of this machine are read here, in the thread that waits; what comes over gRPC is put here by a link's reader thread.
So a batch of a local worker costs no switch between threads.
"""

from __future__ import annotations

import os
import queue
import select
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from .errors import SplitterError
from .frames import Frame

if TYPE_CHECKING:
    from .local import Wire


@dataclass(frozen=True)
class Ended:
    """The process behind a channel has ended."""

    why: str
    started: bool = True  # it had said its number


Event: TypeAlias = "Frame | Ended | SplitterError"

LOOK = 1.0  # seconds between two looks at whether a process is stopped


class Inbox:
    """Events of several sources, in the order in which each sent them. One thread at a time may wait."""

    def __init__(self, patience: float = 10.0) -> None:
        """A process that is stopped (SIGSTOP) for `patience` seconds while somebody waits is killed."""
        self._events: deque[tuple[Any, Any]] = deque()
        self._wires: dict[int, tuple[Wire, Any]] = {}
        self._poll = select.poll()
        self._patience = patience
        self._looked = time.monotonic()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._wake, select.POLLIN)

    def __del__(self) -> None:
        os.close(self._wake)

    def put(self, source: Any, event: Any) -> None:
        """Add an event, from any thread."""
        self._events.append((source, event))
        os.eventfd_write(self._wake, 1)

    def watch(self, wire: Wire, source: Any) -> None:
        """Take events of that process from now on, as events of `source`."""
        self._wires[wire.fileno()] = wire, source
        self._poll.register(wire.fileno(), select.POLLIN)

    def forget(self, wire: Wire) -> None:
        """Take none any more."""
        if self._wires.pop(wire.fileno(), None) is not None:
            self._poll.unregister(wire.fileno())

    def get(self, timeout: float | None = None) -> tuple[Any, Any]:
        """The next event and its source. queue.Empty after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._events:
            left = LOOK if until is None else min(LOOK, until - time.monotonic())
            for descriptor, (wire, _) in self._wires.items():
                if wire.unsent:
                    self._poll.modify(descriptor, select.POLLIN | select.POLLOUT)
            ready = self._poll.poll(max(0.0, left * 1000))
            for descriptor, mask in ready:
                self._attend(descriptor, mask)
            now = time.monotonic()
            if now - self._looked >= LOOK:
                self._looked = now
                self._look_at_stopped_ones()
            if not ready and until is not None and now >= until:
                raise queue.Empty
        return self._events.popleft()

    def _attend(self, descriptor: int, mask: int) -> None:
        wire, source = self._wires.get(descriptor, (None, None))
        if wire is None:
            if descriptor == self._wake:
                os.eventfd_read(self._wake)
            return
        if mask & select.POLLOUT:
            wire.flush()
            self._poll.modify(descriptor, select.POLLIN)
        if mask & ~select.POLLOUT:
            for event in wire.receive():
                self._events.append((source, event))
                if isinstance(event, Ended):
                    self.forget(wire)

    def _look_at_stopped_ones(self) -> None:
        for wire, _ in list(self._wires.values()):
            if wire.stopped_for() >= self._patience:
                wire.kill(f"it was stopped for {self._patience:g} s")
