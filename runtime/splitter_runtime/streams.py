"""What is decided about streams: no I/O.

board = Board(); board.add("cpu1:7077", processes=8)
board.place() -> "cpu1:7077"               the worker for one more stream
board.took("cpu1:7077", 0.012)             a batch took a stream there that long
board.better("cpu1:7077") -> "cpu2:7077"   where one of its streams would be better off

course = Course(keeps_state=False)
course.asked(frame); course.answered(); course.at(states)      what a stream was told and has given back
course.restart() -> Start and frames                            what another one must be told to go on
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .journal import Spool
from .stream import SKIPPED, Start

SMOOTH = 0.2  # weight of the newest batch in a worker's mean time
WORTH = 1.5  # how many times faster another worker must be for a stream to move there
ENOUGH = 8  # batches of a worker before its speed is believed
ATTEMPTS = 4  # processes that one batch may bring down


@dataclass
class Host:
    """A worker: how many processes it offers, how many streams it runs, seconds that a batch takes one of them (0 when not known)."""

    processes: int
    running: int = 0
    seconds: float = 0.0
    batches: int = 0
    closed: bool = False  # it would like to end

    def pace(self, running: int, typical: float) -> float:
        """Seconds for a batch of one of `running` streams."""
        base = self.seconds if self.batches >= ENOUGH else typical
        share = max(1.0, running / self.processes) / max(1.0, self.running / self.processes if self.batches >= ENOUGH else 1.0)
        return base * share


class Board:
    """How many streams each worker runs, how fast, and which gets the next one.

    As long as nothing is known of their speed, workers fill in proportion to the processes that they offer; ties go to the first in the
    list, so that the same program places its streams in the same way each time.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}

    def __repr__(self) -> str:
        return "<Board " + ", ".join(f"{name}: {host.running}/{host.processes}" for name, host in self._hosts.items()) + ">"

    def add(self, name: str, processes: int) -> None:
        """A worker is there."""
        self._hosts[name] = Host(max(1, processes))

    def remove(self, name: str) -> None:
        """It isn't any more; its streams need not be released."""
        self._hosts.pop(name, None)

    def close(self, name: str) -> None:
        """Nothing new goes there, unless there is nowhere else."""
        if name in self._hosts:
            self._hosts[name].closed = True

    def place(self, avoid: str | None = None) -> str | None:
        """Choose the worker of one more stream, and count it there; None when there is no worker."""
        typical = self._typical()
        open_ones = [name for name, host in self._hosts.items() if not host.closed] or list(self._hosts)
        choices = [name for name in open_ones if name != avoid] or open_ones
        if not choices:
            return None

        def cost(name: str) -> tuple[float, float]:
            host = self._hosts[name]
            return host.pace(host.running + 1, typical), (host.running + 1) / host.processes

        name = min(choices, key=cost)
        self._hosts[name].running += 1
        return name

    def release(self, name: str) -> None:
        """A stream that place() had put there has ended."""
        if name in self._hosts:
            self._hosts[name].running -= 1

    def running(self, name: str) -> int:
        """How many streams run there."""
        return self._hosts[name].running if name in self._hosts else 0

    def took(self, name: str, seconds: float) -> None:
        """A stream there needed that long for a batch."""
        host = self._hosts.get(name)
        if host is not None:
            host.seconds = seconds if host.batches == 0 else (1 - SMOOTH) * host.seconds + SMOOTH * seconds
            host.batches += 1

    def better(self, name: str) -> str | None:
        """A worker where a stream of `name` would be clearly faster, also together with those that run there."""
        here = self._hosts.get(name)
        others = {other: host for other, host in self._hosts.items() if other != name and not host.closed}
        if here is None or not here.running or not others:
            return None
        typical = self._typical()
        if here.closed:
            return min(others, key=lambda other: others[other].pace(others[other].running + 1, typical))
        now = here.pace(here.running, typical)
        for other, host in others.items():
            if host.pace(host.running + 1, typical) * WORTH < now:
                return other
        # A worker that has joined has none yet.
        idle = [other for other, host in others.items() if host.running == 0]
        return idle[0] if idle and here.running > here.processes else None

    def _typical(self) -> float:
        known = [host.seconds for host in self._hosts.values() if host.batches >= ENOUGH]
        return sum(known) / len(known) if known else 1.0


@dataclass(frozen=True)
class Here:
    """Where a stream is behind an answer: the newest cursor's states, answers since that, bytes printed since that, and whether something
    was answered before it. Without `whole`, what the stream was told in an epoch before is needed too, to get there.
    """

    states: Mapping[str, Any] = field(default_factory=dict)
    answered: int = 0
    printed: tuple[int, int] = (0, 0)
    quiet: bool = False
    whole: bool = True


