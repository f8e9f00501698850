"""The loop that takes a loader's batches, when there is one alone and nothing else sees a batch.

    loader = DataLoader(data, 64)
    for epoch in range(9):
        for step, (images, labels) in enumerate(loader):      ->   Loop(target=`(images, labels)`)
    first = next(iter(loader))                                ->   a second reader: nothing of the loop can move

The flow of the loader is followed forward (see `uses`); every place that it gets to must be known here to take no batch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from splitter.changes import loads
from splitter.drivers import drives
from splitter.find import Found
from splitter.ir import Note
from splitter.loader_uses import Flow, loader_flow
from splitter.origins import Origin, Tracer
from splitter.read import Module
from splitter.sites import Site

# Attributes of a loader that show no batch.
QUIET = frozenset(
    "dataset sampler batch_sampler batch_size drop_last num_workers pin_memory collate_fn generator timeout prefetch_factor".split()
)
LOOKING = frozenset(f"builtins.{name}" for name in ("len", "isinstance", "type", "bool", "id", "hasattr", "callable"))
PASSING = ("builtins.enumerate", "tqdm.", "rich.progress.track")  # iterate over what they are given first, and give each of its items
HARMLESS_CONTEXTS = frozenset({"torch.no_grad", "torch.enable_grad", "contextlib.nullcontext", "tqdm.tqdm", "tqdm.auto.tqdm"})
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, eq=False)
class Loop:
    """A `for` over a loader; `target` is the part of its target that a batch is given to, `source` the loader in it."""

    module: Module
    node: ast.For
    target: ast.expr
    source: ast.expr


@dataclass(frozen=True)
class Reading:
    """The loops over one loader, and the first place that may take a batch in another way."""

    loops: tuple[Loop, ...]
    other: Note | None


def reading(found: Found, site: Site, *, around: bool = True) -> Reading:
    """Who takes the batches of a loader. `around`: a loop inside of a context counts as another reader."""
    if site.also or site.classdefs:
        return Reading((), _note(site.module, site.call, "the loader is an object of a class of the script's"))
    flow = loader_flow(found, site)
    loops: dict[int, Loop] = {}
    other: Note | None = None
    for module, expr in flow.loaders:
        for taken in _of_loader(found, flow, module, expr):
            if isinstance(taken, Loop):
                loops.setdefault(id(taken.node), taken)
            else:
                other = other or taken
    for module, expr in flow.containers:
        if other is None and not _settled(found, module, expr):
            other = _note(module, expr, "what holds the loader is used in a way that can't be followed")
    for loop in loops.values() if around else ():
        other = other or _around(found, loop)
    return Reading(tuple(loops.values()), other)


def consumed(found: Found, loop: Loop) -> tuple[Site, ...] | None:
    """The sites of all loaders that a loop may take batches from; None when it may take something else."""
    sites = {id(site.call): site for site in found.sites}
    origins = list(Tracer(found.resolver, found.kinds, sites).trace(loop.module, loop.source, frozenset(), ()))
    if not origins or not all(isinstance(origin, Origin) and id(origin.expr) in sites for origin in origins):
        return None
    return tuple({id(o.expr): sites[id(o.expr)] for o in origins if isinstance(o, Origin)}.values())


def _note(module: Module, node: ast.AST, why: str) -> Note:
    return Note(module.span(node), module.text(node).split("\n")[0], why)


def _of_loader(found: Found, flow: Flow, module: Module, expr: ast.expr) -> Iterator[Loop | Note]:
    """The loop that one mention of a loader is in, a note when it may be read there in another way; nothing when it isn't read."""
    parent = module.names.parent_of.get(expr)
    match parent:
        case ast.Assign(targets=targets) if parent.value is expr:
            if all(isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)) for target in targets):
                return
        case ast.Attribute(attr=attr) if attr in QUIET:
            return
        case ast.Return() | ast.Tuple() | ast.List() | ast.Dict() | ast.IfExp() | ast.Compare() | ast.Expr() | ast.Delete():
            return  # followed, or looked at
        case ast.If() | ast.While() | ast.Assert() | ast.UnaryOp():
            return
        case ast.For() if parent.iter is expr:
            yield Loop(module, parent, parent.target, expr)
            return
        case ast.Call() | ast.keyword():
            yield from _given(found, flow, module, expr)
            return
    yield _note(module, expr, "the loader's batches may be read here as well")


