"""Text and the pieces of it that are replaced.

    apply("a = f(x)", [Splice(4, 5, "g")])  ->  "a = g(x)"

Everything outside of the splices stays as it is, character by character.
"""

from __future__ import annotations

import ast
import bisect
import functools
import io
import json
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

from splitter.ir import Span

LIMIT = 120


@dataclass(frozen=True)
class Splice:
    """The characters from `start` up to `end` become `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Grid:
    """One text, addressed by line (from 1) and column (from 0, in characters)."""

    text: str

    @functools.cached_property
    def lines(self) -> list[str]:
        return list(io.StringIO(self.text, newline=""))

    @functools.cached_property
    def starts(self) -> list[int]:
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line))
        return starts

    @functools.cached_property
    def newline(self) -> str:
        """The end of the first line."""
        first = self.lines[0] if self.lines else ""
        return first[len(first.rstrip("\r\n")) :] or "\n"

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def line(self, number: int) -> str:
        """The line without its end; empty outside of the text."""
        return self.lines[number - 1].rstrip("\r\n") if 1 <= number <= len(self.lines) else ""

    def indent(self, number: int) -> str:
        line = self.line(number)
        return line[: len(line) - len(line.lstrip())]

    def offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def line_at(self, offset: int) -> int:
        return bisect.bisect_right(self.starts, offset) if offset < len(self.text) else max(1, len(self.lines))

    def range(self, span: Span) -> tuple[int, int]:
        return self.offset(span.line, span.column), self.offset(span.end_line, span.end_column)

    def slice(self, span: Span) -> str:
        start, end = self.range(span)
        return self.text[start:end]

    def node_range(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Where a node of `tree` stands; its columns count bytes of UTF-8."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self.offset(node.lineno, self._characters(node.lineno, node.col_offset)),
            self.offset(node.end_lineno, self._characters(node.end_lineno, node.end_col_offset)),
        )

    def _characters(self, line: int, column: int) -> int:
        return len(self.lines[line - 1].encode("utf-8", "surrogatepass")[:column].decode("utf-8", "surrogatepass"))

    @functools.cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        """Tokens of the text; columns count characters, every line end is one newline."""
        plain = (line.rstrip("\r\n") + "\n" for line in self.lines)
        return list(tokenize.generate_tokens(lambda: next(plain, "")))

    @functools.cached_property
    def inside_string(self) -> frozenset[int]:
        """Lines that begin inside a string: their indentation is part of its value."""
        held: set[int] = set()
        opened: list[int] = []
        for token in self.tokens:
            name = tokenize.tok_name[token.type]
            if name == "STRING":
                held.update(range(token.start[0] + 1, token.end[0] + 1))
            elif name in ("FSTRING_START", "TSTRING_START"):
                opened.append(token.start[0])
            elif name in ("FSTRING_END", "TSTRING_END"):
                held.update(range(opened.pop() + 1, token.end[0] + 1))
        return frozenset(held)


def apply(text: str, splices: Sequence[Splice]) -> str:
    """The text with all splices made.

    Insertions at the same place keep their order and come before a replacement that begins there.
    Raises ValueError when two splices overlap.
    """
    parts: list[str] = []
    done = 0
    for splice in ordered(splices):
        if splice.start < done:
            raise ValueError(f"two edits overlap at offset {splice.start}")
        parts += text[done : splice.start], splice.text
        done = splice.end
    return "".join([*parts, text[done:]])


def undo(text: str, original: str, splices: Sequence[Splice]) -> str:
    """The original again, from an edited text: each splice takes back what stood in its place."""
    parts: list[str] = []
    done = shift = 0
    for splice in ordered(splices):
        parts += text[done : splice.start + shift], original[splice.start : splice.end]
        done = splice.start + shift + len(splice.text)
        shift += len(splice.text) - (splice.end - splice.start)
    return "".join([*parts, text[done:]])


def ordered(splices: Sequence[Splice]) -> list[Splice]:
    return sorted(splices, key=lambda splice: (splice.start, splice.end))


def quoted(text: str, encoding: str = "utf-8") -> str:
    """A string literal in double quotes that the encoding can hold."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(_escaped(character) for character in json.dumps(text, ensure_ascii=False))
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\x7f")


def _escaped(character: str) -> str:
    code = ord(character)
    return character if code < 0x7F else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def call(head: str, arguments: Sequence[str], indent: str = "", unit: str = "    ", newline: str = "\n") -> str:
    """`head(arguments)` in one line where that fits, else one argument a line."""
    flat = f"{head}({', '.join(arguments)})"
    if len(indent) + len(flat) <= LIMIT:
        return flat
    inner = "".join(f"{newline}{indent}{unit}{argument}," for argument in arguments)
    return f"{head}({inner}{newline}{indent})"
