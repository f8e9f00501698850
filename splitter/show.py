"""What the compiler knows after each of its steps, for people (`splitter show train.py --after STEP`).

find     train.py:41:14: DataLoader(train_set, batch_size=64)
           dataset: train.py:28:17: datasets.ImageFolder(args.data)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from splitter.effects import Effects
from splitter.emit import emit
from splitter.find import Found, find
from splitter.graph import Value
from splitter.ir import Builder, Plan
from splitter.origins import Lost
from splitter.plan import plan
from splitter.read import Module, Program, read

STEPS = ("read", "find", "effects", "slice", "trace", "cut", "emit")
RUN = ("trace", "cut")  # need samples of the script's own code


def show(script: Path, after: str, *, streams: int | None = None) -> str:
    """The printed form of what the step `after` gives for a script.

    Raises InputError when the script can't be read, KeyError when there is no such step.
    """
    program = read(script)
    if after == "read":
        return _text(_program(program))
    found = find(program)
    if after == "find":
        return _text(_found(found))
    if after == "effects":
        return _text(_effects(found))
    made = plan(found, streams=streams)
    return {"slice": _text(_plan(made)), "emit": _text(_bundle(made))}[after]


def show_weighed(made: Plan, after: str) -> str:
    """The printed form of a plan whose samples were run: every operation ("trace"), with its side ("cut")."""
    return _text(_weighed(made, cut=after == "cut"))


def _weighed(made: Plan, *, cut: bool) -> Iterator[str]:
    for feed in made.feeds:
        if feed.crossing is None:
            yield f"feed {feed.name}: no graph: {feed.uncut or feed.code or 'nothing was run'}"
            continue
        graph, chosen = feed.crossing.graph, feed.crossing.cut
        there, crosses = set(chosen.trainer), set(chosen.crossing)
        yield f"feed {feed.name}: {graph.samples} samples"
        if cut:
            yield f"  {chosen.bytes:,} bytes a sample cross, {chosen.bytes_at_loader:,} with the cut at the loader"
            yield f"  {chosen.microseconds_left:.0f} \u00b5s a sample left on the trainer, {chosen.microseconds_taken:.0f} taken from it"
        values = {value.name: value for value in graph.values}
        last = -1
        for index, operation in enumerate(graph.operations):
            if operation.step != last:
                step, last = graph.steps[operation.step], operation.step
                draws = f", draws {', '.join(step.draws)}" if step.draws else ""
                yield f"  {step.part} {step.name} {step.span or 'of a library'}: {step.microseconds:.0f} \u00b5s{draws}"
            side = ("trainer " if index in there else "worker  ") if cut else ""
            inputs = ", ".join(f"{name}*" if values[name].constant else name for name in operation.inputs)
            outputs = ", ".join(_value(values[name], crosses if cut else set()) for name in operation.outputs)
            yield f"    {side}{operation.name}({inputs}) -> {outputs or 'nothing'}  [{' '.join(sorted(operation.traits))}]".rstrip()


def _value(value: Value, crosses: set[str]) -> str:
    return f"{value.name}: {value.type}, {value.bytes:,} bytes{' ==> crosses' if value.name in crosses else ''}"


def _text(lines: Iterator[str]) -> str:
    return "".join(line + "\n" for line in lines)


def _program(program: Program) -> Iterator[str]:
    for name, module in program.modules.items():
        yield f"{name}: {module.file.path}, {len(module.file.lines)} lines, {module.file.encoding}"


def _found(found: Found) -> Iterator[str]:
    for site in found.sites:
        yield f"{site.module.span(site.call)}: {site.module.text(site.call)}"
        if site.problem is not None:
            yield f"  {site.problem.code}"
        for origin in found.origins[id(site.call)]:
            where = f"{_place(origin.module, origin.expr)}: {origin.module.text(origin.expr)}"
            yield f"  lost: {where} ({origin.what})" if isinstance(origin, Lost) else f"  dataset: {where}"
        for name, values in site.options.items():
            yield f"  {name}: {' or '.join(site.where(value).text(value) for value in values)}"


def _place(module: Module, node: ast.AST) -> str:
    return str(module.span(node)) if hasattr(node, "lineno") else module.file.path


def _effects(found: Found) -> Iterator[str]:
    effects = Effects(found.resolver, found.kinds)
    for module in found.program.modules.values():
        for fact in effects.of(module, module.tree):
            later = ", later, in what is made here" if fact.makes else ""
            yield f"{_place(fact.module, fact.node)}: {fact.effect} {fact.what}{later}"


def _plan(made: Plan) -> Iterator[str]:
    for feed in made.feeds:
        reason = "" if feed.code is None else f" {feed.code}: {'; '.join(feed.why)}"
        yield f"feed {feed.name}: {feed.loader}, {feed.role}, {feed.status}{reason}"
    worker = made.worker
    for name in worker.future:
        yield f"worker: from __future__ import {name}"
    for fragment in worker.imports:
        yield f"worker: imports {fragment}"
    for names in worker.local_imports:
        yield f"worker: from {names.module} import {', '.join(names.names)}"
    for fragment in worker.definitions:
        yield f"worker: defines {fragment}"
    for builder in worker.builders:
        yield from _builder(builder)
    for handle in made.handles:
        yield f"trainer: {handle.span} is {handle.residence}, to {handle.builder}({', '.join(handle.environment)})"
    for loader in made.loaders:
        given = f", feed={loader.feed}" if loader.explicit else ""
        streams = "" if loader.streams is None else f", num_workers={loader.streams}"
        yield f"trainer: {loader.call} is a loader of the runtime{given}{streams}"
    for written in made.classes:
        yield f"trainer: the class at {written.span} is the runtime's"
    for removal in made.removals:
        yield f"trainer: without {removal.fragment}"
    for note in made.notes:
        yield f"note: {note.span} {note.what}: {note.why}"
    for found in made.diagnostics:
        yield f"finding: {found.span or made.script.path} {found.code} {dict(found.arguments)}"


def _builder(builder: Builder) -> Iterator[str]:
    yield f"worker: {builder.kind} {builder.name}: {builder.function}({', '.join(builder.environment)})"
    if builder.globals:
        yield f"  globals: {', '.join(builder.globals)}"
    yield f"  stateless: {builder.stateless}; draws: {_drawn(builder.draws)}"
    for fragment in builder.body:
        yield f"  body: {fragment}"
    for name, span in (
        ("result", builder.result),
        ("collate_fn", builder.collate_fn),
        ("worker_init_fn", builder.worker_init_fn),
    ):
        if span is not None:
            yield f"  {name}: {span}"


def _drawn(names: tuple[str, ...] | None) -> str:
    return "not known" if names is None else ", ".join(names) or "nothing"


def _bundle(made: Plan) -> Iterator[str]:
    for file in emit(made).files:
        yield f"==> {file.name} <=="
        yield file.content.decode(made.script.encoding if file.name.endswith("_trainer.py") else "utf-8", "replace")
