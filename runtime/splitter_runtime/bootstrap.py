"""program(): the first thing that a trainer program does. Imports no torch.

It makes the trainer look like the script (`__file__`, sys.argv[0], sys.path, patched modules), and starts local workers at once, so that
they come up while the trainer imports its own libraries.
"""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from . import adapters
from .errors import ConfigError
from .forking import may_fork
from .local_modules import TrainerFinder
from .pool import LocalWorker, Place, parse


@dataclass(frozen=True)
class Trainer:
    """The trainer program of this process. Paths are absolute."""

    path: str
    worker: str
    script: str
    digest: str

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)


class State:
    """The trainer of this process, and the local workers started ahead of their use."""

    trainer: Trainer | None = None
    places: tuple[Place, ...] = ()
    workers: ClassVar[dict[str, LocalWorker]] = {}  # by name, as long as the session hasn't taken them
    owner = 0


STATE = State()


def program(
    worker: str,
    *,
    digest: str,
    script: str,
    modules: Mapping[str, str] | None = None,
    roots: Mapping[str, str] | None = None,
    package: str = "",
    fresh: bool = False,
) -> None:
    """Say that the caller's module is a trainer program; call it before everything else.

    `worker`, `script` and the values of `modules` (module name -> patched copy) and `roots` (top-level name -> folder where it was
    read, when that isn't the script's) are paths relative to the caller's file. With `package` the program runs as
    `python -m package.script` does. `fresh`: what ran before must not run twice in one process, so a local worker is a new Python
    instead of a fork of this one. ConfigError when SPLITTER_WORKERS or SPLITTER_FORK is wrong.
    """
    if not sys.platform.startswith("linux"):
        raise SystemExit("a trainer program runs on Linux only; run the script itself here")
    caller = sys._getframe(1).f_globals
    path = os.path.abspath(sys._getframe(1).f_code.co_filename)
    folder = os.path.dirname(path)

    def beside(relative: str) -> str:
        return os.path.normpath(os.path.join(folder, relative))

    trainer = Trainer(path, beside(worker), beside(script), digest)
    STATE.trainer = trainer
    if caller["__name__"] == "__main__" and multiprocessing.parent_process() is None:
        start_workers(fork=not fresh and may_fork(os.environ))  # a fork takes sys.path and sys.argv as they are here
    caller["__file__"] = trainer.script
    patched = {name: beside(copy) for name, copy in (modules or {}).items()}
    folders = {name: beside(root) for name, root in (roots or {}).items()}
    first = folders[package.partition(".")[0]] if package else os.path.dirname(trainer.script)
    _take_place_of(trainer, trainer.script if package else script, first, main=caller["__name__"] == "__main__")
    if patched or folders:
        sys.meta_path.insert(0, TrainerFinder(patched, folders, os.path.dirname(trainer.script)))
    adapters.install()
    if package:
        caller["__package__"] = package
        importlib.import_module(package)  # as -m does, before the first line of the script


def _take_place_of(trainer: Trainer, script: str, folder: str, *, main: bool) -> None:
    """Have sys.path and sys.argv as the script has them; `folder` is its first entry of sys.path."""
    if sys.path and os.path.abspath(sys.path[0]) == trainer.folder:
        sys.path[0] = folder
    elif folder not in sys.path:
        sys.path.insert(0, folder)
    if main:
        sys.argv[0] = os.path.normpath(os.path.join(os.path.dirname(sys.argv[0]), script))
        _keep_spawned_children_here(trainer)


def _keep_spawned_children_here(trainer: Trainer) -> None:
    """A spawned child imports the main module again, by its `__file__`; that must stay the trainer program."""
    from multiprocessing import spawn

    original: Callable[[str], dict[str, Any]] = spawn.get_preparation_data

    def preparation(name: str) -> dict[str, Any]:
        data = original(name)
        if data.get("init_main_from_path") == trainer.script:
            data["init_main_from_path"] = trainer.path
        return data

    spawn.get_preparation_data = preparation


def local_name(places: tuple[Place, ...], number: int) -> str:
    """What the local worker at that place of the pool is called."""
    local = [at for at, place in enumerate(places) if place.address is None]
    return "local" if len(local) == 1 else f"local {local.index(number) + 1}"


def start_workers(*, fork: bool = False) -> None:
    """Start the local workers of the pool, once in each process; doesn't wait for them. With `fork` they are forks of this process."""
    if STATE.owner == os.getpid():
        return
    if STATE.trainer is None:
        raise ConfigError.of("R601", what="no trainer program here: splitter_runtime.program(...) must be called first")
    STATE.owner = os.getpid()
    STATE.places = parse(os.environ.get("SPLITTER_WORKERS", ""))
    names = [local_name(STATE.places, number) for number, place in enumerate(STATE.places) if place.address is None]
    STATE.workers.clear()
    STATE.workers.update({name: LocalWorker(STATE.trainer.worker, name, _reset if fork else None) for name in names})
    atexit.register(stop_workers)


def _reset() -> None:
    """In a fork that becomes a worker: it has no trainer."""
    STATE.trainer, STATE.places, STATE.owner = None, (), 0
    STATE.workers.clear()


def stop_workers() -> None:
    """End the local workers of this process."""
    while STATE.workers:
        STATE.workers.popitem()[1].close()
