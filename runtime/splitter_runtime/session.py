"""The trainer's session: one link per worker, and calls on the templates behind them.

    session = Session.current()
    session.call("getattr", number, "classes")

Every call goes to every template, in one order, so that all of them stand for the same main process; the home template's answer is used
(the first worker's). Each call takes the trainer's generator states along when they differ from what the template has, and the states that
the home template has afterwards are set here. A forked child can't use its parent's session.
"""

from __future__ import annotations

import atexit
import codecs
import itertools
import os
import queue
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from . import ambient, manifest
from .bootstrap import STATE, start_workers
from .codec import encode
from .errors import ConfigError, SplitterError, WorkerLostError
from .failures import LineMap, rebuild
from .frames import LAST_OF_CALL, Buffer, Frame, Kind, pack, pack_value
from .nearby import visible
from .pool import remote_endpoint
from .streams import Board
from .transport import Channel, Event, Link

CONNECT_S = 60.0  # how long a worker in the list may take to come up


@dataclass
class Pending:
    """A call under way at one template."""

    twin: Twin
    number: int
    peek: bool
    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)


class Twin:
    """What the trainer knows about one worker's template."""

    def __init__(self, link: Link, *, nearby: bool) -> None:
        self.link = link
        self.nearby = nearby  # large batches can come through memory
        self.known: dict[str, bytes] = {}  # generator states that the template has
        self._settings: dict[str, Any] = {}
        self._pending: dict[int, Pending] = {}
        self._lost: Event | None = None
        self.channel = link.channel(0, self._take)

    def bring_up_to_date(self, states: dict[str, bytes]) -> None:
        """Send generator states and settings, as far as the template hasn't got them."""
        settings = ambient.settings(local=self.link.endpoint.local)
        new = ambient.changes(self.known, states)
        if new or settings != self._settings:
            self.channel.send(pack_value(Kind.CONTEXT, 0, {"states": new, "settings": settings}))
            self.known.update(new)
            self._settings = settings

    def submit(self, number: int, parts: list[Buffer], *, peek: bool) -> Pending:
        """Send a call. WorkerLostError when the template is gone."""
        pending = Pending(self, number, peek)
        self._pending[number] = pending
        if self._lost is not None:
            pending.events.put(self._lost)
        self.channel.send(parts)
        return pending

    def _take(self, event: Event) -> None:
        """In the link's reader thread."""
        if not isinstance(event, Frame):
            self._lost = event
            for pending in list(self._pending.values()):
                pending.events.put(event)
            return
        if event.kind is Kind.STATES:
            self.known.update(event.value)
        last = event.kind in LAST_OF_CALL
        waiting = self._pending.pop(event.number, None) if last else self._pending.get(event.number)
        if waiting is not None:
            waiting.events.put(event)


def _patience(text: str) -> float:
    try:
        return float(text or CONNECT_S)
    except ValueError:
        raise ConfigError.of("R601", what=f"SPLITTER_CONNECT_SECONDS: {text!r} is not a number") from None


