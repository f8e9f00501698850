"""Whom to hit: the processes below a trainer or a worker, by what they do.

trainer -> local worker, which is the launcher -> template -> streams
worker, the host -> launcher -> template of each session -> streams
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]

STEP_S = 0.05


@dataclass(frozen=True)
class Family:
    """The processes of one worker that live now. `host` is the launcher itself for a local worker."""

    host: psutil.Process
    launchers: tuple[psutil.Process, ...]
    templates: tuple[psutil.Process, ...]
    streams: tuple[psutil.Process, ...]

    def all(self) -> tuple[psutil.Process, ...]:
        """All of them, the host first."""
        return tuple(dict.fromkeys((self.host, *self.launchers, *self.templates, *self.streams)))


def children(parents: Iterable[psutil.Process]) -> tuple[psutil.Process, ...]:
    """The living children of all of these, the oldest first."""
    found: list[psutil.Process] = []
    for parent in parents:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [child for child in parent.children() if alive(child)]
    return tuple(found)


def alive(process: psutil.Process) -> bool:
    """Whether it still runs; one that nobody has waited for doesn't."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def remote_family(host: psutil.Process) -> Family:
    """What is below the host process of a worker that was started by hand."""
    launchers = children([host])
    templates = children(launchers)
    return Family(host, launchers, templates, children(templates))


def local_families(trainer: psutil.Process) -> tuple[Family, ...]:
    """What is below each of a trainer's own workers."""
    found = []
    for launcher in children([trainer]):
        templates = children([launcher])
        found.append(Family(launcher, (launcher,), templates, children(templates)))
    return tuple(found)


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each of them that is still there."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def eventually(true: Callable[[], bool], seconds: float) -> bool:
    """Ask again and again, for so many seconds at the most."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(STEP_S)
    return True
