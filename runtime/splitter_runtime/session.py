"""The trainer's session: its workers, and calls on the templates there.

    session = Session.current()
    session.call("getattr", number, "classes")

Every call goes to every template, in one order, so that all of them stand for the same main process; the home template's answer is used
(the first worker's). Each call takes the trainer's generator states along when they differ from what the template has, and the states that
the home template has afterwards are set here. Calls are written down in a journal, so that the template of a worker that comes later, or
comes back, is brought where the others are. A forked child can't use its parent's session.
"""

from __future__ import annotations

import atexit
import codecs
import itertools
import logging
import os
import queue
import sys
import threading
import time
import weakref
from collections import deque
from typing import Any

from . import ambient
from .bootstrap import STATE, start_workers
from .codec import encode
from .errors import ConfigError, SplitterError, WorkerLostError
from .failures import LineMap, rebuild
from .frames import LAST_OF_CALL, Frame, Kind, pack, pack_value
from .inbox import Inbox
from .journal import Entry, Journal
from .keeper import Keeper, connect_all
from .notices import tell
from .parked import Parked
from .settings import Settings
from .streams import ATTEMPTS, Board
from .twin import Call, Twin

_TOGETHER = frozenset({"construct", "loader", "receive"})  # calls whose failure at one worker is worth knowing at once
_WRITTEN = frozenset({"construct", "loader", "leave_out", "receive", "fetcher", "text"})


