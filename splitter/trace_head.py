"""Runs the head of a loop on a recorded batch: what its statements cost and give, and whether a worker's single thread gives the same bits.

    [uint8 3x32x32, int64] -> `images = images.permute(0, 2, 3, 1)` -> `labels = one_hot(labels, 10)`     part "loop" of the graph

Statements run as the loop has them, one after another in one namespace. One that fails ends the head; one whose bits could depend on the
number of threads is pinned to the trainer. Runs in the child process only.
"""

from __future__ import annotations

import ast
import itertools
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from splitter.graph import Graph, Operation, Side, Step, Trait, Value
from splitter.head_text import HeadText
from splitter.ir_cut import TriedHead
from splitter.knowledge_ops import EXACT, TAGS
from splitter.trace_record import is_leaf, leaves_of, traits_of
from splitter_runtime import codec
from splitter_runtime.record_values import describe

RUNS = 3  # to take the time of
THREADS = (2, 3, 8)  # that a trainer may have, besides its own number
NAME = "__batch__"
PLAIN = (int, float, bool, str, bytes, type(None))


@dataclass(frozen=True)
class Batches:
    """The recorded samples, collated anew by each call of `make`. `default`: torch's own function makes them, of memory of their own."""

    make: Callable[[], Any]
    count: int
    default: bool
    states: Callable[[], Mapping[str, Any]]


@dataclass
class _Row:
    """What is known of one statement."""

    before: list[int]  # ids of the leaves that it reads
    after: dict[str, list[Any]] = field(default_factory=dict)  # the leaves of the names that it gives
    described: Any = None
    traits: set[Trait] = field(default_factory=set)
    inexact: str | None = None


def try_head(head: HeadText, space: Mapping[str, Any], batches: Batches, graph: Graph, threads: int) -> tuple[Graph, TriedHead]:
    """The graph with the head behind collating, and what of it must stay."""
    codes = [compile(own.text, own.span.path, "exec", dont_inherit=True) for own in head.statements]
    runner = _Runner(head, codes, space, batches)
    count, failed = runner.rows()
    stay = {number: failed for number in range(count, len(codes))} if failed is not None else {}
    stay |= runner.unequal(count, threads)
    stay |= {number: row.inexact for number, row in enumerate(runner.found[:count]) if row.inexact is not None and number not in stay}
    extended = runner.extended(graph, count, stay)
    if extended is None:
        return graph, TriedHead("", tuple((number, "the parts of the batch can't be told apart") for number in range(len(codes))))
    return extended, TriedHead(runner.text(), tuple(sorted(stay.items())))


