"""SPLITTER_PROGRESS=1: a live line on the terminal that says how each loader that runs gets on.

    train: batch 120, 31.2 batches/s, 4% waiting for data, 812.3 MB/s, 2 workers

Drawn by rich on standard error, one row of the terminal, so that it lives beside what the script prints as progress bars do. Where standard
error is not a terminal nothing is drawn; the lines after each epoch are told all the same. With several local ranks the first one draws.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import notices, tally
from .errors import ConfigError

if TYPE_CHECKING:
    from rich.text import Text

WINDOW = 5.0  # seconds over which speeds are measured
PER_SECOND = 4  # how often it is drawn


class Speeds:
    """Speeds of one site, from its totals at two times. No I/O: times come from the caller."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int, float]] = deque()

    def add(self, now: float, totals: tuple[int, int, float]) -> tuple[float, float, float]:
        """Batches and bytes per second, and the share of the time spent waiting, over the last seconds."""
        self._samples.append((now, *totals))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW:
            self._samples.popleft()
        before, batches, nbytes, waited = self._samples[0]
        seconds = now - before
        if seconds <= 0:
            return 0.0, 0.0, 0.0
        return (totals[0] - batches) / seconds, (totals[1] - nbytes) / seconds, min(1.0, (totals[2] - waited) / seconds)


def row(name: str, batch: int, speeds: tuple[float, float, float], workers: int) -> str:
    """What is drawn of one loader."""
    return (
        f"{name}: batch {batch}, {speeds[0]:.1f} batches/s, {speeds[2]:.0%} waiting for data, "
        f"{speeds[1] / 1e6:.1f} MB/s, {tally.counted(workers, 'worker')}"
    )


class Board:
    """What is drawn."""

    def __init__(self) -> None:
        self._speeds: dict[str, Speeds] = {}

    def rows(self, now: float) -> list[str]:
        """One text for each loader that runs."""
        drawn = []
        for site in tally.sites():
            speeds = self._speeds.setdefault(site.name, Speeds()).add(now, site.totals())
            active = site.active()
            if active is not None:
                drawn.append(row(site.name, active.batches, speeds, active.workers()))
        return drawn

    def text(self) -> Text:
        """As rich draws it: one row, cut where the terminal ends."""
        from rich.text import Text

        return Text(" | ".join(self.rows(time.monotonic())), no_wrap=True, overflow="ellipsis", end="")


def check() -> None:
    """ConfigError when rich is not here."""
    try:
        import rich  # noqa: F401
    except ImportError:
        raise ConfigError.of("R601", what="SPLITTER_PROGRESS needs the package rich: pip install 'splitter-runtime[progress]'") from None


def start(environment: Mapping[str, str]) -> None:
    """Draw from now on until the program ends. ConfigError when rich is not here."""
    check()
    if environment.get("LOCAL_RANK", "0") != "0" or sys.__stderr__ is None:
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.__stderr__, highlight=False)
    if not console.is_terminal:
        return
    board, owner = Board(), os.getpid()
    live = Live(
        get_renderable=board.text,
        console=console,
        refresh_per_second=PER_SECOND,
        transient=True,
        redirect_stdout=False,  # what the script prints is the script's
        redirect_stderr=False,
    )
    live.start()
    console.show_cursor(True)  # it would stay hidden when the program is killed

    def above(line: str) -> bool:
        if os.getpid() != owner or not live.is_started:
            return False
        console.print(line, markup=False, soft_wrap=True)
        return True

    def stop(*_: Any) -> None:
        if os.getpid() == owner:
            live.stop()

    notices.above = above
    atexit.register(stop)
