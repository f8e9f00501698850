"""Which statements of a function run for certain when one call of it is made, as far as constant arguments decide.

def get_transform(train):                        get_transform(False):
    if train:
        return Compose([Flip(), ToTensor()])     doesn't run
    return Compose([ToTensor()])                 runs for certain
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from splitter.flow import blocks
from splitter.resolve import argument, default

Function = ast.FunctionDef | ast.AsyncFunctionDef
Constants = Mapping[str, object]
_LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def constants(function: Function, call: ast.Call, *, bound: bool) -> dict[str, object]:
    """The parameters that a call gives constants, or leaves at defaults that are constants.

    `bound`: the first parameter is the object itself.
    """
    if any(keyword.arg is None for keyword in call.keywords) or any(isinstance(given, ast.Starred) for given in call.args):
        return {}
    stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    found: dict[str, object] = {}
    arguments = function.args
    for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        given = argument(call, function, parameter.arg, bound=bound) or default(function, parameter.arg)
        if isinstance(given, ast.Constant) and parameter.arg not in stored:
            found[parameter.arg] = given.value
    return found


def truth(test: ast.expr, known: Constants) -> bool | None:
    """Whether a test holds; None when that can't be said."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = truth(test.operand, known)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        ends = isinstance(test.op, ast.Or)  # the value that decides alone
        found = [truth(value, known) for value in test.values]
        return ends if ends in found else None if None in found else not ends
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compared(test.ops[0], _value(test.left, known), _value(test.comparators[0], known))
    value = _value(test, known)
    return None if value is _UNKNOWN else bool(value)


_UNKNOWN = object()


def _value(node: ast.expr, known: Constants) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id, _UNKNOWN)
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        inner = [_value(part, known) for part in node.elts]
        return _UNKNOWN if _UNKNOWN in inner else inner
    return _UNKNOWN


def _compared(op: ast.cmpop, left: object, right: object) -> bool | None:
    if left is _UNKNOWN or right is _UNKNOWN:
        return None
    if isinstance(op, (ast.Eq, ast.NotEq)):
        return (left == right) is isinstance(op, ast.Eq)
    if isinstance(op, (ast.Is, ast.IsNot)) and (left is None or right is None):
        return (left is right) is isinstance(op, ast.Is)
    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, list):
        return (left in right) is isinstance(op, ast.In)
    return None


def run(body: list[ast.stmt], known: Constants) -> Iterator[tuple[ast.stmt, bool]]:
    """The simple statements that may run, in order, each with whether it does for certain. Those that can't run are left out."""
    yield from _Run(known).block(body, True)


class _Run:
    """One pass; `left`: the function has been left for certain, `doubt`: perhaps."""

    def __init__(self, known: Constants) -> None:
        self.known = known
        self.left = self.doubt = False

    def block(self, body: list[ast.stmt], sure: bool) -> Iterator[tuple[ast.stmt, bool]]:
        for stmt in body:
            if self.left:
                return
            yield from self.statement(stmt, sure)

    def statement(self, stmt: ast.stmt, sure: bool) -> Iterator[tuple[ast.stmt, bool]]:
        if isinstance(stmt, ast.If) and (decided := truth(stmt.test, self.known)) is not None:
            yield from self.block(stmt.body if decided else stmt.orelse, sure)
        elif isinstance(stmt, (ast.With, ast.AsyncWith)):
            yield from self.block(stmt.body, sure)
        elif any(True for _ in blocks(stmt)) and not isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for inner in blocks(stmt):
                yield from self.block(inner, False)
                self.left = False
        else:
            yield stmt, sure and not self.doubt
            if isinstance(stmt, _LEAVING):
                self.left, self.doubt = True, self.doubt or not sure