class _Calls(TorchDispatchMode):
    """Notes the ATen calls of a statement: their traits, and the first that isn't exact."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.row: _Row | None = None

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if self.row is not None:
            self.row.traits |= traits_of(function)
            if self.row.inexact is None and not _exact(function, args, kwargs or {}, made):
                self.row.inexact = f"the bits of {function.overloadpacket.__name__} may depend on the number of threads"
        return made


def _exact(function: Any, args: Any, kwargs: Mapping[str, Any], made: Any) -> bool:
    name = function.overloadpacket.__name__.rstrip("_")
    if any(TAGS.get(tag.name) == "random" for tag in function.tags) or (name == "index_put" and True in args[3:]):
        return False
    if function.is_view or traits_of(function) == {"layout"}:
        return True
    tensors = [leaf for leaf in tree_leaves((args, kwargs, made)) if isinstance(leaf, torch.Tensor)]
    if any(tensor.is_complex() for tensor in tensors):
        return False
    if name in EXACT or not any(tensor.is_floating_point() for tensor in tensors):
        return True
    return name in ("add", "rsub") and kwargs.get("alpha", 1) == 1 and len(args) < 3


class _Runner:
    def __init__(self, head: HeadText, codes: list[Any], space: Mapping[str, Any], batches: Batches) -> None:
        self.head, self.codes, self.space, self.batches = head, codes, space, batches
        self.found: list[_Row] = []
        self.times: list[float] = []
        self.batch: Any = None  # of the run that was recorded
        self.raw: list[Any] = []  # the leaves that it had when it was collated
        self.numbered: Any = None  # their numbers, in the structure of the batch
        self.keep: list[Any] = []  # so that no id is used twice

    def started(self) -> dict[str, Any]:
        """A namespace in which the loop has just taken a batch."""
        space = {**self.space, NAME: self.batches.make()}
        exec(f"{self.head.target} = {NAME}", space)
        for text in self.head.unpacking:
            exec(text, space)
        return space

    def rows(self) -> tuple[int, str | None]:
        """Run the statements with one thread, recorded; how many there are that ran, and why no more."""
        torch.set_num_threads(1)
        space = self.started()
        self.batch = space[NAME]
        numbers = itertools.count()
        self.numbered = tree_map(lambda _: next(numbers), self.batch, is_leaf=is_leaf)
        self.raw = self.leaves(self.batch)
        calls = _Calls()
        for number, (own, code) in enumerate(zip(self.head.statements, self.codes, strict=True)):
            row = _Row([id(leaf) for name in own.reads for leaf in self.leaves(space[name])])
            states = self.batches.states()
            try:
                with calls:
                    calls.row = row
                    exec(code, space)
                    calls.row = None
            except Exception as error:
                return number, f"could not be run on a recorded batch: {type(error).__name__}"
            problem = self.problem(space, own.writes, states)
            if own.mutates and not self.batches.default:
                problem = problem or "changes memory that the collate function may share"
            if problem is not None:
                return number, problem
            row.after = {name: self.leaves(space[name]) for name in own.writes}
            row.described = describe([space[name] for name in own.writes])
            self.found.append(row)
        return len(self.codes), None

    def problem(self, space: Mapping[str, Any], writes: tuple[str, ...], states: Mapping[str, Any]) -> str | None:
        """Why what a statement gives can't come from a worker."""
        if self.batches.states() != states:
            return "draws random numbers"
        given = [space[name] for name in writes]
        if not all(_travels(leaf) for leaf in self.leaves(given)):
            return "gives something else than tensors on the CPU, numbers and strings"
        encoded = codec.encode(given)
        payload = bytearray(encoded.nbytes)
        encoded.copy_into(payload)
        if describe(codec.decode(encoded.header, payload)) != describe(given):
            return "gives a tensor that would be laid out differently when it is received"
        return None

    def leaves(self, value: Any) -> list[Any]:
        found = tree_leaves(value, is_leaf=is_leaf)
        self.keep += found
        return found

    def unequal(self, count: int, threads: int) -> dict[int, str]:
        """The statements that give other bits with the threads of a trainer. Takes the time of a single one, too."""
        found: dict[int, str] = {}
        rows: list[list[int]] = []
        for number in (*(1 for _ in range(RUNS)), *sorted({threads, *THREADS} - {1})):
            torch.set_num_threads(number)
            space = self.started()
            took = []
            for place, (own, code) in enumerate(zip(self.head.statements[:count], self.codes, strict=False)):
                began = time.thread_time_ns()
                exec(code, space)
                took.append(time.thread_time_ns() - began)
                if describe([space[name] for name in own.writes]) != self.found[place].described:
                    found.setdefault(place, "gives other bits with another number of threads")
            rows += [took] if number == 1 else []
        torch.set_num_threads(1)
        self.times = [median(column) / 1000 / self.batches.count for column in zip(*rows, strict=True)]
        return found

    # --- the graph

    def extended(self, graph: Graph, count: int, stay: Mapping[int, str]) -> Graph | None:
        """The graph with a step for each statement that ran."""
        if len(self.raw) != len(graph.returns):
            return None
        names = {id(leaf): name for leaf, name in zip(self.raw, graph.returns, strict=True)}
        if len(names) != len(self.raw):
            return None
        place = {name: self.places(self.numbered, keys) for name, keys in self.head.parts}
        current = {name: [graph.returns[number] for number in own] for name, own in place.items()}
        values, steps, operations = list(graph.values), list(graph.steps), list(graph.operations)
        offset = len(operations)
        for number in range(count):
            own, row = self.head.statements[number], self.found[number]
            inputs = tuple(dict.fromkeys(name for read in own.reads for name in current[read]))
            outputs = []
            for name, after in row.after.items():
                made = []
                for leaf in after:
                    known = names.get(id(leaf)) if not own.mutates or name not in own.reads else None
                    if known is None:
                        known = names[id(leaf)] = f"v{len(values)}"
                        values.append(self.value(known, leaf))
                        outputs.append(known)
                    made.append(known)
                current[name] = made
            traits = frozenset(row.traits & {"pointwise", "layout", "reduction"}) or frozenset[Trait]({"pointwise"})
            took = self.times[number]
            steps.append(Step(_short(own.text), "loop", own.span, took))
            pin: Side | None = "trainer" if number in stay else None
            operations.append(Operation(_short(own.text), len(steps) - 1, inputs, tuple(outputs), traits, took, pin))
        covered = {number for own in place.values() for number in own}
        rest = [name for number, name in enumerate(graph.returns) if number not in covered]
        returns = tuple(dict.fromkeys([*rest, *(name for part, _ in self.head.parts for name in current[part])]))
        together = tuple(tuple(offset + n for n in group if n < count) for group in self.head.together)
        return replace(
            graph,
            steps=tuple(steps),
            operations=tuple(operations),
            values=tuple(values),
            returns=returns,
            together=(*graph.together, *together),
        )

    def places(self, numbered: Any, keys: tuple[int | str, ...]) -> list[int]:
        for key in keys:
            numbered = numbered[key]
        return tree_leaves(numbered)

    def value(self, name: str, leaf: Any) -> Value:
        known = leaves_of(leaf, self.keep)[0]
        count = self.batches.count
        shape = None if known.shape is None else tuple(None if n == 0 and size == count else size for n, size in enumerate(known.shape))
        return Value(name, round(known.bytes / count), known.type, known.dtype, shape)

    # --- the text

    def text(self) -> str:
        """How the batch is put together again from its names: "[images, labels]"."""
        paths = {keys: name for name, keys in self.head.parts}
        if () in paths:
            return paths[()]
        if self.head.unpacking and all(len(keys) == 1 and isinstance(keys[0], str) for keys in paths):
            entries = ", ".join(f'"{keys[0]}": {name}' for keys, name in paths.items())
            return f"{{**{self.head.target}, {entries}}}"
        return _structure(self.batch, (), paths, self.head.target)


