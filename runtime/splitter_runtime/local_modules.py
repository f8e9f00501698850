"""Where programs find the script's own modules: beside the script, and in folders that `transform` has read them from.

    worker    roots({"pkg": ".."}, package="pkg")     pkg is imported from that folder, and from no other
    trainer   TrainerFinder                           pkg is what Python finds, as in the script; it must be the one that was read

Modules that the trainer edits have patched copies: module name, package and `__file__` are the original's.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from .errors import ConfigError


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


class TrainerFinder(importlib.abc.MetaPathFinder):
    """Finds modules where Python does, those with patched copies with the copy's text.

    `patched`: module name -> copy; `roots`: top-level name -> the folder where it was read; others were read in `folder`. A module
    that Python doesn't find is taken from where it was read. ConfigError when Python finds another file than was read.
    """

    def __init__(self, patched: Mapping[str, str], roots: Mapping[str, str], folder: str) -> None:
        self._patched = dict(patched)
        self._roots = dict(roots)
        self._folder = folder

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's spec; None for a module that is none of these."""
        patched = self._patched.get(fullname)
        if patched is None and fullname not in self._roots:
            return None
        root = self._roots.get(fullname.partition(".")[0], self._folder)
        found = self._without_this(fullname, path, target)
        if found is None:
            found = PathFinder.find_spec(fullname, [root]) if path is None else None
        else:
            _compare(found, root, fullname)
        if patched is None or found is None or found.origin is None:
            return found
        loader = PatchedLoader(fullname, found.origin, patched)
        locations = found.submodule_search_locations
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=loader, submodule_search_locations=locations)

    def _without_this(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """What Python finds: by any finder, as packages that are installed in place have finders of their own."""
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            found: ModuleSpec | None = find(fullname, path, target) if finder is not self and find is not None else None
            if found is not None:
                return found
        return None


class RootFinder(importlib.abc.MetaPathFinder):
    """Finds top-level modules in the folders that are given for them."""

    def __init__(self, roots: Mapping[str, str]) -> None:
        self._roots = dict(roots)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a module of the folder; None when it is not there, or another module is asked for."""
        return PathFinder.find_spec(fullname, [self._roots[fullname]]) if fullname in self._roots else None


def roots(folders: Mapping[str, str], *, package: str = "") -> None:
    """Say where a worker program finds local modules: top-level name -> folder relative to the caller's file.

    `package` is the package that relative imports of the caller are relative to.
    """
    program = os.path.dirname(os.path.abspath(sys._getframe(1).f_code.co_filename))
    found = {name: os.path.normpath(os.path.join(program, folder)) for name, folder in folders.items()}
    sys.meta_path.insert(0, RootFinder(found))
    # For modules that code imports by a name which it makes.
    sys.path.extend(folder for folder in dict.fromkeys(found.values()) if folder not in sys.path)
    if package:
        sys._getframe(1).f_globals.update(__package__=package, __spec__=None)


def _compare(found: ModuleSpec, root: str, name: str) -> None:
    base = os.path.join(root, *name.split("."))
    package = os.path.join(base, "__init__.py")
    read = next((path for path in (package, f"{base}.py") if os.path.isfile(path)), base)
    places = [found.origin] if found.has_location and found.origin else list(found.submodule_search_locations or [found.origin or "?"])
    if os.path.realpath(read) not in map(os.path.realpath, places):
        what = f"Python imports {name} from {places[0]}, but {read} was read when this trainer program was written"
        raise ConfigError.of("R601", what=what)
