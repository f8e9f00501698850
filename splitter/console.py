"""What people see: findings with their source line, and the table of loaders.

    train.py:41:5: S308 in_order=False: the order of this loader's batches depends on timing, so no split can keep it
       41 | loader = DataLoader(data, in_order=False)
          |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      hint: remove in_order=False

Everything here makes text; the command line decides where it goes.
"""

from __future__ import annotations

import os.path
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import IO

from splitter.diagnostics import CODES, hint, message, severity
from splitter.examples import EXAMPLES
from splitter.ir import Diagnostic, Feed, Plan, SourceFile, Span
from splitter.prefix_choice import prefix_line
from splitter.splice import Grid

RESET = "\x1b[0m"
STYLES = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "note": "\x1b[1;36m", "place": "\x1b[1m"}
TAB = 4


def findings(plan: Plan, folder: str, *, colour: bool = False) -> str:
    """All findings of a plan, one after another. `folder` is the script's folder as the user wrote it."""
    sources = {source.path: source for source in (plan.script, *plan.modules)}
    shown = [rendered(found, sources, folder, colour=colour) for found in _distinct(plan)]
    return "\n".join(shown)


def _distinct(plan: Plan) -> Iterable[Diagnostic]:
    """The plan's findings, and one for every loader that is left without its own."""
    yield from dict.fromkeys(plan.diagnostics)
    codes = {found.code for found in plan.diagnostics}
    for feed in plan.feeds:
        if feed.code is not None and feed.code not in codes:
            yield Diagnostic(feed.code, feed.loader, (("what", "; ".join(feed.why)),))


def weighed(before: Plan, after: Plan, folder: str, *, colour: bool = False) -> str:
    """What running samples has shown of the model's forward: that its start moved, or why it stays."""
    sources = {source.path: source for source in (before.script, *before.modules)}
    new = [found for found in after.diagnostics if found not in before.diagnostics]
    moved = [f"splitter: note: {printable(prefix_line(after))}\n"] if after.prefix is not None else []
    return "".join([*(rendered(found, sources, folder, colour=colour) for found in new), *moved])


def rendered(found: Diagnostic, sources: Mapping[str, SourceFile], folder: str = "", *, colour: bool = False) -> str:
    """One finding: place, code, message, the source line with carets, and the hint."""
    style, place, end = (STYLES[severity(found)], STYLES["place"], RESET) if colour else ("", "", "")
    where = "" if found.span is None else f"{place}{printable(_position(found.span, folder))}:{end} "
    text = [f"{where}{style}{found.code}{end} {printable(_message(found))}"]
    source = None if found.span is None else sources.get(found.span.path)
    if found.span is not None and source is not None:
        text += _excerpt(Grid(source.text), found.span, style, end)
    text.append(f"  hint: {printable(hint(found))}")
    return "\n".join(text) + "\n"


def _message(found: Diagnostic) -> str:
    """A finding whose arguments don't fit its message is still shown: with its title."""
    try:
        return message(found)
    except KeyError:
        return CODES[found.code].title


def _position(span: Span, folder: str) -> str:
    return f"{os.path.join(folder, span.path)}:{span.line}:{span.column + 1}"


def _excerpt(grid: Grid, span: Span, style: str, end: str) -> list[str]:
    line = grid.line(span.line)
    stop = span.end_column if span.end_line == span.line else len(line)
    before, marked = line[: span.column], line[span.column : stop] or " "
    shown = _expanded(line, 0)
    left = _width(_expanded(before, 0))
    width = max(1, _width(_expanded(marked, left)))
    number = f"{span.line:>5}"
    return [f"{number} | {shown}".rstrip(), f"{' ' * len(number)} | {' ' * left}{style}{'^' * width}{end}"]


def _expanded(text: str, column: int) -> str:
    """Tabs as spaces, counted from `column`; other control characters as escapes."""
    parts: list[str] = []
    for character in text:
        part = " " * (TAB - column % TAB) if character == "\t" else printable(character)
        parts.append(part)
        column += _width(part)
    return "".join(parts)


def _width(text: str) -> int:
    """Columns that a terminal takes."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def printable(text: str) -> str:
    """Text that can't move the cursor or change colours: control characters become escapes."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", lambda match: match[0].encode("unicode_escape").decode(), text)


def table(plan: Plan, folder: str, stream: IO[str]) -> None:
    """One row for every loader, as wide as the terminal (120 columns elsewhere)."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=False, width=None if stream.isatty() else 120)
    rows = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("loader", "where", "result", "dataset", "streams", "sent", "why"):
        rows.add_column(column, overflow="fold", header_style="bold")
    for feed in plan.feeds:
        style = "green" if feed.status == "split" else "yellow"
        cells = [printable(cell) for cell in _cells(feed, folder)]
        rows.add_row(*(Text(cell, style if number == 2 else "") for number, cell in enumerate(cells)))
    console.print(rows)


def _cells(feed: Feed, folder: str) -> Sequence[str]:
    result = "split" if feed.status == "split" else f"left {feed.code}"
    why = "; ".join(feed.why) or ("" if feed.code is None else CODES[feed.code].title)
    return (
        feed.name,
        f"{os.path.join(folder, feed.loader.path)}:{feed.loader.line}",
        result,
        feed.residence or "-",
        feed.streams or "-",
        ", ".join(feed.environment) or "-",
        why,
    )


def explained(code: str) -> str | None:
    """What a code means and what to do, for `splitter explain`; None when there is no such code."""
    if code in CODES:
        rule = CODES[code]
        text = f"{code} ({rule.severity}): {rule.title}\n\n  {rule.message}\n  hint: {rule.hint}\n"
        for head, example in zip(("instead of", "write"), EXAMPLES.get(code, ()), strict=False):
            text += f"\n  {head}\n\n" + textwrap.indent(example, "      ")
        return text
    from splitter_runtime import errors

    if code in errors.CODES:
        said, advice = errors.CODES[code]
        return f"{code} (run time)\n\n  {said}\n  hint: {advice}\n"
    return None


def known_codes() -> list[str]:
    from splitter_runtime import errors

    return sorted([*CODES, *errors.CODES])