def _structure(value: Any, keys: tuple[int | str, ...], paths: Mapping[tuple[int | str, ...], str], root: str) -> str:
    if keys in paths:
        return paths[keys]
    if not any(own[: len(keys)] == keys for own in paths):
        return root + "".join(f"[{key}]" for key in keys)
    parts = [_structure(part, (*keys, number), paths, root) for number, part in enumerate(value)]
    inner = ", ".join(parts)
    return f"[{inner}]" if type(value) is list else f"({inner}{',' if len(parts) == 1 else ''})"


def _travels(leaf: Any) -> bool:
    if isinstance(leaf, torch.Tensor):
        plain = type(leaf) is torch.Tensor and leaf.layout is torch.strided and leaf.device.type == "cpu"
        return plain and not leaf.requires_grad and not leaf.is_inference()
    if isinstance(leaf, (list, tuple)):
        return all(_travels(part) for part in leaf)
    return type(leaf) in PLAIN


def _short(text: str) -> str:
    line = " ".join(ast.unparse(ast.parse(text)).split())
    return line if len(line) <= 60 else f"{line[:57]}..."


def container_problem(batch: Any, head: HeadText) -> str | None:
    """Why a batch can't be put together again from its parts: it isn't made of lists, tuples and dicts."""
    for _, keys in head.parts:
        value = batch
        for key in keys:
            if type(value) not in ((list, tuple) if isinstance(key, int) else (dict,)):
                return f"the batch is a {type(value).__name__}"
            value = value[key]
    return None


def module_space(module: str) -> dict[str, Any]:
    """The names of a module of the script, as they are now."""
    return dict(vars(sys.modules[module])) if module in sys.modules else {}
