"""What the trainer knows about one worker's template: which generator states and settings it has, and calls that are under way there."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import ambient
from .errors import SplitterError, WorkerLostError
from .frames import LAST_OF_CALL, Buffer, Frame, Kind, pack_value
from .inbox import Ended, Inbox
from .journal import Entry
from .manifest import Manifest
from .transport import Link


@dataclass(eq=False)
class Call:
    """A call on templates, until its answer is there."""

    number: int
    name: str
    parts: Sequence[Buffer]
    states: Mapping[str, bytes]  # of the trainer's generators before it
    settings: Mapping[str, Any]
    entry: Entry | None = None
    shown: dict[int, int] = field(default_factory=dict)  # bytes of both outputs that were shown
    answers: dict[Twin, deque[Frame]] = field(default_factory=dict)  # of the templates that it was sent to


class Twin:
    """One worker's template."""

    def __init__(self, link: Link, manifest: Manifest, patience: float) -> None:
        """Have it forked. WorkerLostError."""
        self.link, self.manifest = link, manifest
        self.known: dict[str, bytes] = {}  # generator states that the template has
        self._settings: Mapping[str, Any] = {}
        self.leaving = False
        self._pending: dict[int, Call] = {}
        self._unanswered: set[int] = set()  # calls that may draw
        self._newest = 0  # call that took states along
        self._inbox = Inbox(patience)
        self._turn = threading.RLock()
        self._failed: SplitterError | None = None
        self._channel = link.start(self._inbox)

    def __repr__(self) -> str:
        return f"<Twin {self.link!r}>"

    @property
    def name(self) -> str:
        return self.link.name

    def lost(self) -> SplitterError | None:
        """Why it isn't there any more."""
        return self._failed or self.link.lost()

    def fail(self, error: SplitterError) -> None:
        """It is of no use any more."""
        self._failed = self._failed or error

    def bring_up_to_date(self, states: Mapping[str, bytes], settings: Mapping[str, Any]) -> None:
        """Send generator states and settings, as far as the template hasn't got them."""
        if not self.link.local:
            settings = {name: value for name, value in settings.items() if name not in ambient.LOCAL}
        # What a call draws is known when it is answered.
        new = dict(states) if self._unanswered else ambient.changes(self.known, states)
        if new or settings != self._settings:
            self._channel.send(pack_value(Kind.CONTEXT, 0, {"states": new, "settings": settings}))
            self.known.update(new)
            self._settings = settings

    def submit(self, call: Call) -> None:
        """Send a call."""
        self.bring_up_to_date(call.states, call.settings)
        call.answers[self] = deque()
        self._pending[call.number] = call
        if call.states:
            self._newest = call.number
            self._unanswered.add(call.number)
        self._channel.send(call.parts)

    def tell(self, parts: Sequence[Buffer]) -> None:
        """Send a call whose answer nobody waits for."""
        self._channel.send(parts)

    def next_frame(self, call: Call) -> Frame:
        """Wait for the next frame of the call. SplitterError when the template is gone."""
        answers = call.answers[self]
        with self._turn:
            while not answers:
                if self._failed is not None:
                    raise self._failed
                try:
                    self._take(self._inbox.get(timeout=1.0)[1])
                except queue.Empty:
                    lost = self.lost()
                    if lost is not None:
                        self._failed = lost
        return answers.popleft()

    def _take(self, event: Any) -> None:
        if isinstance(event, SplitterError):
            self.fail(event)
        elif isinstance(event, Ended):
            self.fail(WorkerLostError.of("R401", worker=self.name, why=f"its template process ended ({event.why})"))
        else:
            if event.kind is Kind.STATES and event.number >= self._newest:
                self.known.update(event.value)
            elif event.kind in LAST_OF_CALL:
                self._unanswered.discard(event.number)
            call = self._pending.get(event.number)
            if call is not None:
                call.answers[self].append(event)

    def answered(self, call: Call) -> None:
        """Nothing more is wanted of it."""
        self._pending.pop(call.number, None)

    def open(self, number: int, value: Any, inbox: Inbox) -> Any:
        """Have a stream forked; returns its channel."""
        channel = self.link.open(number, pack_value(Kind.OPEN, number, value), inbox)
        with self._turn:
            while self._channel.unsent and self._failed is None:  # nobody else sees to it
                with contextlib.suppress(queue.Empty):
                    self._take(self._inbox.get(timeout=0.05)[1])
        return channel

    def close(self) -> None:
        """End the session with that worker."""
        self.link.close()
