"""What a loader of the trainer has done: counts for the line after each epoch, for the live line and for metrics.

    tally = Tally.of("train", lambda: 2)      one for each loader, used for all of its epochs
    tally.begin()                             an iterator starts
    tally.took("cpu1:7077", 38_535_168, 0.002)   a batch was handed out, after so many seconds of waiting for it
    tally.moved("lost")                       a stream went on elsewhere
    tally.end()                               the epoch is over: its line is told

    splitter: train: 391 batches in 12.3 s, 4% of it waiting for data, 812.3 MB/s, 2 workers, 1 move (1 lost)

Loaders of one name, such as those that a function makes anew for every epoch, share a Site. A site tells at most a line a second, and the
epochs that end in between are summed up in the next one; while epochs are so short, the time between two lines grows up to a minute.

Counting takes no lock: batches are taken by one thread at a time. Processes forked from the trainer tell nothing of what it has counted.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .notices import tell, threshold

SHORTEST, LONGEST = 1.0, 60.0  # seconds between two lines of a site


@dataclass(frozen=True)
class Epoch:
    """What happened in one epoch, or in several that were summed up."""

    batches: int
    nbytes: int
    waited: float  # seconds
    seconds: float
    moves: Mapping[str, int] = field(default_factory=dict)
    count: int = 1

    def __add__(self, other: Epoch) -> Epoch:
        return Epoch(
            self.batches + other.batches,
            self.nbytes + other.nbytes,
            self.waited + other.waited,
            self.seconds + other.seconds,
            dict(Counter(self.moves) + Counter(other.moves)),
            self.count + other.count,
        )


def counted(number: int, noun: str, plural: str = "") -> str:
    """1 batch, 2 batches."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def share(part: float, whole: float) -> str:
    """A part of a time as a percentage."""
    return f"{min(1.0, part / whole) if whole > 0 else 0.0:.0%}"


def line(name: str, epoch: Epoch, workers: int) -> str:
    """The line after an epoch."""
    many = f"{epoch.count} epochs, " if epoch.count > 1 else ""
    rate = epoch.nbytes / 1e6 / epoch.seconds if epoch.seconds > 0 else 0.0
    parts = [
        f"{name}: {many}{counted(epoch.batches, 'batch', 'batches')} in {epoch.seconds:.{1 if epoch.seconds >= 1 else 3}f} s",
        f"{share(epoch.waited, epoch.seconds)} of it waiting for data",
        f"{rate:.1f} MB/s",
        counted(workers, "worker"),
    ]
    if epoch.moves:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(epoch.moves.items()))
        parts.append(f"{counted(sum(epoch.moves.values()), 'move')} ({kinds})")
    return ", ".join(parts)


class Pace:
    """Which epochs get a line of their own. Decisions only: times come from the caller."""

    def __init__(self) -> None:
        self._last = float("-inf")
        self._gap = SHORTEST
        self._held: Epoch | None = None

    def add(self, epoch: Epoch, now: float) -> Epoch | None:
        """What is to be told now that this epoch has ended."""
        self._held = epoch if self._held is None else self._held + epoch
        return self.rest(now) if now - self._last >= self._gap else None

    def rest(self, now: float) -> Epoch | None:
        """What was held back and is to be told now."""
        told, self._held = self._held, None
        if told is not None:
            self._last = now
            self._gap = SHORTEST if told.count == 1 else min(2 * self._gap, LONGEST)
        return told


@dataclass
class Share:
    """What came from one worker."""

    batches: int = 0
    nbytes: int = 0


