"""What happens before what, across functions."""

from __future__ import annotations

import ast

from splitter.flow import precedes
from splitter.read import Module
from splitter.resolve import Resolver
from splitter.scopes import Scope


def _frame(module: Module, node: ast.AST) -> Scope:
    """The function or module whose run executes `node`. A class body runs with what is around it."""
    scope = module.names.scope_of[node].function()
    while scope.kind == "class" and scope.parent is not None:
        scope = scope.parent.function()
    return scope


def happens_before(resolver: Resolver, module: Module, node: ast.AST, other_module: Module, other: ast.AST, depth: int = 0) -> bool:
    """Whether every run of `node` is over before any run of `other` begins. False when that can't be shown."""
    if depth > 12:
        return False
    here, there = _frame(module, node), _frame(other_module, other)
    if here is there:
        return precedes(node, other, module.names, here)
    if module is not other_module and here.kind == "module":
        return True  # a local module runs when it is imported; the import stands before any use of it
    if there.kind != "module" and isinstance(there.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        callers = resolver.call_sites(there.node)
        escapes = resolver.escapes(there.node)
        sites: list[tuple[Module, ast.AST]] = [*callers, *escapes]
        if sites and all(happens_before(resolver, module, node, m, c, depth + 1) for m, c in sites):
            return True
    if here.kind != "module" and isinstance(here.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        callers = resolver.call_sites(here.node)
        if callers and not resolver.escapes(here.node):
            return all(happens_before(resolver, m, c, other_module, other, depth + 1) for m, c in callers)
    return False
