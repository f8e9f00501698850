"""One graph from the records of several samples: values by identity, constants by comparison, and folding of what differs.

    sample 1: crop -> to_tensor -> div 255        crop (folded: its arguments differ) -> to_tensor -> div 255
    sample 2: crop -> to_tensor -> div 255   ->   values: median bytes, dimensions that differ are None

A record is a list of events: a step begins, an ATen call is made, a step ends. Each names the leaves (tensors, images, numbers) that it
takes and gives by keys that tell them apart within one sample. A record is replayed to find out who made what; that is repeated
until every sample gives the same operations, with one more step folded into one operation each time that one doesn't. Imports no torch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from statistics import median

from splitter.graph import Graph, Operation, Part, Step, Trait, Value
from splitter.ir import Span

Ref = tuple[str, int, str]  # step, number of the operation in the step, label of the output
LIBRARY = "collate:"  # how the names of steps begin that are a collate function of a library
MOST_CALLS = 12  # of a statement of a collate function that is not folded
CONSTANT = -1  # in place of the number, for what no operation makes


class DifferentError(Exception):
    """The samples can't be brought into one graph; the text says why, in one line."""


@dataclass(frozen=True)
class Leaf:
    """A tensor, an image, a number. `key` tells it apart within one sample; None for what can't be told apart (a small number).

    `storage`: the memory that a tensor shares with its views. `digest` stands for its bits, where these may be compared.
    """

    key: Hashable
    bytes: int
    type: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    storage: int | None = None
    digest: str | None = None


@dataclass(frozen=True)
class Result:
    """Something that a step gives, with the leaves that it may have been made from: None for all that the step takes."""

    leaf: Leaf
    label: str
    near: tuple[Leaf, ...] | None = None


@dataclass(frozen=True)
class Enter:
    """A step begins. `given`: it is called with `inputs`, so that the enclosing step has made them."""

    step: str
    inputs: tuple[Leaf, ...]
    given: bool


@dataclass(frozen=True)
class Call:
    """An ATen call. `near`: what a tensor among its inputs that nobody made may have been made from."""

    name: str
    constants: str
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    traits: frozenset[Trait]
    microseconds: float
    writes: bool = False
    same: bool = False  # gives back what it takes
    near: tuple[Leaf, ...] | None = None


@dataclass(frozen=True)
class Leave:
    """A step ends. `changes`: it may have changed what it gives in place.

    `microseconds` of its own Python code while it was recorded.
    """

    step: str
    results: tuple[Result, ...]
    changes: bool
    draws: tuple[str, ...] = ()
    opened: bool = False
    microseconds: float = 0.0


Event = Enter | Call | Leave


@dataclass(frozen=True)
class Seen:
    """What is known of a step before it is timed."""

    name: str
    part: Part
    span: Span | None


@dataclass(frozen=True)
class Record:
    """All that one sample did, and the leaves of what came out."""

    events: tuple[Event, ...]
    returns: tuple[Leaf, ...]


@dataclass
class _Op:
    name: str
    step: str
    number: int
    constants: str
    inputs: list[Ref]
    traits: set[Trait]
    microseconds: float = 0.0
    own: bool = False
    outputs: dict[str, Leaf] = field(default_factory=dict)

    def signature(self) -> tuple[object, ...]:
        return (self.name, self.constants, tuple(self.inputs), tuple((label, leaf.dtype) for label, leaf in self.outputs.items()), self.own)

    def read(self, refs: Iterable[Ref]) -> None:
        self.inputs.extend(ref for ref in refs if ref not in self.inputs)


@dataclass
class _Active:
    """A step that has begun and not ended."""

    step: str
    inputs: tuple[Leaf, ...]
    calls: int = 0
    inner: int = 0
    reads: list[Ref] = field(default_factory=list)  # of a folded step
    inside: dict[Hashable, Leaf] = field(default_factory=dict)  # made by calls of a folded step