class Site:
    """All loaders of one name, since the program started."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.shares: dict[str, Share] = {}
        self.waited = 0.0
        self.moves: Counter[str] = Counter()
        self.newest: weakref.ref[Tally] | None = None  # the one whose epoch began last
        self.pace = Pace()

    def totals(self) -> tuple[int, int, float]:
        """Batches, bytes, seconds of waiting."""
        shares = list(self.shares.values())
        return sum(one.batches for one in shares), sum(one.nbytes for one in shares), self.waited

    def active(self) -> Tally | None:
        """The loader that is being iterated over."""
        newest = None if self.newest is None else self.newest()
        return newest if newest is not None and newest.running else None

    def workers(self) -> int:
        """Workers that its newest loader can use; none when that is gone."""
        newest = None if self.newest is None else self.newest()
        return 0 if newest is None else newest.workers()


class Tally:
    """The counts of one loader."""

    def __init__(self, site: Site, workers: Callable[[], int]) -> None:
        """`workers` gives the number of workers alive."""
        self.site, self.workers = site, workers
        self.running = False
        self.batches, self.nbytes, self.waited = 0, 0, 0.0
        self._moves: Counter[str] = Counter()
        self._lock = threading.Lock()  # streams move in the threads of links
        self._start = time.monotonic()
        self._owner = os.getpid()

    @classmethod
    def of(cls, name: str, workers: Callable[[], int]) -> Tally:
        """The tally of a new loader; the first one starts what the environment asks for (SPLITTER_PROGRESS, SPLITTER_METRICS).

        ConfigError when SPLITTER_LOG, SPLITTER_PROGRESS or SPLITTER_METRICS is wrong or needs a package that isn't here.
        """
        _start_watching()
        name = _labelled(name, os.environ)
        tally = cls(_SITES.setdefault(name, Site(name)), workers)
        _TALLIES.add(tally)
        return tally

    def begin(self) -> None:
        """An epoch begins; one that was left before its end is over."""
        self.end()
        self.running = True
        self.site.newest = weakref.ref(self)

    def took(self, worker: str, nbytes: int, waited: float) -> None:
        """A batch of so many bytes from that worker was handed out, after the trainer had waited so many seconds for it."""
        site = self.site
        try:
            one = site.shares[worker]
        except KeyError:
            one = site.shares[worker] = Share()
        one.batches += 1
        one.nbytes += nbytes
        site.waited += waited
        self.batches += 1
        self.nbytes += nbytes
        self.waited += waited

    def moved(self, kind: str) -> None:
        """A stream went on elsewhere because a worker was "lost", "joined", "drained" or "slow". From any thread."""
        with self._lock:
            self._moves[kind] += 1
            self.site.moves[kind] += 1

    def end(self) -> None:
        """The epoch is over: tell its line, unless it gave no batch."""
        if os.getpid() != self._owner:
            return
        now = time.monotonic()
        self.running = False
        if self.batches:
            epoch = Epoch(self.batches, self.nbytes, self.waited, now - self._start, dict(self._moves))
            self.batches, self.nbytes, self.waited = 0, 0, 0.0
            with self._lock:
                self._moves.clear()
            self._tell(self.site.pace.add(epoch, now))
        self._start = now

    def _tell(self, epoch: Epoch | None) -> None:
        if epoch is not None:
            tell(logging.INFO, line(self.site.name, epoch, self.workers()))


_SITES: dict[str, Site] = {}
_TALLIES: weakref.WeakSet[Tally] = weakref.WeakSet()
_watched_by = 0  # the process that has started what watches the sites


def sites() -> list[Site]:
    """All sites of this process, in the order in which they came."""
    return list(_SITES.values())


def workers_alive() -> int:
    """Workers that the loaders of this process can use."""
    return max((site.workers() for site in sites()), default=0)


def _labelled(name: str, environment: Mapping[str, str]) -> str:
    """The name of a loader, with the rank where the script runs in several processes."""
    alone = environment.get("WORLD_SIZE", "1") == "1"
    return name if alone else f"{name} (rank {environment.get('RANK', '?')})"


def _start_watching() -> None:
    global _watched_by
    if _watched_by == os.getpid():
        return
    forked = _watched_by != 0
    threshold(os.environ)
    if forked:  # what the parent has counted is the parent's
        _SITES.clear()
    _watched_by = os.getpid()
    if os.environ.get("SPLITTER_PROGRESS", "") not in ("", "0"):
        from . import progress

        progress.start(os.environ)
    if os.environ.get("SPLITTER_METRICS", ""):
        from . import metrics

        metrics.start_on_trainer(os.environ)


def _tell_the_rest() -> None:
    """At the end of the program: epochs that were not finished, and those that were held back."""
    for tally in list(_TALLIES):
        tally.end()
    for site in sites():
        rest = site.pace.rest(time.monotonic())
        if rest is not None and _watched_by == os.getpid():
            tell(logging.INFO, line(site.name, rest, workers_alive()))


atexit.register(_tell_the_rest)
