"""A page that is written line by line, each with the place that it comes from, for the line map of a worker program.

page.add("traindir = ...", Place("train.py", 24));  page.gap(2);  page.line_map("train.py") -> ((18, 77, 2), ...)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from splitter.splice import LIMIT, quoted

INDENT = "    "

LineMap = tuple[tuple[int, int, int] | tuple[int, int, int, str], ...]


@dataclass(frozen=True)
class Place:
    """Where a line of the worker program comes from."""

    path: str
    line: int


@dataclass
class Page:
    """Lines written so far, each with its place in the script where it has one."""

    lines: list[str] = field(default_factory=list)
    places: list[Place | None] = field(default_factory=list)

    def add(self, text: str, place: Place | None = None) -> None:
        """One or more lines; with a place, the first comes from there and the others from the lines after it."""
        for number, line in enumerate(text.split("\n")):
            self.lines.append(line)
            self.places.append(None if place is None else Place(place.path, place.line + number))

    def gap(self, count: int) -> None:
        """Blank lines, so that `count` of them end the page."""
        while self.lines and not self.lines[-1].strip():
            self.lines.pop()
            self.places.pop()
        for _ in range(count if self.lines else 0):
            self.add("")

    def line_map(self, script: str) -> LineMap:
        runs: list[tuple[int, Place, int]] = []
        for number, place in enumerate(self.places, 1):
            if place is None:
                continue
            if runs:
                first, start, count = runs[-1]
                if (number, place) == (first + count, Place(start.path, start.line + count)):
                    runs[-1] = (first, start, count + 1)
                    continue
            runs.append((number, place, 1))
        return tuple((n, p.line, c) if p.path == script else (n, p.line, c, p.path) for n, p, c in runs)


def from_import(module: str, names: Sequence[str]) -> str:
    flat = f"from {module} import {', '.join(names)}"
    if len(flat) <= LIMIT:
        return flat
    return f"from {module} import (\n" + "".join(f"{INDENT}{name},\n" for name in names) + ")"


def entry_text(entry: tuple[int, int, int] | tuple[int, int, int, str]) -> str:
    return "(" + ", ".join(str(part) if isinstance(part, int) else quoted(part) for part in entry) + ")"


def tuple_text(head: str, entries: Sequence[str], indent: str) -> str:
    """A tuple, filled line by line up to the limit."""
    flat = f"{head}({', '.join(entries)}{',' if len(entries) == 1 else ''})"
    if len(indent) + len(flat) < LIMIT:
        return flat
    lines = [indent + INDENT]
    for entry in entries:
        if len(lines[-1]) + len(entry) + 2 > LIMIT:
            lines.append(indent + INDENT)
        lines[-1] += f"{entry}, "
    return "\n".join([f"{head}(", *(line.rstrip() for line in lines), f"{indent})"])


def plain(text: str) -> str:
    """Text that can stand in a docstring or a comment."""
    return re.sub(r'[\\"\x00-\x1f\x7f\ud800-\udfff]', "?", text)