class _Replay:
    """Goes through one record and gives every leaf the operation that made it."""

    def __init__(self, folded: set[str], constants: set[tuple[str, int]]) -> None:
        self.folded, self.constants = folded, constants
        self.ops: list[_Op] = []
        self.known: dict[Hashable, Ref] = {}
        self.storages: dict[int, Ref] = {}
        self.leaves: dict[Hashable, Leaf] = {}
        self.stale: dict[Hashable, _Op] = {}  # views of memory that another operation has written to
        self.constant: dict[Ref, Leaf] = {}
        self.unseen: dict[tuple[str, int], tuple[Leaf, bool]] = {}
        self.counts: dict[str, int] = {}
        self.order: list[str] = []
        self.draws: dict[str, set[str]] = {}
        self.opened: set[str] = set()
        self.spent: dict[str, float] = {}
        self.signatures: list[tuple[str, tuple[object, ...]]] = []
        self.stack: list[_Active] = []

    def run(self, record: Record) -> tuple[Ref, ...]:
        for event in record.events:
            if isinstance(event, Enter):
                self.enter(event)
            elif isinstance(event, Call):
                self.call(event)
            else:
                self.leave(event)
        return tuple(ref for leaf in record.returns if (ref := self.returned(leaf)) is not None)

    def returned(self, leaf: Leaf) -> Ref | None:
        """What the sample holds. A number that can't be told apart came from where the sample came from."""
        found = self.resolve(leaf)
        if found is None and self.ops:
            first = self.ops[0]
            found = self.define(first, leaf, f"other {len(first.outputs)}")
        return found

    def resolve(self, leaf: Leaf) -> Ref | None:
        if leaf.key in self.stale:
            op = self.stale.pop(leaf.key)
            op.read([self.known[leaf.key]])
            return self.define(op, self.leaves[leaf.key], f"view {len(op.outputs)}")
        found = self.known.get(leaf.key) if leaf.key is not None else None
        if found is None and leaf.storage is not None:
            found = self.storages.get(leaf.storage)
        return found

    def define(self, op: _Op, leaf: Leaf, label: str) -> Ref:
        ref = (op.step, op.number, label)
        op.outputs[label] = leaf
        self.bind(leaf, ref)
        return ref

    def bind(self, leaf: Leaf, ref: Ref) -> None:
        if leaf.key is not None:
            self.known[leaf.key] = ref
            self.leaves[leaf.key] = leaf
            self.stale.pop(leaf.key, None)
        if leaf.storage is not None:
            self.storages[leaf.storage] = ref

    def op(self, step: str, name: str, constants: str, inputs: Iterable[Ref], traits: Iterable[Trait]) -> _Op:
        number = self.counts.get(step, 0)
        self.counts[step] = number + 1
        op = _Op(name, step, number, constants, [], set(traits))
        op.read(inputs)
        self.ops.append(op)
        return op

    def refs(self, leaves: Iterable[Leaf]) -> list[Ref]:
        found = [ref for leaf in leaves if (ref := self.resolve(leaf)) is not None]
        return [ref for ref in dict.fromkeys(found) if ref not in self.constant]

    def own(self, active: _Active, leaf: Leaf, near: tuple[Leaf, ...] | None, label: str | None = None) -> Ref:
        """A leaf that no operation made: the Python code of the step did, or it is a constant."""
        sources = active.inputs if near is None else near
        inputs = self.refs([source for source in sources if source.key != leaf.key])
        place = (active.step, sum(step == active.step for step, _ in self.unseen))
        self.unseen[place] = (leaf, all(source.storage is not None for source in sources if self.resolve(source) is not None) and bool(inputs))
        if place in self.constants:
            ref = (active.step, CONSTANT, str(place[1]))
            self.constant[ref] = leaf
            self.bind(leaf, ref)
            return ref
        last = self.ops[-1] if self.ops else None
        if last is None or not last.own or last.step != active.step or last.inputs != inputs:
            last = self.op(active.step, "", "", inputs, ())
            last.own = True
        return self.define(last, leaf, label or f"out {len(last.outputs)}")

    def enter(self, event: Enter) -> None:
        if self.stack:
            outer = self.stack[-1]
            outer.inner += 1
            for leaf in event.inputs if event.given else ():
                if leaf.key is not None and (leaf.key in outer.inside or self.resolve(leaf) is None):
                    self.fold(outer, [Result(leaf, "")]) if outer.step in self.folded else self.own(outer, leaf, None)
        self.order.append(event.step)
        self.stack.append(_Active(event.step, event.inputs))

    def call(self, event: Call) -> None:
        active = self.stack[-1]
        active.calls += 1
        if active.step in self.folded:
            self.folded_call(active, event)
            return
        inputs = [self.resolve(leaf) or self.own(active, leaf, event.near) for leaf in event.inputs]
        if event.same or (len(event.outputs) == 1 and not event.writes and event.outputs[0].key in {leaf.key for leaf in event.inputs}):
            for leaf in event.outputs:
                self.bind(leaf, inputs[0])
            return
        if not event.writes and "random" not in event.traits and all(ref in self.constant for ref in inputs) and (inputs or event.outputs):
            # made from constants alone: both sides can make it again
            self.signatures.append((active.step, (event.name, event.constants)))
            for number, leaf in enumerate(event.outputs):
                ref = (active.step, CONSTANT, f"{len(self.constant)}.{number}")
                self.constant[ref] = leaf
                self.bind(leaf, ref)
            return
        op = self.op(active.step, event.name, event.constants, inputs, event.traits)
        op.microseconds = event.microseconds
        for number, leaf in enumerate(event.outputs):
            if event.writes and leaf.storage is not None:
                others = [key for key, other in self.leaves.items() if other.storage == leaf.storage and key != leaf.key]
                self.stale.update(dict.fromkeys(others, op))
            self.define(op, leaf, str(number))

    def folded_call(self, active: _Active, event: Call) -> None:
        """A call of a step whose calls differ from sample to sample: only what goes in and comes out counts."""
        for leaf in event.inputs:
            if leaf.key not in active.inside:
                active.reads.extend(self.refs([leaf]))
        for leaf in event.outputs:
            active.inside[leaf.key] = leaf

    def fold(self, active: _Active, results: Sequence[Result]) -> None:
        reads = dict.fromkeys([*self.refs(active.inputs), *active.reads])
        for result in results:
            reads.update(dict.fromkeys(self.refs(result.near or ())))
        op = self.op(active.step, "", "folded", reads, {"unknown", "depends"})
        for number, result in enumerate(results):
            active.inside.pop(result.leaf.key, None)
            self.define(op, result.leaf, result.label or f"out {number}")

    def leave(self, event: Leave) -> None:
        active = self.stack.pop()
        self.draws.setdefault(event.step, set()).update(event.draws)
        self.spent[event.step] = self.spent.get(event.step, 0.0) + event.microseconds
        if event.opened:
            self.opened.add(event.step)
        if event.step in self.folded:
            made = [r for r in event.results if not active.inner or r.leaf.key in active.inside or self.resolve(r.leaf) is None]
            if made:
                self.fold(active, made)
            return
        python_only = not active.calls and not active.inner and event.changes
        for result in event.results:
            if python_only:
                continue
            if result.leaf.key is not None and self.resolve(result.leaf) is None:
                self.own(active, result.leaf, result.near, result.label)
        if python_only and event.results:
            inputs = self.refs(active.inputs)
            op = self.op(event.step, "", "", inputs, ())
            op.own = True
            for result in event.results:
                self.define(op, result.leaf, result.label)


