"""The child process of `trace`: runs the script up to its loaders, and samples of each: `python -m splitter.trace_child ... SCRIPT ARGS`

    {"feed": "train", "done": 3, "of": 16}   {"feed": "train", "graph": {...}}   {"feed": "val", "reason": "..."}   {"end": true}

One line of JSON for each thing that happens, into a pipe. The script runs as it is; torch's DataLoader is hooked when it is imported.
A loader of the plan is traced when it has been constructed, and the process ends when all are, or when the first
loader is iterated: nothing is trained. This module imports no torch: the script may have something to set before.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import sys
import time
import types
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any

from splitter.graph import Graph
from splitter.head_text import HeadText, text_from
from splitter.ir import Span
from splitter.ir_cut import Link, Tail
from splitter.prefix_json import prefix_from
from splitter.prefix_types import Prefix, PrefixTried
from splitter.trace_lines import User
from splitter_runtime.record import die_with, last_line, run_as_main

if TYPE_CHECKING:
    from splitter.trace_prefix import Recorded
    from splitter.trace_samples import Asked

SEED = 20240229  # for scripts that do not seed


@dataclass(frozen=True)
class Wanted:
    """A feed, and the lines of the call that makes its loader."""

    name: str
    path: str
    line: int
    end_line: int
    tails: tuple[Tail, ...] = ()
    head: HeadText | None = None


@dataclass
class Starting:
    """Starts of a model's forward, the longest first, the file that they are in, and a batch of each loader that the model gets."""

    prefixes: tuple[Prefix, ...]
    path: str
    frames: dict[str, types.FrameType] = field(default_factory=dict)
    recorded: dict[str, Recorded] = field(default_factory=dict)

    @property
    def feeds(self) -> set[str]:
        return {feed.feed for prefix in self.prefixes for feed in prefix.feeds}


