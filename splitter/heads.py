"""The head of the loop over a loader's batches: statements that the worker could run behind collating, as far as the text shows.

    for images, labels in loader:                      def head(batch):
        images = images.float() / 255            ->        images, labels = batch
        loss = model(images.to(device))                    images = images.float() / 255
                                                           return [images, labels]

Only when this loop alone takes the batches of every loader that it may run over, and all of these are split. Whether the bits stay the
same is seen when samples run (see `trace_head`), whether it pays is for the cut to say.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from splitter.candidates import SitePlan
from splitter.effects import Effects
from splitter.find import Found
from splitter.fragments import fragments
from splitter.head_loops import Loop, Reading, consumed, reading
from splitter.head_statements import Movable, Scanned, scan
from splitter.ir import NamesFrom, Note, Span
from splitter.ir_cut import Head, HeadNeeds, HeadStatement
from splitter.read import ENTRY, Module
from splitter.slice import Slicer


def heads(found: Found, effects: Effects, sites: list[SitePlan]) -> Iterator[Head]:
    """The heads of the loops over loaders that are split; those which have nothing that could move are left out."""
    readings = {id(plan.site.call): reading(found, plan.site) for plan in sites if plan.split}
    done: set[int] = set()
    for plan in sites:
        loops = readings[id(plan.site.call)].loops if plan.split else ()
        for loop in loops:
            if id(loop.node) not in done:
                done.add(id(loop.node))
                yield from _of_loop(found, effects, loop, sites, readings)


def _of_loop(found: Found, effects: Effects, loop: Loop, sites: list[SitePlan], readings: dict[int, Reading]) -> Iterator[Head]:
    taken = consumed(found, loop)
    plans = [plan for plan in sites if taken is not None and plan.site in taken]
    over = plans or [plan for plan in sites if any(other.node is loop.node for other in _loops(plan, readings))]
    if loop.module.name != ENTRY:
        return
    scanned = scan(found, effects, loop, [plan.site for plan in over])
    if scanned is None or not (scanned.movables or scanned.more):
        return
    if scanned.more:
        yield from (_head(found, loop, scanned, plan.name, number) for number, plan in enumerate(over) if plan.split)
        return
    blocked = None if plans else Note(_span(loop), "", "the loop may run over something else as well")
    for plan in plans:
        blocked = blocked or _blocked(plan, loop, readings)
    if blocked is not None:
        names = [plan.name for plan in over if plan.split]
        yield from (Head(name, loop.module.name, _span(loop), "", end=blocked) for name in names)
        return
    for number, plan in enumerate(plans):
        yield _head(found, loop, scanned, plan.name, number)


def _loops(plan: SitePlan, readings: dict[int, Reading]) -> tuple[Loop, ...]:
    return readings[id(plan.site.call)].loops if plan.split else ()


def _blocked(plan: SitePlan, loop: Loop, readings: dict[int, Reading]) -> Note | None:
    """Why nothing can move out of a loop that runs over this loader."""
    if not plan.split or plan.sent is not None or len(plan.candidates) != 1 or plan.candidates[0].residence != "moved":
        return Note(plan.site.module.span(plan.site.call), "", "the loop runs over this loader too, which isn't split with a moved dataset")
    own = readings[id(plan.site.call)]
    if own.other is not None:
        return own.other
    second = next((other for other in own.loops if other.node is not loop.node), None)
    return None if second is None else Note(_span(second), "", "a second loop over the same loader")


def _span(loop: Loop) -> Span:
    """The loop up to the end of what it iterates over."""
    module, node = loop.module, loop.node
    whole, end = module.span(node), module.span(node.iter)
    return Span(whole.path, whole.line, whole.column, end.end_line, end.end_column)


def _head(found: Found, loop: Loop, scanned: Scanned, feed: str, site: int) -> Head:
    module = loop.module
    end = None
    if scanned.end is not None:
        stmt, why = scanned.end
        end = Note(module.span(stmt), module.text(stmt).split("\n")[0], why)
    return Head(
        feed,
        module.name,
        _span(loop),
        module.text(loop.target),
        tuple(scanned.parts.items()),
        tuple(module.span(stmt) for stmt in scanned.unpacking),
        tuple(_statement(found, module, scanned.movables, number, site) for number in range(len(scanned.movables))),
        tuple(scanned.groups),
        end,
    )


def _statement(found: Found, module: Module, movables: list[Movable], number: int, site: int) -> HeadStatement:
    own = movables[number]
    return HeadStatement(
        module.span(own.node),
        fragments(module, [own.node])[0],
        tuple(sorted(own.reads)),
        tuple(sorted(own.writes)),
        tuple(before for before in range(number) if _depends(own, movables[before])),
        own.mutates,
        tuple(sorted(own.locals)),
        tuple(sorted({node.id for node in ast.walk(own.node) if isinstance(node, ast.Name)})),
        needs(found, own.slicers[site]),
    )


def _depends(late: Movable, early: Movable) -> bool:
    """Whether the order of two statements matters: what changes memory may change what others name."""
    written = early.writes & (late.reads | late.writes) or early.reads & late.writes
    return bool(written) or late.mutates or early.mutates


def needs(found: Found, slicer: Slicer) -> HeadNeeds:
    """What a slice takes along, as it stands in the script."""
    entry, carried = found.program.entry, slicer.carried
    statements = [stmt for _, stmt in carried.statements.values()]
    imports = [stmt for stmt in statements if isinstance(stmt, (ast.Import, ast.ImportFrom)) or _import_block(stmt)]
    local: dict[str, set[str]] = {}
    for home, name in carried.local_names:
        local.setdefault(home, set()).add(name)
    return HeadNeeds(
        tuple(carried.environment),
        tuple(sorted(carried.globals)),
        fragments(slicer.module, slicer.body.values()),
        fragments(entry, imports),
        fragments(entry, [stmt for stmt in statements if stmt not in imports]),
        tuple(NamesFrom(home, tuple(sorted(names))) for home, names in sorted(local.items())),
        tuple(sorted({found.program.modules[name].file.path for name in carried.modules})),
        found.program.elsewhere(set(carried.modules)),
    )


def _import_block(stmt: ast.stmt) -> bool:
    return isinstance(stmt, (ast.Try, ast.If)) and any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(stmt))
