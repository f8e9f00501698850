"""Where an operation may run, and what crosses for a given choice. `cut` chooses; this knows the rules.

read, decode      worker     reads a file
crop              worker     draws random numbers
to, div           either     pointwise: on a batch it gives what it gives on each sample
mean over pixels  worker     a reduction in a transform isn't the same on a batch
tokenize (loop)   either     it already runs on whole batches
"""

from __future__ import annotations

from collections.abc import Collection

from splitter.graph import Graph, Operation, Part, Side, Trait

# What an operation does that binds it to a side. The worker has the files and the random numbers of a stream; what isn't known must
# run where the script ran it, among the samples.
PINS: dict[Trait, Side] = {"random": "worker", "reads": "worker", "depends": "worker", "unknown": "worker"}

# Operations that commute with collating: on a batch they give, for every sample, the bits that they give on the sample.
COMMUTING: frozenset[Trait] = frozenset({"pointwise", "layout"})

# Code that the script runs on whole batches, in the process of the trainer.
LATE: frozenset[Part] = frozenset({"loop", "prefix"})


def pinned(operation: Operation) -> Side | None:
    """The side that the operation can't leave, None for either. Its own pin goes before what its traits say."""
    if operation.pin is not None:
        return operation.pin
    return next((PINS[trait] for trait in sorted(operation.traits) if trait in PINS), None)


def bound(graph: Graph) -> tuple[Side | None, ...]:
    """For every operation, as `pinned`, with its place: before the loop, only what commutes with collating may be on the trainer.

    Operations that make nothing but constants may be anywhere, since each side can make its own. ValueError when an operation is pinned
    to the trainer that can't be there.
    """
    constants = _constants(graph)
    return tuple(_bound(graph, operation, constants) for operation in graph.operations)


def _bound(graph: Graph, operation: Operation, constants: set[str]) -> Side | None:
    pin = pinned(operation)
    constant = bool(operation.outputs) and constants.issuperset(operation.outputs)
    commutes = bool(operation.traits) and operation.traits <= COMMUTING
    if graph.steps[operation.step].part in LATE or constant or commutes:
        return pin
    if pin == "trainer":
        raise ValueError(f"{graph.feed}: {operation.name} is pinned to the trainer, but doesn't commute with collating")
    return "worker"


def at_loader(graph: Graph) -> tuple[int, ...]:
    """The operations of the trainer when nothing moves: the loop, the start of the model, and what is pinned to the trainer."""
    late = (graph.steps[operation.step].part in LATE or operation.pin == "trainer" for operation in graph.operations)
    return tuple(index for index, trainers in enumerate(late) if trainers)


def flowing(graph: Graph) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Of every value that depends on the sample: the operation that makes it and those that read it, in the order of making.

    ValueError when two operations make one value: then nobody could say which of the two crosses.
    """
    constants = _constants(graph)
    makers: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for index, operation in enumerate(graph.operations):
        for name in dict.fromkeys(operation.inputs):
            if name not in constants:
                readers[name].append(index)
        for name in dict.fromkeys(operation.outputs):
            if name in makers:
                raise ValueError(f"{graph.feed}: {graph.operations[makers[name]].name} and {operation.name} both make {name}")
            if name not in constants:
                makers[name] = index
                readers[name] = []
    return {name: (maker, tuple(readers[name])) for name, maker in makers.items()}


def crossing(graph: Graph, trainer: Collection[int]) -> tuple[str, ...]:
    """The values that the worker makes and the trainer reads, each once, in the order of making. Constants never cross."""
    there, returned = set(trainer), set(graph.returns)
    flows = flowing(graph).items()
    return tuple(name for name, (maker, readers) in flows if maker not in there and (name in returned or not there.isdisjoint(readers)))


def _constants(graph: Graph) -> set[str]:
    return {value.name for value in graph.values if value.constant}
