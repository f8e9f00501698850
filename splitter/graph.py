"""What `trace` hands to `cut`, and what `cut` answers: the operations of one feed, the values between them, what both cost; who runs what.

    open -> PIL 391 KB -> crop (draws) -> PIL 151 KB -> permute -> uint8 151 KB -> to, div -> float32 602 KB -> Normalize -> collate

Nodes are operations (an ATen call, or a Python-level step where no ATen call is seen: a read, a PIL call). An operation belongs to a step,
which is what a person sees in the source: one transform of a `Compose`, one statement of `__getitem__`. All types are frozen.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from splitter.ir import Span

Side = Literal["worker", "trainer"]
Part = Literal["read", "sample", "collate", "loop", "prefix"]
Trait = Literal["pointwise", "layout", "reduction", "random", "reads", "depends", "unknown"]


@dataclass(frozen=True)
class Value:
    """What one operation hands to others. `bytes` is what it takes on the wire, per sample: the median over the samples.

    `type` is for people ("uint8 3x224x224", "PIL RGB 256x192"). A `constant` doesn't depend on the sample: both sides can make it, so
    it costs nothing.
    """

    name: str
    bytes: int
    type: str
    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None
    constant: bool = False


@dataclass(frozen=True)
class Step:
    """What the source says in one place. `microseconds` of CPU per sample, median over the samples."""

    name: str
    part: Part
    span: Span | None
    microseconds: float
    draws: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operation:
    """One node. `microseconds` is its share of its step, per sample. `step` indexes Graph.steps.

    `traits`: "depends" reads a value that depends on the sample into Python (`.item()`), after which nothing is known to be the same for
    every sample. `pin` is the side that it can't leave.
    """

    name: str
    step: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    traits: frozenset[Trait]
    microseconds: float
    pin: Side | None = None


@dataclass(frozen=True)
class Graph:
    """Operations in the order in which they ran, so that every value is made before it is used.

    `returns` are the values that the loop of the trainer reads. `together` lists operations, by index, that the emitted source can't
    part: they end on the same side. ValueError for a graph that isn't one.
    """

    feed: str
    samples: int
    steps: tuple[Step, ...]
    operations: tuple[Operation, ...]
    values: tuple[Value, ...]
    returns: tuple[str, ...]
    together: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        known = {value.name for value in self.values}
        if len(known) != len(self.values):
            raise ValueError(f"{self.feed}: two values have one name")
        made: set[str] = {value.name for value in self.values if value.constant}
        for operation in self.operations:
            if not set(operation.inputs) <= made:
                raise ValueError(f"{self.feed}: {operation.name} reads {sorted(set(operation.inputs) - made)} before it is made")
            if not 0 <= operation.step < len(self.steps):
                raise ValueError(f"{self.feed}: {operation.name} belongs to no step")
            made.update(operation.outputs)
        if not made <= known or not set(self.returns) <= made:
            raise ValueError(f"{self.feed}: values {sorted((made | set(self.returns)) - known)} are not described")
        if any(not 0 <= index < len(self.operations) for group in self.together for index in group):
            raise ValueError(f"{self.feed}: a group of operations that stay together lists one that doesn't exist")
        costs = [step.microseconds for step in self.steps] + [operation.microseconds for operation in self.operations]
        costs += [value.bytes for value in self.values]
        if not all(isfinite(cost) and cost >= 0 for cost in costs):
            raise ValueError(f"{self.feed}: a cost is negative or no number")


@dataclass(frozen=True)
class Cut:
    """Which operations the trainer runs, as indices into Graph.operations, ascending; the worker runs the others.

    `crossing` names the values that are sent, in the order in which they are made; `bytes` is what they take per sample, `bytes_at_loader`
    what would cross if nothing moved: all that the loader does on the worker, the loop of the trainer where the script has it.
    `microseconds_left` of the trainer's CPU per sample go to operations that it runs, `microseconds_taken` were its before they moved to
    the worker. `objective` is what the cut minimises, in trainer-microseconds per sample.
    """

    trainer: tuple[int, ...]
    crossing: tuple[str, ...]
    bytes: int
    bytes_at_loader: int
    microseconds_left: float
    microseconds_taken: float
    objective: float
