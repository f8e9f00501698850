"""Step `send`: loaders whose dataset can't be made a second time, so that the trainer makes it and sends it.

    train = Photos(rows)                     the trainer's own text, as it stands
    train.transform = crop                   may go on: the dataset is sent as it is whenever an iterator is made
    loader = DataLoader(train, workers=4)    send="dataset"; the worker program has class Photos, and accepts it

Only for worker processes (num_workers >= 1): those of torch get a copy of the dataset at that very moment, too. With num_workers=0 the
runtime leaves the loader to torch. What can't be sent after all (the codec says so) leaves it to torch as well, with a warning.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass

from splitter import reading
from splitter.alive import FUNCTIONS, on_worker
from splitter.carry import Refused
from splitter.changes import changes, changes_of
from splitter.checks import check_facts, stateless
from splitter.effects import Effects, Fact
from splitter.find import Found
from splitter.import_effects import imported_along
from splitter.ir import Diagnostic
from splitter.knowledge import known, row
from splitter.loader_uses import loader_uses
from splitter.order import happens_before
from splitter.origins import Lost, Origin, tabular
from splitter.reach import APART, Reach
from splitter.read import ENTRY, Module, statements
from splitter.resolve import Definition, Library, Value, default
from splitter.sites import Site
from splitter.slice import Slicer
from splitter.uses import uses

# Reasons against building a dataset on the worker that are none against sending it.
OPEN = frozenset({"S201", "S302", "S304", "S305", "S306", "S311", "S314", "S315", "S316", "S317"})
# What stays with the process that made it: the codec has no way to send it.
TIED = (
    "multiprocessing.",
    "torch.multiprocessing.",
    "threading.",
    "sqlite3.",
    "lmdb.",
    "h5py.",
    "socket.",
    "transformers.",
    "tokenizers.",
    "sentencepiece.",
)


@dataclass(frozen=True, eq=False)
class Sent:
    """A loader whose dataset is sent: its slice (collate function, definitions), the parts that are sent, the names that are accepted."""

    slicer: Slicer
    parts: tuple[str, ...]
    accepts: tuple[str, ...]
    origin: Origin | None
    stateless: bool | None
    inline: bool


def sent(found: Found, effects: Effects, site: Site, handles: frozenset[int], counts: set[int | None]) -> Sent | Diagnostic | None:
    """How a loader's dataset can be sent; None, or the reason, when it can't. `counts` are the numbers of workers that it may have."""
    origins = found.origins[id(site.call)]
    slicer = Slicer(found, effects, site.module, site.call, frozenset())
    try:
        lost = not origins or any(isinstance(origin, Lost) for origin in origins)
        reach = _reach(found, site, handles)
        for origin in origins:
            made_of = found.kinds.instance_of(origin.module, origin.expr) if isinstance(origin, Origin) else None
            reach.definitions |= {id(made_of.node): made_of} if made_of else {}
            _nameless(made_of)
        _take(slicer, reach)
        strangers = _accepted(found, effects, site, slicer, reach, _strangers(found) if lost else {})
        if (
            lost
            and not any(found.kinds.class_kind(one) == "dataset" for one in strangers.values())
            and not any(row(name).gives == "dataset" or not known(name) for name in reach.libraries)
        ):
            return None
        parts, others, libraries = _functions(found, effects, site, slicer, handles)
        packages = _packages(found, reach.libraries | libraries, strangers)
    except Refused as refusal:
        return refusal.diagnostic
    functions = [expr for option in ("collate_fn", "worker_init_fn") for expr in site.options.get(option, ())]
    roots = [*functions, *(definition.node for definition in (reach.definitions | strangers | others).values())]
    facts, named = on_worker(slicer, roots)
    if _state_beside(found, slicer, named) or _compared(found, slicer):
        return None
    slicer.carried.facts = facts
    slicer.carried.facts += [("batch", fact) for module, call in reach.calls for fact in effects.at(module, call) if fact.makes]
    same = None if lost or _unknown(reach) or _iterable(found, slicer) else stateless(found, slicer, None)
    made = [origin for origin in origins if isinstance(origin, Origin)]
    tables = bool(made) and not lost and all(tabular(found.resolver, origin.module, origin.expr) for origin in made)  # of rows of their own
    still = same is True and (tables or _unchanged(found, reach, site)) and all(_still(found, effects, origin, slicer) for origin in made)
    if counts == {0} and not still:
        return None
    if check_facts(found, slicer, site, counts if still else {1}, slicer.carried.inside) is not None or _configured(found, reach):
        return None
    if any(use.kind in ("handed", "change") for use in loader_uses(found, site)):
        return None
    return Sent(slicer, parts, (*_accepts(slicer), *packages), made[0] if made else None, same, inline=still and bool(counts & {0, None}))


def _state_beside(found: Found, slicer: Slicer, named: set[str]) -> bool:
    """State that the code keeps elsewhere than in the dataset, so that it would not be sent: in globals, classes, default arguments.

    `named` are the identifiers in the code that runs on the worker.
    """
    named = named | {definition.node.name for definition in slicer.carried.definitions}
    for _, fact in slicer.carried.facts:
        shared = fact.effect == "writes-global" and fact.what in named and not _local(fact)
        if shared or (fact.effect == "writes-self" and "__class__" in fact.what):
            return True
        if fact.effect == "in-place" and _default_changed(fact):
            return True
    return any(
        isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and _is_class(node.value)
        for module in found.program.modules.values()
        for node in ast.walk(module.tree)
    )


def _local(fact: Fact) -> bool:
    """A variable of a function around, not of a module."""
    scope = fact.module.names.scope_of[fact.node].lookup(fact.what)
    return scope is not None and scope.kind == "function"


def _compared(found: Found, slicer: Slicer) -> bool:
    """Whether an object of a module's top level is compared with: `row is MISSING`. The one that is sent would be another."""
    for definition in slicer.carried.definitions:
        for node in ast.walk(definition.node):
            for operand in [node.left, *node.comparators] if isinstance(node, ast.Compare) else ():
                target = found.resolver.target(definition.module, operand)
                if isinstance(target, Value) and target.binding.scope.kind == "module":
                    if found.kinds.of(definition.module, operand) in ("object", "unknown", "dataset"):
                        return True
    return False


