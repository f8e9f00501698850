"""New keywords of a call, written in the style of the call.

    DataLoader(photos, 4)    ->    DataLoader(photos, 4, feed="train", send="dataset")
    DataLoader(                    DataLoader(
        photos,                        photos,
        shuffle=True,  # later         shuffle=True,  # later
    )                                  feed="train",
                                       send="dataset",
                                   )

A comment stays with the argument before it, and a comma after the last argument is kept up.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass

from splitter.ir import Span
from splitter.splice import LIMIT, Grid, Splice


@dataclass(frozen=True)
class Keyword:
    """`name=value`, or a dictionary of `entries`, which may be broken into lines."""

    name: str
    value: str = ""
    entries: tuple[str, ...] = ()

    @property
    def flat(self) -> str:
        return f"{self.name}={mapping(self.entries) if self.entries else self.value}"


def mapping(entries: Sequence[str], newline: str = "", indent: str = "", unit: str = "") -> str:
    """A dictionary in one line, or with a `newline` in one line an entry, of which the last stands at `indent`."""
    if not newline:
        return "{" + ", ".join(entries) + "}"
    return "{" + "".join(f"{newline}{indent}{unit}{entry}," for entry in entries) + newline + indent + "}"


def add_keywords(grid: Grid, call: ast.Call, span: Span, new: Sequence[Keyword], unit: str, wrapped: Set[int]) -> list[Splice]:
    """The splices that give `call`, which stands at `span`, these keywords as its last.

    They go on the line of the last argument; where each argument has a line of its own, or the place is among the `wrapped` ones
    because that line gets too long, on new ones.
    """
    close = (span.end_line, span.end_column - 1)
    last = [token for token in grid.tokens if token.end <= close and significant(token.string)][-1]
    at = grid.offset(*last.end)
    before, after = ("" if last.string in "(," else ","), ("," if last.string == "," else "")
    flat = ", ".join(keyword.flat for keyword in new) + after
    stacked, indent = _style(grid, call, unit, ended=last.string == ",")
    if at not in wrapped and not stacked:
        return [Splice(at, at, f"{before}{'' if last.string == '(' else ' '}{flat}")]
    remark = re.compile(r"[ \t]*#[^\r\n]*").match(grid.text, at)  # it is about the argument before
    place = remark.end() if remark else at
    line = grid.line_at(place)
    room = LIMIT - len(indent) - len(grid.line(line)[place - grid.starts[line - 1] :])
    if stacked or len(flat) > room:
        texts = (
            keyword.flat
            if len(keyword.flat) <= room - 1 or not keyword.entries
            else f"{keyword.name}={mapping(keyword.entries, grid.newline, indent, unit)}"
            for keyword in new
        )
        flat = f",{grid.newline}{indent}".join(texts) + after
    text = grid.newline + indent + flat
    return [Splice(at, at, before), Splice(place, place, text)] if remark else [Splice(at, at, before + text)]


def _style(grid: Grid, call: ast.Call, unit: str, *, ended: bool) -> tuple[bool, str]:
    """Whether each argument has a line of its own, and what a new line begins with; `ended`: by a comma."""
    arguments: list[ast.expr | ast.keyword] = sorted(
        (*call.args, *call.keywords), key=lambda argument: (argument.lineno, argument.col_offset)
    )
    lines = [argument.lineno for argument in arguments]
    begun = [argument.lineno for argument in arguments if argument.lineno > call.lineno and _begins_line(grid, argument)]
    indent = grid.indent(begun[-1]) if begun else grid.indent(call.lineno) + unit
    alone = len(set(lines)) == len(lines) and len(begun) >= len(lines) - (call.lineno in lines)
    return alone and (len(lines) > 1 or (bool(begun) and ended)), indent


def _begins_line(grid: Grid, argument: ast.expr | ast.keyword) -> bool:
    start, _ = grid.node_range(argument)
    return not grid.text[grid.starts[argument.lineno - 1] : start].strip(" \t\f(")


def significant(token: str) -> bool:
    """Whether a token is code: no comment, line end or indentation."""
    return bool(token.strip()) and not token.startswith("#")