@dataclass
class Tracing:
    """What has been traced so far. Only the process that made it writes."""

    out: IO[str]
    wanted: list[Wanted]
    samples: int
    deadline: float
    user: User
    process: int = field(default_factory=os.getpid)
    made: dict[int, tuple[str, int]] = field(default_factory=dict)
    keep: list[Any] = field(default_factory=list)
    pending: list[tuple[Any, Wanted]] = field(default_factory=list)
    listener: Callable[[str, tuple[Any, ...]], None] | None = None
    busy: bool = False
    constructed: set[str] = field(default_factory=set)
    frames: dict[str, dict[str, Any]] = field(default_factory=dict)  # the local names where a loader is made whose loop has a head
    prefix: Starting | None = None

    def write(self, **fields: object) -> None:
        self.out.write(json.dumps(fields, separators=(",", ":")) + "\n")
        self.out.flush()

    def finish(self) -> None:
        """End the process at once: nothing of the script runs after this, and no training."""
        if os.getpid() == self.process:
            self.write(end=True)
        os._exit(0)

    def idle(self) -> bool:
        return not self.busy and os.getpid() == self.process

    # --- loaders

    def constructed_loader(self, loader: Any, exact: bool) -> None:
        """A loader is there. One of a class of the user's may not be complete yet: it waits for what comes next."""
        if not self.idle():
            return
        self.trace_pending()
        wanted = self.match()
        if wanted is not None:
            self.wanted.remove(wanted)
            self.pending.append((loader, wanted))
            if exact:
                self.trace_pending()

    def match(self) -> Wanted | None:
        """The feed whose loader is constructed by one of the frames that are running, innermost first."""
        frame: types.FrameType | None = sys._getframe(3)
        while frame is not None:
            file = os.path.realpath(frame.f_code.co_filename)
            for wanted in self.wanted:
                if file == wanted.path and wanted.line <= frame.f_lineno <= wanted.end_line:
                    if wanted.head is not None:
                        self.frames[wanted.name] = {name: value for name, value in frame.f_locals.items() if name in wanted.head.locals}
                    if self.prefix is not None:
                        self.prefix.frames[wanted.name] = frame
                    return wanted
            frame = frame.f_back
        return None

    def iterated(self) -> None:
        """A loader is iterated: training begins."""
        if self.idle():
            self.trace_pending()
            self.try_prefix()
            self.finish()

    def trace_pending(self) -> None:
        for loader, wanted in self.pending:
            self.trace(loader, wanted)
        self.pending = []
        if not self.wanted and self.prefix is None:
            self.finish()

    def try_prefix(self) -> None:
        """Compare the start of forward in the model with what the worker would do: both are there when the first loop begins."""
        if self.prefix is None or not self.prefix.recorded:
            return
        from splitter.trace_prefix import try_prefix

        self.busy = True
        for prefix in self.prefix.prefixes:
            kept = True
            for feed in prefix.feeds:
                recorded = self.prefix.recorded.get(feed.feed)
                if recorded is not None:
                    tried = try_prefix(prefix, feed, self.prefix.path, recorded)
                    self.write(feed=feed.feed, prefix=asdict(tried))
                    kept = kept and tried.reason is None
            if kept:
                break

    def trace(self, loader: Any, wanted: Wanted) -> None:
        from splitter.trace_samples import Asked, NoGraphError, trace_loader

        left = self.deadline - time.monotonic()
        share = time.monotonic() + left / min(1 + len(self.wanted), 4)  # the feeds to come get as much, or as a rule need less

        def progress(done: int, of: int) -> None:
            self.write(feed=wanted.name, done=done, of=of)

        self.busy = True
        try:
            asked = Asked(wanted.name, self.samples, share, self.user, self.made, progress, self.listen, wanted.tails)
            asked = replace(asked, head=wanted.head, frame=self.frames.get(wanted.name, {}))
            graph, tried, head = trace_loader(loader, asked)
        except NoGraphError as error:
            self.write(feed=wanted.name, reason=str(error))
        except Exception as error:
            import traceback

            if os.environ.get("SPLITTER_TRACEBACK") == "1":
                traceback.print_exc()
            self.write(
                feed=wanted.name, reason=f"running a sample failed: {last_line(traceback.format_exception_only(type(error), error))}"
            )
        else:
            tails = [each and asdict(each) for each in tried]
            self.write(feed=wanted.name, graph=graph_fields(graph), tried=tails, head=head and asdict(head))
            if self.prefix is not None and wanted.name in self.prefix.feeds:
                self.record_batch(loader, asked)
        finally:
            self.busy = False

    def record_batch(self, loader: Any, asked: Asked) -> None:
        """Keep a batch for the start of the model's forward."""
        from splitter.trace_prefix import Recorded
        from splitter.trace_samples import batch_of

        assert self.prefix is not None
        frame = self.prefix.frames[asked.feed]
        try:
            batch, samples = batch_of(loader, asked)
        except Exception as error:  # the user's code, which has made samples before
            self.write(feed=asked.feed, prefix=asdict(PrefixTried(reason=f"making a batch raised {type(error).__name__}: {error}")))
            return
        self.prefix.recorded[asked.feed] = Recorded(batch, samples, frame.f_globals, dict(frame.f_locals))

    # --- hooks

    def listen(self, listener: Callable[[str, tuple[Any, ...]], None] | None) -> None:
        self.listener = listener

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.listener is not None and event == "open":
            self.listener(event, arguments)

    def hooks(self) -> dict[str, Callable[[Any], None]]:
        """What to do with which module once it is imported."""
        random.seed(SEED)
        return {
            "torch": lambda module: module.manual_seed(SEED),
            "numpy.random": lambda module: module.seed(SEED),
            "torch.utils.data.dataloader": self.hook_loader,
            "torch.multiprocessing.spawn": self.hook_spawn,
            "torch.nn.modules.container": lambda module: self.hook_container(module.Sequential),
            "torchvision.transforms.transforms": lambda module: self.hook_container(module.Compose),
            "torchvision.transforms.v2._container": lambda module: self.hook_container(module.Compose),
        }

    def hook_loader(self, module: Any) -> None:
        loader_class = module.DataLoader
        construct, iterate = loader_class.__init__, loader_class.__iter__

        @functools.wraps(construct)
        def constructed(this: Any, *args: Any, **kwargs: Any) -> None:
            construct(this, *args, **kwargs)
            self.constructed_loader(this, type(this) is loader_class)

        @functools.wraps(iterate)
        def iterated(this: Any) -> Any:
            self.iterated()
            return iterate(this)

        loader_class.__init__ = constructed
        loader_class.__iter__ = iterated

    def hook_spawn(self, module: Any) -> None:
        """Processes that the script starts would train, and are not seen from here: end before they are there."""

        def start_processes(*args: Any, **kwargs: Any) -> None:
            for feed in self.wanted:
                self.write(feed=feed.name, reason="the script makes this loader in processes of its own")
            self.finish()

        module.start_processes = start_processes

    def hook_container(self, container: Any) -> None:
        """Note where containers of transforms are made, so that their elements can be found in the source."""
        construct = container.__init__

        @functools.wraps(construct)
        def constructed(this: Any, *args: Any, **kwargs: Any) -> None:
            construct(this, *args, **kwargs)
            frame: types.FrameType | None = sys._getframe(1)
            while frame is not None and self.user.path(frame.f_code.co_filename) is None:
                frame = frame.f_back
            if frame is not None:
                self.made[id(this)] = (frame.f_code.co_filename, frame.f_lineno)
                self.keep.append(this)

        container.__init__ = constructed


