"""Every type that passes from one step of the compiler to the next.

    read    text     -> Source      Module: text, tree, scopes; the script and the local modules that it imports
    find    Source   -> Program     Site, Origin: where loaders are made and where their datasets come from
    effects          -> Effects     what a piece of code reads, writes and draws
    slice   Program  -> Plan        Builder, HandleEdit, LoaderEdit, ClassEdit, Feed: what goes where
    trace, cut       -> Plan        what samples show and what is chosen for each operation: see graph and ir_cut
    emit    Plan     -> Bundle      the generated files

All of them are frozen. Lines count from 1 and columns from 0, in characters, as in a text editor's status line minus one;
`Place` is what a person reads, so its column counts from 1.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from splitter.ir_cut import Crossing, Finish, Head, Insertion, Landing, MovedHead, Profile, Tail
    from splitter.prefix_types import Prefix, PrefixHead, Rename

Severity = Literal["error", "warning", "note"]
Status = Literal["split", "left"]
Role = Literal["train", "eval", "either"]
Residence = Literal["moved", "replicated", "sent"]


@dataclass(frozen=True, order=True)
class Span:
    """A stretch of one file: `path` is relative to the script's folder; the end is exclusive in columns, inclusive in lines."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __post_init__(self) -> None:
        if (self.line, self.column) > (self.end_line, self.end_column) or self.line < 1:
            raise ValueError(f"span ends before it begins: {self}")

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column + 1}"


@dataclass(frozen=True, order=True)
class Fragment:
    """Whole lines of one file that are carried over as they stand, comments included."""

    path: str
    first: int
    last: int

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last:
            raise ValueError(f"empty fragment: {self}")

    def __str__(self) -> str:
        return f"{self.path}:{self.first}" if self.first == self.last else f"{self.path}:{self.first}-{self.last}"


@dataclass(frozen=True)
class Diagnostic:
    """One finding: code, place, arguments. Text and hint come from the table in `diagnostics`."""

    code: str
    span: Span | None
    arguments: tuple[tuple[str, str], ...] = ()

    def argument(self, name: str) -> str:
        return dict(self.arguments)[name]


@dataclass(frozen=True)
class NamesFrom:
    """`from module import names`, for names that the worker takes from a local module of the script."""

    module: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Builder:
    """One function of the worker program.

    `kind` "dataset": the function runs `body` and returns the expression at `result`.
    `kind` "loader": it runs `body` and returns `Loader(collate_fn=<collate_fn>, worker_init_fn=<worker_init_fn>)`.
    `environment` holds the expressions (dotted names) whose values the trainer sends; the first part of each is a parameter
    of the function, or a module global when it is listed in `globals`. `accepts` names the script's classes and functions that a dataset
    which the trainer sends may consist of. `draws`: the generators that making batches may draw from, when all is known
    about it and any process may do it. `finish`: the end of its samples' transforms is left out, for the trainer. `head`: what the
    trainer's loop did first. `prefix`: each batch goes through the start of the model's forward.
    """

    kind: Literal["dataset", "loader"]
    name: str
    function: str
    environment: tuple[str, ...]
    globals: tuple[str, ...]
    body: tuple[Fragment, ...]
    result: Span | None = None
    collate_fn: Span | None = None
    worker_init_fn: Span | None = None
    stateless: bool | None = None
    draws: tuple[str, ...] | None = None
    accepts: tuple[str, ...] = ()
    finish: Finish | None = None
    head: MovedHead | None = None
    prefix: PrefixHead | None = None

    def __post_init__(self) -> None:
        if (self.kind == "dataset") != (self.result is not None):
            raise ValueError("a dataset builder has a result, a loader builder has none")

    @property
    def parameters(self) -> tuple[str, ...]:
        roots = dict.fromkeys(name.split(".")[0] for name in self.environment)
        return tuple(root for root in roots if root not in self.globals)


@dataclass(frozen=True)
class HandleEdit:
    """Trainer: the expression at `span` of `module` becomes a handle.

    moved:      splitter_runtime.RemoteDataset("train", {"args.data": args.data})
    replicated: splitter_runtime.replicated("train", {...}, lambda: <the expression as it stood>)
    """

    module: str
    span: Span
    builder: str
    environment: tuple[str, ...]
    residence: Residence
    finish: Finish | None = None


@dataclass(frozen=True)
class LoaderEdit:
    """Trainer: a loader call. `callee` (the class as written in the call, if it is) becomes `splitter_runtime.DataLoader`.

    `workers` is where the call gives num_workers by position.
    `feed` names the loader builder when it can't be derived from the dataset's handle; `explicit` says whether the keyword is written
    (with feed None it is written as `feed=None`). `environment` becomes `env={...}`. `streams` becomes `num_workers=...`. `send` names
    the parts that the trainer builds and sends; `inline`: with num_workers=0, too.
    """

    module: str
    call: Span
    callee: Span | None
    feed: str | None = None
    explicit: bool = False
    environment: tuple[str, ...] = ()
    streams: int | None = None
    send: tuple[str, ...] = ()
    inline: bool = False
    workers: Span | None = None


@dataclass(frozen=True, order=True)
class ClassEdit:
    """Trainer: torch's loader class, written outside of the call that uses it, becomes `splitter_runtime.DataLoader`.

    class Photos(DataLoader):    Loader = DataLoader if plain else Photos    make = partial(DataLoader, batch_size=4)
    """

    module: str
    span: Span


