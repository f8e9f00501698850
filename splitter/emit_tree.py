"""Edits of a module, made on its libcst tree.

    before    x = Data(a)   # photos       expression  Data(a)   becomes  remote("x", {"a": a})
              y = a + 1                    lines       y = a + 1 becomes  nothing
    after     x = remote("x", {"a": a})   # photos

The new text of every piece is decided before. The smallest expression around a piece is parsed anew; whole lines take
their statements with them, but not the comments and blank lines that stand outside of these lines.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias, cast

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from splitter.splice import Grid, Splice, apply

Statement: TypeAlias = cst.SimpleStatementLine | cst.BaseCompoundStatement
Body: TypeAlias = Sequence[cst.BaseStatement] | Sequence[Statement]
Expressions: TypeAlias = Mapping[cst.BaseExpression, cst.BaseExpression]
Positions: TypeAlias = Mapping[cst.CSTNode, CodeRange]


@dataclass(frozen=True)
class _Rows:
    """The lines `first` to `last` (the one before `first`: none) become `statements` and, after them, `blank` lines.

    `column`: where they begin; in a block of its own when that isn't 0.
    """

    first: int
    last: int
    statements: tuple[Statement, ...]
    blank: tuple[cst.EmptyLine, ...]
    column: int = 0

    @property
    def is_new(self) -> bool:
        return self.last < self.first


def edit_tree(grid: Grid, expressions: Sequence[Sequence[Splice]], lines: Sequence[Splice]) -> str:
    """The text of the edited module.

    Args:
        grid: the module's text.
        expressions: for each edited expression the splices that belong together.
        lines: splices of whole lines at the start of a statement; the new text is empty or holds whole statements.

    Raises:
        ValueError: a piece isn't inside of an expression, or two overlap.
        SyntaxError: text or new text isn't Python as far as libcst knows.
    """
    try:
        # A final carriage return alone isn't an end for libcst.
        ended = grid.text.endswith(("\r", "\n"))
        module = cst.parse_module(grid.text).with_changes(has_trailing_newline=ended)
        positions = cast("Positions", MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider))
        found = _expressions(grid, positions, expressions)
        new = {node: _parsed(module, node, text) for node, text in found.items()}
        rows = [_rows(grid, module, splice) for splice in lines]
    except cst.ParserSyntaxError as error:
        raise SyntaxError(f"libcst: {error.message}") from error
    edited = module.visit(_Edits(grid, module, positions, new, rows))
    ended |= any(splice.end == len(grid.text) and splice.text[-1:] in ("", "\r", "\n") for splice in lines)
    return edited.with_changes(has_trailing_newline=ended).code


def _expressions(grid: Grid, positions: Positions, groups: Sequence[Sequence[Splice]]) -> dict[cst.BaseExpression, str]:
    """The smallest expressions that hold a group of splices each, with their new texts; none inside of another."""
    held = [(node, at.start, at.end) for node, at in positions.items() if isinstance(node, cst.BaseExpression)]
    spans = {node: (grid.offset(start.line, start.column), grid.offset(end.line, end.column)) for node, start, end in held}
    places = {_smallest(spans, group) for group in groups}
    result = {}
    for node in places:
        start, end = spans[node]
        if any(outer is not node and spans[outer][0] <= start and end <= spans[outer][1] for outer in places):
            continue
        inside = [splice for splice in chain(*groups) if start <= splice.start and splice.end <= end]
        moved = [Splice(splice.start - start, splice.end - start, splice.text) for splice in inside]
        result[node] = apply(grid.text[start:end], moved)
    return result


def _smallest(spans: Mapping[cst.BaseExpression, tuple[int, int]], group: Sequence[Splice]) -> cst.BaseExpression:
    first, last = min(splice.start for splice in group), max(splice.end for splice in group)
    around = {node: end - start for node, (start, end) in spans.items() if start <= first and last <= end}
    if not around:
        raise ValueError(f"no expression around offset {first}")
    return min(around, key=around.__getitem__)


def _parsed(module: cst.Module, old: cst.BaseExpression, text: str) -> cst.BaseExpression:
    """The expression that stands for `old`, in the parentheses of `old`, which its text leaves out."""
    # Inside of parentheses a line may end anywhere; the first line end is the module's, which libcst takes for the usual one.
    held = f"({module.default_newline}{text})"
    node = cst.parse_expression(held, config=module.config_for_parsing).visit(_Absolute())
    assert isinstance(node, cst.BaseExpression)
    return node.with_changes(lpar=[*old.lpar, *node.lpar[1:]], rpar=[*node.rpar[:-1], *old.rpar])


class _Absolute(cst.CSTTransformer):
    """Lines hold their whole indentation, whatever block they get into."""

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> cst.CSTNodeT:
        spaced = isinstance(updated_node, cst.EmptyLine | cst.ParenthesizedWhitespace)
        return updated_node.with_changes(indent=False) if spaced else updated_node


def _rows(grid: Grid, module: cst.Module, splice: Splice) -> _Rows:
    text = splice.text
    if splice.start == len(grid.text) and not module.has_trailing_newline:
        text = text.removeprefix(grid.newline)  # it ends the last line, which the tree has as ended
    bare = text.lstrip(" \t\f")
    held = cst.parse_module(f"pass{module.default_newline}" + bare, config=module.config_for_parsing)
    first, last = bisect.bisect_left(grid.starts, splice.start) + 1, bisect.bisect_left(grid.starts, splice.end)
    column = len(text) - len(bare) if bare.strip() else 0
    statements = tuple(cast("Statement", part.visit(_Absolute())) if column and last < first else part for part in held.body[1:])
    return _Rows(first, last, statements, tuple(held.footer), column)


class _Edits(cst.CSTTransformer):
    """All edits of a module in one pass; the lines of nodes are those of the tree before it."""

    def __init__(self, grid: Grid, module: cst.Module, positions: Positions, new: Expressions, rows: list[_Rows]) -> None:
        super().__init__()
        self.grid, self.positions, self.expressions, self.rows = grid, positions, new, rows
        self.gone = {line for row in rows for line in range(row.first, row.last + 1)}
        # Comments that end a block belong to it, though the lines put in at the top level may stand before them.
        self.displaced: dict[cst.EmptyLine, int] = {}
        self.owners = {row: self._owner(row) for row in rows if row.is_new and row.column}
        for row in [row for row in rows if row not in self.owners]:
            above = [statement for statement in module.body if self._line(statement) < row.first]
            if row.is_new and above:
                self.displaced |= {empty: line for empty, line in self._empty(above[-1]) if line >= row.first}

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        if isinstance(original_node, cst.BaseExpression) and original_node in self.expressions:
            return cast("cst.CSTNodeT", self.expressions[original_node])
        return super().on_leave(original_node, updated_node)

    def leave_EmptyLine(self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine) -> cst.EmptyLine | cst.RemovalSentinel:
        gone = original_node in self.displaced or self._line(original_node) in self.gone
        return cst.RemoveFromParent() if gone else updated_node

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock) -> cst.IndentedBlock:
        rows = [row for row in self.rows if self._takes(row, original_node.body)]
        if not rows:
            return updated_node
        body, footer = self._merged(original_node.body, updated_node.body, original_node.footer, rows)
        return updated_node.with_changes(body=body, footer=footer)

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        rows = [row for row in self.rows if (row.is_new and row not in self.owners) or self._takes(row, original_node.body)]
        # New statements can get between the lines of the header: all of them become lines above a statement.
        empty = [*original_node.header, *original_node.footer]
        body, footer = self._merged(original_node.body, updated_node.body, empty, rows)
        return updated_node.with_changes(header=(), body=body, footer=footer)

    def _merged(
        self, old: Body, new: Body, empty: Sequence[cst.EmptyLine], rows: Sequence[_Rows]
    ) -> tuple[list[Statement], list[cst.EmptyLine]]:
        """A block's statements and the lines after the last one: what is kept and what is put in, in the order of lines."""
        parts: list[tuple[int, int, Statement | cst.EmptyLine]]
        parts = [(row.first, 0, part) for row in rows for part in (*row.statements, *row.blank)]
        if any(row.is_new and row not in self.owners for row in rows):
            parts += [(line, 1, self._whole(node, line)) for node, line in self.displaced.items()]
        for before, after in zip(cast("Sequence[Statement]", old), cast("Sequence[Statement]", new), strict=True):
            if self._line(before) in self.gone:
                parts += [(line, 1, self._whole(node, line)) for node, line in self._empty(before) if line not in self.gone]
            else:
                parts += [(line, 1, node) for node in before.leading_lines if (line := self._line(node)) not in self.gone]
                parts.append((self._line(before), 1, after.with_changes(leading_lines=())))
        parts += [(line, 1, node) for node in empty if (line := self._line(node)) not in self.gone]
        body: list[Statement] = []
        waiting: list[cst.EmptyLine] = []
        for *_, part in sorted(parts, key=lambda part: part[:2]):
            if isinstance(part, cst.EmptyLine):
                waiting.append(part)
            else:
                body.append(part.with_changes(leading_lines=[*waiting, *part.leading_lines]))
                waiting = []
        return body, waiting

    def _takes(self, row: _Rows, body: Body) -> bool:
        if row in self.owners:
            return any(statement is self.owners[row] for statement in body)
        return any(row.first <= self._line(statement) <= row.last for statement in body)

    def _owner(self, row: _Rows) -> cst.CSTNode:
        """The statement behind which new lines of a block stand: the last one before them that begins in their column."""
        kinds = (cst.SimpleStatementLine, cst.BaseCompoundStatement)
        starts = [(at.start.line, node) for node, at in self.positions.items() if isinstance(node, kinds) and at.start.column == row.column]
        above = [(line, node) for line, node in starts if line < row.first]
        if not above:
            raise ValueError(f"no block around line {row.first}")
        return max(above, key=lambda each: each[0])[1]

    def _line(self, node: cst.CSTNode) -> int:
        return self.positions[node].start.line

    def _empty(self, node: cst.CSTNode) -> Iterator[tuple[cst.EmptyLine, int]]:
        for child in node.children:
            if isinstance(child, cst.EmptyLine):
                yield child, self._line(child)
            else:
                yield from self._empty(child)

    def _whole(self, node: cst.EmptyLine, line: int) -> cst.EmptyLine:
        """The line with all of its indentation, for another block than its own."""
        text = self.grid.line(line)
        space = text.removesuffix(node.comment.value) if node.comment else text
        return node.with_changes(indent=False, whitespace=cst.SimpleWhitespace(space))
