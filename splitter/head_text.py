"""The head of a loop as text to run: what the child of `trace` and the recorder of `verify` get, as plain values.

    HeadText(target="(images, labels)", statements=("images = images.float() / 255",), ...)

Imports no torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from splitter.ir import Fragment, Note, Plan, SourceFile, Span
from splitter.ir_cut import Head, MovedHead
from splitter.splice import Grid


@dataclass(frozen=True)
class StatementText:
    """One statement, see ir.HeadStatement."""

    text: str
    span: Span
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    mutates: bool


@dataclass(frozen=True)
class HeadText:
    """See ir.Head. `locals`: names that the function has which makes the loader; all others are of the module."""

    module: str
    target: str
    parts: tuple[tuple[str, tuple[int | str, ...]], ...]
    unpacking: tuple[str, ...]
    statements: tuple[StatementText, ...]
    together: tuple[tuple[int, ...], ...]
    locals: tuple[str, ...]


def head_text(head: Head, file: SourceFile) -> HeadText:
    """The texts of a head, from the file that it stands in."""
    grid = Grid(file.text)
    statements = tuple(StatementText(grid.slice(own.span), own.span, own.reads, own.writes, own.mutates) for own in head.statements)
    local = sorted({name for own in head.statements for name in own.locals})
    unpacking = tuple(grid.slice(span) for span in head.unpacking)
    return HeadText(head.module, head.target, head.parts, unpacking, statements, head.together, tuple(local))


def text_from(fields: Mapping[str, Any]) -> HeadText:
    """A head's text as another process has written it, from `asdict` through JSON."""
    statements = tuple(
        StatementText(own["text"], Span(**own["span"]), tuple(own["reads"]), tuple(own["writes"]), own["mutates"])
        for own in fields["statements"]
    )
    parts = tuple((name, tuple(keys)) for name, keys in fields["parts"])
    together = tuple(map(tuple, fields["together"]))
    return HeadText(fields["module"], fields["target"], parts, tuple(fields["unpacking"]), statements, together, tuple(fields["locals"]))


def function_text(moved: MovedHead, file: SourceFile) -> str:
    """`def head(batch): ...` of the statements that moved."""
    grid = Grid(file.text)
    lines = [f"def {function_name(moved.head)}({parameter(moved.head)}):"]
    lines += [f"    {line}" for line in first_lines(moved.head)]
    for span in (*moved.head.unpacking, *(moved.head.statements[number].span for number in moved.statements)):
        lines.append(f"    {grid.slice(span)}")
    return "\n".join([*lines, f"    return {moved.batch}"]) + "\n"


def head_notes(plan: Plan, name: str | None = None) -> tuple[Note, ...]:
    """What of the loops' heads (of one feed) stays with the trainer, and why; nothing when no samples were run."""
    tried = dict(plan.profile.heads) if plan.profile is not None else {}
    known = {name for name, _, _ in plan.profile.feeds} if plan.profile is not None else set()
    moved = plan.moved_heads()
    finished = {handle.builder for handle in plan.handles if handle.finish is not None}
    found: dict[Span, Note] = {}
    for feed in plan.feeds:
        for head in plan.heads if feed.name in known and name in (None, feed.name) else ():
            if head.feed != feed.name:
                continue
            reasons = dict(tried[feed.name].stay) if feed.name in tried else {}
            at = moved[feed.name].statements if feed.name in moved else ()
            paying = "the head of the loop: it costs less here than what more would cross"
            if plan.builder_of(feed) in finished:
                paying = "the head of the loop: it runs on samples that the trainer finishes"
            for number, own in enumerate(head.statements):
                if number not in at:
                    why = f"the head of the loop: {reasons[number]}" if number in reasons else paying
                    found.setdefault(own.span, Note(own.span, _first(plan, own.span), why))
            if head.end is not None:
                before = "ends the head of the loop" if head.statements else "keeps the head of the loop where it is"
                found.setdefault(head.end.span, replace(head.end, why=f"{before}: {head.end.why}"))
    return tuple(found.values())


def _first(plan: Plan, span: Span) -> str:
    return Grid(plan.script.text).slice(span).split("\n")[0]


def recorded(plan: Plan, folder: Path) -> str:
    """The heads that move, for `splitter_runtime.record`, as JSON. `folder` is the script's."""
    found = {}
    for moved in plan.moved_heads().values():
        loop = moved.head.loop
        path = os.path.realpath(folder / loop.path)
        found[loop] = {"path": path, "first": loop.line, "last": loop.end_line, "function": function_text(moved, plan.script)}
    return json.dumps(list(found.values()))


def fragments_of(moved: MovedHead) -> tuple[Fragment, ...]:
    """The lines of the loop that are in the function, in order."""
    unpacking = [Fragment(span.path, span.line, span.end_line) for span in moved.head.unpacking]
    return (*unpacking, *(moved.head.statements[number].fragment for number in moved.statements))


def parameter(head: Head) -> str:
    """The name of the batch in the function: the loop's own when it has one."""
    if head.target.isidentifier():
        return head.target
    return _unused("batch", head)


def first_lines(head: Head) -> tuple[str, ...]:
    """What takes the batch apart as the loop's target does."""
    if head.target.isidentifier():
        return ()
    bare = head.target[1:-1].rstrip() if head.target[:1] in "([" and _closes(head.target) else head.target
    return (f"{bare} = {parameter(head)}",)


def _closes(text: str) -> bool:
    """Whether the first bracket of a target closes at its end: "(a, b)", and not "(a, b), (c, d)"."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if depth == 0:
            return place == len(text) - 1
    return False


def function_name(head: Head) -> str:
    return _unused("head", head)


def _unused(name: str, head: Head) -> str:
    taken = {part for part, _ in head.parts}
    for own in head.statements:
        taken |= {*own.reads, *own.writes, *own.locals, *own.names}
    while name in taken:
        name += "_"
    return name
