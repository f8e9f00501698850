"""Processes of streams that have ended, waiting to be the streams of the loader's next iterator.

Where the code keeps no state, a process that has made batches before is as good as one that was just forked, and there at once.
"""

from __future__ import annotations

import queue
from typing import Any

from .inbox import Inbox
from .twin import Twin


class Parked:
    """The processes of one loader that wait."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, Any, Any]] = []  # worker, key, channel
        self._inbox = Inbox()

    def put(self, worker: str, key: Any, channel: Any) -> None:
        """Keep a process; those with another key are of no use any more."""
        for old in [entry for entry in self._waiting if entry[1] != key]:
            self._end(old)
        channel.attach(self._inbox)
        self._waiting.append((worker, key, channel))

    def pop(self, twin: Twin, key: Any) -> Any | None:
        """The channel of a process of that worker that does for `key`, None for none."""
        self._drop_ended()
        for entry in self._waiting:
            if entry[0] == twin.name and entry[1] == key:
                self._waiting.remove(entry)
                return entry[2]
        return None

    def close(self) -> None:
        """End them all."""
        for entry in list(self._waiting):
            self._end(entry)

    def _end(self, entry: tuple[str, Any, Any]) -> None:
        self._waiting.remove(entry)
        entry[2].end()
        entry[2].close()

    def _drop_ended(self) -> None:
        """A process that says something while it waits has ended."""
        while True:
            try:
                channel, _ = self._inbox.get(0)
            except queue.Empty:
                return
            for entry in [entry for entry in self._waiting if entry[2] is channel]:
                self._end(entry)
