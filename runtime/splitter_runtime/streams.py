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
from dataclasses import dataclass, field

from .frames import Kind
from .journal import Spool
from .stream import Start

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


@dataclass
class Course:
    """What one stream was told and what it has answered, so that another process can take its place.

    With `keeps_state` everything is kept, since another process must go the same way; without, only what came after the newest answer.
    """

    keeps_state: bool
    answers: int = 0
    losses: int = 0  # since the last answer
    states: dict[str, bytes] = field(default_factory=dict)
    printed: list[int] = field(default_factory=lambda: [0, 0])  # bytes of both outputs, since the start or the newest answer
    _told: deque[tuple[Kind, bytes]] = field(default_factory=deque)
    _spool: Spool | None = None
    _places: list[tuple[int, int]] = field(default_factory=list)

    def asked(self, kind: Kind, frame: bytes) -> None:
        """A frame was sent: INDEX or RESUME. OSError when there is no room to keep it."""
        if self.keeps_state:
            self._spool = self._spool or Spool()
            self._places.append(self._spool.add(frame))
        else:
            self._told.append((kind, frame))

    def at(self, states: dict[str, bytes]) -> None:
        """A cursor has come; the answer to the batch follows."""
        self.states = {**self.states, **states}

    def answered(self) -> None:
        """The next answer has come."""
        self.losses = 0
        self.answers += 1
        if not self.keeps_state:
            self._told.popleft()
            self.printed = [0, 0]

    def restart(self) -> tuple[Start, list[bytes]]:
        """Where another process starts, and the frames that it is told."""
        self.losses += 1
        skip = (self.printed[0], self.printed[1])
        if self.keeps_state:
            frames = [self._spool.read(place) for place in self._places] if self._spool else []
            return Start({}, self.answers, skip), frames
        return Start(dict(self.states), 0, skip, quiet=self.answers > 0), [frame for _, frame in self._told]
