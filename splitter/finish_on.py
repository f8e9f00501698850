"""Step `finish_on`: which finishes run on the batch's device, and the lines of the trainer's loops that do it.

    finish=(Compose([ScaleToFloat(), normalize]), None)      loop: images = images.to(device)
    ->  images = splitter_runtime.finish_on_device(images, train_loader, 0)

Only where every batch of every loader of a dataset is finished that way: else the finish stays on the CPU, and says why.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from splitter.ir import Note, Plan
from splitter.ir_cut import ANY, Finish, Insertion, Keys


@dataclass(frozen=True)
class _Lines:
    """The lines that the loops over a dataset's loaders need, or why they can't finish its batches."""

    lines: tuple[Insertion, ...] = ()
    why: str = ""


def finish_on_device(plan: Plan) -> Plan:
    """The plan with every finish on the device that can be there."""
    finishes = {builder.name: builder.finish for builder in plan.worker.builders if builder.finish is not None}
    wanted = {name: _lines(plan, name, finish) for name, finish in finishes.items()}
    made = {name: replace(finish, device=wanted[name].why, on="cpu" if wanted[name].why else "device") for name, finish in finishes.items()}
    lines = {line for name, own in wanted.items() if made[name].on == "device" for line in own.lines}
    builders = tuple(replace(each, finish=made.get(each.name)) if each.kind == "dataset" else each for each in plan.worker.builders)
    return replace(
        plan,
        worker=replace(plan.worker, builders=builders),
        handles=tuple(replace(handle, finish=made.get(handle.builder)) for handle in plan.handles),
        insertions=tuple(sorted(lines, key=lambda line: (line.module, line.after, line.value))),
        finish_on="device",
    )


def on_cpu(plan: Plan) -> Iterator[tuple[str, str]]:
    """The datasets that are finished on the CPU though that was asked for on the device, and why."""
    for builder in plan.worker.builders if plan.finish_on == "device" else ():
        if builder.finish is not None and builder.finish.on == "cpu":
            yield builder.name, builder.finish.device


def _lines(plan: Plan, builder: str, finish: Finish) -> _Lines:
    if finish.device:
        return _Lines(why=finish.device)
    places = list(_places(ast.parse(finish.template.format("FINISH"), mode="eval").body))
    found: list[Insertion] = []
    for feed in plan.feeds:
        if feed.status != "split" or plan.builder_of(feed) != builder:
            continue
        own = [landing for landing in plan.landings if landing.loader == feed.loader]
        none = next((landing.why for landing in own if landing.keys is None and landing.why is not None), None)
        if none is not None or not own:
            return _Lines(why=f"not all of its batches go through loops that could finish them{_said(none)}")
        for loop in dict.fromkeys(landing.loop for landing in own):
            landed = {landing.keys: landing for landing in own if landing.loop == loop}
            for place in places:
                landing = landed.get(place) or landed.get((*place[:-1], ANY))
                if landing is None:
                    return _Lines(
                        why=f"its batches can't be finished on a device: the loop at {loop.path}:{loop.line} doesn't name their parts"
                    )
                if landing.why is not None:
                    return _Lines(why=f"its batches can't be finished on a device{_said(landing.why)}")
                if landing.line is not None:
                    found.append(landing.line)
    return _Lines(tuple(found))


def _said(note: Note | None) -> str:
    if note is None:
        return ""
    return f": {note.span.path}:{note.span.line} {f'`{note.what}` ' if note.what else ''}{note.why}"


def _places(template: ast.expr, keys: Keys = ()) -> Iterator[Keys]:
    """Where in a sample a finish stands."""
    if isinstance(template, ast.Name):
        yield keys
    elif isinstance(template, (ast.Tuple, ast.List)):
        for number, part in enumerate(template.elts):
            yield from _places(part, (*keys, number))
    elif isinstance(template, ast.Dict):
        for key, part in zip(template.keys, template.values, strict=True):
            assert isinstance(key, ast.Constant) and isinstance(key.value, str)
            yield from _places(part, (*keys, key.value))