def _default_changed(fact: Fact) -> bool:
    for up in fact.module.names.ancestors(fact.node):
        if isinstance(up, FUNCTIONS):
            return default(up, fact.what) is not None
    return False


def _is_class(expr: ast.expr) -> bool:
    """`type(x)` or `x.__class__`."""
    if isinstance(expr, ast.Call):
        return isinstance(expr.func, ast.Name) and expr.func.id == "type"
    return isinstance(expr, ast.Attribute) and expr.attr == "__class__"


def _iterable(found: Found, slicer: Slicer) -> bool:
    return any(
        name.endswith("IterableDataset") for definition in slicer.carried.definitions for name in found.resolver.ancestry(definition)[0]
    )


def _still(found: Found, effects: Effects, origin: Origin, slicer: Slicer) -> bool:
    """Whether nothing of the script changes the dataset once it is there."""
    made = found.kinds.instance_of(origin.module, origin.expr)
    if tabular(found.resolver, origin.module, origin.expr):  # methods give new ones, but for set_format and set_transform
        return not any(
            use.kind in ("change", "write", "handed") or (use.kind == "call" and ".set_" in use.what)
            for use in uses(found, origin.module, origin.expr, frozenset(slicer.carried.inside))
        )
    return not any(
        use.kind in ("change", "write", "handed", "object") or (use.kind == "call" and not _looks(found, effects, made, use.node))
        for use in uses(found, origin.module, origin.expr, frozenset(slicer.carried.inside))
    )


def _unchanged(found: Found, reach: Reach, site: Site) -> bool:
    """Whether nothing that the dataset was made of is changed once the loader is there."""
    for module, name in reach.names:
        parent = module.names.parent_of[name]
        if isinstance(parent, ast.Attribute):
            places = reading.changed_at(found, module, parent)
        else:
            places = [*reading.changed(found, module, name), *((module, use) for use in changes_of(found, module, name))]
        if not all(happens_before(found.resolver, other, use, site.module, site.call) for other, use in places):
            return False
    return not any(
        changes(module, node) and not happens_before(found.resolver, module, node, site.module, site.call)
        for attribute in reach.attributes
        for module, node in found.program.mentions(attribute)
        if isinstance(node, ast.Attribute)
    )


def _looks(found: Found, effects: Effects, made: Definition | None, call: ast.AST) -> bool:
    """A call of a method that only looks at the dataset."""
    func = call.func if isinstance(call, ast.Call) else None
    method = found.resolver.method(made, func.attr) if made and isinstance(func, ast.Attribute) else None
    changing = ("writes-self", "writes-global", "in-place", "unknown")
    return method is not None and not any(fact.effect in changing for fact in effects.of(method.module, method.node))


def _reach(found: Found, site: Site, handles: frozenset[int]) -> Reach:
    reach = Reach(found)
    for expr in site.options.get("dataset", ()):
        reach.expression(site.where(expr), expr)
    if handles & reach.expressions:
        raise Refused(Diagnostic("S305", site.module.span(site.call)))  # a part of it is on the worker
    tied = sorted(name for name in reach.direct if name.startswith(TIED))
    if tied:
        raise Refused(Diagnostic("S305", site.module.span(site.call), (("name", f"`{tied[0]}`"), ("what", "tied to this process"))))
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


