"""The start of a model's forward in the worker program: the lines of a loader builder before its return.

edges = torch.tensor([18, 25, 35, 50])

def head(batch):
    features, prices, clicked = batch
    rows = torch.bucketize(features, edges)      as in forward, with `edges` for `self.edges`
    return [rows, prices, clicked]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from splitter.ir import Span
from splitter.prefix_types import PrefixHead
from splitter.splice import LIMIT, Grid, Splice, apply


@dataclass(frozen=True)
class Written:
    """Some lines; `place` is where the first of them stands in the source."""

    text: str
    place: tuple[str, int] | None = None


def constants(prefix: PrefixHead, indent: str, expression: Callable[[Span, str], str]) -> Iterator[Written]:
    """The values that the head reads. `expression` gives the text at a span, its further lines moved to an indent."""
    for constant in prefix.constants:
        if constant.span is not None:
            text = expression(constant.span, indent)
            yield Written(f"{indent}{constant.name} = {text}", (constant.span.path, constant.span.line))
        elif constant.text != constant.name:
            yield Written(f"{indent}{constant.name} = {constant.text}")


def opening(prefix: PrefixHead, indent: str, unit: str) -> Iterator[Written]:
    """What comes before the lines of forward."""
    yield Written(f"{indent}def head({prefix.batch}):")
    for line in prefix.takes:
        yield Written(f"{indent}{unit}{line}")


def closing(prefix: PrefixHead, indent: str, unit: str) -> Iterator[Written]:
    """What comes after them."""
    line = f"{indent}{unit}return {prefix.gives}"
    if len(line) > LIMIT and prefix.gives.startswith("["):
        parts = prefix.gives[1:-1].split(", ")
        line = "\n".join([f"{indent}{unit}return [", *(f"{indent}{unit}{unit}{part}," for part in parts), f"{indent}{unit}]"])
    yield Written(line)


def swapped(grid: Grid, prefix: PrefixHead) -> Grid:
    """The source with names in place of the model's attributes; of as many lines."""
    return Grid(apply(grid.text, [Splice(*grid.range(span), name) for span, name in prefix.swaps]))
