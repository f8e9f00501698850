"""Step `finish`: which operations of a feed the emitted source can part, and what the cut that is chosen means for the two programs.

    graph, tails that keep their bits  ->  graph with pins  ->  cut  ->  Finish(first=3, half=True)  ->  plan

The cut is free to choose among what can be written down: whole elements at the end of a container of transforms, and the second half of a
ToTensor. All other operations before the loop stay where the dataset is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from splitter.cut import cut
from splitter.graph import Cut, Graph
from splitter.head_cut import settled, with_heads
from splitter.ir import Plan, Span
from splitter.ir_cut import Crossing, Finish, Profile, Tail, Tried
from splitter.sides import LATE

_DEFAULT = "default_collate"


def parted(plan: Plan, profile: Profile) -> Plan:
    """The plan with its profile, and the cheapest cut of every feed that this has a graph of; the others say in `uncut` why not."""
    price = profile.price
    graphs = {name: graph for name, graph, _ in profile.feeds}
    tried = {name: found for name, _, found in profile.feeds}
    crossings: dict[str, Crossing] = {}
    finishes: dict[str, Finish | None] = {}
    for feed in plan.feeds:
        if feed.name not in graphs:
            continue
        builder = plan.builder_of(feed)
        options = list(zip(plan.tails_of(feed), tried.get(feed.name, ()), strict=False))
        crossing, finish = _choose(graphs[feed.name], [(tail, found) for tail, found in options if found is not None], price)
        known = finishes.get(builder)
        if builder in finishes and known != finish:  # two loaders of one dataset that want it differently
            finish = None
        elif known is not None and known.device:
            finish = known
        crossings[feed.name], finishes[builder] = crossing, finish
    for feed in plan.feeds:  # a loader that nobody could look at takes what the others take, so it must have been looked at
        if feed.status == "split" and feed.name not in crossings:
            finishes[plan.builder_of(feed)] = None
    finishes = _together(plan, finishes)
    for feed in plan.feeds:
        if feed.name in crossings and finishes[plan.builder_of(feed)] is None:
            crossings[feed.name] = _at_loader(graphs[feed.name], price)
    crossings, heads = settled(plan, profile, crossings, finishes, lambda graph: _at_loader(graph, price))
    made = _applied(plan, crossings, {name: finish for name, finish in finishes.items() if finish is not None})
    made = with_heads(made, heads)
    reasons = dict(profile.reasons)
    return replace(made, profile=profile, feeds=tuple(replace(feed, uncut=reasons.get(feed.name)) for feed in made.feeds))


def _together(plan: Plan, finishes: Mapping[str, Finish | None]) -> dict[str, Finish | None]:
    """What is chosen, without what would change a definition for a builder that wants it otherwise."""
    left = {name: None if finish and _is_needed_whole(plan, finish.tail) else finish for name, finish in finishes.items()}
    for name, finish in left.items():
        if finish is not None and any((other := left.get(sharer)) is None or other.edit != finish.edit for sharer in finish.tail.shared):
            return _together(plan, {**left, name: None})
    return left


def _is_needed_whole(plan: Plan, tail: Tail) -> bool:
    """Whether the head of a loop, or the start of a model, may need the definition as it is."""
    if tail.definition is None:
        return False
    path, first, last = tail.definition.path, tail.definition.line, tail.definition.end_line
    needed = [fragment for head in plan.heads for stmt in head.statements for fragment in stmt.needs.definitions]
    return plan.prefix is not None or any(one.path == path and one.first <= last and first <= one.last for one in needed)


def _choose(graph: Graph, options: Sequence[tuple[Tail, Tried]], price: float) -> tuple[Crossing, Finish | None]:
    """The cheapest of the cuts that each of the containers allows, the first of those that cost the same."""
    best = _at_loader(graph, price)
    chosen: Finish | None = None
    for tail, found in options:
        pinned, elements = _pinned(graph, tail, found)
        candidate = cut(pinned, price)
        if candidate.objective < best.cut.objective and candidate.trainer:
            finish = _meaning(candidate, elements, tail, found)
            if finish is not None:
                best, chosen = Crossing(pinned, candidate, price), finish
    return best, chosen


def _at_loader(graph: Graph, price: float) -> Crossing:
    """Nothing before the loop moves."""
    pinned = tuple(
        replace(operation, pin="worker") if graph.steps[operation.step].part in ("read", "sample", "collate") else operation
        for operation in graph.operations
    )
    fixed = replace(graph, operations=pinned)
    return Crossing(fixed, cut(fixed, price), price)


Place = tuple[int, bool]  # the element of an operation, and whether it is of its second half


def _pinned(graph: Graph, tail: Tail, found: Tried) -> tuple[Graph, dict[int, Place]]:
    """The graph with what can't be parted pinned and kept together; the elements of the operations that are free."""
    first = min(found.whole, default=len(tail.elements))
    halves = [place for place in found.half if place + 1 >= first]
    steps = {number: _element(step.span, tail) for number, step in enumerate(graph.steps)}
    operations, free, floating = [], {}, False
    dtypes = {value.name: value.dtype or "" for value in graph.values}
    for index, operation in enumerate(graph.operations):
        element, part = steps[operation.step], graph.steps[operation.step].part
        if part in LATE:  # what runs on finished samples
            operations.append(replace(operation, pin="trainer"))
            continue
        if part == "collate" and graph.steps[operation.step].name == _DEFAULT:
            # It collates what crosses, on the worker, so it costs the trainer nothing; and it commutes with what is free.
            operations.append(replace(operation, traits=frozenset({"layout"}), microseconds=0.0))
            continue
        second = element in halves and (floating or any(_is_floating(dtypes[name]) for name in operation.outputs))
        floating = second
        if element is not None and (element >= first or second):
            free[index] = (element, second and element < first)
            operations.append(operation)
        else:
            operations.append(replace(operation, pin="worker"))
    groups: dict[Place, list[int]] = {}
    for index, place in free.items():
        groups.setdefault(place, []).append(index)
    together = tuple(tuple(group) for group in groups.values() if len(group) > 1)
    return replace(graph, operations=tuple(operations), together=together), free


def _is_floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _element(span: Span | None, tail: Tail) -> int | None:
    """The number of the element that stands there. Operations of a chain begin at one place."""
    if tail.links:
        return tail.elements.index(span) if span in tail.elements else None
    places = [(element.path, element.line, element.column) for element in tail.elements]
    return places.index(place) if span is not None and (place := (span.path, span.line, span.column)) in places else None


def _meaning(chosen: Cut, elements: Mapping[int, Place], tail: Tail, found: Tried) -> Finish | None:
    """The cut in terms of the source; None when nothing of the tail is on the trainer."""
    there = sorted({elements[index] for index in chosen.trainer if index in elements})
    if not there:
        return None
    element, half = there[0]
    first = element + 1 if half else element
    reason = next((why for number, parted, why in found.device if (number, parted) == (first, half)), "it was not tried on samples")
    return Finish(tail, first, half, found.template, found.arrays, reason)


def _applied(plan: Plan, crossings: Mapping[str, Crossing], finishes: Mapping[str, Finish]) -> Plan:
    builders = tuple(
        replace(builder, finish=finishes.get(builder.name)) if builder.kind == "dataset" else builder for builder in plan.worker.builders
    )
    return replace(
        plan,
        worker=replace(plan.worker, builders=builders),
        handles=tuple(replace(handle, finish=finishes.get(handle.builder)) for handle in plan.handles),
        feeds=tuple(replace(feed, crossing=crossings.get(feed.name)) for feed in plan.feeds),
    )
