"""A chain of operations that is parted, as text: what the worker leaves out of a function, and the function that the trainer has instead.

def __getitem__(self, i):                    def __getitem__(self, i):
    x = read(self.paths[i])                      x = read(self.paths[i])
    x = x.float() / 255             ->
    return x - MEAN, self.labels[i]              return x, self.labels[i]  # the rest, x.float() / 255 - MEAN, is done on the trainer

finish=(lambda x: x.float() / 255 - MEAN, None)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from splitter.ir import Span
from splitter.ir_cut import Finish, Link
from splitter.splice import LIMIT, Grid, Splice

_ATOMS = (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant)


def shortened(grid: Grid, finish: Finish, said: str) -> list[Splice]:
    """The splices that take the trainer's operations out of the function; each keeps its line breaks. `said` is a comment."""
    links = finish.tail.links[finish.first :]
    first, last = links[0], links[-1]
    name = first.target or grid.slice(first.hole)
    splices = _without(grid, first.value, first.hole) if grid.slice(first.hole) != first.target else [_gone(grid, first.statement)]
    for link in {link.statement: link for link in links if link.statement != first.statement}.values():
        if link.statement == last.statement and link.target != name:
            start, end = grid.range(link.value)
            splices.append(Splice(start, end, _held(grid.text[start:end], name)))
        else:
            splices.append(_gone(grid, link.statement))
    return [*splices[:-1], *_commented(grid, splices[-1], last.statement, said)]


def _commented(grid: Grid, splice: Splice, statement: Span, said: str) -> list[Splice]:
    """The last splice with the comment: behind the statement, or in its place. Without it where there is no room."""
    start, end = grid.range(statement)
    if splice.start == start:
        comment = said.strip() if statement.column + len(said) <= LIMIT else ""
        return [replace(splice, text=comment + splice.text)]
    free = re.compile(r"[ \t]*(?=\r?\n)").match(grid.text, end)
    if free is None or len(grid.line(statement.end_line)) + len(said) > LIMIT:
        return [splice]
    return [splice, Splice(end, free.end(), said)]


def _without(grid: Grid, value: Span, hole: Span) -> list[Splice]:
    """An expression without what stands around one part of it."""
    (start, end), (inner, outer) = grid.range(value), grid.range(hole)
    before, after = grid.text[start:inner], grid.text[outer:end]
    wrapped = "\n" in before or "\n" in grid.text[inner:outer]
    splices = [Splice(start, inner, f"({_breaks(before)}" if wrapped else ""), Splice(outer, end, f"{_breaks(after)})" if wrapped else "")]
    if not wrapped:
        splices[1] = Splice(outer, end, f"{_breaks(after)}" if "\n" in after else "")
    return [splice for splice in splices if (splice.start, splice.text) != (splice.end, "")]


def _held(text: str, name: str) -> str:
    """A name in the place of an expression, over as many lines."""
    return f"({name}{_breaks(text)})" if "\n" in text else name


def _gone(grid: Grid, statement: Span) -> Splice:
    """A statement, with the comment behind it."""
    start, end = grid.range(statement)
    rest = re.compile(r"[ \t]*(#[^\r\n]*)?(?=\r?\n|$)").match(grid.text, end)
    return Splice(start, rest.end() if rest else end, _breaks(grid.text[start:end]))


def _breaks(text: str) -> str:
    return "".join(re.findall(r"\r\n|\r|\n", text))


def operations(grid: Grid, finish: Finish) -> tuple[str, str]:
    """What the trainer does, as an expression on one line, and the name that the value has in it."""
    links, spans = finish.tail.links[finish.first :], finish.tail.elements[finish.first :]
    first = links[0]
    name = first.variable
    others = {node.id for span, link in zip(spans, links, strict=True) for node in _names(grid, span, link)}
    while name in others:
        name += "_"
    return _plain(_joined(grid, spans, links, name)), name


def _plain(text: str) -> str:
    """Without parentheses that change nothing; the text as it is where it would come out otherwise, too."""
    bare = ast.unparse(ast.parse(text, mode="eval"))
    return bare if re.sub(r"[\s()]", "", bare) == re.sub(r"[\s()]", "", text) else text


def _names(grid: Grid, span: Span, link: Link) -> list[ast.Name]:
    tree = ast.parse(_filled(grid, span, link.hole, "_"), mode="eval")
    return [node for node in ast.walk(tree) if isinstance(node, ast.Name)]


def _joined(grid: Grid, spans: Sequence[Span], links: Sequence[Link], name: str) -> str:
    text = name
    before: Link | None = None
    for span, link in zip(spans, links, strict=True):
        crosses = before is not None and link.statement != before.statement
        text = _filled(grid, span, link.hole, f"({text})" if crosses and not _is_atom(text) else text)
        before = link
    return text


def _is_atom(text: str) -> bool:
    return isinstance(ast.parse(text, mode="eval").body, _ATOMS)


def _filled(grid: Grid, span: Span, hole: Span, text: str) -> str:
    """An expression with another one in its hole, on one line."""
    (start, end), (inner, outer) = grid.range(span), grid.range(hole)
    if text.isidentifier() and grid.text[max(start, inner - 1) : inner] == "(" and grid.text[outer : min(end, outer + 1)] == ")":
        if not re.search(r"[\w)\]]\s*$", grid.text[start : inner - 1]):
            inner, outer = inner - 1, outer + 1  # parentheses that a name doesn't need
    made = grid.text[start:inner] + text + grid.text[outer:end]
    return ast.unparse(ast.parse(f"({made}\n)", mode="eval")) if "\n" in made else made


def function_text(grid: Grid, finish: Finish, line: str = "", unit: str = "") -> str:
    """`lambda x: x.float() / 255 - MEAN`; with its expression on a line of its own when `line` says how lines begin."""
    text, name = operations(grid, finish)
    return f"lambda {name}: ({line}{unit}{text}{line})" if line else f"lambda {name}: {text}"
