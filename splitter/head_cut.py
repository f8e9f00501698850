"""The heads of loops that move: what the cuts of their feeds have chosen, agreed on by all loaders of a loop, and written into the plan.

    cut of `train`: 1, 2 on the worker;  cut of `val`: 2      ->     both move 2, and 1 stays in the loop

One loop runs the same statements over each of its loaders, so these move for all of them or for none. No head moves where
the trainer finishes samples: its statements come after that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from splitter.fragments import joined, merged
from splitter.graph import Graph
from splitter.ir import Builder, Feed, Fragment, LoaderEdit, NamesFrom, Plan, Removal, WorkerModule
from splitter.ir_cut import Crossing, Finish, Head, HeadNeeds, MovedHead, Profile

Cutting = Callable[[Graph], Crossing]


def settled(
    plan: Plan, profile: Profile, crossings: Mapping[str, Crossing], finishes: Mapping[str, Finish | None], cutting: Cutting
) -> tuple[dict[str, Crossing], dict[str, MovedHead]]:
    """The crossings with what every loop's loaders agree on, and the heads that move, both by feed. `cutting` cuts a graph again."""
    found, heads = dict(crossings), {}
    batches = {name: tried.batch for name, tried in profile.heads}
    feeds = {feed.name: feed for feed in plan.feeds}
    for loop in dict.fromkeys(head.loop for head in plan.heads if head.statements):
        own = [head for head in plan.heads if head.loop == loop]
        known = all(head.feed in crossings and batches.get(head.feed) for head in own)
        finished = any(finishes.get(plan.builder_of(feeds[head.feed])) is not None for head in own)
        chosen = _agreed(own, crossings) if known and not finished else frozenset()
        for head in own:
            if head.feed in crossings and not finished:
                found[head.feed] = cutting(_pinned(crossings[head.feed].graph, head, chosen))
            if chosen:
                heads[head.feed] = MovedHead(head, tuple(sorted(chosen)), batches[head.feed])
    return found, heads


def _agreed(heads: list[Head], crossings: Mapping[str, Crossing]) -> frozenset[int]:
    chosen = set(range(len(heads[0].statements)))
    for head in heads:
        crossing = crossings[head.feed]
        chosen &= {
            number
            for index, number in _places(crossing.graph, head).items()
            if index not in crossing.cut.trainer and crossing.graph.operations[index].pin != "trainer"
        }
    while True:
        torn = {n for n in chosen for head in heads if not chosen.issuperset(head.statements[n].after)}
        torn |= {n for head in heads for group in head.together if not chosen.issuperset(group) for n in group if n in chosen}
        if not torn:
            return frozenset(chosen)
        chosen -= torn


def _places(graph: Graph, head: Head) -> dict[int, int]:
    """The number of the statement that each operation of the loop stands for."""
    numbers = {own.span: number for number, own in enumerate(head.statements)}
    steps = ((index, graph.steps[operation.step]) for index, operation in enumerate(graph.operations))
    return {index: numbers[step.span] for index, step in steps if step.part == "loop" and step.span in numbers}


def _pinned(graph: Graph, head: Head, chosen: Collection[int]) -> Graph:
    places = _places(graph, head)
    operations = tuple(
        replace(operation, pin="worker" if places[index] in chosen else "trainer") if index in places else operation
        for index, operation in enumerate(graph.operations)
    )
    return replace(graph, operations=operations)


# --- the plan


