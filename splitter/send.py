"""Step `send`: loaders whose dataset can't be made a second time, so that the trainer makes it and sends it.

    train = Photos(rows)                     the trainer's own text, as it stands
    train.transform = crop                   may go on: the dataset is sent as it is whenever an iterator is made
    loader = DataLoader(train, workers=4)    send="dataset"; the worker program has class Photos, and accepts it

Only for worker processes (num_workers >= 1): those of torch get a copy of the dataset at that very moment, too. With num_workers=0 the
runtime leaves the loader to torch. What can't be sent after all (the codec says so) leaves it to torch as well, with a warning.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from splitter.carry import Refused
from splitter.checks import check_facts, stateless
from splitter.effects import Effects, Fact
from splitter.find import Found
from splitter.ir import Diagnostic
from splitter.knowledge import row
from splitter.origins import Lost, Origin
from splitter.reach import APART, Reach
from splitter.read import ENTRY, Module, statements
from splitter.resolve import Definition, Library
from splitter.sites import Site
from splitter.slice import Slicer
from splitter.uses import loader_uses

# Reasons against building a dataset on the worker that are none against sending it.
OPEN = frozenset({"S201", "S304", "S305", "S306", "S311", "S314", "S315", "S316", "S317"})
CONSTRUCTORS = ("__init__", "__post_init__", "__new__")


@dataclass(frozen=True, eq=False)
class Sent:
    """A loader whose dataset is sent: its slice (collate function, definitions), the parts that are sent, the names that are accepted."""

    slicer: Slicer
    parts: tuple[str, ...]
    accepts: tuple[str, ...]
    origin: Origin | None
    stateless: bool | None


def sent(found: Found, effects: Effects, site: Site, handles: frozenset[int]) -> Sent | None:
    """How a loader's dataset can be sent; None when it can't."""
    origins = found.origins[id(site.call)]
    slicer = Slicer(found, effects, site.module, site.call, frozenset())
    try:
        lost = not origins or any(isinstance(origin, Lost) for origin in origins)
        reach = _reach(found, site, handles)
        _take(slicer, reach)
        if lost and not _strangers(found, effects, site, slicer) and not reach.libraries:
            return None
        parts = ("dataset", *_functions(found, effects, site, slicer, handles))
    except Refused:
        return None
    slicer.carried.facts = [item for item in slicer.carried.facts if not _in_constructor(item[1])]
    if check_facts(found, slicer, site, {1}, slicer.carried.inside) is not None or _configured(found, reach):
        return None
    if any(use.kind in ("handed", "change") for use in loader_uses(found, site)):
        return None
    known = None if lost or _unknown(reach) else stateless(found, slicer, None)
    origin = next((origin for origin in origins if isinstance(origin, Origin)), None)
    return Sent(slicer, parts, _accepts(slicer), origin, known)


def _reach(found: Found, site: Site, handles: frozenset[int]) -> Reach:
    reach = Reach(found)
    for expr in site.options.get("dataset", ()):
        reach.expression(site.module, expr)
    if handles & reach.expressions:
        raise Refused(Diagnostic("S305", site.module.span(site.call)))  # a part of it is on the worker
    if reach.lambdas:
        module, node = reach.lambdas[0]
        raise Refused(Diagnostic("S305", module.span(node), (("name", "lambda"), ("what", "a function without a name"))))
    return reach


def _take(slicer: Slicer, reach: Reach) -> None:
    """Carry the classes and functions of an object."""
    for definition in list(reach.definitions.values()):
        _carry(slicer, definition)


def _carry(slicer: Slicer, definition: Definition) -> None:
    module, node = definition.module, definition.node
    if module.names.parent_of.get(node) is not module.tree and node.name not in module.names.top.bindings:
        what = "defined inside of a function, so it has no name that a worker knows"
        raise Refused(Diagnostic("S305", module.span(node), (("name", f"`{node.name}`"), ("what", what))))
    slicer.carrier.definition(definition, "batch")
    if module.name == ENTRY:
        for binding in module.names.top.bindings[node.name]:
            slicer.carrier.statement(module, binding)
    else:
        slicer.carrier.local_module(module)


def _strangers(found: Found, effects: Effects, site: Site, slicer: Slicer) -> int:
    """The datasets and transforms of the program, for an origin that can't be followed; how many of them can be accepted."""
    count = 0
    for module in found.program.modules.values():
        for stmt in module.tree.body:
            if not isinstance(stmt, ast.ClassDef):
                continue
            definition = Definition(module, stmt)
            kind = found.kinds.class_kind(definition)
            if kind in APART or not (kind == "dataset" or found.resolver.method(definition, "__call__")):
                continue
            if _clean(found, effects, site, definition):
                _carry(slicer, definition)
                count += kind == "dataset"
    return count


def _clean(found: Found, effects: Effects, site: Site, definition: Definition) -> bool:
    trial = Slicer(found, effects, site.module, site.call, frozenset())
    try:
        _carry(trial, definition)
    except Refused:
        return False
    trial.carried.facts = [item for item in trial.carried.facts if not _in_constructor(item[1])]
    return check_facts(found, trial, site, {1}, trial.carried.inside) is None


def _functions(found: Found, effects: Effects, site: Site, slicer: Slicer, handles: frozenset[int]) -> list[str]:
    """Slice collate_fn and worker_init_fn; those that can't be sliced are sent along."""
    sent_too = []
    for option in ("collate_fn", "worker_init_fn"):
        expr = site.option(option)
        if expr is None or (isinstance(expr, ast.Constant) and expr.value is None):
            continue
        trial = Slicer(found, effects, site.module, site.call, frozenset())
        try:
            trial.expression(site.module, expr, "batch")
        except Refused as refusal:
            if refusal.diagnostic.code not in OPEN:
                raise
            reach = Reach(found)
            reach.expression(site.module, expr)
            if handles & reach.expressions or isinstance(expr, ast.Lambda):
                raise
            _take(slicer, reach)
            sent_too.append(option)
        else:
            slicer.expression(site.module, expr, "batch")
    return sent_too


def _in_constructor(fact: Fact) -> bool:
    """Constructors run in the trainer alone. A file that one opens and keeps can't be sent, though."""
    if fact.effect == "opens":
        return False
    return any(isinstance(up, ast.FunctionDef) and up.name in CONSTRUCTORS for up in fact.module.names.ancestors(fact.node))


def _unknown(reach: Reach) -> set[str]:
    return {name.split(".")[0] for name in reach.libraries if "unknown" in row(name).effects}


def _configured(found: Found, reach: Reach) -> bool:
    """Whether the script sets up a library that nothing is known about: pkg.seed(4), whose effect a worker would not have."""
    packages = _unknown(reach)
    for module in found.program.modules.values() if packages else ():
        for stmt in statements(module.tree):
            if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call) and _package(found, module, stmt.value.func) in packages:
                return True
    return False


def _package(found: Found, module: Module, func: ast.expr) -> str:
    target = found.resolver.target(module, func)
    return target.name.split(".")[0] if isinstance(target, Library) else ""


def _accepts(slicer: Slicer) -> tuple[str, ...]:
    names = [
        definition.node.name if definition.module.name == ENTRY else f"{definition.module.name}.{definition.node.name}"
        for definition in slicer.carried.definitions
        if definition.module.names.parent_of.get(definition.node) is definition.module.tree
    ]
    return tuple(dict.fromkeys(names))