def uneven(records: Sequence[Record]) -> tuple[str, ...]:
    """The steps that some samples run more often than others."""
    counts = [Counter(event.step for event in record.events if isinstance(event, Enter)) for record in records]
    every = dict.fromkeys(step for count in counts for step in count)
    return tuple(step for step in every if len({count[step] for count in counts}) > 1)


def merge(feed: str, records: Sequence[Record], collate: Record | None, steps: Mapping[str, Seen], times: Mapping[str, float]) -> Graph:
    """The graph of a feed. `collate` is the record of collating all samples at once; `times` are microseconds per sample.

    Raises DifferentError when the samples don't run the same operations, even with all steps folded.
    """
    if len({tuple(event.step for event in record.events if isinstance(event, Enter)) for record in records}) > 1:
        raise DifferentError("the samples take different steps")
    folded: set[str] = set()
    while True:
        replays, returned = _replayed(records, folded)
        different = _different(replays, folded)
        if different is None:
            break
        folded.add(different)
    if len(set(returned)) > 1:
        raise DifferentError("what comes out is not made in the same way for every sample")
    built = _Built(replays, len(records), steps, times)
    if collate is None:
        return built.graph(feed, returned[0])
    known = {leaf.key: ref for record in records for leaf, ref in zip(record.returns, returned[0], strict=False) if leaf.key is not None}
    storages = {leaf.storage: ref for record in records for leaf, ref in zip(record.returns, returned[0], strict=False) if leaf.storage}
    last = _Replay(_busy(collate), set())
    last.known.update(known)
    last.storages.update(storages)
    final = last.run(collate)
    built.add([last], len(records))
    return built.graph(feed, final)


