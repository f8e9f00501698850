"""The statements of a user's function, by line, and the names that each reads and gives.

    def __getitem__(self, i):
        path, label = self.items[i]          14: reads self, i      gives path, label
        image = load(path)                   15: reads load, path   gives image
        return self.transform(image), label  16: reads self, image, label; the second part of what it returns reads label alone

A loop is one statement, and so is what `whole` lists. Needs no torch.
"""

from __future__ import annotations

import ast
import os
import sys
import types
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from splitter.ir import Span

LONGEST_NAME = 70
Names = tuple[str, ...]
_Compound = (ast.If, ast.With, ast.Try, ast.For, ast.While)


@dataclass(frozen=True, eq=False)
class Statement:
    """`gives`: the local names that hold its results. `changes`: those that it may change in place.

    `value` is the expression that it returns, or that it gives its only name.
    """

    node: ast.AST
    line: int
    end_line: int
    text: str
    reads: Names
    gives: Names
    changes: Names
    value: ast.expr | None = None
    branches: bool = False  # it is the test of an `if` or `while`
    outer: int = 0  # line of the outermost compound statement around it, if any

    def span(self, path: str) -> Span:
        return Span(path, self.line, getattr(self.node, "col_offset", 0), self.end_line, _end(self.node, self.text))


def _end(node: ast.AST, text: str) -> int:
    if isinstance(node, _Compound):
        return getattr(node, "col_offset", 0) + len(text)
    return getattr(node, "end_col_offset", None) or len(text)


def _names(*nodes: ast.AST, store: bool = False) -> Names:
    kind = ast.Store if store else ast.Load
    found = [n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, kind)]
    return tuple(dict.fromkeys(found))


def pairs(expression: ast.expr, value: Any) -> list[tuple[ast.expr, Any]]:
    """The parts of a display of a tuple, list or dictionary, each with its value."""
    inner: list[ast.expr] = []
    values: list[Any] = []
    if isinstance(expression, (ast.Tuple, ast.List)) and isinstance(value, (tuple, list)):
        inner, values = expression.elts, list(value)
    elif isinstance(expression, ast.Dict) and isinstance(value, dict) and None not in expression.keys:
        inner, values = expression.values, list(value.values())
    if not inner or len(inner) != len(values) or any(isinstance(one, ast.Starred) for one in inner):
        return [(expression, value)]
    return [pair for one, its in zip(inner, values, strict=True) for pair in pairs(one, its)]


def names_of(expression: ast.AST) -> Names:
    """The names that an expression reads."""
    return _names(expression)


def parts_read(expression: ast.AST, name: str) -> set[Any] | None:
    """Which parts of each sample an expression reads of a batch: keys or numbers, None for all of it.

    [one["x"] for one in batch]    {"x"}        [y for x, y in batch]    {1}
    """
    found: set[Any] = set()
    uses = sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(expression))
    for node in ast.walk(expression):
        if not isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)) or len(node.generators) != 1:
            continue
        only = node.generators[0]
        if not isinstance(only.iter, ast.Name) or only.iter.id != name:
            continue
        uses -= 1
        body = [node.elt, *only.ifs]
        if isinstance(only.target, ast.Tuple):
            read = set(_names(*body))
            found |= {n for n, one in enumerate(only.target.elts) if read & set(_names(one, store=True))}
        elif isinstance(only.target, ast.Name):
            inner = [part for one in body for part in ast.walk(one)]
            kept = [p for p in inner if isinstance(p, ast.Subscript) and isinstance(p.slice, ast.Constant) and _is(p.value, only.target.id)]
            if len(kept) != sum(_is(part, only.target.id) for part in inner):
                return None
            found |= {part.slice.value for part in kept if isinstance(part.slice, ast.Constant)}
        else:
            return None
    return found if uses == 0 else None


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def unzipped(statement: Statement, target: str) -> tuple[str, int] | None:
    """The batch, and the part of it, that `xs, ys = zip(*batch)` gives a name."""
    node = statement.node
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Tuple):
        return None
    call, names = node.value, [one.id if isinstance(one, ast.Name) else "" for one in node.targets[0].elts]
    if not (isinstance(call, ast.Call) and _is(call.func, "zip") and len(call.args) == 1 and isinstance(call.args[0], ast.Starred)):
        return None
    batch = call.args[0].value
    return (batch.id, names.index(target)) if isinstance(batch, ast.Name) and target in names else None


def _changed(node: ast.AST) -> Names:
    """The names of what a statement changes in place."""
    found: list[str] = []
    for part in ast.walk(node):
        if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
            found.append(part.target.id)
        elif isinstance(part, (ast.Subscript, ast.Attribute)) and isinstance(part.ctx, (ast.Store, ast.Del)):
            root: ast.AST = part
            while isinstance(root, (ast.Subscript, ast.Attribute)):
                root = root.value
            found += [root.id] if isinstance(root, ast.Name) else []
        elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
            found += _names(part.value)
    return tuple(dict.fromkeys(found))


def _yields(node: ast.AST) -> bool:
    return any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in ast.walk(node))


