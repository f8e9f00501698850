"""Chooses, for every operation, worker or trainer: the cheapest choice that is allowed, found as a minimum cut.

    worker                                             | trainer
    read -> crop -> flip -> permute -> uint8, 151 KB  ==>  to, div -> Normalize -> model      instead of float32, 602 KB

The cost is counted in trainer-microseconds per sample: what the trainer's operations take, and `price` for each KiB that crosses. As a
network, where a node on the source's side is the worker's and one on the sink's side is the trainer's:

    source -> operation   its microseconds: paid when it is on the trainer; without limit when it belongs to the worker
    operation -> sink     without limit, when it belongs to the trainer
    maker -> value        the price of its bytes: paid once, when the maker is on the worker and somebody on the trainer reads it
    value -> reader       without limit: a value is where its readers on the trainer are
    value -> sink         without limit, for what the loop of the trainer reads
    reader -> maker       without limit: no result goes back from trainer to worker
    a <-> b               without limit, for operations that stay together

Of all cheapest choices it takes the one with the fewest operations on the trainer. The sinks' sides of the minimum cuts have one smallest
among them, which all others contain: the nodes that can still reach the sink once the flow is as large as it gets. So the answer is
one set, whichever way the flow was found, and the trainer changes least.
"""

from __future__ import annotations

from itertools import pairwise
from math import fsum, isfinite

import networkx as nx

from splitter.graph import Cut, Graph, Side
from splitter.sides import at_loader, bound, crossing, flowing, pinned

__all__ = ["DEFAULT_PRICE", "cut", "pinned"]

DEFAULT_PRICE = 0.7
"""Trainer-microseconds per KiB that crosses: CPU time of a trainer that takes float32 images over gRPC on loopback, 0.67 s per GB (the row
"remote on loopback, trainer's CPU time" of `make bench ARGS='--only remote-cpu'`). A slow link costs more: 41 at 200 Mbit/s.
"""

_GRAIN = 1_000_000  # capacities are whole millionths of a microsecond: sums of floats would break ties by their noise
_SOURCE, _SINK = "worker", "trainer"

_Node = str | tuple[str, int] | tuple[str, str]


def cut(graph: Graph, price: float = DEFAULT_PRICE) -> Cut:
    """The cheapest legal cut; `price` in trainer-microseconds per KiB, at least 0.

    ValueError when pins contradict each other, or the price is negative or no number.
    """
    if not isfinite(price) or price < 0:
        raise ValueError(f"the price of a KiB is {price}; it must be at least 0")
    sides = bound(graph)
    _refuse_contradictions(graph, sides)
    flow = nx.algorithms.flow.preflow_push(_network(graph, sides, price), _SOURCE, _SINK)
    reached = _reaching_sink(flow)
    trainer = tuple(index for index in range(len(graph.operations)) if ("operation", index) in reached)
    before, kept = at_loader(graph), set(trainer)
    sizes = {value.name: value.bytes for value in graph.values}
    crosses = crossing(graph, trainer)
    return Cut(
        trainer=trainer,
        crossing=crosses,
        bytes=sum(sizes[name] for name in crosses),
        bytes_at_loader=sum(sizes[name] for name in crossing(graph, before)),
        microseconds_left=fsum(graph.operations[index].microseconds for index in trainer),
        microseconds_taken=fsum(graph.operations[index].microseconds for index in before if index not in kept),
        objective=flow.graph["flow_value"] / _GRAIN,
    )


def _network(graph: Graph, sides: tuple[Side | None, ...], price: float) -> nx.DiGraph:
    """The network of the module's docstring. An edge with no `capacity` has no limit."""
    network = nx.DiGraph()
    network.add_nodes_from((_SOURCE, _SINK))
    for index, (operation, side) in enumerate(zip(graph.operations, sides, strict=True)):
        node: _Node = ("operation", index)
        if side == "worker":
            network.add_edge(_SOURCE, node)
        else:
            network.add_edge(_SOURCE, node, capacity=round(operation.microseconds * _GRAIN))
        if side == "trainer":
            network.add_edge(node, _SINK)
    sizes = {value.name: value.bytes for value in graph.values}
    for name, (maker, readers) in flowing(graph).items():
        network.add_edge(("operation", maker), ("value", name), capacity=round(price * sizes[name] / 1024 * _GRAIN))
        for reader in readers:
            network.add_edge(("value", name), ("operation", reader))
            network.add_edge(("operation", reader), ("operation", maker))
        if name in graph.returns:
            network.add_edge(("value", name), _SINK)
    for one, other in _inseparable(graph):
        network.add_edge(("operation", one), ("operation", other))
        network.add_edge(("operation", other), ("operation", one))
    return network


def _reaching_sink(flow: nx.DiGraph) -> set[_Node]:
    """The nodes from which more could flow to the sink if it got to them: the smallest sink's side of a minimum cut."""
    reached: set[_Node] = {_SINK}
    waiting: list[_Node] = [_SINK]
    while waiting:
        node = waiting.pop()
        for before in flow.predecessors(node):
            edge = flow[before][node]
            if before not in reached and edge["flow"] < edge["capacity"]:
                reached.add(before)
                waiting.append(before)
    return reached


def _refuse_contradictions(graph: Graph, sides: tuple[Side | None, ...]) -> None:
    """ValueError when an operation of the worker would have to follow one of the trainer. What passes has a cut of finite cost."""
    follows: list[list[int]] = [[] for _ in graph.operations]
    for maker, readers in flowing(graph).values():
        follows[maker] += readers
    for one, other in _inseparable(graph):
        follows[one].append(other)
        follows[other].append(one)
    cause = {index: index for index, side in enumerate(sides) if side == "trainer"}
    waiting = list(cause)
    while waiting:
        index = waiting.pop()
        if sides[index] == "worker":
            late, early = graph.operations[index].name, graph.operations[cause[index]].name
            raise ValueError(
                f"{graph.feed}: {early} belongs to the trainer and {late} to the worker, but {late} depends on it or stays with it"
            )
        for follower in follows[index]:
            if follower not in cause:
                cause[follower] = cause[index]
                waiting.append(follower)


def _inseparable(graph: Graph) -> list[tuple[int, int]]:
    return [pair for group in graph.together for pair in pairwise(group)]
