"""Process-wide switches of libraries that the script sets, and that moved code obeys.

torch.set_flush_denormal(True)                 carried to the worker's module level
ImageFile.LOAD_TRUNCATED_IMAGES = True         carried when the moved code uses PIL
torch.backends.cudnn.benchmark = True          stays: it is about a device
"""

from __future__ import annotations

import ast

from splitter.effects import Effects
from splitter.find import Found
from splitter.read import Module
from splitter.resolve import Library
from splitter.slice import Slicer

STAYS = ("torch.backends", "torch.cuda", "matplotlib", "warnings", "logging", "os")


def settings(found: Found, effects: Effects, carried: list[tuple[Module, ast.stmt]], slicers: list[Slicer]) -> list[ast.stmt]:
    """The top-level statements of the script that set switches, and the imports that they need."""
    entry = found.program.entry
    used = {"torch"} | {
        _package(found, module, node)
        for slicer in slicers
        for module, root in _roots(slicer, carried)
        for node in ast.walk(root)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(getattr(node, "ctx", None), ast.Load)
    }
    wanted: dict[int, ast.stmt] = {}
    for stmt in entry.tree.body:
        if not isinstance(stmt, (ast.Expr, ast.Assign)):
            continue
        names = _setting(found, effects, entry, stmt)
        if names and all(name.split(".")[0] in used and not name.startswith(STAYS) for name in names):
            wanted[id(stmt)] = stmt
            for node in ast.walk(stmt):
                if isinstance(node, ast.Name):
                    for binding in entry.names.top.bindings.get(node.id, []):
                        top = next((up for up in [binding.node, *entry.names.ancestors(binding.node)] if up in entry.tree.body), None)
                        if isinstance(top, ast.stmt) and binding.kind == "import":
                            wanted[id(top)] = top
    return list(wanted.values())


def _roots(slicer: Slicer, carried: list[tuple[Module, ast.stmt]]) -> list[tuple[Module, ast.AST]]:
    own: list[tuple[Module, ast.AST]] = [(slicer.module, stmt) for stmt in slicer.body.values()]
    return [*own, (slicer.module, slicer.at), *carried]


def _package(found: Found, module: Module, node: ast.AST) -> str:
    assert isinstance(node, (ast.Name, ast.Attribute))
    if node not in module.names.scope_of:
        return ""
    return (found.resolver.library(module, node) or "").split(".")[0]


def _setting(found: Found, effects: Effects, entry: Module, stmt: ast.stmt) -> list[str]:
    """The library names of the switches that a statement sets; empty when it does anything else, or reads a variable."""
    names: list[str] = []
    for fact in effects.of(entry, stmt):
        if fact.effect != "setting":
            return []
        node = fact.node.func if isinstance(fact.node, ast.Call) else fact.node
        name = found.resolver.library(entry, node) if isinstance(node, ast.expr) else None
        if name is None and isinstance(node, ast.Attribute):
            base = found.resolver.library(entry, node.value)
            name = f"{base}.{node.attr}" if base else None
        names += [name] if name else []
    for node in ast.walk(stmt):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and not isinstance(found.resolver.target(entry, node), Library):
            return []
    return names
