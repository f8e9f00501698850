"""program(): the first thing that a trainer program does. Imports no torch.

It makes the trainer look like the script (`__file__`, sys.argv[0], sys.path, patched modules), and starts local workers at once, so that
they come up while the trainer imports its own libraries.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .errors import ConfigError
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
    workers: tuple[LocalWorker, ...] = ()
    owner = 0


STATE = State()


class PatchedLoader(importlib.machinery.SourceFileLoader):
    """Loads a module whose file is the original one from the text of its patched copy."""

    def __init__(self, name: str, original: str, patched: str) -> None:
        super().__init__(name, original)
        self._patched = patched

    def get_code(self, fullname: str) -> Any:
        """Compile the copy; no cached bytecode, which would be the original's."""
        return compile(self.get_data(self._patched), self._patched, "exec", dont_inherit=True)

    def get_source(self, fullname: str) -> str:
        """Text of the copy."""
        return importlib.util.decode_source(self.get_data(self._patched))


class PatchedFinder(importlib.abc.MetaPathFinder):
    """Finds the modules that have patched copies: where Python would find them, with the copy's text."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = dict(modules)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        patched = self._modules.get(fullname)
        found = importlib.machinery.PathFinder.find_spec(fullname, path) if patched else None
        if patched is None or found is None or found.origin is None:
            return None
        loader = PatchedLoader(fullname, found.origin, patched)
        return importlib.util.spec_from_file_location(
            fullname, found.origin, loader=loader, submodule_search_locations=found.submodule_search_locations
        )


def program(worker: str, *, digest: str, script: str, modules: Mapping[str, str] | None = None) -> None:
    """Say that the caller's module is a trainer program; call it before everything else.

    `worker`, `script` and the values of `modules` (module name -> patched copy) are paths relative to the caller's file.
    ConfigError when SPLITTER_WORKERS is wrong.
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
    caller["__file__"] = trainer.script
    _take_place_of(trainer, script, main=caller["__name__"] == "__main__")
    if modules:
        sys.meta_path.insert(0, PatchedFinder({name: beside(copy) for name, copy in modules.items()}))
    if caller["__name__"] == "__main__" and multiprocessing.parent_process() is None:
        start_workers()


def _take_place_of(trainer: Trainer, script: str, *, main: bool) -> None:
    folder = os.path.dirname(trainer.script)
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


def start_workers() -> None:
    """Start the local workers of the pool, once in each process; doesn't wait for them."""
    if STATE.owner == os.getpid():
        return
    if STATE.trainer is None:
        raise ConfigError.of("R601", what="no trainer program here: splitter_runtime.program(...) must be called first")
    STATE.owner = os.getpid()
    STATE.places = parse(os.environ.get("SPLITTER_WORKERS", ""))
    count = sum(place.address is None for place in STATE.places)
    names = ["local"] if count == 1 else [f"local {number}" for number in range(1, count + 1)]
    STATE.workers = tuple(LocalWorker(STATE.trainer.worker, name) for name in names)
    atexit.register(stop_workers)


def stop_workers() -> None:
    """End the local workers of this process."""
    for worker in STATE.workers:
        worker.close()
    STATE.workers = ()
