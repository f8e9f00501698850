"""Whether something is called anywhere in a file with another use of what it gives than to pass it on."""

from __future__ import annotations

import ast
import textwrap
import types
from pathlib import Path

import pytest

from splitter.trace_lines import User
from splitter.trace_mentions import Mentions, Way, holders, used_alike

TRANSFORM = Way("attribute", "transform", frozenset({"Photos"}))
LOAD = Way("function", "load")
SELF = Way("items", "self", frozenset({"Photos"}))
BASE = Way("items", "base", frozenset({"Photos"}))


def method(body: str, owner: str = "Photos") -> str:
    return f"class {owner}:\n    def __getitem__(self, i):\n{textwrap.indent(textwrap.dedent(body).strip(), ' ' * 8)}\n"


def harmless(text: str, way: Way) -> bool:
    return Mentions(ast.parse(text), frozenset({"Pair"})).harmless(way)


@pytest.mark.parametrize(
    ("way", "text"),
    [
        (TRANSFORM, method("x = self.transform(i)\nreturn x, 1")),
        (TRANSFORM, method("return Pair(self.transform(i), 1)")),
        (TRANSFORM, method("if self.transform is not None:\n    i = self.transform(i)\nreturn i")),
        (TRANSFORM, method("return [self.transform(x) for x in i]")),
        (TRANSFORM, method("print(len(i), f'{self.transform}')\nreturn i")),
        (TRANSFORM, method("self.transform = i\nreturn i")),
        (TRANSFORM, method("return self.transform(i).mean()", "Others")),
        (TRANSFORM, "photos.transform(0).show()"),
        (LOAD, "x = load(3) + 1\ndef f(i):\n    return load(i)"),
        (LOAD, "def main():\n    return Photos(transform=load), Compose([Lambda(load)])"),
        (SELF, method("return self[i - 1]")),
        (SELF, method("self[0] = i\nreturn len(self)")),
        (SELF, method("return self[0] + 1", "Others")),
        (BASE, method("return self.base[i], len(self.base), self.base.classes")),
    ],
)
def test_harmless(way: Way, text: str) -> None:
    assert harmless(text, way)


@pytest.mark.parametrize(
    ("way", "text"),
    [
        (TRANSFORM, method("x = self.transform(i)\nif i == 7:\n    y = self.transform(0).mean()\n    return x, y\nreturn x, 1")),
        (TRANSFORM, method("t = self.transform\nreturn t(i)")),
        (TRANSFORM, method("return show(self.transform)")),
        (TRANSFORM, method("return getattr(self, 'transform')(i)")),
        (TRANSFORM, method("return self.transform.transforms[0](i)")),
        (TRANSFORM, "def show(photos):\n    photos.transform(0).show()"),
        (LOAD, "def f(i):\n    return load(i) / 2"),
        (LOAD, "def f(i):\n    return sum(map(load, i))"),
        (SELF, method("return i, self[0].mean()")),
        (BASE, method("return self.base[i], max(self.base)")),
        (BASE, method("return self.base[i], [y for x, y in self.base]")),
    ],
)
def test_not_harmless(way: Way, text: str) -> None:
    assert not harmless(text, way)


def test_holders() -> None:
    class Crops:
        def __init__(self, base: object) -> None:
            self.base = base

    target = object()
    ways = holders(types.SimpleNamespace(crops=[Crops(target)], other=Crops({"a": target}), rest=3), target, User("/nowhere"))
    assert {(way.kind, way.name) for way in ways} == {("attribute", "base")}
    assert all(way.classes is not None and "Crops" in way.classes for way in ways)


def test_globals_that_methods_name(tmp_path: Path) -> None:
    script = tmp_path / "photos.py"
    script.write_text("class Photos:\n    def __getitem__(self, i):\n        return self.other(i) if i else ALL[i].mean()\n")
    target = object()
    space: dict[str, object] = {"ALL": target}
    exec(compile(script.read_text(), str(script), "exec"), space)
    photos = space["Photos"]()  # type: ignore[operator]
    assert holders(photos, target, User(str(tmp_path))) == {Way("name", "ALL")}
    assert holders(photos, target, User("/nowhere")) == set()


def test_a_variable_of_the_function_cannot_be_looked_for(tmp_path: Path) -> None:
    """What it holds may be called by any other name."""
    script = tmp_path / "photos.py"
    script.write_text("def once(do):\n    return do()\n")
    space: dict[str, object] = {}
    exec(compile(script.read_text(), str(script), "exec"), space)
    seen = []

    def called() -> None:
        import sys

        seen.append(used_alike(sys._getframe(1), own, User(str(tmp_path)), frozenset()))

    def run() -> None:
        space["once"](called)  # type: ignore[operator]

    own = run.__code__
    run()
    assert seen == [False]
