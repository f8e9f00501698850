"""Step `trace`: the graph of each feed, recorded by running samples of the user's code in a process of its own.

    Feed("train", loader=train.py:41) -> Graph: PIL 151 KB -> RandomHorizontalFlip -> ... -> div -> float32 602 KB -> default_collate

The child runs the script up to its loaders (see `trace_child`); this process imports no torch. Whatever the script does, this step gives an
answer: a feed has a graph, or one line that says why there is none.

Processes: the child leads its own process group, which is killed when it has answered, when the time is over and when this process is
interrupted. When this process is killed, the kernel kills the child. The child has no token for workers.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from splitter.verify import started

Progress = Callable[[str, int, int], None]
STARTING_S = 0.5  # of the time is kept for the child to notice that it is over
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
    plan: Plan, script: Path, arguments: Sequence[str], *, samples: int = 16, seconds: float = 20.0, progress: Progress = _silent
) -> Traced:
    """Run samples of every feed that is split.

    Args:
        plan: what is to be split.
        script: the script's path, as the user gave it.
        arguments: the script's own.
        samples: how many of each feed to run; fewer when they are slow.
        seconds: for everything, from the start of the child to its end.
        progress: called with a feed, the samples that have run, and their number.
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
        files = [os.path.realpath(os.path.join(folder, path)) for path in plan.needs]
        options = ["--samples", str(samples), "--feeds", json.dumps(wanted), "--files", json.dumps(files)]
        options += ["--package", plan.package] if plan.package else []
        if plan.prefix is not None:
            path = os.path.realpath(os.path.join(folder, plan.prefix.body.path))
            options += ["--prefix", json.dumps([path, [prefix_fields(each.prefix) for each in choices(plan) if each.prefix is not None]])]
        found |= _run([str(feed["name"]) for feed in wanted], options, [str(script), *arguments], seconds, progress, tried)
    looked_at = {feed.loader for feed in split if found[feed.name].reason != _NOT_MADE}
    for feed in split:
        if found[feed.name].reason == _NOT_MADE and feed.loader in looked_at:
            found[feed.name] = TracedFeed(None, _SHARED)
    return Traced(tuple((feed.name, found[feed.name]) for feed in plan.feeds), tuple((name, tuple(each)) for name, each in tried.items()))


def _run(
    names: Sequence[str],
    options: Sequence[str],
    program: Sequence[str],
    seconds: float,
    progress: Progress,
    tried: dict[str, list[PrefixTried]],
) -> dict[str, TracedFeed]:
    deadline = time.monotonic() + seconds
    found: dict[str, TracedFeed] = {}
    late = f"running the script took more than {seconds:g} s"
    with tempfile.TemporaryDirectory(prefix="splitter-trace-") as scratch:
        pipe = os.path.join(scratch, "pipe")
        os.mkfifo(pipe, 0o600)
        command = [sys.executable, "-m", "splitter.trace_child", "--out", pipe, "--parent", str(os.getpid())]
        command += ["--seconds", str(max(seconds - STARTING_S, 0.0)), *options]
        reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            with started([*command, *program], _environment(os.environ), Path(scratch, "script")) as process:
                ended = os.pidfd_open(process.pid)
                try:
                    for event in _events(reading, ended, deadline):
                        if event.get("end"):
                            late = _NOT_MADE
                            break
                        if "prefix" in event:
                            tried.setdefault(event["feed"], []).append(tried_from(event["prefix"]))
                        else:
                            _take(event, found, progress)
                    else:
                        if time.monotonic() < deadline:
                            late = f"the script {_how(process.wait())}"
                finally:
                    os.close(ended)
                    process.kill()  # not asked to end first: a script may do a lot when it is asked
        finally:
            os.close(reading)
    return {name: found.get(name, TracedFeed(None, late)) for name in names}


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What the child gets: nothing of workers, of which a token is the secret part, and the same order of sets in every run."""
    kept = {name: value for name, value in environment.items() if not name.startswith("SPLITTER_") or name == "SPLITTER_TRACEBACK"}
    return {"PYTHONHASHSEED": "0", **kept}


def _how(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"


def _events(reading: int, ended: int, deadline: float) -> Iterator[dict[str, Any]]:
    """The lines that the child writes, until it ends or the time is over."""
    rest = b""
    sources = [reading, ended]
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select(sources, [], [], left)
        chunk = os.read(reading, 1 << 20) if reading in ready else b""
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (json.loads(line) for line in lines)
        if not chunk and ready:
            return  # the child has closed the pipe, or it has ended and there is nothing left in the pipe


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