def tail_of(fields: dict[str, Any]) -> Tail:
    """A tail as the parent has written it."""

    def spans(name: str) -> tuple[Span, ...]:
        return tuple(Span(**span) for span in fields[name])

    made = {name: spans(name) for name in ("elements", "values")} | {name: tuple(fields[name]) for name in ("halves", "shared")}
    made["definition"] = fields["definition"] and Span(**fields["definition"])
    places = ("hole", "statement", "value")
    made["links"] = tuple(Link(**{**link, **{name: Span(**link[name]) for name in places}}) for link in fields["links"])
    return Tail(**{**fields, **made, "container": Span(**fields["container"])})


def graph_fields(graph: Graph) -> dict[str, Any]:
    """A graph as JSON can hold it."""
    fields = asdict(graph)
    for operation in fields["operations"]:
        operation["traits"] = sorted(operation["traits"])
    return fields


def run(script: str, arguments: list[str], tracing: Tracing, package: str) -> str:
    """Run the script to its end, if it comes to that; how it ended, in one line."""
    import traceback

    try:
        run_as_main(script, arguments, tracing.hooks(), package)
    except SystemExit as left:
        code = left.code
        return "the script ended before this loader was made" if not code else f"the script ended with exit status {code}"
    except BaseException as error:
        return f"the script failed: {last_line(traceback.format_exception_only(type(error), error))}"
    return "the script ended before this loader was made"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m splitter.trace_child", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", required=True, help="pipe that the events are written to")
    parser.add_argument("--parent", type=int, required=True, help="end when the process with this number does")
    parser.add_argument("--samples", type=int, required=True, help="samples of each loader")
    parser.add_argument("--seconds", type=float, required=True, help="time for everything")
    parser.add_argument("--feeds", required=True, help="name, file and lines of each loader, as JSON")
    parser.add_argument("--package", default="", help="the package that the script is a module of, when it runs by -m")
    parser.add_argument("--files", default="[]", help="local modules of the script, by real path, as JSON")
    parser.add_argument("--prefix", help="the file of a model, and starts of its forward, as JSON")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    die_with(chosen.parent)
    wanted = [
        Wanted(**{**fields, "tails": tuple(map(tail_of, fields["tails"])), "head": fields["head"] and text_from(fields["head"])})
        for fields in json.loads(chosen.feeds)
    ]
    user = User(os.path.dirname(os.path.realpath(chosen.script)), frozenset(json.loads(chosen.files)))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a script that asks something gets no answer
    with open(chosen.out, "w", encoding="utf-8") as out:
        tracing = Tracing(out, wanted, chosen.samples, time.monotonic() + chosen.seconds, user)
        if chosen.prefix is not None:
            path, fields = json.loads(chosen.prefix)
            tracing.prefix = Starting(tuple(map(prefix_from, fields)), path)
        sys.addaudithook(tracing.audit)
        how = run(chosen.script, chosen.arguments, tracing, chosen.package)
        tracing.trace_pending()
        tracing.try_prefix()
        for feed in tracing.wanted:
            tracing.write(feed=feed.name, reason=how)
        tracing.finish()


if __name__ == "__main__":
    # under its own name, since the script takes the place of __main__
    from splitter.trace_child import main as traced_main

    traced_main()
