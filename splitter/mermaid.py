"""Draws a graph and its cut for people: a Mermaid flowchart, and the rows of a table beside it.

    flowchart LR
      subgraph worker
        w1["RandomResizedCrop<br>train.py:31 · 2.1 ms · draws"]
        w2["ToTensor, first half<br>train.py:33 · 0.12 ms"]
      end
      subgraph trainer
        t2["ToTensor, second half<br>train.py:33 · 0.05 ms"]
      end
      w1 -->|"PIL, 151 KB"| w2
      w2 ==>|"uint8 3x224x224, 151 KB"| t2

A node is a step on one side: a step whose operations the cut parts has two. Constants aren't drawn, since they never cross.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from splitter.graph import Cut, Graph, Side, Step, Value
from splitter.sides import at_loader, crossing, flowing

HEAD = ("value", "type", "sent before", "sent after", "µs moved", "µs left")

_MOST = 40  # nodes that a picture holds
_PARALLEL = 3  # edges between two nodes
_LONGEST = 60  # characters of a name


@dataclass(frozen=True)
class _Node:
    identifier: str
    side: Side
    lines: tuple[str, ...]

    def __str__(self) -> str:
        text = "<br>".join(line for line in self.lines if line) or self.identifier  # Mermaid refuses an empty label
        return f'{self.identifier}["{text}"]'


def mermaid(graph: Graph, cut: Cut, loop: str = "training loop") -> str:
    """The flowchart, with no fence around it. `loop` names what reads the values that the graph returns."""
    end = _Node("loop", "trainer", (label(loop),))
    nodes, places = _nodes(graph, set(cut.trainer))
    lines = ["flowchart LR"]
    for side in ("worker", "trainer"):
        inside = [*nodes, end] if graph.returns else nodes
        lines += [f"  subgraph {side}", *(f"    {node}" for node in inside if node.side == side), "  end"]
    return "\n".join([*lines, *_edges(graph, places, end)]) + "\n"


def table(graph: Graph, cut: Cut) -> tuple[tuple[str, ...], ...]:
    """Rows for `HEAD`, as Markdown cells: every value that crosses, or would if the cut were at the loader, and a row of sums.

    A microsecond is counted once, in the row of the first crossing value on which its operation depends: as left when the trainer
    spends it after the cut, as moved when the trainer spent it and now the worker does.
    """
    before, after = at_loader(graph), cut.trainer
    old, new = crossing(graph, before), crossing(graph, after)
    moved = _shares(graph, old, set(before), set(before) - set(after))
    left = _shares(graph, new, set(after), set(after))
    rows = []
    for value in _made(graph):
        if value.name in old or value.name in new:
            sent = (size(value.bytes) if value.name in names else "-" for names in (old, new))
            rows.append((_cell(value.name), _cell(value.type), *sent, _number(moved.get(value.name, 0)), _number(left.get(value.name, 0))))
    sums = (size(cut.bytes_at_loader), size(cut.bytes), _number(cut.microseconds_taken), _number(cut.microseconds_left))
    return (*rows, ("all", "", *sums))


def size(number: int) -> str:
    """Bytes for people, in thousands: 150,528 is "151 KB"."""
    if number < 1000:
        return f"{number} bytes"
    return f"{number / 1e3:.0f} KB" if number < 999_500 else f"{number / 1e6:.1f} MB"


def label(text: str) -> str:
    """Text for inside of a quoted Mermaid label: a single line, not too long, all that Mermaid could read as its own as `#code;`."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
    return _RISKY.sub(lambda found: f"#{ord(found[0])};", line)


# What stays is letters, digits, spaces and a few marks. A colon stays before a space only: in "style: x:#35;" Mermaid would read a style. A
# digit or a mark that opens the text would make it an item of a list, which Mermaid refuses.
_RISKY = re.compile(r"^[\d+-]|:(?! )|[^\w .,:/='+-]")


def _nodes(graph: Graph, trainer: Collection[int]) -> tuple[list[_Node], dict[int, _Node]]:
    """The nodes in the order in which they run, and the node of each operation. The longer side's tail is folded first."""
    groups: dict[tuple[Side, int], list[int]] = {}
    for index, operation in enumerate(graph.operations):
        groups.setdefault(("trainer" if index in trainer else "worker", operation.step), []).append(index)
    nodes: list[_Node] = []
    places: dict[int, _Node] = {}
    for side, room in _rooms(groups).items():
        mine = [key for key in groups if key[0] == side]
        kept = mine if len(mine) <= room else mine[: room - 1]
        drawn = [(_node(graph, key, groups), [key]) for key in kept]
        if len(kept) < len(mine):
            rest = mine[len(kept) :]
            drawn.append((_Node(f"{side[0]}more", side, (f"... {len(rest)} more steps",)), rest))
        for node, keys in drawn:
            nodes.append(node)
            places |= {index: node for key in keys for index in groups[key]}
    return nodes, places


