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
    "crossing": {"bytes_per_sample_loader": 602112, "bytes_per_sample": 150528} or null
  }],
  "diagnostics": [{"code": "S303", "severity": "error" | "warning" | "note",
                   "path": "train.py" or null, "line": 7, "column": 10, "message": "...", "hint": "..."}]
}
"""

from __future__ import annotations

import json

from splitter.diagnostics import hint, message, severity
from splitter.ir import Diagnostic, Feed, Plan, Span

VERSION = 1


def plan_json(plan: Plan) -> str:
    """The plan as JSON text, ASCII only, in the schema above."""
    value = {
        "version": VERSION,
        "script": plan.script.path,
        "digest": plan.digest,
        "needs": list(plan.needs),
        "feeds": [_feed(feed) for feed in plan.feeds],
        "diagnostics": [_diagnostic(diagnostic) for diagnostic in plan.diagnostics],
    }
    return json.dumps(value, indent=2) + "\n"


def _feed(feed: Feed) -> dict[str, object]:
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
        "crossing": None,
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
