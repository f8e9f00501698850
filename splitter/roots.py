"""Folders in which Python looks for the local modules of a script, as far as the text and the folders around it tell.

    tools/train.py: `sys.path.insert(0, "lib")`       lib, tools; and for what is in neither: the project's folder
    pkg/train.py:   `from .data import Photos`        the folder that holds pkg, since it is run as `python -m pkg.train`

The project's folder is the nearest one above that holds one of MARKERS. What is found by it can be a module that another version of is
installed; the trainer program compares when it runs (see `splitter_runtime.bootstrap`).
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from splitter.knowledge import ROWS

MARKERS = (".git", "setup.py", "setup.cfg", "pyproject.toml")
# Modules that the project's folder is not asked for: these are installed, and known by the tables. A folder named `datasets` is as
# often the project's own.
INSTALLED = (sys.stdlib_module_names | {name.split(".")[0] for name in ROWS}) - {"datasets"}


@dataclass(frozen=True)
class Roots:
    """Absolute folders: `searched` for every module, in Python's order, and `beyond` for those that are in none of them."""

    script: Path
    package: str = ""
    searched: tuple[Path, ...] = ()
    beyond: tuple[Path, ...] = ()

    def locate(self, name: str) -> Path | None:
        """The file of the local module of that name; None when there is none."""
        top = name.partition(".")[0]
        for folder in (*self.searched, *(self.beyond if top not in INSTALLED else ())):
            found = locate(folder, name)
            if found is not None or locate(folder, top) is not None:
                return found
        return None

    def edited(self, edits: tuple[tuple[str, str], ...]) -> Roots:
        """These folders with those that the program itself puts on sys.path: (where, folder), `where` being front, second or end."""
        found = [self.searched[0]]
        for where, text in edits:
            folder = self._folder(text)
            if folder is None or folder in found:
                continue
            found.insert({"front": 0, "second": 1}.get(where, len(found)), folder)
        return Roots(self.script, self.package, tuple(found), self.beyond)

    def has(self, text: str) -> bool:
        """Whether the folder that a program puts on sys.path is among these."""
        return self._folder(text) in self.searched

    def _folder(self, text: str) -> Path | None:
        """What a path means that may be relative to the working folder, which is the script's or the project's."""
        return next((path for base in (self.script, *self.beyond) if (path := _absolute(base / text)).is_dir()), None)


def roots(script: Path, level: int) -> Roots:
    """Where the modules of a script are that puts nothing on sys.path.

    `level` is the number of dots of its relative imports: with one or more it is a module of a package, run by `python -m`.
    """
    folder = _absolute(script.parent)
    depth = 0
    while (_above(folder, depth) / "__init__.py").is_file() and _above(folder, depth) != _above(folder, depth + 1):
        depth += 1
    depth = max(depth, level)
    package = ".".join(_above(folder, up).name for up in reversed(range(depth)))
    home = _above(folder, depth)
    start = home if level else folder
    beyond = [path for path in (home, *_project(start)) if path != start]
    return Roots(folder, package if level else "", (start,), tuple(dict.fromkeys(beyond)))


def locate(root: Path, name: str) -> Path | None:
    """The file of a module of that name below `root`; None when there is none."""
    base = root.joinpath(*name.split("."))
    for candidate in (base / "__init__.py", base.with_name(base.name + ".py")):
        if candidate.is_file():
            return candidate
    return None


def _project(folder: Path) -> list[Path]:
    """The folders above, up to the one that holds the project; none when no marker stands before the root or the home folder."""
    above = [folder, *folder.parents]
    for count, path in enumerate(above):
        if path in (Path(path.anchor), Path.home()):
            break
        if any((path / marker).exists() for marker in MARKERS):
            return above[1 : count + 1]
    return []


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))


def _above(folder: Path, count: int) -> Path:
    return [folder, *folder.parents][min(count, len(folder.parents))]
