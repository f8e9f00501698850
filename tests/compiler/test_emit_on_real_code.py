"""Edits of code that nobody wrote for these tests: modules of the standard library.

Whatever is edited or carried over, the tree of the result is the tree of the original with just that change.
"""

from __future__ import annotations

import ast
import random
import sysconfig
import tokenize
import warnings
from pathlib import Path

import pytest
from plans import Script, feed, plan

from splitter.emit_trainer import Edits, ProgramCall, edit
from splitter.emit_worker import emit_worker
from splitter.ir import Builder, Fragment, HandleEdit, Removal, Span, WorkerModule
from splitter.splice import Grid

LIBRARY = Path(sysconfig.get_path("stdlib"))
NAMES = ["calendar", "difflib", "email/message", "json/decoder", "textwrap", "tokenize"]
FILES = [LIBRARY / f"{name}.py" for name in NAMES]
PROGRAM = ProgramCall("train_worker.py", "sha256:52b0c4e1", "train.py")


def script_at(path: Path) -> Script:
    with tokenize.open(path) as stream:
        return Script(stream.read())


def span_of(grid: Grid, node: ast.expr) -> Span:
    start, end = grid.node_range(node)
    line, end_line = grid.line_at(start), node.end_lineno
    assert end_line is not None
    return Span("train.py", line, start - grid.starts[line - 1], end_line, end - grid.starts[end_line - 1])


def parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


class Replaced(ast.NodeTransformer):
    """The tree with a handle in place of some nodes."""

    def __init__(self, nodes: list[ast.Call]) -> None:
        self.nodes = nodes

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if node in self.nodes:
            return parsed('splitter_runtime.RemoteDataset("train")').body[0].value  # type: ignore[attr-defined]
        return self.generic_visit(node)


def outermost_calls(tree: ast.Module, chosen: random.Random) -> list[ast.Call]:
    """Some calls that don't stand inside of each other, and not inside of an f-string."""
    held = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and id(node) not in held]
    picked: list[ast.Call] = []
    for node in chosen.sample(calls, min(len(calls), 20)):
        inside = {id(inner) for other in picked for inner in ast.walk(other)}
        if id(node) not in inside and not any(id(inner) in {id(other) for other in picked} for inner in ast.walk(node)):
            picked.append(node)
    return picked


def without_runtime(tree: ast.Module) -> ast.Module:
    """The tree without the import of the runtime and the program call."""
    kept = [node for node in tree.body if "splitter_runtime.program(" not in ast.unparse(node)]
    tree.body = [node for node in kept if ast.unparse(node) != "import splitter_runtime"]
    assert len(tree.body) == len(kept) - 1
    return tree


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_handles(path: Path) -> None:
    script = script_at(path)
    calls = outermost_calls(script.grid.tree, random.Random(0))
    handles = tuple(HandleEdit("__main__", span_of(script.grid, node), "train", (), "moved") for node in calls)
    result = without_runtime(parsed(edit(script.file, Edits(handles), PROGRAM)))
    expected = Replaced(calls).visit(parsed(script.file.text) if not calls else script.grid.tree)
    assert ast.dump(result) == ast.dump(expected)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_removals(path: Path) -> None:
    script = script_at(path)
    lines = script.grid
    chosen = random.Random(1)
    functions = [node for node in ast.walk(lines.tree) if isinstance(node, ast.FunctionDef)]
    for function in chosen.sample(functions, min(6, len(functions))):
        body = [node for node in function.body if node.lineno > function.lineno]
        starts = [node.lineno for node in body]
        if not body or len(set(starts)) < len(starts) or any(getattr(node, "decorator_list", None) for node in body):
            continue
        gone = body[len(body) // 2 :]
        removals = tuple(Removal("__main__", Fragment("train.py", node.lineno, node.end_lineno or node.lineno)) for node in gone)
        text = edit(script.file, Edits(removals=removals), PROGRAM)
        kept = [node for node in function.body if node not in gone]
        before, function.body = function.body, kept or [ast.Pass()]
        expected = ast.dump(lines.tree)
        function.body = before
        assert ast.dump(without_runtime(parsed(text))) == expected


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_bodies(path: Path) -> None:
    """The body of a function becomes the body of a builder, and stays what it is."""
    script = script_at(path)
    functions = [node for node in ast.walk(script.grid.tree) if isinstance(node, ast.FunctionDef)]
    compared = 0
    for function in random.Random(2).sample(functions, min(len(functions), 10)):
        if function.body[0].lineno == function.lineno or function.body[0].lineno == function.body[-1].end_lineno:
            continue
        first = min([function.body[0].lineno, *(d.lineno for d in getattr(function.body[0], "decorator_list", []))])
        fragment = Fragment("train.py", first, function.body[-1].end_lineno or first)
        builder = Builder("loader", "train", "made_by_this_test", (), (), (fragment,))
        made = plan(
            script,
            worker=WorkerModule(builders=(builder,)),
            feeds=(feed(script, script.grid.line(1) or "\n", residence="moved"),),
        )
        try:
            text = emit_worker(made, script="train.py", folder=None).text
        except SyntaxError as error:  # nonlocal has no meaning outside of its function
            assert "nonlocal" in str(error)
            continue
        written = next(node for node in parsed(text).body if isinstance(node, ast.FunctionDef))
        assert [ast.dump(node) for node in written.body[:-1]] == [ast.dump(node) for node in function.body]
        compared += 1
    assert compared or not functions


def test_expressions() -> None:
    """An expression of many lines means the same after `return`."""
    compared = 0
    for limit, path in enumerate(FILES, 1):
        limit *= 6
        script = script_at(path)
        held = [node for node in ast.walk(script.grid.tree) if isinstance(node, ast.JoinedStr)]
        inside = {id(inner) for node in held for inner in ast.walk(node)}
        for node in random.Random(3).sample(nodes := list(ast.walk(script.grid.tree)), len(nodes)):
            if not isinstance(node, ast.Call | ast.BinOp | ast.BoolOp | ast.IfExp | ast.Dict | ast.ListComp) or id(node) in inside:
                continue
            if node.lineno == node.end_lineno or compared == limit:
                continue
            builder = Builder("dataset", "train", "train", (), (), (), span_of(script.grid, node))
            made = plan(
                script,
                worker=WorkerModule(builders=(builder,)),
                feeds=(feed(script, script.grid.line(1) or "\n", residence="moved"),),
            )
            text = emit_worker(made, script="train.py", folder=None).text
            function = next(node for node in parsed(text).body if isinstance(node, ast.FunctionDef))
            returned = function.body[0]
            assert isinstance(returned, ast.Return) and returned.value is not None
            assert ast.dump(returned.value) == ast.dump(node)
            compared += 1
    assert compared == 6 * len(FILES)
