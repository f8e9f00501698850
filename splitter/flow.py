"""Which bindings reach a use, and what happens before what.

if a:  x = 1
else:  x = 2
f(x)            reaching(x) -> both assignments
x = 3           (not this one, unless a loop leads back)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from splitter.scopes import Binding, Names, Scope, position


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The statement lists of a compound statement."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block
    for handler in getattr(node, "handlers", []):
        yield handler.body
    for case in getattr(node, "cases", []):
        yield case.body


def bindings_in(node: ast.AST, name: str, scope: Scope, names: Names) -> list[Binding]:
    """The bindings of `name` (a name of `scope`) that stand inside `node`."""
    found = []
    for binding in scope.bindings.get(name, []):
        at = binding.node
        if at is node or any(up is node for up in names.ancestors(at)):
            found.append(binding)
    return found


def _always_binds(stmt: ast.stmt, found: list[Binding], names: Names) -> bool:
    """Whether running `stmt` to its end surely binds the name: simple statements, `with`, `if` with both sides."""
    if not found:
        return False
    if any(binding.node is stmt and binding.kind != "for" for binding in found):
        return True
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        return any(_always_binds(inner, _within(found, inner, names), names) for inner in stmt.body)
    if isinstance(stmt, ast.If) and stmt.orelse:
        return all(
            _ends(block) or any(_always_binds(inner, _within(found, inner, names), names) for inner in block)
            for block in (stmt.body, stmt.orelse)
        )
    if isinstance(stmt, ast.Try):
        sides = [[*stmt.body, *stmt.orelse], *(handler.body for handler in stmt.handlers)]
        return all(_ends(side) or any(_always_binds(inner, _within(found, inner, names), names) for inner in side) for side in sides)
    return False


def _within(found: list[Binding], node: ast.AST, names: Names) -> list[Binding]:
    return [b for b in found if b.node is node or any(up is node for up in names.ancestors(b.node))]


def _ends(block: list[ast.stmt]) -> bool:
    """A block that leaves instead of going on."""
    last = block[-1]
    return isinstance(last, (ast.Return, ast.Raise, ast.Continue, ast.Break)) or (
        isinstance(last, ast.Expr)
        and isinstance(last.value, ast.Call)
        and isinstance(last.value.func, ast.Attribute)
        and last.value.func.attr in ("exit", "_exit")
    )


def reaching(use: ast.AST, name: str, names: Names, scope: Scope | None = None) -> list[Binding]:
    """The bindings of `name` that can be its value at `use`.

    A use in another function than the one that holds the name sees any of its bindings (closures bind late).
    """
    at = names.scope_of[use]
    scope = scope or at.lookup(name)
    if scope is None:
        return []
    everything = [b for b in scope.bindings[name] if b.kind != "delete"]
    if at.function() is not scope and at is not scope:
        return everything
    found: list[Binding] = []
    child = use
    for parent in names.ancestors(use):
        if isinstance(child, ast.stmt):
            for block in blocks(parent):
                index = next((i for i, stmt in enumerate(block) if stmt is child), None)
                if index is None:
                    continue
                for stmt in reversed(block[:index]):
                    inner = bindings_in(stmt, name, scope, names)
                    found += inner
                    if _always_binds(stmt, inner, names):
                        return found
        if isinstance(parent, (ast.For, ast.AsyncFor, ast.While)) and child is not getattr(parent, "iter", None):
            around = bindings_in(parent, name, scope, names)
            header = [b for b in around if b.node is parent]
            found += [b for b in around if b not in found]
            if header:
                return found
        if isinstance(parent, (ast.With, ast.AsyncWith)) and isinstance(child, ast.stmt):
            header = [b for b in scope.bindings[name] if b.node is parent]
            if header:
                return found + header
        if isinstance(parent, ast.Try) and child not in parent.body:
            found += [b for stmt in parent.body for b in bindings_in(stmt, name, scope, names) if b not in found]
        if isinstance(parent, ast.ExceptHandler):
            found += [b for b in scope.bindings[name] if b.node is parent]
        if parent is scope.node:
            break
        child = parent
    found += [b for b in scope.bindings[name] if b.kind in ("param", "comp") and b not in found]
    return found or everything


def enclosing_loops(node: ast.AST, names: Names, scope: Scope) -> list[ast.AST]:
    """The loops of `scope` around `node`, innermost first (the iterable of a `for` is outside of it)."""
    loops: list[ast.AST] = []
    child = node
    for parent in names.ancestors(node):
        if isinstance(parent, (ast.For, ast.AsyncFor, ast.While)) and child is not getattr(parent, "iter", None):
            loops.append(parent)
        if parent is scope.node:
            break
        child = parent
    return loops


def precedes(first: ast.AST, second: ast.AST, names: Names, scope: Scope) -> bool:
    """Whether every run of `first` ends before any run of `second`, both in the same scope."""
    if position(first) >= position(second):
        return False
    shared = set(map(id, enclosing_loops(first, names, scope))) & set(map(id, enclosing_loops(second, names, scope)))
    return not shared
