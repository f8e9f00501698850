"""Which statements at the end of a function that makes samples the trainer could run: what the text allows.

    def __getitem__(self, i):
        x = read(self.paths[i])                      Tail(links: `x.float()`, `x.float() / 255`, `x - MEAN`)
        x = x.float() / 255
        return x - MEAN, self.labels[i]

A chain is followed from what is returned back to its first operand, as long as each operation takes one value of the sample and constants
of the script, and nothing else reads the values in between. Whether these are tensors, and the bits stay, is seen when samples run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from splitter.candidates import Candidate
from splitter.effects import Effects
from splitter.find import Found
from splitter.ir_cut import Link, Tail
from splitter.made_inside import seen_at, sharers
from splitter.quiet import is_changed, is_quiet_target, means_the_same
from splitter.read import Module
from splitter.repeat import deep_facts
from splitter.slice import Slicer
from splitter.trace_returns import flows_out, parts

_UNWANTED = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SIMPLE = (ast.BinOp, ast.UnaryOp, ast.Call, ast.Subscript)
_GIVING = ("__getitem__", "__call__")
Statement = ast.Assign | ast.Return


@dataclass(frozen=True, eq=False)
class _Step:
    """One operation: its expression, and the part of it that is the value it takes."""

    expr: ast.expr
    hole: ast.expr
    statement: Statement
    value: ast.expr
    target: str


def chains(found: Found, effects: Effects, candidate: Candidate, others: list[tuple[str, Slicer]]) -> Iterator[Tail]:
    """The chains at the ends of the functions and methods that a dataset takes along, one for each value that is returned."""
    module, origin, slicer = candidate.origin.module, candidate.origin.expr, candidate.slicer
    assert slicer is not None
    for owner, stmt in slicer.carried.statements.values():
        if owner is not module:
            continue
        for name, function in _functions(stmt):
            for end in _ends(function):
                steps = list(_follow(found, effects, module, function, *end, origin))[::-1]
                if steps:
                    yield Tail(
                        candidate.name,
                        module.name,
                        module.span(function),
                        name,
                        tuple(module.span(step.expr) for step in steps),
                        movable=0,
                        definition=module.span(stmt),
                        shared=sharers(found, candidate, function, others),
                        links=tuple(_link(module, step, steps) for step in steps),
                    )


def _link(module: Module, step: _Step, steps: list[_Step]) -> Link:
    first = next(other for other in steps if other.statement is step.statement)
    variable = first.hole.id if isinstance(first.hole, ast.Name) else step.target or "value"
    return Link(module.span(step.hole), module.span(step.statement), module.span(step.value), step.target, variable)


def _functions(stmt: ast.stmt) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a definition, with their names: "Photos.__getitem__"."""
    if isinstance(stmt, ast.FunctionDef) and not stmt.decorator_list:
        yield stmt.name, stmt
    elif isinstance(stmt, ast.ClassDef) and not stmt.decorator_list:
        for inner in stmt.body:
            given = isinstance(inner, ast.FunctionDef) and (not inner.name.startswith("__") or inner.name in _GIVING)
            if given and isinstance(inner, ast.FunctionDef) and not inner.decorator_list:
                yield f"{stmt.name}.{inner.name}", inner


def _ends(function: ast.FunctionDef) -> Iterator[tuple[Statement, ast.expr]]:
    """The expressions whose values leave the function as they are, always."""
    for stmt in function.body:
        if isinstance(stmt, ast.Return):
            found = list(parts(stmt.value, frozenset()))
        elif isinstance(stmt, ast.Assign) and _target(stmt):
            found = [stmt.value]
        else:
            continue
        for expr in found:
            place = (expr.lineno, expr.col_offset, expr.end_lineno or 0, expr.end_col_offset or 0)
            listed = any(isinstance(node, ast.ListComp) and expr is not node for node in ast.walk(stmt))
            if isinstance(expr, _SIMPLE) and not listed and flows_out(function, place):
                yield stmt, expr


def _target(stmt: Statement) -> str:
    """The one name that a statement gives a value; "" for any other."""
    one = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
    return one.id if isinstance(one, ast.Name) else ""


