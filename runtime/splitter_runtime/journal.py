"""The journal: every call that a template must have carried out to be like the others, so that another one can be brought there.

    entry = journal.add(call, body, fresh, settings, states)
    journal.settle(entry, drew=False, raised=False)     states that nothing was drawn from need not be kept
    journal.drop(7)                                     a sent dataset that is gone needs not be sent again

Bodies lie in memory, and on disk when they are many.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .frames import Buffer

IN_MEMORY = 32 << 20  # bytes of a spool; the rest is a temporary file
LARGE = 1 << 20  # bytes; a body above it can be dropped, so it lies by itself


class Spool:
    """Byte strings, each found again by the place that add() gives. OSError when there is no room for them."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)
        self._end = 0

    def add(self, data: bytes) -> tuple[int, int]:
        self._file.seek(self._end)
        self._file.write(data)
        place = self._end, len(data)
        self._end += len(data)
        return place

    def read(self, place: tuple[int, int]) -> bytes:
        self._file.seek(place[0])
        return self._file.read(place[1])

    def close(self) -> None:
        self._file.close()


@dataclass
class Entry:
    """One call. `states` are those of the trainer's generators before it, until it is known that it didn't draw."""

    number: int  # of the call
    fresh: int  # object that it makes, 0 for none
    body: tuple[int, int] | bytes
    settings: Mapping[str, Any]
    states: Mapping[str, bytes]
    raised: bool | None = None  # None while it is under way
    call: Any = field(default=None, repr=False)  # the Call, while somebody waits for its answer


class Journal:
    """Entries in the order of the calls. The session's lock guards it; reading bodies is safe beside that."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._spool = Spool()
        self._lock = threading.Lock()
        self._large: dict[int, int] = {}  # object -> call, of calls with a large body

    def __len__(self) -> int:
        return len(self._entries)

    def add(
        self, number: int, parts: Sequence[Buffer], fresh: int, settings: Mapping[str, Any], states: Mapping[str, bytes], call: Any
    ) -> Entry:
        """Write down a call that is about to be sent. OSError when the disk is full."""
        body: tuple[int, int] | bytes = b"".join(parts)
        if len(body) < LARGE:
            with self._lock:
                body = self._spool.add(body)  # type: ignore[arg-type]
        else:
            self._large[fresh] = number
        entry = Entry(number, fresh, body, settings, states, call=call)
        self._entries[number] = entry
        return entry

    def settle(self, entry: Entry, *, drew: bool, raised: bool) -> None:
        """The call has been answered."""
        entry.raised, entry.call = raised, None
        if not drew:
            entry.states = {}

    def drop(self, fresh: int) -> None:
        """Nobody uses that object any more. What made it stays written down, unless that is large: making it may have drawn."""
        number = self._large.pop(fresh, None)
        if number is not None:
            del self._entries[number]

    def after(self, number: int) -> list[Entry]:
        """Entries behind that call, 0 for all."""
        return [entry for entry in self._entries.values() if entry.number > number]

    def body(self, entry: Entry) -> bytes:
        """The frame of an entry."""
        if isinstance(entry.body, bytes):
            return entry.body
        with self._lock:
            return self._spool.read(entry.body)