class Session:
    """This process's workers, connected."""

    _current: Session | None = None
    _lock = threading.RLock()

    @classmethod
    def current(cls) -> Session:
        """The session of this process; connects when there is none. ConfigError in a forked child of a process that has one."""
        with cls._lock:
            if cls._current is None:
                cls._current = cls()
            if cls._current.owner != os.getpid():
                raise ConfigError.of(
                    "R601",
                    what="a dataset on a worker can't be used in a process that was forked after the trainer had connected; "
                    "start the process with the spawn method, or use the dataset in the trainer's own process",
                )
            return cls._current

    def __init__(self) -> None:
        """Connect to all workers of the pool. AuthError, SkewError, WorkerLostError."""
        start_workers()
        assert STATE.trainer is not None  # start_workers() has checked
        self.owner = os.getpid()
        self._numbers = itertools.count(1)
        self._order = threading.RLock()
        local = iter(STATE.workers)
        endpoints = [
            next(local).endpoint() if place.address is None else remote_endpoint(place.address, os.environ) for place in STATE.places
        ]
        hello = manifest.hello(STATE.trainer.digest)
        patience = _patience(os.environ.get("SPLITTER_CONNECT_SECONDS", ""))
        self.twins: list[Twin] = []
        found = []
        for endpoint in endpoints:
            link = Link(endpoint)
            welcome = link.connect(hello, patience)
            manifest.check(hello, welcome, endpoint.name)
            found.append(manifest.read(welcome))
            link.start()
            self.twins.append(Twin(link, nearby=endpoint.local and visible(welcome.host_pid)))
        self.manifest = found[0]
        self.lines = LineMap(self.manifest, os.path.dirname(STATE.trainer.script))
        self.board = Board({endpoint.name: one.processes for endpoint, one in zip(endpoints, found, strict=True)})
        self.changes = 0  # counts calls that may change what the datasets give
        atexit.register(self.close)

    def __repr__(self) -> str:
        return f"<Session with {', '.join(repr(twin.link) for twin in self.twins)}; {self.board}>"

    @property
    def home(self) -> Twin:
        """The template whose answers count."""
        return self.twins[0]

    def number(self) -> int:
        """A number for a new object or channel."""
        return next(self._numbers)

    def call(self, name: str, *arguments: Any, fresh: int = 0, changes: bool = True) -> Frame:
        """Carry out a call on all templates; returns the home's last frame. Raises what the call raised."""
        return self.wait(self.submit(name, *arguments, fresh=fresh, changes=changes))

    def submit(
        self, name: str, *arguments: Any, fresh: int = 0, changes: bool = True, at_home: bool = False, peek: bool = False
    ) -> list[Pending]:
        """Send a call, to the home template only with `at_home`. With `peek` it must not draw: generator states don't go along."""
        number = next(self._numbers)
        parts = pack(Kind.CALL, number, encode((name, fresh, peek, arguments), name=name))
        with self._order:
            if changes:
                self.changes += 1
            states = {} if peek else ambient.states()
            pending = []
            for twin in [self.home] if at_home else self.twins:
                twin.bring_up_to_date(states)
                pending.append(twin.submit(number, parts, peek=peek))
            return pending

    def drop(self, number: int) -> None:
        """Let the templates forget an object. May be called by the garbage collector, in any thread."""
        if self.owner != os.getpid() or Session._current is not self:
            return
        call = next(self._numbers)
        parts = pack_value(Kind.CALL, call, ("drop", 0, True, (number,)))
        for twin in self.twins:
            twin.submit(call, parts, peek=True)

    def wait(self, pending: list[Pending], *, twice: bool = False) -> Frame:
        """The home's last frame of a call; what it printed is printed, and its generator states are set here; not so with
        `twice`, when the same was done in this process too."""
        frames = [self._wait(one, shown=one.twin is self.home and not twice) for one in pending]
        if frames[0].kind is Kind.RAISED:
            raise rebuild(frames[0].value, self.lines)
        for one, frame in zip(pending, frames, strict=True):
            if frame.kind is Kind.RAISED:
                failure = rebuild(frame.value, self.lines)
                why = f"it raised {type(failure).__name__} where {self.home.link.endpoint.name} did not"
                raise WorkerLostError.of("R401", worker=one.twin.link.endpoint.name, why=why) from failure
        return frames[0]

    def _wait(self, pending: Pending, *, shown: bool) -> Frame:
        decoders = {number: codecs.getincrementaldecoder("utf-8")("surrogatepass") for number in (1, 2)}
        while True:
            event = pending.events.get()
            if isinstance(event, SplitterError):
                raise event
            assert isinstance(event, Frame)  # the template's end comes as an error
            if event.kind is Kind.OUTPUT and shown:
                number, text = event.value
                (sys.stdout if number == 1 else sys.stderr).write(decoders[number].decode(text))
            elif event.kind is Kind.STATES and shown:
                ambient.set_states(event.value)
            elif event.kind in LAST_OF_CALL:
                return event

    def open_stream(self, value: dict[str, Any], twin: Twin, sink: Any) -> Channel:
        """Have a stream forked from a template."""
        number = next(self._numbers)
        with self._order:
            twin.bring_up_to_date({})
            return twin.link.open(number, pack_value(Kind.OPEN, number, value), sink)

    def twin(self, name: str) -> Twin:
        """The one of that worker."""
        return next(twin for twin in self.twins if twin.link.endpoint.name == name)

    def close(self) -> None:
        """End the session and the connections; for the end of the process."""
        if self.owner == os.getpid():
            for twin in self.twins:
                twin.link.close()