class Course:
    """What one stream was told since its start or its newest cursor, and how much of that it has answered, so that another process can
    take its place: told the same again, it withholds the answers that are known.

    With `keeps_state` a cursor is rare, and the frames go to disk when they are many; without, every answer is one.
    """

    def __init__(self, keeps_state: bool) -> None:
        self._keeps_state = keeps_state
        self._told: dict[tuple[int, int], bytes | tuple[int, int]] = {}  # by epoch and batch, -1 for the RESUME that begins the epoch
        self._spool: Spool | None = None
        self._resumes = self._resumed = 0  # told, and answered
        self._coming: Mapping[str, Any] = {}  # of a cursor whose answer has not come
        self._answered = 0  # of those
        self._moved = False  # a cursor has come, and belongs to the next answer
        self._began = False  # something was answered before the newest cursor
        self._epoch = 0  # RESUMEs before the newest cursor
        self.losses = 0.0  # since the last answer; a process that didn't even start counts less
        self.states: Mapping[str, Any] = {}
        self.printed = [0, 0]  # bytes of both outputs since the start or the cursor

    def asked(self, number: int | None, frame: bytes) -> None:
        """A frame was sent: INDEX of a batch, or RESUME. OSError when there is no room to keep it."""
        if number is None:
            self._resumes += 1
            number = -1
        key = self._resumes, number
        if self._keeps_state:
            self._spool = self._spool or Spool()
            self._told[key] = self._spool.add(frame)
        else:
            self._told[key] = frame

    def at(self, states: Mapping[str, Any]) -> None:
        """A cursor has come; the answer that it stands behind follows."""
        self._coming = states
        self._moved = True

    def answered(self, number: int | None) -> None:
        """An answer has come: to the INDEX of a batch, or to the first RESUME."""
        self.losses = 0.0
        if number is None:
            self._resumed += 1
            number = -1
        key = self._resumed, number
        if not self._keeps_state:
            self._told.pop(key, None)  # it may have been taken back, too late
        elif self._moved:
            while (first := next(iter(self._told))) != key:
                del self._told[first]
            del self._told[key]
            self._answered = 0
        else:
            self._answered += 1
            return
        if self._moved:
            self.states = {**self.states, **self._coming}
        self._moved, self._coming, self._began = False, {}, True
        self._epoch = self._resumes
        self.printed = [0, 0]

    def here(self) -> Here:
        """Where the stream is, right behind an answer."""
        return Here(self.states, self._answered, (self.printed[0], self.printed[1]), self._began, self._epoch == self._resumes)

    def begin_at(self, here: Here, skipped: Sequence[bytes]) -> None:
        """Start there in the place of the beginning; `skipped` are the frames of the answers since the cursor, which are withheld."""
        for number, frame in enumerate(skipped):
            self.asked(SKIPPED + number, frame)
        self.states, self._answered, self._began = here.states, len(skipped), here.quiet
        self.printed = list(here.printed)

    def waiting(self) -> list[int]:
        """Batches that are not answered."""
        return [number for _, number in list(self._told)[self._answered :] if number >= 0]

    def forget(self, number: int) -> None:
        """Another stream makes that batch."""
        self._told.pop((self._resumed, number), None)

    def restart(self) -> tuple[Start, list[bytes]]:
        """Where another process starts, and the frames that it is told."""
        self._moved = False  # what that cursor belongs to has not come
        frames = [place if isinstance(place, bytes) else self._read(place) for place in self._told.values()]
        skip = (self.printed[0], self.printed[1])
        return Start(dict(self.states), self._answered, skip, quiet=self._began), frames

    def _read(self, place: tuple[int, int]) -> bytes:
        assert self._spool is not None
        return self._spool.read(place)


class Dispatch:
    """Which stream makes which batch, where any may: one that has nothing to do, so that one slow batch holds nobody up.

    A stream is given a second batch while it makes the first, so that it need not wait; when another one runs dry, that takes it over.
    """

    DEPTH = 2

    def __init__(self, streams: int) -> None:
        self._given: list[list[int]] = [[] for _ in range(streams)]
        self._waiting: deque[int] = deque()

    def ask(self, number: int) -> list[tuple[int, int]]:
        """A batch is wanted; returns what is to be sent: (stream, batch)."""
        self._waiting.append(number)
        return self._give()

    def answered(self, stream: int, number: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """A stream has made a batch; returns what is to be sent, and what is to be taken back before that: (stream, batch)."""
        if number in self._given[stream]:
            self._given[stream].remove(number)
        sent = self._give()
        if sent or self._given[stream]:
            return sent, []
        fullest = max(range(len(self._given)), key=lambda other: len(self._given[other]))
        if len(self._given[fullest]) < self.DEPTH:
            return [], []
        moved = self._given[fullest].pop()
        self._given[stream].append(moved)
        return [(stream, moved)], [(fullest, moved)]

    def _give(self) -> list[tuple[int, int]]:
        sent = []
        while self._waiting:
            sizes = list(map(len, self._given))
            emptiest = sizes.index(min(sizes))
            if sizes[emptiest] >= self.DEPTH:
                break
            number = self._waiting.popleft()
            self._given[emptiest].append(number)
            sent.append((emptiest, number))
        return sent