def _busy(record: Record) -> set[str]:
    """The steps of a collate function with more calls than a person would write: they are made sample by sample."""
    counts: Counter[str] = Counter()
    active: list[str] = []
    for event in record.events:
        if isinstance(event, Enter):
            active.append(event.step)
        elif isinstance(event, Leave):
            active.pop()
        else:
            counts[active[-1]] += 1
    return {step for step, count in counts.items() if count > MOST_CALLS or step.startswith(LIBRARY)}


def _replayed(records: Sequence[Record], folded: set[str]) -> tuple[list[_Replay], list[tuple[Ref, ...]]]:
    constants: set[tuple[str, int]] = set()
    for _ in range(2):
        replays = [_Replay(folded, constants) for _ in records]
        returned = [replay.run(record) for replay, record in zip(replays, records, strict=True)]
        constants = constants | _constants(replays)
    return replays, returned


def _constants(replays: Sequence[_Replay]) -> set[tuple[str, int]]:
    """The leaves without a maker that are the same memory in every sample, or have the same bits and nothing of the sample in them."""
    found = set()
    for place, (leaf, alone) in replays[0].unseen.items():
        others = [replay.unseen.get(place) for replay in replays[1:]]
        if leaf.storage is not None and all(other is not None and other[0].key == leaf.key for other in others):
            found.add(place)
        elif alone and leaf.digest and all(other is not None and other[1] and other[0].digest == leaf.digest for other in others):
            found.add(place)
    return found if len(replays) > 1 else set()


def _different(replays: Sequence[_Replay], folded: set[str]) -> str | None:
    """The first step whose operations aren't the same in all samples."""
    sequences = [[*replay.signatures, *((op.step, op.signature()) for op in replay.ops)] for replay in replays]
    for row in zip_longest(*sequences):
        if all(item == row[0] for item in row):
            continue
        steps = [step for step in dict.fromkeys(item[0] for item in row if item is not None) if step not in folded]
        if not steps:
            raise DifferentError("the samples take different operations in one step")
        return steps[0]
    return None


