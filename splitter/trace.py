"""Step `trace`: the graph of each feed, recorded by running samples of the user's code in a process of its own.

    Feed("train", loader=train.py:41) -> Graph: PIL 151 KB -> RandomHorizontalFlip -> ... -> div -> float32 602 KB -> default_collate

The child runs the script up to its loaders (see `trace_child`); this process imports no torch. Whatever the script does, this step gives an
answer: a feed has a graph, or one line that says why there is none.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from splitter.graph import Graph, Operation, Step, Value
from splitter.head_text import head_text
from splitter.ir import Plan, Span
from splitter.ir_cut import Tried, TriedHead
from splitter.prefix_choice import choices
from splitter.prefix_json import prefix_fields, tried_from
from splitter.prefix_types import PrefixTried
from splitter.trace_process import Child, child

Progress = Callable[[str, int, int], None]
_NOT_MADE = "the script did not come to this loader before it began to iterate one"
_SHARED = "more than one data set comes to its loader, which was looked at once"


@dataclass(frozen=True)
class TracedFeed:
    """A feed's graph, or the one line that says why there is none. `tried`: what came of its tails (Plan.tails_of), `head` of the head
    of its loop (Plan.head_of).
    """

    graph: Graph | None
    reason: str | None = None
    tried: tuple[Tried | None, ...] = ()
    head: TriedHead | None = None

    def __post_init__(self) -> None:
        if (self.graph is None) == (self.reason is None):
            raise ValueError("a feed has a graph or a reason")


@dataclass(frozen=True)
class Traced:
    """What came of every feed, by its name."""

    feeds: tuple[tuple[str, TracedFeed], ...]
    prefix: tuple[tuple[str, tuple[PrefixTried, ...]], ...] = ()

    def __getitem__(self, name: str) -> TracedFeed:
        return dict(self.feeds)[name]

    @property
    def graphs(self) -> dict[str, Graph]:
        return {name: feed.graph for name, feed in self.feeds if feed.graph is not None}

    @property
    def tried(self) -> dict[str, tuple[Tried | None, ...]]:
        return {name: feed.tried for name, feed in self.feeds}

    @property
    def reasons(self) -> dict[str, str]:
        return {name: feed.reason for name, feed in self.feeds if feed.reason is not None}


def _silent(feed: str, done: int, of: int) -> None:
    """Shows no progress."""


def trace(
    plan: Plan,
    script: Path,
    arguments: Sequence[str],
    *,
    samples: int = 16,
    seconds: float = 20.0,
    progress: Progress = _silent,
    waiting: Child | None = None,
) -> Traced:
    """Run samples of every feed that is split.

    Args:
        plan: what is to be split.
        script: the script's path, as the user gave it.
        arguments: the script's own.
        samples: how many of each feed to run; fewer when they are slow.
        seconds: for everything, from giving the child its task to its end.
        progress: called with a feed, the samples that have run, and their number.
        waiting: a child of this script and these arguments, if one was started before.
    """
    folder = os.path.realpath(script.parent)
    split = [feed for feed in plan.feeds if feed.status == "split"]
    found = {feed.name: TracedFeed(None, "the loader stays as it is") for feed in plan.feeds if feed.status != "split"}
    tried: dict[str, list[PrefixTried]] = {}
    if split:
        wanted = [
            {
                "name": f.name,
                "path": os.path.realpath(os.path.join(folder, f.loader.path)),
                "line": f.loader.line,
                "end_line": f.loader.end_line,
                "tails": [asdict(tail) for tail in choices(plan)[-1].tails_of(f)],
                "head": (head := plan.head_of(f)) and asdict(head_text(head, plan.script)),
            }
            for f in split
        ]
        task: dict[str, object] = {"feeds": wanted, "samples": samples, "package": plan.package, "prefix": None}
        task["files"] = [os.path.realpath(os.path.join(folder, path)) for path in plan.needs]
        if plan.prefix is not None:
            path = os.path.realpath(os.path.join(folder, plan.prefix.body.path))
            task["prefix"] = [path, [prefix_fields(each.prefix) for each in choices(plan) if each.prefix is not None]]
        with contextlib.nullcontext(waiting) if waiting is not None else child(script, arguments) as running:
            found |= _run([feed.name for feed in split], running, task, seconds, progress, tried)
    looked_at = {feed.loader for feed in split if found[feed.name].reason != _NOT_MADE}
    for feed in split:
        if found[feed.name].reason == _NOT_MADE and feed.loader in looked_at:
            found[feed.name] = TracedFeed(None, _SHARED)
    return Traced(tuple((feed.name, found[feed.name]) for feed in plan.feeds), tuple((name, tuple(each)) for name, each in tried.items()))


def _run(
    names: Sequence[str],
    running: Child,
    task: Mapping[str, object],
    seconds: float,
    progress: Progress,
    tried: dict[str, list[PrefixTried]],
) -> dict[str, TracedFeed]:
    deadline = time.monotonic() + seconds
    found: dict[str, TracedFeed] = {}
    late = f"running the script took more than {seconds:g} s"
    for event in running.run(task, seconds):
        if event.get("end"):
            late = _NOT_MADE
            break
        if "prefix" in event:
            tried.setdefault(event["feed"], []).append(tried_from(event["prefix"]))
        else:
            _take(event, found, progress)
    else:
        if time.monotonic() < deadline:
            late = f"the script {running.how()}"
    return {name: found.get(name, TracedFeed(None, late)) for name in names}


def _take(event: Mapping[str, Any], found: dict[str, TracedFeed], progress: Progress) -> None:
    name = event["feed"]
    if "graph" in event:
        tried = (each and tried_tail(each) for each in event["tried"])
        head = event["head"] and TriedHead(event["head"]["batch"], tuple((number, why) for number, why in event["head"]["stay"]))
        found[name] = TracedFeed(graph_of(event["graph"]), tried=tuple(tried), head=head)
    elif "reason" in event:
        found[name] = TracedFeed(None, event["reason"])
    else:
        progress(name, event["done"], event["of"])


def tried_tail(fields: Mapping[str, Any]) -> Tried:
    """What came of a tail, as the child has written it."""
    device = tuple((int(first), bool(half), str(why)) for first, half, why in fields["device"])
    return Tried(fields["template"], tuple(fields["whole"]), tuple(fields["half"]), fields["arrays"], device)


def graph_of(fields: Mapping[str, Any]) -> Graph:
    """The graph that the child has written."""
    steps = tuple(
        Step(s["name"], s["part"], Span(**s["span"]) if s["span"] else None, s["microseconds"], tuple(s["draws"])) for s in fields["steps"]
    )
    operations = tuple(
        Operation(o["name"], o["step"], tuple(o["inputs"]), tuple(o["outputs"]), frozenset(o["traits"]), o["microseconds"], o["pin"])
        for o in fields["operations"]
    )
    values = tuple(
        Value(v["name"], v["bytes"], v["type"], v["dtype"], None if v["shape"] is None else tuple(v["shape"]), v["constant"])
        for v in fields["values"]
    )
    together = tuple(tuple(group) for group in fields["together"])
    return Graph(fields["feed"], fields["samples"], steps, operations, values, tuple(fields["returns"]), together)


def describe(graph: Graph) -> str:
    """A graph as text, for people and tests; without microseconds it is the same in every run."""
    values = {value.name: value for value in graph.values}
    lines = [f"feed {graph.feed}, {graph.samples} samples"]
    step = -1
    for operation in graph.operations:
        if operation.step != step:
            step = operation.step
            found = graph.steps[step]
            draws = f" draws {', '.join(found.draws)}" if found.draws else ""
            lines.append(f"  {found.part} {found.name} [{found.span or 'library'}]{draws}")
        inputs = ", ".join(f"{name}*" if values[name].constant else name for name in operation.inputs)
        outputs = ", ".join(f"{name}: {values[name].type} ({values[name].bytes} B)" for name in operation.outputs)
        lines.append(f"    {operation.name}({inputs}) -> {outputs}  {' '.join(sorted(operation.traits))}")
    return "\n".join([*lines, f"  returns {', '.join(graph.returns)}", ""])