def _strangers(found: Found) -> dict[int, Definition]:
    """What a dataset may be and consist of whose origin can't be followed: datasets, transforms, and the other classes of their modules."""
    classes = [
        Definition(module, stmt) for module in found.program.modules.values() for stmt in module.tree.body if isinstance(stmt, ast.ClassDef)
    ]
    candidates = [one for one in classes if found.kinds.class_kind(one) not in APART]
    likely = [one for one in candidates if found.kinds.class_kind(one) == "dataset" or found.resolver.method(one, "__call__")]
    homes = {
        module.name for one in likely if one.module.name != ENTRY for module in (one.module, *imported_along(found.program, one.module))
    }
    return {id(one.node): one for one in candidates if one in likely or one.module.name in homes}


def _nameless(definition: Definition | None) -> None:
    """Refuse a dataset that keeps a lambda: it has no name by which a worker could find it."""
    for node in ast.walk(definition.node) if definition else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda) and isinstance(node.targets[0], ast.Attribute):
            raise Refused(Diagnostic("S305", definition.module.span(node) if definition else None))


def _accepted(
    found: Found, effects: Effects, site: Site, slicer: Slicer, reach: Reach, strangers: dict[int, Definition]
) -> dict[int, Definition]:
    """Carry those classes and functions that may be a part of the dataset and can be accepted; the codec refuses the others.

    Refused for a dataset that a function which makes this one constructs: it's likely to be this one.
    """
    accepted = {}
    for key, definition in (reach.perhaps | strangers).items():
        trouble = _trouble(found, effects, site, definition)
        if trouble is None:
            _carry(slicer, definition)
            accepted[key] = definition
        elif key in reach.perhaps and found.kinds.of_target(definition, 0) == "class" and found.kinds.class_kind(definition) == "dataset":
            raise Refused(trouble)
    return accepted


def _trouble(found: Found, effects: Effects, site: Site, definition: Definition) -> Diagnostic | None:
    trial = Slicer(found, effects, site.module, site.call, frozenset())
    try:
        _carry(trial, definition)
    except Refused as refusal:
        return refusal.diagnostic
    trial.carried.facts, _ = on_worker(trial, [definition.node])
    return check_facts(found, trial, site, {1}, trial.carried.inside)


def _functions(
    found: Found, effects: Effects, site: Site, slicer: Slicer, handles: frozenset[int]
) -> tuple[tuple[str, ...], dict[int, Definition], set[str]]:
    """Slice collate_fn and worker_init_fn; objects, and what can't be sliced, are sent.

    Gives the names of the parts that are sent, and the classes and libraries that they may consist of.
    """
    sent_too, classes, libraries = ["dataset"], dict[int, Definition](), set[str]()
    for option in ("collate_fn", "worker_init_fn"):
        expr = site.option(option)
        if expr is None or (isinstance(expr, ast.Constant) and expr.value is None):
            continue
        trial = Slicer(found, effects, site.module, site.call, frozenset())
        named = found.kinds.of(site.where(expr), expr) == "function" or isinstance(expr, ast.Lambda)
        try:
            trial.expression(site.where(expr), expr, "batch")
        except Refused as refusal:
            if refusal.diagnostic.code not in OPEN or isinstance(expr, ast.Lambda):
                raise
            named = False
        if not named:  # an object, which may share others with the dataset: they go together
            reach = Reach(found)
            reach.expression(site.where(expr), expr)
            if handles & reach.expressions:
                raise Refused(Diagnostic("S305", site.module.span(site.call)))
            _take(slicer, reach)
            sent_too.append(option)
            classes |= reach.definitions
            libraries |= reach.libraries
        else:
            slicer.expression(site.where(expr), expr, "batch")
    return tuple(sent_too), classes, libraries


def _packages(found: Found, libraries: set[str], strangers: dict[int, Definition]) -> list[str]:
    """The installed packages, torch aside, that parts of a dataset may come from: "torchvision.*"."""
    names = {name.split(".")[0] for name in libraries}
    for module in {definition.module.name: definition.module for definition in strangers.values()}.values():
        for binding in (b for bindings in module.names.top.bindings.values() for b in bindings if b.kind in ("import", "star")):
            for target in found.resolver.of_binding(module, binding):
                names |= {target.name.split(".")[0]} if isinstance(target, Library) else set()
    return [f"{name}.*" for name in sorted(names - sys.stdlib_module_names - {"torch", "builtins", "numpy"})]


def _unknown(reach: Reach) -> set[str]:
    return {name.split(".")[0] for name in reach.direct if not known(name)}


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