class _Built:
    """The parts of a graph, put together from replays that agree."""

    def __init__(self, replays: Sequence[_Replay], samples: int, steps: Mapping[str, Seen], times: Mapping[str, float]) -> None:
        self.samples, self.seen, self.times = samples, steps, times
        self.steps: list[Step] = []
        self.operations: list[Operation] = []
        self.values: dict[Ref, Value] = {}
        self.add(replays, 1)

    def add(self, replays: Sequence[_Replay], batch: int) -> None:
        first = replays[0]
        for ref in first.constant:
            leaves = [replay.constant[ref] for replay in replays if ref in replay.constant]
            self.values[ref] = self.value(leaves, batch, constant=True)
        places: dict[str, int] = {}
        for name in first.order:
            if name not in places and any(op.step == name for op in first.ops):
                places[name] = len(self.steps)
                seen = self.seen[name]
                draws = sorted({draw for replay in replays for draw in replay.draws.get(name, ())})
                self.steps.append(Step(seen.name, self.part(seen, name, replays), seen.span, self.times.get(name, 0.0), tuple(draws)))
        weights = {name: self.weights(name, replays) for name in places}
        for number, op in enumerate(first.ops):
            same = [replay.ops[number] for replay in replays]
            for label in op.outputs:
                ref = (op.step, op.number, label)
                self.values[ref] = self.value([other.outputs[label] for other in same if label in other.outputs], batch)
            self.operations.append(
                Operation(
                    op.name or self.seen[op.step].name,
                    places[op.step],
                    tuple(self.values[ref].name for ref in op.inputs if ref in self.values),
                    tuple(self.values[op.step, op.number, label].name for label in op.outputs),
                    self.traits(op, replays),
                    self.times.get(op.step, 0.0) * weights[op.step].pop(0),
                )
            )

    def part(self, seen: Seen, name: str, replays: Sequence[_Replay]) -> Part:
        reads = any("reads" in self.traits(op, replays) for op in replays[0].ops if op.step == name)
        return "read" if seen.part == "sample" and reads else seen.part

    def traits(self, op: _Op, replays: Sequence[_Replay]) -> frozenset[Trait]:
        draws = {draw for replay in replays for draw in replay.draws.get(op.step, ())}
        opened = any(op.step in replay.opened for replay in replays)
        traits = set(op.traits)
        by_calls = any("random" in other.traits for other in replays[0].ops if other.step == op.step)
        if draws - ({"torch"} if by_calls else set()):
            traits.add("random")  # the whole step: what it draws may decide about anything in it
        if op.own:
            reads = opened or (not op.inputs and not draws)
            traits |= {"reads"} if reads else set() if traits else {"unknown"}
        return frozenset(traits)

    def weights(self, step: str, replays: Sequence[_Replay]) -> list[float]:
        """The share of every operation of a step, from what the calls and the Python code around them took."""
        shares = []
        own = [op for op in replays[0].ops if op.step == step and op.own or op.constants == "folded"]
        for number, op in enumerate(replays[0].ops):
            if op.step == step:
                took = median(replay.ops[number].microseconds for replay in replays)
                around = median(replay.spent.get(step, 0.0) for replay in replays)
                shares.append(around / max(len(own), 1) if op in own else took)
        total = sum(shares)
        return [share / total if total else 1 / len(shares) for share in shares]

    def value(self, leaves: Sequence[Leaf], batch: int, constant: bool = False) -> Value:
        first = leaves[0]
        shapes = {leaf.shape for leaf in leaves}
        shape: tuple[int | None, ...] | None = first.shape
        if len(shapes) > 1:
            every = [leaf.shape for leaf in leaves if leaf.shape is not None]
            same = len({len(one) for one in every}) == 1 and len(every) == len(leaves)
            shape = tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*every, strict=True)) if same else None
        elif batch > 1 and shape is not None:
            shape = tuple(None if number == 0 and size == batch else size for number, size in enumerate(shape))
        size = round(median(leaf.bytes for leaf in leaves) / (1 if constant else batch))
        dtype = first.dtype if len({leaf.dtype for leaf in leaves}) == 1 else None
        return Value(f"v{len(self.values)}", size, _text([leaf.type for leaf in leaves]), dtype, shape, constant)

    def graph(self, feed: str, returned: Sequence[Ref]) -> Graph:
        used = {name for operation in self.operations for name in operation.inputs} | {self.values[ref].name for ref in returned}
        values = tuple(value for value in self.values.values() if not value.constant or value.name in used)
        returns = tuple(dict.fromkeys(self.values[ref].name for ref in returned))
        return Graph(feed, self.samples, tuple(self.steps), tuple(self.operations), values, returns)


def _text(types: Sequence[str]) -> str:
    """One text for the types of all samples; what differs between them is a question mark."""
    rows = [re.split(r"(\W+|(?<=\d)x(?=\d))", text) for text in dict.fromkeys(types)]
    if len({len(row) for row in rows}) > 1:
        return " or ".join(dict.fromkeys(types)) if len(rows) < 4 else "?"
    return "".join(parts[0] if len(set(parts)) == 1 else "?" for parts in zip(*rows, strict=True))