def with_heads(plan: Plan, heads: Mapping[str, MovedHead]) -> Plan:
    """The plan with the heads moved: builders for the worker, and a loop that is shorter."""
    if not heads:
        return plan
    every = {name: _needs(moved) for name, moved in heads.items()}
    builders = list(plan.worker.builders)
    for name, moved in heads.items():
        place = next((n for n, builder in enumerate(builders) if (builder.kind, builder.name) == ("loader", name)), None)
        if place is None:
            builders.append(_with(Builder("loader", name, moved.head.function, (), (), (), stateless=True, draws=()), moved, every[name]))
        else:
            builders[place] = _with(builders[place], moved, every[name])
    lines: dict[str, list[Fragment]] = {moved.head.module: [] for moved in heads.values()}
    for moved in heads.values():
        lines[moved.head.module] += [moved.head.statements[number].fragment for number in moved.statements]
    removals = tuple(Removal(module, part) for module, parts in lines.items() for part in joined(merged(tuple(parts))))
    return replace(
        plan,
        worker=_worker(plan.worker, tuple(builders), list(every.values())),
        removals=(*plan.removals, *removals),
        loaders=tuple(_edit(plan, edit, heads, every) for edit in plan.loaders),
        feeds=tuple(_feed(feed, heads[feed.name], every[feed.name]) if feed.name in heads else feed for feed in plan.feeds),
        needs=tuple(sorted({*plan.needs, *(path for needs in every.values() for path in needs.modules)})),
        roots=tuple(sorted({*plan.roots, *(root for needs in every.values() for root in needs.roots)})),
    )


def _needs(moved: MovedHead) -> HeadNeeds:
    """What all statements that move need."""
    own = [moved.head.statements[number].needs for number in moved.statements]
    return HeadNeeds(
        tuple(dict.fromkeys(name for needs in own for name in needs.environment)),
        tuple(sorted({name for needs in own for name in needs.globals})),
        merged(tuple(part for needs in own for part in needs.body)),
        merged(tuple(part for needs in own for part in needs.imports)),
        merged(tuple(part for needs in own for part in needs.definitions)),
        tuple(names for needs in own for names in needs.local_imports),
        tuple(sorted({path for needs in own for path in needs.modules})),
        tuple(sorted({root for needs in own for root in needs.roots})),
    )


def _with(builder: Builder, moved: MovedHead, needs: HeadNeeds) -> Builder:
    return replace(
        builder,
        environment=tuple(dict.fromkeys((*builder.environment, *needs.environment))),
        globals=tuple(sorted({*builder.globals, *needs.globals})),
        body=merged((*builder.body, *needs.body)),
        head=moved,
    )


def _worker(worker: WorkerModule, builders: tuple[Builder, ...], every: list[HeadNeeds]) -> WorkerModule:
    local: dict[str, set[str]] = {}
    for names in (*worker.local_imports, *(names for needs in every for names in needs.local_imports)):
        local.setdefault(names.module, set()).update(names.names)
    return replace(
        worker,
        imports=merged((*worker.imports, *(part for needs in every for part in needs.imports))),
        definitions=merged((*worker.definitions, *(part for needs in every for part in needs.definitions))),
        local_imports=tuple(NamesFrom(module, tuple(sorted(names))) for module, names in sorted(local.items())),
        builders=builders,
    )


def _edit(plan: Plan, edit: LoaderEdit, heads: Mapping[str, MovedHead], every: Mapping[str, HeadNeeds]) -> LoaderEdit:
    """The call of a loader: it names its builder where that isn't its dataset's, and sends what the head needs."""
    own = [feed for feed in plan.feeds if feed.loader == edit.call and feed.status == "split"]
    name = next((feed.name for feed in own if feed.name in heads), edit.feed)
    handles = {plan.builder_of(feed) for feed in own}
    loaders = {builder.name for builder in plan.worker.builders if builder.kind == "loader"} | set(heads)
    explicit = edit.explicit or (handles != {name} if name is not None else bool(handles & loaders))
    sent = every[name].environment if name is not None and name in every else ()
    return replace(edit, feed=name, explicit=explicit, environment=tuple(dict.fromkeys((*edit.environment, *sent))))


def _feed(feed: Feed, moved: MovedHead, needs: HeadNeeds) -> Feed:
    lines = [moved.head.statements[number].fragment for number in moved.statements]
    return replace(
        feed,
        environment=tuple(dict.fromkeys((*feed.environment, *needs.environment))),
        moved=merged((*feed.moved, *needs.body, *joined(merged(tuple(lines))))),
    )