class Session:
    """This process's workers."""

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
        """Connect to the workers of the pool, as far as they are there; at least one. AuthError, SkewError, WorkerLostError."""
        start_workers()
        assert STATE.trainer is not None  # start_workers() has checked
        self.owner = os.getpid()
        self.settings = Settings.read(os.environ)
        self._numbers = itertools.count(1)
        self._order = threading.RLock()
        self._joined = threading.Condition(self._order)
        self._journal = Journal()
        self._alone = False  # only the home template knows the datasets' state
        self._over = False
        self.twins: list[Twin] = []  # that are there
        self.version = 0  # grows with every worker that comes or goes
        self.changes = 0  # counts calls that may change what the datasets give
        self.board = Board()
        self.parked: weakref.WeakSet[Parked] = weakref.WeakSet()  # of all loaders
        self._dropped: deque[int] = deque()  # objects that the templates may forget
        self._drops: queue.SimpleQueue[bool] = queue.SimpleQueue()
        threading.Thread(target=self._see_to_drops, name="splitter-drops", daemon=True).start()
        self.news = threading.Event()  # a keeper has something to say
        self._keepers = [Keeper(self, number, place) for number, place in enumerate(STATE.places)]
        try:
            connect_all(self, self._keepers)
        except BaseException:
            self.close()
            raise
        self.manifest = self.twins[0].manifest
        self.lines = LineMap(self.manifest, os.path.dirname(STATE.trainer.script))
        atexit.register(self.close)

    def __repr__(self) -> str:
        return f"<Session with {', '.join(repr(twin.link) for twin in self.twins)}; {self.board}>"

    # Workers that come and go

    @property
    def alone(self) -> bool:
        """Whether batches of num_workers=0 have changed the datasets' state, which only the home template knows since then."""
        return self._alone

    @property
    def home(self) -> Twin:
        """The template whose answers count; waits when all workers are gone. WorkerLostError when none comes back in time."""
        with self._order:
            while True:
                for twin in list(self.twins):
                    lost = twin.lost()
                    if lost is None:
                        return twin
                    self.lose(twin, lost)
                self._wait_for_one()

    def _wait_for_one(self) -> None:
        """With the lock held: wait until a worker is there again."""
        tell(logging.WARNING, f"no worker is left; waiting up to {self.settings.grace:.0f} s for one")
        until = time.monotonic() + self.settings.grace
        while not self.twins:
            left = until - time.monotonic()
            hopeless = all(keeper.gave_up is not None for keeper in self._keepers)
            if left <= 0 or hopeless or self._over:
                why = "; ".join(f"{keeper.name}: {keeper.reason}" for keeper in self._keepers)
                raise WorkerLostError.of("R402", seconds=f"{self.settings.grace:.0f}", why=why)
            self._joined.wait(min(left, 1.0))

    def join(self, twin: Twin, keeper: Keeper) -> bool:
        """Bring a new template where the others are, and use it from now on; in the keeper's thread. False when it isn't wanted any more.

        WorkerLostError when it does otherwise than the others did.
        """
        done = 0
        while True:
            with self._order:
                entries = self._journal.after(done)
                settled = list(itertools.takewhile(lambda entry: entry.raised is not None, entries))
                if self._over or (self._alone and self.twins):
                    return False
                if not settled:  # whoever waits for one that is under way gets the answer
                    for entry in entries:
                        twin.submit(entry.call)
                    before = {other.number for other in self._keepers if other.number < keeper.number}
                    at = sum(other.number in before and other.twin is not None for other in self._keepers)
                    self.twins.insert(at, twin)
                    keeper.twin = twin
                    self.board.add(twin.name, twin.manifest.processes)
                    self.version += 1
                    twin.link.on_leaving = lambda: self.asked_to_leave(twin)
                    self._joined.notify_all()
                    return True
            self._replay(twin, settled)
            done = settled[-1].number

    def _replay(self, twin: Twin, entries: list[Entry]) -> None:
        """Have calls that were answered elsewhere carried out once more."""
        for entry in entries:
            call = Call(entry.number, "", [self._journal.body(entry)], entry.states, entry.settings)
            twin.submit(call)
            while (frame := twin.next_frame(call)).kind not in LAST_OF_CALL:
                pass
            twin.answered(call)
            if (frame.kind is Kind.RAISED) != entry.raised:
                why = "it raised no exception where others did" if entry.raised else str(rebuild(frame.value, self.lines))
                raise WorkerLostError.of("R401", worker=twin.name, why=f"while it was brought where the others are: {why}")

    def asked_to_leave(self, twin: Twin) -> None:
        """That worker would like to end; nothing new goes there, and streams move away. Called in any thread."""
        with self._order:
            twin.leaving = True
            self.board.close(twin.name)
            self.version += 1
            self._let_go_of_leaving()

    def lose(self, twin: Twin, error: SplitterError) -> None:
        """That worker is gone: do without it, and see to it that it comes back."""
        with self._order:
            if twin not in self.twins:
                return
            twin.fail(error)
            self.twins.remove(twin)
            self.board.remove(twin.name)
            self.version += 1
            if self._over:
                return
            tell(logging.WARNING, f"{self.lines.map(str(error).rpartition('. ')[0] or str(error))}; its streams go on elsewhere")
            for keeper in self._keepers:
                if keeper.twin is twin or (self._alone and keeper.twin is None):
                    keeper.look_for_it()

    def stay_at_home(self) -> None:
        """Only the home template goes through what comes: its datasets' state is known nowhere else."""
        with self._order:
            if self._alone:
                return
            home = self.home
            self._alone = True
            for twin in [other for other in self.twins if other is not home]:
                self.twins.remove(twin)
                self.board.remove(twin.name)
                next(keeper for keeper in self._keepers if keeper.twin is twin).let_go()

    def place(self, avoid: str | None = None) -> Twin:
        """The worker for one more stream. WorkerLostError when there is none in time."""
        with self._order:
            home = self.home
            self.look()
            name = self.board.place(avoid)
            return next((twin for twin in self.twins if twin.name == name), home)

    def release(self, name: str) -> None:
        """A stream on that worker has ended; when it was the last one and the worker would like to end, let it go."""
        with self._order:
            self.board.release(name)
            self._let_go_of_leaving()

    def look(self) -> None:
        """Look for workers that are gone."""
        with self._order:
            for twin in list(self.twins):
                lost = twin.lost()
                if lost is not None:
                    self.lose(twin, lost)

    def is_leaving(self, name: str) -> bool:
        """Whether that worker would like to end, or is gone."""
        return not any(twin.name == name and not twin.leaving for twin in self.twins)

    def lose_by_name(self, name: str, error: SplitterError) -> None:
        """lose() of the worker of that name."""
        for twin in [twin for twin in self.twins if twin.name == name and twin.lost() is not None]:
            self.lose(twin, error)

    def _let_go_of_leaving(self) -> None:
        for twin in [twin for twin in self.twins if twin.leaving and not self.board.running(twin.name)]:
            if len(self.twins) > 1:
                self.lose(twin, WorkerLostError.of("R401", worker=twin.name, why="it is shutting down"))

    # Calls

    def number(self) -> int:
        """A number for a new object or channel."""
        return next(self._numbers)

    def call(self, name: str, *arguments: Any, fresh: int = 0, changes: bool = True) -> Frame:
        """Carry out a call on all templates; returns the home's last frame. Raises what the call raised."""
        return self.wait(self.submit(name, *arguments, fresh=fresh, changes=changes))

    def submit(self, name: str, *arguments: Any, fresh: int = 0, changes: bool = True, at_home: bool = False, peek: bool = False) -> Call:
        """Send a call, to the home template only with `at_home`. With `peek` it must not draw: generator states don't go along."""
        number = next(self._numbers)
        parts = pack(Kind.CALL, number, encode((name, fresh, peek, arguments), name=name))
        with self._order:
            self._send_drops()
            if changes:
                self.changes += 1
            states = {} if peek else ambient.states()
            settings = ambient.settings(local=True)
            call = Call(number, name, parts, states, settings)
            home = self.home
            if changes or name in _WRITTEN:
                call.entry = self._journal.add(number, parts, fresh, settings, states, call)
            for twin in [home] if at_home else list(self.twins):
                twin.submit(call)
        return call

    def drop(self, number: int) -> None:
        """Let the templates forget an object. May be called by the garbage collector, in any thread, in the middle of anything."""
        if self.owner == os.getpid() and Session._current is self and not self._over:
            self._dropped.append(number)
            self._drops.put(True)

    def _see_to_drops(self) -> None:
        """In a thread of its own: what the garbage collector interrupts may hold any lock."""
        while self._drops.get():
            with self._order:
                self._send_drops()

    def _send_drops(self) -> None:
        """With the lock held."""
        while self._dropped:
            number = self._dropped.popleft()
            parts = pack_value(Kind.CALL, next(self._numbers), ("drop", 0, True, (number,)))
            self._journal.drop(number)
            for twin in list(self.twins):
                twin.tell(parts)

    def forget(self, call: Call) -> None:
        """Nobody wants the answer of a call any more. May be called by the garbage collector, in any thread."""
        for twin in list(call.answers):
            twin.answered(call)

    def wait(self, call: Call, *, twice: bool = False) -> Frame:
        """The home's last frame of a call; what it printed is printed, and its generator states are set here; not so with
        `twice`, when the same was done in this process too."""
        try:
            frame = self._answer(call, twice)
        finally:
            if call.entry is not None and call.entry.raised is None:  # interrupted: whoever comes later does it, too
                self._journal.settle(call.entry, drew=True, raised=False)
            for twin in list(call.answers):
                twin.answered(call)
        if frame.kind is Kind.RAISED:
            raise rebuild(frame.value, self.lines)
        return frame

    def _answer(self, call: Call, twice: bool) -> Frame:
        """The first answer; those of the others must be there, too, before the next call."""
        for attempt in itertools.count(1):
            twin = self._who_answers(call)
            try:
                frame, drew = self._wait_at(call, twin, shown=not twice)
                break
            except SplitterError as error:
                self.lose(twin, error)
                if attempt == ATTEMPTS:  # it may be the call that brings them down
                    raise
        if call.entry is not None:
            with self._order:
                self._journal.settle(call.entry, drew=drew, raised=frame.kind is Kind.RAISED)
        for other in [other for other in list(call.answers) if other is not twin and other in self.twins]:
            self._compare(call, other, twin, frame)
        return frame

    def _who_answers(self, call: Call) -> Twin:
        """A template that has the call; the home gets it when there is none."""
        with self._order:
            home = self.home
            if home in call.answers:
                return home
            having = [twin for twin in self.twins if twin in call.answers]
            if having:
                return having[0]
            home.submit(call)
            return home

    def _wait_at(self, call: Call, twin: Twin, *, shown: bool) -> tuple[Frame, bool]:
        decoders = {number: codecs.getincrementaldecoder("utf-8")("surrogatepass") for number in (1, 2)}
        drew = False
        come = {1: 0, 2: 0}
        while True:
            frame = twin.next_frame(call)
            if frame.kind is Kind.OUTPUT and shown:
                number, text = frame.value
                seen = max(0, call.shown.get(number, 0) - come[number])  # by a template that is gone
                come[number] += len(text)
                call.shown[number] = max(call.shown.get(number, 0), come[number])
                (sys.stdout if number == 1 else sys.stderr).write(decoders[number].decode(text[seen:]))
            elif frame.kind is Kind.STATES:
                drew = True
                if shown:
                    ambient.set_states(frame.value)
            elif frame.kind is Kind.RAN and call.entry is None:
                self.changes += 1
                with self._order:
                    call.entry = self._journal.add(call.number, call.parts, 0, call.settings, {}, call)
            elif frame.kind in LAST_OF_CALL:
                return frame, drew

    def _compare(self, call: Call, other: Twin, home: Twin, answer: Frame) -> None:
        """Wait for another template's answer; do without it when it isn't like the home's."""
        try:
            frame, _ = self._wait_at(call, other, shown=False)
        except SplitterError as error:
            self.lose(other, error)
            return
        if (frame.kind is Kind.RAISED) == (answer.kind is Kind.RAISED):
            return
        failure = rebuild((frame if frame.kind is Kind.RAISED else answer).value, self.lines)
        did, not_ = (other, home) if frame.kind is Kind.RAISED else (home, other)
        why = f"{did.name} raised {type(failure).__name__} where {not_.name} did not"
        different = WorkerLostError.of("R401", worker=other.name, why=why)
        if call.name in _TOGETHER:  # files that are missing on one host, for example
            raise different from failure
        self.lose(other, different)

    def open_stream(self, value: dict[str, Any], twin: Twin, inbox: Inbox) -> Any:
        """Have a stream forked from a template; returns its channel."""
        number = next(self._numbers)
        with self._order:
            self._send_drops()
            twin.bring_up_to_date({}, ambient.settings(local=True))
            return twin.open(number, value, inbox)

    def close(self) -> None:
        """End the session and the connections; for the end of the process."""
        if self.owner != os.getpid():
            return
        self._over = True
        self._drops.put(False)
        for parked in list(self.parked):
            parked.close()
        for keeper in self._keepers:
            keeper.stop()
        for twin in list(self.twins):
            twin.close()