def _rooms(groups: Iterable[tuple[Side, int]]) -> dict[Side, int]:
    """How many nodes each side may have: half of the picture, and what the other side leaves of its half."""
    most = _MOST - 1  # one is the loop
    sides = [side for side, _ in groups]
    worker, trainer = sides.count("worker"), sides.count("trainer")
    return {"worker": max(most - trainer, most // 2), "trainer": max(most - worker, most - most // 2)}


def _node(graph: Graph, key: tuple[Side, int], groups: dict[tuple[Side, int], list[int]]) -> _Node:
    side, number = key
    step = graph.steps[number]
    parted = ("worker", number) in groups and ("trainer", number) in groups
    half = {"worker": ", first half", "trainer": ", second half"}[side] if parted else ""
    facts = [] if step.span is None else [f"{label(step.span.path)}:{step.span.line}"]
    facts += _time(sum(graph.operations[index].microseconds for index in groups[key]))
    facts += ["draws"] if _draws(graph, step, groups[key]) else []
    return _Node(f"{side[0]}{number}", side, (label(step.name) + half, " · ".join(facts)))


def _draws(graph: Graph, step: Step, operations: list[int]) -> bool:
    """Whether these operations of the step draw random numbers. Where no operation says which of them does, all may."""
    known = {
        index for index, operation in enumerate(graph.operations) if graph.steps[operation.step] is step and "random" in operation.traits
    }
    return bool(step.draws) and (not known or not known.isdisjoint(operations))


def _time(microseconds: float) -> list[str]:
    if microseconds < 0.5:
        return []
    return [f"{microseconds / 1e3:.2g} ms" if microseconds < 9_950 else f"{microseconds / 1e3:.0f} ms"]


def _edges(graph: Graph, places: dict[int, _Node], end: _Node) -> Iterable[str]:
    """An edge for each value that goes from node to node, in the order of making; many between the same two become one."""
    values = {value.name: value for value in graph.values}
    between: dict[tuple[_Node, _Node], list[Value]] = {}
    for name, (maker, readers) in flowing(graph).items():
        source = places[maker]
        targets = [places[reader] for reader in readers] + [end] * (name in graph.returns)
        for target in dict.fromkeys(targets):
            if target != source:
                between.setdefault((source, target), []).append(values[name])
    for (source, target), sent in between.items():
        arrow = "-->" if source.side == target.side else "==>"
        texts = [", ".join(part for part in (label(value.type), size(value.bytes)) if part) for value in sent]
        if len(sent) > _PARALLEL:
            texts = [f"{len(sent)} values, {size(sum(value.bytes for value in sent))}"]
        yield from (f'  {source.identifier} {arrow}|"{text}"| {target.identifier}' for text in texts)


def _made(graph: Graph) -> Iterable[Value]:
    values = {value.name: value for value in graph.values}
    return (values[name] for name in flowing(graph))


def _shares(graph: Graph, roots: Collection[str], there: Collection[int], counted: Collection[int]) -> dict[str, float]:
    """For each root, the microseconds of the counted operations that depend on it and on no earlier root, by way of the trainer's."""
    order = {name: place for place, name in enumerate(roots)}
    owners = {name: name for name in roots}
    shares: dict[str, float] = {}
    for index, operation in enumerate(graph.operations):
        if index not in there:
            continue
        first = min((owners[name] for name in operation.inputs if name in owners), key=order.__getitem__, default=None)
        if first is None:
            continue
        owners |= {name: first for name in operation.outputs}
        if index in counted:
            shares[first] = shares.get(first, 0.0) + operation.microseconds
    return shares


def _number(microseconds: float) -> str:
    return "-" if microseconds < 0.05 else f"{microseconds:,.1f}" if microseconds < 9.95 else f"{microseconds:,.0f}"


def _cell(text: str) -> str:
    """Text as code in a cell of a Markdown table, as it stands: only a bar must be escaped there."""
    line = " ".join(text.replace("|", "\\|").split())
    if not line:
        return "-"
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if "`" in line else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"