@dataclass
class User:
    """The user's own files: those below the script's folder that are no installed packages, and `files`, by real path."""

    folder: str
    files: frozenset[str] = frozenset()
    _known: dict[str, str | None] = field(default_factory=dict)

    def path(self, filename: str) -> str | None:
        """The path of a file relative to the script's folder; None for a library's."""
        if filename not in self._known:
            real = os.path.realpath(filename)
            packages = "site-packages" in real.split(os.sep) or "dist-packages" in real.split(os.sep)
            installed = real.startswith(os.path.realpath(sys.prefix) + os.sep) and not self.folder.startswith(sys.prefix)
            below = real.startswith(self.folder + os.sep) and os.path.isfile(real)
            own = real in self.files or (below and not packages and not installed)
            self._known[filename] = os.path.relpath(real, self.folder) if own else None
        return self._known[filename]


class Lines:
    """The statements of one function."""

    def __init__(self, text: str, node: ast.AST, whole: frozenset[int]) -> None:
        self._text = text.splitlines()
        self._whole = whole
        self.by_line: dict[int, Statement] = {}
        if isinstance(node, ast.Lambda):
            self._add(node.body, (node.body,), node.body, 0)
        else:
            self._visit(getattr(node, "body", []), 0)

    def _visit(self, body: list[ast.stmt], outer: int) -> None:
        for node in body:
            around = outer or (node.lineno if isinstance(node, _Compound) else 0)
            loop = isinstance(node, (ast.For, ast.While, ast.AsyncFor)) and not _yields(node)
            if not isinstance(node, _Compound) or loop or node.lineno in self._whole:
                value = node.value if isinstance(node, (ast.Return, ast.Assign)) else None
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield):
                    value = node.value.value
                if isinstance(node, ast.Assign) and not (len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
                    value = None
                self._add(node, (node,), value, outer)
                continue
            header: list[ast.AST] = []
            if isinstance(node, (ast.If, ast.While)):
                header = [node.test]
            elif isinstance(node, ast.For):
                header = [node.target, node.iter]
            elif isinstance(node, ast.With):
                header = list(node.items)
            if header:
                self._add(node, tuple(header), None, around)
            self._visit(node.body, around)
            for handler in getattr(node, "handlers", []):
                self._visit(handler.body, around)
            self._visit(getattr(node, "orelse", []), around)
            self._visit(getattr(node, "finalbody", []), around)

    def _add(self, node: ast.AST, parts: tuple[ast.AST, ...], value: ast.expr | None, outer: int) -> None:
        line: int = node.lineno  # type: ignore[attr-defined]
        own = len(parts) == 1 and parts[0] is node
        last = node if own else parts[-1]
        if isinstance(last, ast.withitem):
            last = last.optional_vars or last.context_expr
        end: int = last.end_lineno  # type: ignore[attr-defined]
        changed = tuple(name for part in parts for name in _changed(part))
        gives = dict.fromkeys((*(name for part in parts for name in _names(part, store=True)), *changed))
        text = self._text[line - 1].strip() if line <= len(self._text) else ""
        if isinstance(node, ast.expr):
            text = ast.unparse(node)
        text = text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 3] + "..."
        reads = _names(*parts)
        reads = (*reads, *(name for name in changed if name not in reads))
        tests = isinstance(node, (ast.If, ast.While)) and not own
        statement = Statement(node, line, end, text, reads, tuple(gives), changed, value, tests, outer)
        for number in range(line, end + 1):
            self.by_line.setdefault(number, statement)


@cache
def _tree(path: str) -> tuple[str, ast.Module] | None:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        return text, ast.parse(text)
    except (OSError, ValueError, SyntaxError):
        return None


def source_of(path: str) -> str | None:
    """The text of a file; None when it can't be read."""
    found = _tree(path)
    return None if found is None else found[0]


def tree_of(path: str) -> ast.Module | None:
    """The text of a file as a tree; None when it can't be read."""
    found = _tree(path)
    return None if found is None else found[1]


@cache
def node_of(code: types.CodeType) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
    """The text of a function that runs, as a tree; None when it can't be read."""
    found = _tree(code.co_filename)
    for node in ast.walk(found[1]) if found else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
        elif isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and node.lineno == code.co_firstlineno:
            return node
    return None


@cache
def lines_of(code: types.CodeType, whole: frozenset[int] = frozenset()) -> Lines | None:
    """The statements of a function that runs; None when its source can't be read."""
    found, node = _tree(code.co_filename), node_of(code)
    return Lines(found[0], node, whole) if found is not None and node is not None else None


@cache
def expression_at(code: types.CodeType, instruction: int, whole: frozenset[int]) -> ast.AST | None:
    """The expression that is being evaluated at an instruction; None when that isn't known (Python 3.10)."""
    lines = lines_of(code, whole)
    if lines is None or not hasattr(code, "co_positions"):
        return None
    place = list(code.co_positions())[instruction // 2]
    if None in place:
        return None
    for statement in dict.fromkeys(lines.by_line.values()):
        for node in ast.walk(statement.node):
            if isinstance(node, (ast.expr, ast.stmt)) and (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == place:
                return node
    return None


def elements_of(path: str, line: int, callee: str, count: int) -> list[ast.expr] | None:
    """The expressions of the elements of a container of transforms that is made at a line: Compose([a, b]), Sequential(a, b)."""
    found = _tree(path)
    for node in ast.walk(found[1]) if found else ():
        if not isinstance(node, ast.Call) or not node.lineno <= line <= (node.end_lineno or 0):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        arguments = node.args
        if len(arguments) == 1 and isinstance(arguments[0], (ast.List, ast.Tuple)):
            arguments = arguments[0].elts
        if name == callee and len(arguments) == count and not any(isinstance(one, ast.Starred) for one in arguments):
            return arguments
    return None
