"""Whether what is made inside of a function or a class always becomes a part of one dataset, and of which others it may.

    def get_transform(train): ... return Compose([...])          Photos(root, get_transform(False))
    class Photos: def __init__(self): self.t = Compose([...])    Photos()

The text of such a definition is there once in the worker program, for all datasets that need it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from splitter.candidates import Candidate
from splitter.certain import Function, constants, run
from splitter.find import Found
from splitter.read import Module
from splitter.scopes import free_names
from splitter.slice import Slicer

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, eq=False)
class Taken:
    """A definition at the level of the script that moved code takes along, and the one call of it there, when there is one alone."""

    node: Function | ast.ClassDef
    function: Function
    call: ast.Call

    @property
    def constants(self) -> dict[str, object]:
        return constants(self.function, self.call, bound=self.function is not self.node)


def taken(found: Found, slicer: Slicer, within: ast.AST) -> Taken | None:
    """The definition that something stands in, as moved code takes it along; None when that isn't called once, in a way that is known."""
    module = found.program.entry
    node = definition_around(module, within)
    if node is None or node.decorator_list or not _carried(slicer, node):
        return None
    made = [stmt for stmt in node.body if isinstance(stmt, ast.FunctionDef) and stmt.name == "__init__"]
    function = node if isinstance(node, _FUNCTIONS) else made[0] if made else None
    calls = list(_calls(found, slicer, module, node))
    if function is None or len(calls) != 1 or not isinstance(calls[0], ast.Call):
        return None
    return Taken(node, function, calls[0])


def definition_around(module: Module, node: ast.AST) -> Function | ast.ClassDef | None:
    """The definition at the level of a module that a node stands in."""
    outer = list(module.names.ancestors(node))
    top = outer[-2] if len(outer) > 1 else None
    return top if isinstance(top, (*_FUNCTIONS, ast.ClassDef)) else None


def _calls(found: Found, slicer: Slicer, module: Module, node: Function | ast.ClassDef) -> Iterator[ast.Call | ast.AST]:
    """The calls of a definition in all that a slice takes along; for any other mention of it, what that stands in."""
    roots: list[ast.AST] = [*slicer.body.values(), slicer.at]
    roots += [stmt for owner, stmt in slicer.carried.statements.values() if owner is module]
    for owner, name in ((m, n) for m, n in found.program.mentions(node.name)):
        if owner is not module:
            if owner.name in slicer.carried.modules:
                yield name
            continue
        if not any(up in roots for up in (name, *module.names.ancestors(name))):
            continue
        if isinstance(name, ast.Name) and not isinstance(name.ctx, ast.Load):
            continue
        parent = module.names.parent_of[name]
        yield parent if isinstance(parent, ast.Call) and parent.func is name and isinstance(name, ast.Name) else name


def always(found: Found, slicer: Slicer, node: ast.expr, rest: Callable[[ast.expr], bool]) -> bool:
    """Whether what an expression in a definition makes is always part of what the code around the definitions makes of it, as `rest` says
    for an expression there.
    """
    module = found.program.entry
    around = definition_around(module, node)
    if around is None or not _carried(slicer, around):
        return rest(node)
    where = taken(found, slicer, node)
    if where is None or _function_around(module, node) is not where.function:
        return False
    parent = module.names.parent_of[node]
    if isinstance(parent, ast.keyword):
        parent = module.names.parent_of[parent]
    if isinstance(parent, ast.Call) and parent.func is not node:
        return always(found, slicer, parent, rest)
    target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
    if isinstance(parent, ast.Return):
        result = where.function is where.node and _is_the_one(where, parent, _returns)
        return result and always(found, slicer, where.call, rest)
    if isinstance(target, ast.Attribute) and where.function is not where.node and _is_self(target.value, where.function):
        kept = _is_the_one(where, parent, lambda stmt: _stores(stmt, target.attr)) and not _written_elsewhere(found, where, target.attr)
        return kept and always(found, slicer, where.call, rest)
    if isinstance(target, ast.Name) and _is_the_one(where, parent, lambda stmt: _names(stmt, target.id)):
        alive = [read for read in _alive(where) if isinstance(read, ast.Name) and read.id == target.id and isinstance(read.ctx, ast.Load)]
        return bool(alive) and all(always(found, slicer, read, rest) for read in alive)
    return False


