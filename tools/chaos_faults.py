"""What a fault does to the processes and the network of a chaos run, and how it's repaired.

struck = strike(cast, hit)       Struck(whom="stream 4711 of plain", repair=...), or None when there was nobody to hit
struck.repair()                  True when it's done, False when it should be tried again a little later
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import psutil  # type: ignore[import-untyped]
from chaos_cast import Cast, Remote
from chaos_plan import Hit
from chaos_processes import Family, send

T = TypeVar("T")
UNLIMITED = psutil.RLIM_INFINITY


def nothing() -> bool:
    """Repairs itself."""
    return True


@dataclass(frozen=True)
class Struck:
    """A fault that has happened."""

    whom: str
    repair: Callable[[], bool] = nothing


def strike(cast: Cast, hit: Hit) -> Struck | None:
    """Do it now."""
    return _ACTIONS[hit.kind](cast, hit)


def _one(found: Sequence[T], hit: Hit) -> T | None:
    return found[hit.of(len(found))] if found else None


def _running(cast: Cast) -> list[Remote]:
    return [remote for remote in cast.remotes if remote.running]


def _restart(*remotes: Remote) -> Callable[[], bool]:
    def repair() -> bool:
        for remote in remotes:
            remote.restart()
        return True

    return repair


def _kill_remote(cast: Cast, hit: Hit) -> Struck | None:
    remote = _one(_running(cast), hit)
    if remote is None:
        return None
    remote.end()
    return Struck(remote.name, _restart(remote))


def _kill_local(cast: Cast, hit: Hit) -> Struck | None:
    family = _one(cast.trainer.families(), hit)
    return None if family is None else _kill(family.host)


def _kill_launcher(cast: Cast, hit: Hit) -> Struck | None:
    remote = _one(_running(cast), hit)
    family = remote.family() if remote is not None else None
    if remote is None or family is None or not family.launchers:
        return None
    send(family.launchers, signal.SIGKILL)
    return Struck(f"launcher of {remote.name}", _restart(remote))


def _kill_template(cast: Cast, hit: Hit) -> Struck | None:
    template = _one([process for family in cast.families() for process in family.templates], hit)
    return None if template is None else _kill(template)


def _kill_stream(cast: Cast, hit: Hit) -> Struck | None:
    stream = _one([process for family in cast.families() for process in family.streams], hit)
    return None if stream is None else _kill(stream)


def _kill(process: psutil.Process) -> Struck:
    send([process], signal.SIGKILL)
    return Struck(f"process {process.pid}")


def _stop_worker(cast: Cast, hit: Hit) -> Struck | None:
    family = _one(cast.families(), hit)
    return None if family is None else _stop(family.all())


def _stop_stream(cast: Cast, hit: Hit) -> Struck | None:
    stream = _one([process for family in cast.families() for process in family.streams], hit)
    return None if stream is None else _stop((stream,))


def _stop(processes: Sequence[psutil.Process]) -> Struck:
    send(processes, signal.SIGSTOP)

    def repair() -> bool:
        send(processes, signal.SIGCONT)
        return True

    return Struck("process " + " ".join(str(process.pid) for process in processes), repair)


def _reset(cast: Cast, hit: Hit) -> Struck | None:
    count = cast.proxy.reset()
    return Struck(f"{count} connections") if count else None


def _hold(cast: Cast, hit: Hit) -> Struck:
    cast.proxy.hold()

    def repair() -> bool:
        cast.proxy.release()
        return True

    return Struck("behind-proxy", repair)


def _cut(cast: Cast, hit: Hit) -> Struck | None:
    cable = cast.cable
    if cable is None:
        return None
    cable.cut()

    def repair() -> bool:
        cable.join()
        return True

    return Struck("cabled", repair)


def _drain(cast: Cast, hit: Hit) -> Struck | None:
    remote = _one(_running(cast), hit)
    if remote is None:
        return None
    remote.signal(signal.SIGTERM)
    return Struck(remote.name, remote.restart)


def _kill_all(cast: Cast, hit: Hit) -> Struck:
    for remote in cast.remotes:
        remote.end()
    send([family.host for family in cast.trainer.families()], signal.SIGKILL)
    return Struck("everybody", _restart(*cast.remotes))


def _no_memory(cast: Cast, hit: Hit) -> Struck | None:
    family = _one(cast.families(), hit)
    if family is None:
        return None
    _limit_files(family, 0)

    def repair() -> bool:
        _limit_files(family, UNLIMITED)
        return True

    return Struck("process " + " ".join(str(process.pid) for process in family.all()), repair)


def _limit_files(family: Family, soft: int) -> None:
    """Limit the size of files, memfd segments too, for all that runs there now and what these fork."""
    for process in {*family.all(), *_below(family.host)}:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            process.rlimit(psutil.RLIMIT_FSIZE, (soft, UNLIMITED))


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


_ACTIONS: dict[str, Callable[[Cast, Hit], Struck | None]] = {
    "kill remote worker": _kill_remote,
    "kill local worker": _kill_local,
    "kill launcher": _kill_launcher,
    "kill template": _kill_template,
    "kill stream": _kill_stream,
    "stop worker": _stop_worker,
    "stop stream": _stop_stream,
    "reset connections": _reset,
    "hold connections": _hold,
    "cut cable": _cut,
    "drain worker": _drain,
    "kill all workers": _kill_all,
    "no memory": _no_memory,
}