@dataclass(frozen=True)
class Removal:
    """Trainer: whole statements that nothing reads any more, or that the worker runs; with a comment that stands in for them."""

    module: str
    fragment: Fragment
    comment: str = ""


@dataclass(frozen=True)
class Note:
    """One row of the report: a place and why it stayed (or moved)."""

    span: Span
    what: str
    why: str


@dataclass(frozen=True)
class Feed:
    """One loader with one origin of its dataset: a row of the plan and of the report.

    `crossing` is what was recorded and chosen for each operation; without, `uncut` says why the cut is at the loader, in a line (None:
    nobody asked for more).
    """

    name: str
    loader: Span
    origin: Span | None
    role: Role
    status: Status
    code: str | None
    why: tuple[str, ...]
    residence: Residence | None = None
    stateless: bool | None = None
    draws: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    streams: str | None = None
    moved: tuple[Fragment, ...] = ()
    crossing: Crossing | None = None
    uncut: str | None = None

    def __post_init__(self) -> None:
        if (self.status == "left") == (self.code is None):
            raise ValueError("a feed that is left has a code, a feed that is split has none")


@dataclass(frozen=True)
class WorkerModule:
    """The worker program's module level: what its builders need, in the order of the script."""

    future: tuple[str, ...] = ()
    imports: tuple[Fragment, ...] = ()
    local_imports: tuple[NamesFrom, ...] = ()
    definitions: tuple[Fragment, ...] = ()
    builders: tuple[Builder, ...] = ()


@dataclass(frozen=True)
class SourceFile:
    """One file as read: `text` has the file's own line ends; `encoding` and `bom` are needed to write it back."""

    module: str
    path: str
    text: str
    encoding: str = "utf-8"
    bom: bool = False

    @property
    def lines(self) -> list[str]:
        """The lines with their ends, split where Python splits them (a form feed or U+2028 ends no line)."""
        return io.StringIO(self.text, newline="").readlines()


@dataclass(frozen=True)
class Plan:
    """What `emit` writes down: nothing is decided after this.

    `roots` has, for modules that are not beside the script, their top-level names and the folders where these are, relative to the
    script's. `package` is the package of a script that is run as `python -m package.script`. `prefix`: the start of the model's forward is
    on the worker, if samples show that it may be; `without` is the plan to take otherwise, with less of it or with nothing.
    `model_prefix`: the user has asked for it. `landings`: where lines could finish batches on their device; `insertions`: those that do,
    when the user has asked for it with `finish_on`.
    """

    script: SourceFile
    modules: tuple[SourceFile, ...]
    digest: str
    needs: tuple[str, ...]
    worker: WorkerModule
    handles: tuple[HandleEdit, ...]
    loaders: tuple[LoaderEdit, ...]
    removals: tuple[Removal, ...]
    feeds: tuple[Feed, ...]
    notes: tuple[Note, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    classes: tuple[ClassEdit, ...] = ()
    roots: tuple[tuple[str, str], ...] = ()
    package: str = ""
    tails: tuple[Tail, ...] = ()
    profile: Profile | None = None
    heads: tuple[Head, ...] = ()
    renames: tuple[Rename, ...] = ()
    prefix: Prefix | None = None
    without: Plan | None = None
    model_prefix: bool = False
    landings: tuple[Landing, ...] = ()
    insertions: tuple[Insertion, ...] = ()
    finish_on: Literal["cpu", "device"] = "cpu"

    @property
    def split(self) -> bool:
        return any(feed.status == "split" for feed in self.feeds)

    @property
    def agreed(self) -> str:
        """What trainer and workers compare: the digest of the text, with the cut. One text can be cut in several ways, and halves of two
        cuts would do something twice, or not at all.
        """
        heads = [(name, moved.statements, moved.batch) for name, moved in sorted(self.moved_heads().items())]
        finishes = sorted((builder.name, repr(builder.finish)) for builder in self.worker.builders if builder.finish is not None)
        there = sorted(builder.name for builder in self.worker.builders if builder.finish is not None and builder.finish.on == "device")
        cut = repr((self.digest, heads, finishes, *([there] if there else [])))
        return f"sha256:{hashlib.sha256(cut.encode()).hexdigest()[:16]}" if heads or finishes else self.digest

    def builder_of(self, feed: Feed) -> str:
        """The name of the builder of a feed's dataset; "" for a dataset that the trainer sends."""
        return next((handle.builder for handle in self.handles if handle.span == feed.origin), "")

    def head_of(self, feed: Feed) -> Head | None:
        """The head of the loop over a feed's batches that could move, if there is one, and the worker doesn't begin the model there."""
        if self.prefix is not None and feed.name in self.prefix.moved:
            return None
        return next((head for head in self.heads if head.feed == feed.name and head.statements), None)

    def moved_heads(self) -> dict[str, MovedHead]:
        """The heads of loops that the worker runs, by feed."""
        return {builder.name: builder.head for builder in self.worker.builders if builder.head is not None}

    def tails_of(self, feed: Feed) -> tuple[Tail, ...]:
        """The tails of the dataset of a feed."""
        builder = self.builder_of(feed)
        return tuple(tail for tail in self.tails if tail.builder == builder)


@dataclass(frozen=True)
class OutputFile:
    """One generated file: `name` is relative to the output folder."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Bundle:
    """Everything that `transform` writes, and the diff that it shows."""

    plan: Plan
    files: tuple[OutputFile, ...] = ()
    diff: str = ""
    lines: tuple[tuple[int, int, int] | tuple[int, int, int, str], ...] = field(default=())