def _carried(slicer: Slicer, definition: ast.stmt) -> bool:
    return any(stmt is definition for _, stmt in slicer.carried.statements.values())


def _is_the_one(where: Taken, stmt: ast.AST, alike: Callable[[ast.stmt], bool]) -> bool:
    """Whether a statement runs for certain, and none that is like it may run besides."""
    ran = [(other, sure) for other, sure in run(where.function.body, where.constants) if alike(other)]
    return len(ran) == 1 and ran[0][0] is stmt and ran[0][1]


def _alive(where: Taken) -> Iterator[ast.AST]:
    """All that may run in a definition."""
    for stmt, _ in run(where.function.body, where.constants):
        yield from ast.walk(stmt)


def _returns(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Return)


def _function_around(module: Module, node: ast.AST) -> ast.AST | None:
    kinds = (*_FUNCTIONS, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.ClassDef)
    return next((up for up in module.names.ancestors(node) if isinstance(up, kinds)), None)


def _is_self(node: ast.expr, function: Function) -> bool:
    first = next(iter((*function.args.posonlyargs, *function.args.args)), None)
    return isinstance(node, ast.Name) and first is not None and node.id == first.arg


def _stores(stmt: ast.stmt, attribute: str) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == attribute and not isinstance(n.ctx, ast.Load) for n in ast.walk(stmt))


def _names(stmt: ast.stmt, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load) for n in ast.walk(stmt))


def _written_elsewhere(found: Found, where: Taken, attribute: str) -> bool:
    """Whether an attribute of this name is written anywhere but in this `__init__`, or by other classes on themselves."""
    for module, node in found.program.mentions(attribute):
        if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load):
            continue
        outer = list(module.names.ancestors(node))
        owner = next((up for up in outer if isinstance(up, ast.ClassDef)), None)
        own = isinstance(node.value, ast.Name) and node.value.id == "self"
        if not any(up is where.function for up in outer) and not (own and owner is not None and owner is not where.node):
            return True
    return any(_sets_by_name(node) for module in found.program.containing("setattr") for node in ast.walk(module.tree))


def _sets_by_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr"


def variable(found: Found, slicer: Slicer, name: ast.expr) -> ast.expr | None:
    """What a variable of a definition that is taken along holds for certain; None for anything else."""
    module = found.program.entry
    where = taken(found, slicer, name)
    if not isinstance(name, ast.Name) or where is None or _function_around(module, name) is not where.function:
        return None
    ran = [stmt for stmt, _ in run(where.function.body, where.constants) if _names(stmt, name.id)]
    stmt = ran[0] if ran else None
    if not isinstance(stmt, ast.Assign) or not isinstance(stmt.targets[0], ast.Name) or not _is_the_one(where, stmt, lambda s: s in ran):
        return None
    return stmt.value if len(stmt.targets) == 1 else None


def sharers(found: Found, candidate: Candidate, within: ast.AST, others: list[tuple[str, Slicer]]) -> tuple[str, ...]:
    """The other builders in whose code what stands in a definition may run too."""
    module = found.program.entry
    node = definition_around(module, within)
    names = []
    for name, slicer in others:
        if slicer is candidate.slicer or node is None or not _carried(slicer, node):
            continue
        where = taken(found, slicer, within)
        aside = where is not None and _function_around(module, within) is where.function and all(n is not within for n in _alive(where))
        if not aside:
            names.append(name)
    return tuple(names)


def seen_at(found: Found, expr: ast.AST, at: ast.expr) -> bool:
    """Whether every name of an expression is one of the module, and means the same at another place."""
    module = found.program.entry
    for name in free_names(expr, module.names):
        scope = module.names.scope_of[name].lookup(name.id)
        if scope is not None and scope.kind != "module":
            return False
        if module.names.scope_of[at].lookup(name.id) is not scope:
            return False
    return True
