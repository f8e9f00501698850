"""One graph from the records of several samples: constants by comparison, and folding of what differs.

    sample 1: crop -> to_tensor -> div 255        crop (folded: its arguments differ) -> to_tensor -> div 255
    sample 2: crop -> to_tensor -> div 255   ->   values: median bytes, dimensions that differ are None

The records are replayed until every sample gives the same operations, with one more step folded into one operation each time that one
doesn't. Imports no torch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from statistics import median

from splitter.graph import Graph, Operation, Part, Step, Trait, Value
from splitter.trace_events import LIBRARY, READ, Enter, Leaf, Leave, Record, Seen
from splitter.trace_replay import FOLDED, Op, Ref, Replay

MOST_CALLS = 12  # of a statement of a collate function that is not folded


class DifferentError(Exception):
    """The samples can't be brought into one graph; the text says why, in one line."""


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
    # nothing of a library's dataset can be parted in the source
    folded = {READ, *(step for record in records for step in _deciding(record))}
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
    last = Replay(_busy(collate), set(), batch=True)
    last.known.update(known)
    last.storages.update(storages)
    final = last.run(collate)
    built.add([last], len(records))
    return built.graph(feed, final)


def _deciding(record: Record) -> set[str]:
    """The steps that draw to decide what they do: it may be that no sample shows all that they do."""
    found: set[str] = set()
    calls: dict[str, set[Trait]] = {}
    active: list[str] = []
    for event in record.events:
        if isinstance(event, Enter):
            active.append(event.step)
        elif isinstance(event, Leave):
            active.pop()
            seen = calls.get(event.step, set())
            if event.draws and (event.draws != ("torch",) or "random" not in seen or "depends" in seen):
                found.add(event.step)
        else:
            calls.setdefault(active[-1], set()).update(event.traits)
    return found


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


def _replayed(records: Sequence[Record], folded: set[str]) -> tuple[list[Replay], list[tuple[Ref, ...]]]:
    constants: set[tuple[str, int]] = set()
    for _ in range(2):
        replays = [Replay(folded, constants) for _ in records]
        returned = [replay.run(record) for replay, record in zip(replays, records, strict=True)]
        constants = constants | _constants(replays)
    return replays, returned


def _constants(replays: Sequence[Replay]) -> set[tuple[str, int]]:
    """The leaves without a maker that are the same memory in every sample, or have the same bits and nothing of the sample in them."""
    found = set()
    for place, (leaf, alone) in replays[0].unseen.items():
        others = [replay.unseen.get(place) for replay in replays[1:]]
        if leaf.storage is not None and all(other is not None and other[0].key == leaf.key for other in others):
            found.add(place)
        elif alone and leaf.digest and all(other is not None and other[1] and other[0].digest == leaf.digest for other in others):
            found.add(place)
    return found if len(replays) > 1 else set()


def _different(replays: Sequence[Replay], folded: set[str]) -> str | None:
    """The step to fold next: of those whose operations aren't the same in all samples, the one where that begins."""
    sequences = [[(step, signature) for step, signature in replay.operations()] for replay in replays]
    if all(sequence == sequences[0] for sequence in sequences):
        return None
    first: dict[str, int] = {}
    for step in dict.fromkeys(step for sequence in sequences for step, _ in sequence):
        own = [[(signature, n) for n, (name, signature) in enumerate(sequence) if name == step] for sequence in sequences]
        for row in zip_longest(*own):
            if any(item is None or row[0] is None or item[0] != row[0][0] for item in row):
                first[step] = min(item[1] for item in row if item is not None)
                break
    ended = {step: number for number, step in enumerate(dict.fromkeys(replays[0].ended))}
    steps = sorted((step for step in first if step not in folded), key=lambda step: (first[step], ended.get(step, -1)))
    if not steps:
        raise DifferentError("the samples take different operations")
    return steps[0]


