"""A page that is written line by line, each with the place that it comes from, for the line map of a worker program.

page.add("traindir = ...", Place("train.py", 24));  page.gap(2);  page.line_map("train.py") -> ((18, 77, 2), ...)
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