def _follow(
    found: Found, effects: Effects, module: Module, function: ast.FunctionDef, stmt: Statement, expr: ast.expr, at: ast.expr
) -> Iterator[_Step]:
    """The operations of a chain, the last one first."""
    value, target = expr, _target(stmt)
    indices = {argument.arg for argument in function.args.args}
    while True:
        if isinstance(expr, ast.Name):
            before = _giver(function, stmt, expr)
            if before is None:
                return
            target = expr.id
            stmt, expr, value = before, before.value, before.value
            continue
        hole = _hole(found, module, expr)
        if isinstance(hole, ast.Name) and function.name == "__getitem__" and hole.id in indices:
            return  # a number
        if hole is None or not _is_pure(found, effects, module, expr, hole, at):
            return
        yield _Step(expr, hole, stmt, value, target)
        expr = hole


def _hole(found: Found, module: Module, expr: ast.expr) -> ast.expr | None:
    """The one operand of an operation that isn't made of constants of the script."""
    if isinstance(expr, ast.BinOp):
        operands = [expr.left, expr.right]
    elif isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.USub):
        operands = [expr.operand]
    elif isinstance(expr, ast.Subscript):
        operands = [expr.value, expr.slice]
    elif isinstance(expr, ast.Call):
        method = isinstance(expr.func, ast.Attribute) and not _is_global(module, expr.func)
        if not method and (not _is_global(module, expr.func) or _is_pythons(found, module, expr.func)):
            return None  # int(x), len(x): not of tensors
        if method and isinstance(expr.func, ast.Attribute) and expr.func.attr.endswith("_"):
            return None  # in place, in memory that others may have as well
        first = expr.func.value if method and isinstance(expr.func, ast.Attribute) else expr.func
        operands = [first, *expr.args, *(keyword.value for keyword in expr.keywords)]
    else:
        return None
    open_ = [operand for operand in operands if not _is_global(module, operand)]
    if len(open_) != 1 or any(isinstance(operand, ast.Starred) for operand in operands):
        return None
    taken = open_[0]
    first_place = isinstance(expr, ast.BinOp) or taken is operands[0] or (isinstance(expr, ast.Call) and taken in expr.args[:1])
    return taken if first_place else None


def _is_pythons(found: Found, module: Module, function: ast.expr) -> bool:
    return (found.resolver.library(module, function) or "").startswith("builtins.")


def _is_global(module: Module, node: ast.AST) -> bool:
    """Whether an expression has names of the module and of Python only."""
    names = [name for name in ast.walk(node) if isinstance(name, ast.Name)]
    scopes = [module.names.scope_of[name].lookup(name.id) for name in names]
    return all(scope is None or scope.kind == "module" for scope in scopes)


def _is_pure(found: Found, effects: Effects, module: Module, expr: ast.expr, hole: ast.expr, at: ast.expr) -> bool:
    """Whether an operation has no effect beside its result, and means the same at another place."""
    inside = {id(node) for node in ast.walk(hole)}
    own = [node for node in ast.walk(expr) if id(node) not in inside]
    if any(isinstance(node, _UNWANTED) for node in own):
        return False
    if any(id(fact.node) not in inside for fact in deep_facts(found, effects, module, expr)):
        return False
    names = [node for node in own if isinstance(node, ast.Name)]
    if not all(seen_at(found, name, at) and means_the_same(module, name) and not is_changed(found, module, name) for name in names):
        return False
    called = [node.func for node in own if isinstance(node, ast.Call)]
    return all(is_quiet_target(found, effects, target) for node in called for target in found.resolver.targets(module, node))


def _giver(function: ast.FunctionDef, stmt: Statement, read: ast.Name) -> ast.Assign | None:
    """The statement before that gives a variable its value, when it is for nothing else than this read of it."""
    place = function.body.index(stmt)
    before: ast.Assign | None = None
    for earlier in reversed(function.body[:place]):
        if not _mentions(earlier, read.id):
            continue
        if isinstance(earlier, ast.Assign) and _target(earlier) == read.id:
            before = earlier
        break
    if before is None or sum(node is not read for node in _mentions(stmt, read.id) if isinstance(node.ctx, ast.Load)):
        return None
    if any(isinstance(node, (ast.FunctionDef, ast.Lambda, ast.GeneratorExp)) for node in ast.walk(function) if node is not function):
        return None  # which may read the variable at any time
    later = [node for other in function.body[place + 1 :] for node in _mentions(other, read.id)]
    return before if _target(stmt) == read.id or not later else None


def _mentions(node: ast.AST, name: str) -> list[ast.Name]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.Name) and inner.id == name]
