"""What `trace` hands to `cut`: the operations of one feed, the values between them, and what both cost.

    open -> PIL 391 KB -> crop (draws) -> PIL 151 KB -> permute -> uint8 151 KB -> to, div -> float32 602 KB -> Normalize -> collate

Nodes are operations (an ATen call, or a Python-level step where no ATen call is seen: a read, a PIL call). An operation belongs to a step,
which is what a person sees in the source: one transform of a `Compose`, one statement of `__getitem__`. All types are frozen.
"""

from __future__ import annotations

from dataclasses import dataclass
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
