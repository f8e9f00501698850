"""Loader sites: the calls that construct a loader, with every keyword that they may be given.

options = {"batch_size": 64}
if cuda: options.update(num_workers=1)
DataLoader(data, **options)               dataset: data, batch_size: 64, num_workers: 1 (perhaps)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from splitter.flow import reaching
from splitter.ir import Diagnostic
from splitter.knowledge import LOADERS, OTHER_LOADERS
from splitter.read import Module
from splitter.resolve import Resolver

LOADER_PARAMETERS = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
)


@dataclass(frozen=True, eq=False)
class Site:
    """One construction of a loader. `options` holds each keyword's possible expressions (several when a dict of keywords is built up)."""

    module: Module
    call: ast.Call
    options: dict[str, tuple[ast.expr, ...]]
    problem: Diagnostic | None = None

    def option(self, name: str) -> ast.expr | None:
        found = self.options.get(name, ())
        return found[0] if found else None


def loader_site(module: Module, call: ast.Call, resolver: Resolver) -> Iterator[Site]:
    name = resolver.library(module, call.func)
    if name in LOADERS:
        options, unread = _options(module, call)
        problem = Diagnostic("S203", module.span(unread), (("what", f"`{module.text(unread)}`"),)) if unread is not None else None
        if problem is None and "dataset" not in options:
            problem = Diagnostic("S203", module.span(call), (("what", "dataset"),))
        yield Site(module, call, options, problem)
        return
    other = next((what for known, what in OTHER_LOADERS.items() if name and (name == known or name.startswith(known + "."))), None)
    if other is None:
        definition = resolver.definition(module, call.func)
        if definition is not None and isinstance(definition.node, ast.ClassDef) and resolver.ancestry(definition)[0] & LOADERS:
            other = f"{definition.node.name}, a subclass of DataLoader,"
    if other is not None and name not in LOADERS and (name is None or name.rpartition(".")[2][:1].isupper()):
        yield Site(module, call, {}, Diagnostic("S202", module.span(call), (("what", other),)))


def _options(module: Module, call: ast.Call) -> tuple[dict[str, tuple[ast.expr, ...]], ast.expr | None]:
    """Every keyword of a loader call, and the first argument that can't be read."""
    options: dict[str, tuple[ast.expr, ...]] = {}
    for index, arg in enumerate(call.args):
        if isinstance(arg, ast.Starred) or index >= len(LOADER_PARAMETERS):
            return options, arg
        options[LOADER_PARAMETERS[index]] = (arg,)
    for keyword in call.keywords:
        if keyword.arg is not None:
            options[keyword.arg] = (keyword.value,)
            continue
        found = _dict_items(module, keyword.value)
        if found is None:
            return options, keyword.value
        for key, value in found:
            options[key] = (*options.get(key, ()), value)
    return options, None


def _dict_items(module: Module, expr: ast.expr, depth: int = 0) -> list[tuple[str, ast.expr]] | None:
    """The items that a dict of keywords may have: literals, dict(...), and what is added to it by update, `|=` and item assignment."""
    if depth > 6:
        return None
    if isinstance(expr, ast.Dict):
        items: list[tuple[str, ast.expr]] = []
        for key, value in zip(expr.keys, expr.values, strict=True):
            inner = _dict_items(module, value, depth + 1) if key is None else None
            if key is None and inner is not None:
                items += inner
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                items.append((key.value, value))
            else:
                return None
        return items
    if isinstance(expr, ast.IfExp):
        sides = [_dict_items(module, side, depth + 1) for side in (expr.body, expr.orelse)]
        return None if None in sides else [item for side in sides if side for item in side]
    if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name) and expr.func.id == "dict":
        items = [(k.arg, k.value) for k in expr.keywords if k.arg]
        for part in (*expr.args, *(k.value for k in expr.keywords if k.arg is None)):
            inner = _dict_items(module, part, depth + 1)
            if inner is None:
                return None
            items += inner
        return items
    if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr == "copy":
        return _dict_items(module, expr.func.value, depth + 1)
    if isinstance(expr, ast.Name):
        return _dict_variable(module, expr, depth)
    return None


def _dict_variable(module: Module, expr: ast.Name, depth: int) -> list[tuple[str, ast.expr]] | None:
    scope = module.names.scope_of[expr].lookup(expr.id)
    if scope is None or scope.root is not module.names.top:
        return None
    items: list[tuple[str, ast.expr]] = []
    for binding in reaching(expr, expr.id, module.names, scope):
        if binding.kind != "assign" or binding.path or binding.value is None:
            return None
        inner = _dict_items(module, binding.value, depth + 1)
        if inner is None:
            return None
        items += inner
    for node in ast.walk(scope.node):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == expr.id
            and node.func.attr in ("update", "setdefault")
        ):
            for part in node.args:
                inner = _dict_items(module, part, depth + 1)
                if inner is None:
                    return None
                items += inner
            items += [(k.arg, k.value) for k in node.keywords if k.arg]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
            if isinstance(target.value, ast.Name) and target.value.id == expr.id:
                if not (isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str)):
                    return None
                items.append((target.slice.value, node.value))
    return items
