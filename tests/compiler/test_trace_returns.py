"""Whether what a call gives only goes into what its function returns."""

from __future__ import annotations

import ast
import textwrap

import pytest

from splitter.trace_returns import flows_out


def leaves(body: str) -> bool:
    """Of a function with this body: whether what `t(...)` gives leaves it as it is."""
    function = ast.parse("def f(self, i):\n" + textwrap.indent(body, "    ")).body[0]
    assert isinstance(function, ast.FunctionDef)
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "t")
    call = next(calls)
    return flows_out(function, (call.lineno, call.col_offset, call.end_lineno or 0, call.end_col_offset or 0), frozenset({"Pair"}))


@pytest.mark.parametrize(
    "body",
    [
        "return t(i), 3",
        "return {'x': [t(i)], 'y': 1}",
        "return Pair(t(i), label=3)",
        "return t(i) if t is not None else i",
        "if t:\n    i = t(i)\nreturn i",
        "if t is not None:\n    i = t(i)\nif self.other is not None:\n    y = self.other(i_)\nreturn i, y",
        "x = t(i)\nif self.both:\n    return x, 1\nreturn x",
        "if i > 5:\n    raise IndexError\nwith self.lock:\n    x = t(i)\nreturn x",
        "return [t(x) for x in i]",
        "x = self.load(i)\nx = t(x)\nif self.other:\n    i = self.other(i)\nreturn x, i",
        "x: object = t(i)\nreturn x",
        "x, y = t(i)\nreturn x, y",
        "x = t(i)\nsample = {'x': x}\nsample['y'] = 3\nreturn sample",
        "sample = {'y': 3}\nsample['x'] = t(i)\nreturn sample",
        "for path in self.paths:\n    x = self.load(path)\n    x = t(x)\n    yield x, path",
    ],
)
def test_leaves(body: str) -> None:
    assert leaves(body)


@pytest.mark.parametrize(
    "body",
    [
        "return g(t(i))",
        "return t(i) + 1",
        "return t(i).float()",
        "t(i)",
        "x = t(i)\nif x.dtype:\n    x = x / 255\nreturn x",
        "x = t(i)\nx += 1\nreturn x",
        "x = t(i)\nx.zero_()\nreturn x",
        "x = t(i)\nx[0] = 1\nreturn x",
        "sample = {}\nsample['x'] = t(i)\nsample['x'] += 1\nreturn sample",
        "x = t(i)\nprint(x)\nreturn x",
        "x = t(i)\nself.last = x\nreturn x",
        "self.x = t(i)\nreturn self.x",
        "self.cache[i] = t(i)\nreturn self.cache[i]",
        "sample = self.samples[i]\nsample['x'] = t(i)\nreturn sample",
        "x = t(i)\nsample = {'x': x}\nsample['x'].add_(1)\nreturn sample",
        "x = t(i)\nsample = {'x': x}\nsample['n'] = sample['x'].shape\nreturn sample",
        "x = t(i)\nreturn x, x.shape",
        "x = t(i)\nreturn lambda: x",
        "for u in self.transforms:\n    i = t(i)\nreturn i",
        "x = i\nfor n in range(3):\n    y = x\n    x = t(y)\nreturn x",
        "with t(i) as x:\n    return x",
        "x = y = t(i)\nreturn x, y + 1",
        "x = t(i)\ndel x\nreturn 3",
        "return t(i) if i > 3 else i",
        "if i > 3:\n    i = t(i)\nreturn i",
        "if self.train:\n    i = t(i)\nreturn i",
        "if t is None:\n    i = t(i)\nreturn i",
        "if i == 3:\n    return i\nreturn t(i)",
        "x = t(i)\nif i == 3:\n    x = self.blank\nreturn x",
        "x = t(i)\nsample = {'x': x}\nif i == 3:\n    sample['x'] = 3\nreturn sample",
        "x = t(i)\nsample = {}\nif i == 3:\n    sample = {'x': x}\nreturn sample",
        "try:\n    x = t(i)\nexcept OSError:\n    x = self.blank\nreturn x",
        "def g():\n    return t(i)\nreturn g()",
    ],
)
def test_stays(body: str) -> None:
    assert not leaves(body)
