"""Has the operations of a chain tell when they run, for as long as samples are run: as the elements of a container do.

    x = x.float() / 255     ->     x = chain(1, chain(0, x))     with  chain.transforms = [lambda x: x.float(), lambda x: x / 255]

The function's code is compiled again from its text, with every other thing in it as it was. Runs in the child process only.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from splitter.ir import Span
from splitter.ir_cut import Tail
from splitter.trace_lines import User, node_of, source_of

NAME = "_splitter_chains"  # the variable of the script's module that holds them meanwhile


class Chain:
    """Stands for the operations of one tail; looks like a container of transforms."""

    def __init__(self, tail: Tail, function: types.FunctionType) -> None:
        self.tail, self.function = tail, function
        self.transforms: list[Callable[[Any], Any]] = []

    def __call__(self, element: int, value: Any) -> Any:
        return self.transforms[element](value)


@contextlib.contextmanager
def linked(tails: Sequence[Tail], user: User) -> Iterator[list[Chain]]:
    """The chains of these tails, in place while the context lasts. Those whose function isn't found are left out."""
    found = [Chain(tail, function) for tail in tails if tail.links and (function := _function(tail, user)) is not None]
    before = {chain.function: chain.function.__code__ for chain in found}
    made: list[Chain] = []
    try:
        for function in before:
            own = [chain for chain in found if chain.function is function]
            code = _rewritten(function, own, len(made))
            if code is not None:
                function.__globals__.setdefault(NAME, made)
                function.__code__ = code
                made += own
        yield made
    finally:
        for function, code in before.items():
            function.__code__ = code
            function.__globals__.pop(NAME, None)


def _function(tail: Tail, user: User) -> types.FunctionType | None:
    """The function that a tail is in, of the script that runs."""
    value: Any = sys.modules.get("__main__")
    for name in tail.callee.split("."):
        value = vars(value).get(name) if hasattr(value, "__dict__") else None
    if not isinstance(value, types.FunctionType):
        return None
    code = value.__code__
    same = user.path(code.co_filename) == tail.container.path and code.co_firstlineno == tail.container.line
    return value if same and os.path.isfile(code.co_filename) else None


def _rewritten(function: types.FunctionType, chains: Sequence[Chain], first: int) -> types.CodeType | None:
    """The function's code with calls of chains in it; None when its text isn't that of the tails."""
    node, text = node_of(function.__code__), source_of(function.__code__.co_filename)
    if not isinstance(node, ast.FunctionDef) or text is None:
        return None
    lines = text.splitlines()
    node = copy.deepcopy(node)
    by_place = {_place(each, lines): each for each in ast.walk(node) if isinstance(each, ast.expr)}
    swaps: dict[ast.expr, tuple[int, int, ast.expr]] = {}
    for number, chain in enumerate(chains, first):
        for element, (span, link) in enumerate(zip(chain.tail.elements, chain.tail.links, strict=True)):
            expr, hole = by_place.get(_of(span)), by_place.get(_of(link.hole))
            if expr is None or hole is None:
                return None
            chain.transforms.append(_operation(function, expr, hole, link.variable))
            swaps[expr] = number, element, hole
    holder: ast.stmt = _Swap(swaps).visit(node)
    if "." in chains[0].tail.callee:  # in a class, so that private names and super() mean what they do
        owner = chains[0].tail.callee.split(".")[0]
        holder = ast.ClassDef(owner, [], [], [holder], [], **_typed())
    tree = ast.fix_missing_locations(ast.Module([holder], []))
    compiled = compile(tree, function.__code__.co_filename, "exec", flags=function.__code__.co_flags & _FUTURE, dont_inherit=True)
    code = _inner(compiled, function.__name__)
    return code if code is not None and code.co_freevars == function.__code__.co_freevars else None


_FUTURE = 0x1FE0000  # flags of `from __future__ import ...`


def _typed() -> dict[str, Any]:
    return {"type_params": []} if sys.version_info >= (3, 12) else {}


def _inner(code: types.CodeType, name: str) -> types.CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            if constant.co_name == name and not constant.co_name.startswith("<"):
                return constant
            inner = _inner(constant, name)
            if inner is not None:
                return inner
    return None


def _operation(function: types.FunctionType, expr: ast.expr, hole: ast.expr, name: str) -> Callable[[Any], Any]:
    """An operation as a function of what goes into it, called like its text."""
    body = _Swap({hole: ast.copy_location(ast.Name(name, ast.Load()), hole)}).visit(copy_except(expr, hole))
    arguments = ast.arguments([], [ast.arg(name)], None, [], [], None, [])
    tree = ast.fix_missing_locations(ast.Expression(ast.copy_location(ast.Lambda(arguments, body), expr)))
    made: types.FunctionType = eval(compile(tree, function.__code__.co_filename, "eval", dont_inherit=True), function.__globals__)
    made.__qualname__ = ast.unparse(body)
    return made


def copy_except(expr: ast.expr, hole: ast.expr) -> ast.expr:
    """A copy of an expression in which one part is the same object."""
    return copy.deepcopy(expr, {id(hole): hole})


class _Swap(ast.NodeTransformer):
    """Puts expressions into the places of others: a node, or (chain, element, hole) for a call of a chain."""

    def __init__(self, swaps: dict[Any, Any]) -> None:
        self.swaps = swaps

    def visit(self, node: ast.AST) -> Any:
        swap = self.swaps.get(node)
        if swap is None:
            return super().visit(node)
        if isinstance(swap, ast.expr):
            return swap
        number, element, hole = swap
        chain = ast.Subscript(ast.Name(NAME, ast.Load()), ast.Constant(number), ast.Load())
        call = ast.copy_location(ast.Call(chain, [ast.Constant(element), self.visit(hole)], []), node)
        return ast.fix_missing_locations(call)


def _place(node: ast.expr, lines: Sequence[str]) -> tuple[int, int, int, int]:
    """Where a node stands, in characters."""
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    return node.lineno, _characters(lines[node.lineno - 1], node.col_offset), end_line, _characters(lines[end_line - 1], end_column)


def _characters(line: str, column: int) -> int:
    return column if line.isascii() else len(line.encode()[:column].decode())


def _of(span: Span) -> tuple[int, int, int, int]:
    return span.line, span.column, span.end_line, span.end_column
