"""train_split.json: the plan for programs.

{
  "version": 1,                      raised when a key changes its meaning; new keys don't raise it
  "script": "train.py",              name of the script
  "digest": "sha256:...",            of the script and the local modules that were read
  "needs": ["data.py"],              local modules that both programs import
  "feeds": [{
    "name": "train",
    "loader": {"path": "train.py", "line": 41, "column": 15},     lines and columns count from 1
    "origin": {...} or null,         where its dataset is made
    "role": "train" | "eval" | "either",
    "status": "split" | "left",
    "code": null or "S301",          why it is left
    "why": ["..."],
    "dataset": "moved" | "replicated" | "sent" | null,
    "stateless": true | false | null,                             null: not known
    "draws": ["torch", "numpy", "random"],                        generators that moved code draws from
    "environment": ["args.data"],    values that the trainer sends
    "streams": "args.workers" or null,
    "crossing": {"bytes_per_sample_loader": 602112, "bytes_per_sample": 150528,    when samples were run: what crosses with the cut
                 "trainer_microseconds_left": 310.0,              at the loader and with the one that was chosen, CPU time of
                 "trainer_microseconds_taken": 0.0,               the trainer per sample, the price of a KiB in the same unit,
                 "price": 1.6, "trainer": ["aten.div.Tensor"], "values": ["ToTensor 2"],
                 "head": {"loop": {...}, "moved": [{"path": "train.py", "first": 12, "last": 13}],    what the loop did first,
                          "stayed": [{"path": ..., "line": ..., "column": ..., "why": "..."}]} or null,    and where that is now
                 "finish": {"on": "cpu" | "device", "why": null or "...",       where the trainer finishes samples, why not where that was
                            "lines": [{"path": "train.py", "after": 60}]} or null} or null,       asked for, lines behind which loops do it
    "uncut": null or "...",          why the cut is at the loader, when samples were to be run and couldn't be
  }],
  "model_prefix": {"model": "Net", "path": "train.py", "first_line": 45, "last_line": 51, "results": {"features": "rows"}, "feeds": {...}},
                                     only with --model-prefix: what moved, with the bytes per sample before and after, or null
  "finish_on": "device",             only with --finish-on device
  "profile": {"key": "sha256:...", "feeds": {"train": {"graph": {...}, "tails": [...]}}} or null,    what was recorded; see graph.py
  "diagnostics": [{"code": "S303", "severity": "error" | "warning" | "note",
                   "path": "train.py" or null, "line": 7, "column": 10, "message": "...", "hint": "..."}]
}
"""

from __future__ import annotations

import json

from splitter.diagnostics import hint, message, severity
from splitter.head_text import head_notes
from splitter.ir import Diagnostic, Feed, Plan, Span
from splitter.ir_cut import Crossing
from splitter.prefix_json import shown as prefix_json
from splitter.profile import profile_json

VERSION = 1


def plan_json(plan: Plan) -> str:
    """The plan as JSON text, ASCII only, in the schema above."""
    value = {
        "version": VERSION,
        "script": plan.script.path,
        "digest": plan.digest,
        "needs": list(plan.needs),
        "feeds": [_feed(plan, feed) for feed in plan.feeds],
        **prefix_json(plan),
        **({"finish_on": "device"} if plan.finish_on == "device" else {}),
        "profile": profile_json(plan.profile),
        "diagnostics": [_diagnostic(diagnostic) for diagnostic in plan.diagnostics],
    }
    return json.dumps(value, indent=2) + "\n"


def _feed(plan: Plan, feed: Feed) -> dict[str, object]:
    return {
        "name": feed.name,
        "loader": _place(feed.loader),
        "origin": None if feed.origin is None else _place(feed.origin),
        "role": feed.role,
        "status": feed.status,
        "code": feed.code,
        "why": list(feed.why),
        "dataset": feed.residence,
        "stateless": feed.stateless,
        "draws": list(feed.draws),
        "environment": list(feed.environment),
        "streams": feed.streams,
        "crossing": _crossing(plan, feed, feed.crossing),
        "uncut": feed.uncut,
    }


def _crossing(plan: Plan, feed: Feed, crossing: Crossing | None) -> dict[str, object] | None:
    if crossing is None:
        return None
    cut = crossing.cut
    return {
        "bytes_per_sample_loader": cut.bytes_at_loader,
        "bytes_per_sample": cut.bytes,
        "trainer_microseconds_left": round(cut.microseconds_left, 1),
        "trainer_microseconds_taken": round(cut.microseconds_taken, 1),
        "price": crossing.price,
        "trainer": [crossing.graph.operations[index].name for index in cut.trainer],
        "values": list(cut.crossing),
        "head": _head(plan, feed),
        "finish": _finish(plan, feed),
    }


def _finish(plan: Plan, feed: Feed) -> dict[str, object] | None:
    """Where the trainer finishes its samples, and why not on the device when that was asked for."""
    finish = next((handle.finish for handle in plan.handles if handle.builder == plan.builder_of(feed)), None)
    if finish is None:
        return None
    lines = {landing.line for landing in plan.landings if landing.loader == feed.loader}
    own = [line for line in plan.insertions if line in lines and finish.on == "device"]
    return {
        "on": finish.on,
        "why": finish.device if plan.finish_on == "device" and finish.on == "cpu" else None,
        "lines": [{"path": plan.script.path, "after": line.after} for line in own],
    }


def _head(plan: Plan, feed: Feed) -> dict[str, object] | None:
    head = next((head for head in plan.heads if head.feed == feed.name), None)
    if head is None:
        return None
    moved = plan.moved_heads().get(feed.name)
    lines = [moved.head.statements[number].fragment for number in moved.statements] if moved is not None else []
    return {
        "loop": _place(head.loop),
        "moved": [{"path": part.path, "first": part.first, "last": part.last} for part in lines],
        "stayed": [{**_place(note.span), "why": note.why} for note in head_notes(plan, feed.name)],
    }


def _place(span: Span) -> dict[str, object]:
    return {"path": span.path, "line": span.line, "column": span.column + 1}


def _diagnostic(diagnostic: Diagnostic) -> dict[str, object]:
    span = diagnostic.span
    place = {"path": None, "line": None, "column": None} if span is None else _place(span)
    return {
        "code": diagnostic.code,
        "severity": severity(diagnostic),
        **place,
        "message": message(diagnostic),
        "hint": hint(diagnostic),
    }