def _given(found: Found, flow: Flow, module: Module, expr: ast.expr) -> Iterator[Loop | Note]:
    """A loader that is an argument of a call."""
    parent = module.names.parent_of[expr]
    call = module.names.parent_of[parent] if isinstance(parent, ast.keyword) else parent
    assert isinstance(call, ast.Call)
    name = found.resolver.library(module, call.func)
    if name in LOOKING:
        return
    if name is None and id(call) not in flow.handed and not drives(found.kinds, module, call) and found.resolver.targets(module, call.func):
        return  # a function of the program's own, into which it was followed
    if name is not None and (name.startswith(PASSING) or name == "tqdm"):
        yield from _passed(found, module, expr, call, name)
        return
    yield _note(module, call, "the loader's batches may be read here as well")


def _passed(found: Found, module: Module, source: ast.expr, call: ast.Call, name: str) -> Iterator[Loop | Note]:
    """`for step, batch in enumerate(tqdm(loader))`, or a variable with the progress bar in it."""
    wraps = [name]
    node: ast.Call = call
    first = call.args[:1] == [source] or any(keyword.value is source and keyword.arg == "iterable" for keyword in call.keywords)
    while first and isinstance(up := module.names.parent_of[node], ast.Call):
        outer = found.resolver.library(module, up.func) or ""
        first = up.args[:1] == [node] and (outer.startswith(PASSING) or outer == "tqdm")
        wraps.append(outer)
        node = up
    above = module.names.parent_of[node]
    places: list[tuple[ast.expr, list[str]]] = []
    if first and isinstance(above, ast.Assign) and len(above.targets) == 1 and isinstance(above.targets[0], ast.Name):
        places = [place for load in loads(module, above.targets[0]) for place in _bar(found, module, load, wraps)]
    elif first:
        places = [(node, wraps)]
    for place, layers in places:
        above = module.names.parent_of[place]
        target = _item(above.target, layers) if isinstance(above, ast.For) and above.iter is place else None
        if target is None or not isinstance(above, ast.For):
            yield _note(module, place, "the loader's batches may be read here as well")
        else:
            yield Loop(module, above, target, source)
    if not places:
        yield _note(module, call, "the loader's batches may be read here as well")


def _bar(found: Found, module: Module, load: ast.expr, wraps: list[str]) -> Iterator[tuple[ast.expr, list[str]]]:
    """A use of a variable that holds a progress bar: looked at, or iterated."""
    parent = module.names.parent_of[load]
    if isinstance(parent, ast.Attribute) and parent.attr in ("set_postfix", "set_description", "close", "update", "n", "total", "write"):
        return
    if isinstance(parent, ast.Call) and found.resolver.library(module, parent.func) == "builtins.enumerate" and parent.args[:1] == [load]:
        yield parent, [*wraps, "builtins.enumerate"]
    else:
        yield load, wraps


def _item(target: ast.expr, wraps: list[str]) -> ast.expr | None:
    """The part of a loop's target that is the batch, inside what `enumerate` has put around it."""
    for name in reversed(wraps):
        if name == "builtins.enumerate":
            if not isinstance(target, (ast.Tuple, ast.List)) or len(target.elts) != 2:
                return None
            target = target.elts[1]
    return target


def _settled(found: Found, module: Module, expr: ast.expr) -> bool:
    """Whether a list, tuple or dict of loaders is used in a way that is followed."""
    parent = module.names.parent_of.get(expr)
    match parent:
        case ast.Assign() | ast.Return() | ast.Tuple() | ast.List() | ast.Dict() | ast.IfExp() | ast.Compare() | ast.Expr():
            return True
        case ast.Subscript() | ast.For() | ast.comprehension():
            return expr is (parent.value if isinstance(parent, ast.Subscript) else parent.iter)
        case ast.Attribute(attr="items" | "values" | "get" | "keys"):
            return True
        case ast.Call():
            return found.resolver.library(module, parent.func) in LOOKING
    return False


def _around(found: Found, loop: Loop) -> Note | None:
    """What is around a loop and changes what its statements compute."""
    module = loop.module
    for up in module.names.ancestors(loop.node):
        if isinstance(up, (ast.With, ast.AsyncWith)):
            for item in up.items:
                func = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
                if found.resolver.library(module, func) not in HARMLESS_CONTEXTS:
                    return _note(module, item.context_expr, "the loop runs inside of this context")
        if isinstance(up, FUNCTIONS):
            for decorator in getattr(up, "decorator_list", []):
                func = decorator.func if isinstance(decorator, ast.Call) else decorator
                if found.resolver.library(module, func) not in HARMLESS_CONTEXTS:
                    return _note(module, decorator, "the loop's function has this decorator")
            break
    return None