class _Built:
    """The parts of a graph, put together from replays that agree."""

    def __init__(self, replays: Sequence[Replay], samples: int, steps: Mapping[str, Seen], times: Mapping[str, float]) -> None:
        self.samples, self.seen, self.times = samples, steps, times
        self.steps: list[Step] = []
        self.operations: list[Operation] = []
        self.values: dict[Ref, Value] = {}
        self.add(replays, 1)

    def add(self, replays: Sequence[Replay], batch: int) -> None:
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

    def part(self, seen: Seen, name: str, replays: Sequence[Replay]) -> Part:
        reads = any("reads" in self.traits(op, replays) for op in replays[0].ops if op.step == name)
        return "read" if seen.part == "sample" and reads else seen.part

    def traits(self, op: Op, replays: Sequence[Replay]) -> frozenset[Trait]:
        draws = {draw for replay in replays for draw in replay.draws.get(op.step, ())}
        opened = any(op.step in replay.opened for replay in replays)
        traits = set(op.traits)
        by_calls = any("random" in other.traits for other in replays[0].ops if other.step == op.step)
        draws -= {"torch"} if by_calls else set()
        if draws:
            traits.add("random")  # the whole step: what it draws may decide about anything in it
        if op.constants == FOLDED and not op.inputs:
            traits = {"random"} if draws else {"reads"}
        if op.own:
            reads = opened or (not op.inputs and not draws and self.seen[op.step].part == "sample")
            traits |= {"reads"} if reads else set() if traits else {"unknown"}
        return frozenset(traits)

    def weights(self, step: str, replays: Sequence[Replay]) -> list[float]:
        """The share of every operation of a step, from what the calls and the Python code around them took."""
        rows = [(number, op.own or op.constants == FOLDED) for number, op in enumerate(replays[0].ops) if op.step == step]
        around = median(replay.spent.get(step, 0.0) for replay in replays) / max(sum(own for _, own in rows), 1)
        shares = [around if own else median(replay.ops[number].microseconds for replay in replays) for number, own in rows]
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

    def prune(self, returned: Sequence[Ref]) -> None:
        """Leave out what Python code has made and nothing reads, and steps without operations."""
        used = {self.values[ref].name for ref in returned}
        kept: list[Operation] = []
        for operation in reversed(self.operations):
            name = self.steps[operation.step].name
            if operation.name != name or not operation.outputs or "random" in operation.traits or used.intersection(operation.outputs):
                used.update(operation.inputs)
                kept.append(operation)
        steps = sorted({operation.step for operation in kept})
        self.operations = [replace(operation, step=steps.index(operation.step)) for operation in reversed(kept)]
        self.steps = [self.steps[number] for number in steps]

    def graph(self, feed: str, returned: Sequence[Ref]) -> Graph:
        self.prune(returned)
        used = {name for operation in self.operations for name in operation.inputs} | {self.values[ref].name for ref in returned}
        made = {name for operation in self.operations for name in operation.outputs}
        kept = [value for value in self.values.values() if value.name in (used if value.constant else made)]
        names = {value.name: f"v{number}" for number, value in enumerate(kept)}
        values = tuple(replace(value, name=names[value.name]) for value in kept)
        operations = tuple(
            replace(one, inputs=tuple(names[name] for name in one.inputs), outputs=tuple(names[name] for name in one.outputs))
            for one in self.operations
        )
        returns = tuple(dict.fromkeys(names[self.values[ref].name] for ref in returned))
        return Graph(feed, self.samples, tuple(self.steps), operations, values, returns)


def _text(types: Sequence[str]) -> str:
    """One text for the types of all samples; what differs between them is a question mark."""
    rows = [re.split(r"(\W+|(?<=\d)x(?=\d))", text) for text in dict.fromkeys(types)]
    if len({len(row) for row in rows}) > 1:
        return " or ".join(dict.fromkeys(types)) if len(rows) < 4 else "?"
    return "".join(parts[0] if len(set(parts)) == 1 else "?" for parts in zip(*rows, strict=True))
