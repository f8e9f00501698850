"""Goes through the record of one sample and finds out which operation made what.

    Enter(ToTensor, [image]), Call(permute, [?]), ...    ->    ToTensor(image) -> v1, permute(v1) -> v2

What a call reads and no call has made, the Python code of the step has made: that is an operation too, named after the step. A
folded step is one operation, whatever it calls. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from splitter.graph import Trait
from splitter.trace_events import Call, Enter, Key, Leaf, Leave, Record, Result

Ref = tuple[str, int, str]  # step, number of the operation in the step, label of the output
CONSTANT = -1  # in place of the number, for what no operation makes
FOLDED = "folded"  # the constants of an operation that stands for all that a step does


@dataclass
class Op:
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
    inside: dict[Key | None, Leaf] = field(default_factory=dict)  # made by calls of a folded step


class Replay:
    """Goes through one record and gives every leaf the operation that made it."""

    def __init__(self, folded: set[str], constants: set[tuple[str, int]], batch: bool = False) -> None:
        self.folded, self.constants, self.batch = folded, constants, batch
        self.ops: list[Op] = []
        self.known: dict[Key | None, Ref] = {}
        self.storages: dict[int, Ref] = {}
        self.leaves: dict[Key | None, Leaf] = {}
        self.stale: dict[Key | None, Op] = {}  # views of memory that another operation has written to
        self.constant: dict[Ref, Leaf] = {}
        self.unseen: dict[tuple[str, int], tuple[Leaf, bool]] = {}
        self.counts: dict[str, int] = {}
        self.order: list[str] = []
        self.draws: dict[str, set[str]] = {}
        self.opened: set[str] = set()
        self.spent: dict[str, float] = {}
        self.ended: list[str] = []
        self.dropped: list[tuple[int, str, tuple[object, ...]]] = []  # calls on constants, and after how many operations
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

    def operations(self) -> list[tuple[str, tuple[object, ...]]]:
        """All operations in order, by step, those on constants included: for comparison with another sample's."""
        rows = [(number + 1, op.step, op.signature()) for number, op in enumerate(self.ops)]
        return [(step, signature) for _, step, signature in sorted([*self.dropped, *rows], key=lambda row: row[0])]

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

    def define(self, op: Op, leaf: Leaf, label: str) -> Ref:
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

    def op(self, step: str, name: str, constants: str, inputs: Iterable[Ref], traits: Iterable[Trait]) -> Op:
        number = self.counts.get(step, 0)
        self.counts[step] = number + 1
        op = Op(name, step, number, constants, [], set(traits))
        op.read(inputs)
        self.ops.append(op)
        return op

    def refs(self, leaves: Iterable[Leaf]) -> list[Ref]:
        found = [ref for leaf in leaves if (ref := self.resolve(leaf)) is not None]
        return [ref for ref in dict.fromkeys(found) if ref not in self.constant]

    def own(self, active: _Active, leaf: Leaf, near: tuple[Leaf, ...] | None, label: str | None = None, free: bool = False) -> Ref:
        """A leaf that no operation made: the Python code of the step did, or it is a constant."""
        sources = active.inputs if near is None else near
        inputs = self.refs([source for source in sources if source.key != leaf.key])
        place = (active.step, sum(step == active.step for step, _ in self.unseen))
        tensors = bool(inputs) and all(source.storage is not None for source in sources if self.resolve(source) is not None)
        self.unseen[place] = (leaf, free or tensors)
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
        inputs = [self.resolve(leaf) or self.own(active, leaf, event.near, free=event.free) for leaf in event.inputs]
        if event.same or (len(event.outputs) == 1 and not event.writes and event.outputs[0].key in {leaf.key for leaf in event.inputs}):
            for leaf in event.outputs:
                self.bind(leaf, inputs[0])
            return
        if not event.writes and "random" not in event.traits and all(ref in self.constant for ref in inputs) and (inputs or event.outputs):
            # made from constants alone: both sides can make it again
            self.dropped.append((len(self.ops), active.step, (event.name, event.constants)))
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
        op = self.op(active.step, "", FOLDED, reads, {"unknown"} if self.batch else {"unknown", "depends"})
        for number, result in enumerate(results):
            active.inside.pop(result.leaf.key, None)
            self.define(op, result.leaf, result.label or f"out {number}")

    def leave(self, event: Leave) -> None:
        active = self.stack.pop()
        self.ended.append(event.step)
        self.draws.setdefault(event.step, set()).update(event.draws)
        self.spent[event.step] = self.spent.get(event.step, 0.0) + event.microseconds
        if event.opened:
            self.opened.add(event.step)
        if event.step in self.folded:
            made = [
                r
                for r in event.results
                if not active.inner or r.fresh or r.leaf.key in active.inside or (r.leaf.key is not None and self.resolve(r.leaf) is None)
            ]
            if made:
                self.fold(active, made)
            return
        python_only = not active.calls and not active.inner and event.changes
        if event.branches and (read := self.refs(active.inputs)):
            self.op(event.step, "", "", read, {"depends"}).own = True
        if python_only:
            # tensors that it gives back: had it written to them, that would have been seen
            made = [r for r in event.results if event.draws or r.leaf.storage is None or self.resolve(r.leaf) is None]
            if made:
                op = self.op(event.step, "", "", self.refs(active.inputs), ())
                op.own = True
                for result in made:
                    self.define(op, result.leaf, result.label)
            return
        for result in event.results:
            alias = self.resolve(result.alias) if result.alias is not None else None
            if alias is not None:
                self.bind(result.leaf, alias)
            elif result.leaf.key is not None and (result.fresh or self.resolve(result.leaf) is None):
                self.own(active, result.leaf, result.near, result.label)
