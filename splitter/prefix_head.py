"""The start of a model's forward as the `head` of a loader builder: names and pieces of text.

for ids, prices, clicked in loader: ... model(ids, prices)         features, prices, clicked = batch
forward(self, features, prices): ... % self.buckets          ->    ... % buckets
                                                                   return [rows, prices, clicked]
"""

from __future__ import annotations

import ast
import builtins
import keyword
from collections.abc import Mapping, Sequence

from splitter.ir import Fragment
from splitter.prefix_forward import Start
from splitter.prefix_loop import Key, Loop
from splitter.prefix_types import WHOLE, Constant, PrefixHead
from splitter.read import Module
from splitter.splice import quoted

BATCH = "batch"


def head(
    module: Module, begin: Start, body: Fragment, places: Mapping[str, Key], loops: Sequence[Loop], parameters: Sequence[str]
) -> PrefixHead:
    """The head of one loader. `parameters` are those of its builder."""
    used = {node.id for stmt in begin.statements for node in ast.walk(stmt) if isinstance(node, ast.Name)} | set(begin.inputs)
    batch = next(iter(places)) if WHOLE in places.values() else _unused(BATCH, used)
    taken = used | {batch, "head", *parameters, *keyword.kwlist, *dir(builtins)}
    constants = []
    for attribute, known in begin.constants.items():
        name = attribute if known.text == attribute and attribute in parameters else _unused(attribute, taken)
        taken.add(name)
        constants.append(Constant(attribute, name, known.text, known.span))
    names = {constant.attribute: constant.name for constant in constants}
    swaps = tuple((module.span(node), names[node.attr]) for node in begin.attributes)
    replaced = {places[parameter]: result for result, parameter in begin.results}
    takes, gives = _in_and_out(batch, places, replaced, _names(loops), taken)
    return PrefixHead(tuple(constants), batch, takes, body, swaps, gives)


def _names(loops: Sequence[Loop]) -> tuple[str, ...] | None:
    """What a loop calls the places of a batch; None when no loop takes a batch apart."""
    return next((loop.names for loop in loops if loop.names is not None), None)


def _in_and_out(
    batch: str, places: Mapping[str, Key], replaced: Mapping[Key, str], names: tuple[str, ...] | None, taken: set[str]
) -> tuple[tuple[str, ...], str]:
    """The lines that take a batch apart, and the expression that makes the new one."""
    of_place = {key: parameter for parameter, key in places.items()}
    if WHOLE in of_place:
        return (), replaced[WHOLE]
    if any(isinstance(key, str) for key in of_place):
        takes = tuple(f"{parameter} = {batch}[{quoted(str(key))}]" for parameter, key in places.items())
        return takes, f"{{**{batch}, {', '.join(f'{quoted(str(key))}: {result}' for key, result in replaced.items())}}}"
    if names is None:
        last = max(key for key in of_place if isinstance(key, int))
        takes = tuple(f"{parameter} = {batch}[{key}]" for parameter, key in places.items())
        parts = [replaced.get(key, f"{batch}[{key}]") for key in range(last + 1)]
        return takes, f"[{', '.join(parts)}, *{batch}[{last + 1}:]]"
    parts = []
    for key, name in enumerate(names):
        given = of_place.get(key) or _unused("part" if name == "_" else name, taken)
        taken.add(given)
        parts.append(given)
    out = [replaced.get(key, part) for key, part in enumerate(parts)]
    return (f"{', '.join(parts)}{',' if len(parts) == 1 else ''} = {batch}",), f"[{', '.join(out)}]"


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
