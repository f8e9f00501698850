"""Which transforms at the end of a moved dataset's samples the trainer could run: what the text allows, before any sample has run.

    Photos(root, Compose([Crop(32), Flip(), ToTensor(), normalize]))     ->     Tail(elements=4, movable=2)

The container is written in place or in a statement that is carried along, its elements are constructed without effects, and at the place of
the handle every name in them means the same. Whether the bits stay the same is seen when samples run (see `trace_tail`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from splitter.candidates import Candidate, SitePlan
from splitter.chains import chains
from splitter.effects import Effects
from splitter.find import Found
from splitter.ir_cut import Tail
from splitter.made_inside import always, seen_at, sharers, variable
from splitter.quiet import is_changed, is_quiet, means_the_same
from splitter.read import Module
from splitter.scopes import free_names
from splitter.uses import Use

CONTAINERS = frozenset({"torchvision.transforms.Compose", "torchvision.transforms.transforms.Compose", "torchvision.transforms.v2.Compose"})
SEQUENTIAL = frozenset({"torch.nn.Sequential", "torch.nn.modules.container.Sequential"})
TO_TENSOR = frozenset({"torchvision.transforms.ToTensor", "torchvision.transforms.transforms.ToTensor"})
# What the trainer may do with the dataset when samples that the worker gives are not finished: none of this sees a transform.
HARMLESS = frozenset({"loader", "length", "index", "iterate", "read", "call", "wrap", "sampler"})


def tails(found: Found, effects: Effects, candidate: Candidate, sites: list[SitePlan]) -> Iterator[Tail]:
    """The tails of one dataset, the outermost containers in the order of the text."""
    if not _may_finish(found, candidate, sites):
        return
    assert candidate.slicer is not None
    module, origin = candidate.origin.module, candidate.origin.expr
    places: list[ast.AST] = [*candidate.slicer.body.values(), origin]
    for place in places:
        for node, elements in _containers(found, module, place):
            if _is_always(module, node, places):
                tail = _tail(found, effects, module, node, elements, candidate.name, inside=place is origin)
                if tail is not None:
                    yield tail
    yield from _inside(found, effects, candidate, sites, lambda expr: _is_always(module, expr, places))


def _inside(
    found: Found, effects: Effects, candidate: Candidate, sites: list[SitePlan], rest: Callable[[ast.expr], bool]
) -> Iterator[Tail]:
    """The tails of containers that functions and classes of the script make. `rest` says whether what these give is always used."""
    module, origin, slicer = candidate.origin.module, candidate.origin.expr, candidate.slicer
    assert slicer is not None
    if module is not found.program.entry or any(site.sent is not None for site in sites):
        return
    others = [(other.name, other.slicer) for site in sites for other in site.candidates if other.slicer and other.refused is None]
    others += [(f"the loader {site.name}", site.loader) for site in sites if site.loader is not None]
    for owner, stmt in slicer.carried.statements.values():
        if owner is not module or not isinstance(stmt, (ast.FunctionDef, ast.ClassDef)):
            continue
        for node, elements in _containers(found, module, stmt):
            values = [variable(found, slicer, element) or element for element in elements]
            tail = _tail(found, effects, module, node, elements, candidate.name, inside=False, at=origin, values=values)
            if tail is not None and always(found, slicer, node, rest):
                yield replace(tail, definition=module.span(stmt), shared=sharers(found, candidate, node, others))
    yield from chains(found, effects, candidate, others)


def _containers(found: Found, module: Module, place: ast.AST) -> Iterator[tuple[ast.Call, list[ast.expr]]]:
    for node in ast.walk(place):
        elements = _elements(found, module, node) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and elements:
            yield node, elements


def _is_always(module: Module, container: ast.expr, places: list[ast.AST]) -> bool:
    """Whether each dataset that is made has the container: nothing decides about it, and no other value takes its place."""
    origin = places[-1]
    if not _deciding(module, container) <= _deciding(module, origin):
        return False
    node: ast.AST = container
    while node is not origin:
        node = module.names.parent_of[node]
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else getattr(node, "target", None)
            return isinstance(target, ast.Name) and means_the_same(module, target) and _is_passed(module, target, places)
        if not isinstance(node, (ast.Call, ast.keyword)):
            return False
    return True


def _is_passed(module: Module, name: ast.Name, places: list[ast.AST]) -> bool:
    """Whether all that is made of a variable always is, too."""
    reads = [node for place in places for node in ast.walk(place) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    scope = module.names.scope_of[name].lookup(name.id)
    own = [node for node in reads if node.id == name.id and module.names.scope_of[node].lookup(node.id) is scope]
    return all(_is_always(module, node, places) for node in own)


def _deciding(module: Module, node: ast.AST) -> set[ast.AST]:
    """The statements around a node, in its function, that decide whether and how often it runs."""
    found: set[ast.AST] = set()
    for outer in module.names.ancestors(node):
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            break
        if isinstance(outer, (ast.If, ast.For, ast.While, ast.Try, ast.Match)):
            found.add(outer)
    return found


def _may_finish(found: Found, candidate: Candidate, sites: list[SitePlan]) -> bool:
    if candidate.residence != "moved" or candidate.slicer is None or candidate.slicer.inner:
        return False
    own = [site for site in sites if candidate in site.candidates]
    plain = all(site.sent is None and site.loader is None and site.refused is None for site in own)
    return bool(own) and plain and all(use.kind in HARMLESS and not _joins(found, use) for use in candidate.uses)


def _joins(found: Found, use: Use) -> bool:
    """Whether the dataset becomes a part of another one, with parts that may not be finished, or shows its transforms or what they give."""
    if use.kind == "call":
        return not any(isinstance(outer, ast.Expr) for outer in list(use.module.names.ancestors(use.node))[:3])
    if use.kind == "read":
        return isinstance(use.node, ast.Attribute) and "transform" in use.node.attr
    called = found.resolver.library(use.module, use.node.func) if isinstance(use.node, ast.Call) else None
    return use.kind == "wrap" and (called is None or not called.endswith(("Subset", "random_split")))


def _elements(found: Found, module: Module, call: ast.Call) -> list[ast.expr] | None:
    """The elements of a container of transforms; None for another call."""
    name = found.resolver.library(module, call.func)
    if call.keywords:
        return None
    if name in SEQUENTIAL:
        return call.args
    listed = call.args[0] if name in CONTAINERS and len(call.args) == 1 else None
    return listed.elts if isinstance(listed, ast.List) else None


def _tail(
    found: Found,
    effects: Effects,
    module: Module,
    call: ast.Call,
    elements: list[ast.expr],
    builder: str,
    *,
    inside: bool,
    at: ast.expr | None = None,
    values: Sequence[ast.expr] = (),
) -> Tail | None:
    """`inside`: the container stands where the handle will. `at`: the handle's place, when that isn't in the same function; `values` are
    the elements then, without the function's variables.
    """
    count = len(elements)
    values = values or elements
    movable = count
    while movable and _is_movable(found, effects, module, elements[movable - 1], inside=inside):
        value = values[movable - 1]
        if at is not None and not (seen_at(found, value, at) and _is_movable(found, effects, module, value, inside=False)):
            break
        movable -= 1
    if at is not None and not seen_at(found, call.func, at):
        return None
    halves = tuple(n for n, element in enumerate(elements) if n >= movable - 1 and _is_to_tensor(found, module, element))
    if movable == count and not halves:
        return None
    return Tail(
        builder,
        module.name,
        module.span(call),
        module.text(call.func),
        tuple(module.span(element) for element in elements),
        movable,
        halves,
        listed=found.resolver.library(module, call.func) in CONTAINERS,
        values=() if values == elements else tuple(module.span(value) for value in values),
    )


def _is_to_tensor(found: Found, module: Module, element: ast.expr) -> bool:
    """`transforms.ToTensor()`, or `ToTensor()`."""
    return (
        isinstance(element, ast.Call)
        and not element.args
        and not element.keywords
        and found.resolver.library(module, element.func) in TO_TENSOR
    )


def _is_movable(found: Found, effects: Effects, module: Module, element: ast.expr, *, inside: bool) -> bool:
    if isinstance(element, ast.Starred) or not is_quiet(found, effects, module, element):
        return False
    names = list(free_names(element, module.names))
    if any(is_changed(found, module, name) for name in names):
        return False
    return inside or all(means_the_same(module, name) for name in names)
