"""Edits on the tree: the text around them stays, whatever its line ends, indentation and encoding."""

from __future__ import annotations

import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from plans import Script

from splitter.emit_trainer import Edits, ProgramCall, edit
from splitter.emit_tree import edit_tree
from splitter.splice import Grid, Splice

PROGRAM = ProgramCall("w.py", "d", "train.py")
HEAD = 'import splitter_runtime\n\nsplitter_runtime.program("w.py", digest="d", script="train.py")\n'

Change = tuple[str, str]  # what stands there, what becomes of it; "" is the end of the text


def splice(text: str, change: Change) -> Splice:
    start = text.index(change[0]) if change[0] else len(text)
    return Splice(start, start + len(change[0]), change[1])


def check(text: str, groups: list[list[Change]], lines: list[Change]) -> None:
    """Editing by way of the tree gives what the same replacements give in the text."""
    expressions = [[splice(text, change) for change in group] for group in groups]
    result = edit_tree(Grid(text), expressions, [splice(text, change) for change in lines])
    expected = text
    for old, new in [*chain(*groups), *lines]:
        expected = expected.replace(old, new, 1) if old else expected + new
    assert result == expected


SCRIPT = """\
# -*- coding: latin-1 -*-

# café: a comment of its own
import os  # ÿ
\x0c
class Net:
    def data(self, path):
        first = (Data(path,
                      1) . rows)  # kept
        # above

        second = first

        # below
        return DataLoader( Data( path ), [  # rows
            first,

              # odd indentation
            ], x=lambda : 1)
# end"""


@pytest.mark.parametrize("end", ["", "\n", "\n\n\n", "\n   ", "\n\x0c\n"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("unit", ["    ", "\t", "   "])
def test_only_the_edits_change(unit: str, newline: str, end: str) -> None:
    def written(text: str) -> str:
        return text.replace("    ", unit).replace("\n", newline)

    around = [("Data(path", "remote(lambda: Data(path"), (" . rows", ")\n. rows")]
    call = [("DataLoader( Data( path ), [", "Loader(\n        remote()\n    , [")]
    groups = [[(written(old), written(text)) for old, text in group] for group in (around, call)]
    check(written(SCRIPT + end), groups, [(written("        second = first\n"), "")])


@pytest.mark.parametrize("text", ["x = 1\r\ny = f(\n  1)\r\n", "x = 1\ny = f(\r\n  1)\r\n", "x = 1\ry = f(\n  1)"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_mixed_line_ends_stay(text: str, newline: str) -> None:
    check(text, [[("f(", f"g({newline}"), ("  1", f"{{{newline}}}, 2{newline}")]], [])


NESTED = [
    # the text, the edits, each a group
    ("x = f(g(h(1)))\n", [[("h(1)", "b")], [("f(", "F(")]]),
    ("if a:\n\tif b:\n\t\tx = f(\n\t\t\tg(1),\n\t\t\t2,\n\t\t)\n", [[("f(", "F("), ("2,", "3,")], [("g(1)", "G(\n\t\t\t\t2,\n\t\t\t)")]]),
    ("x = ((f)(1) if (g(2)) else ((h)))\n", [[("g(2)", "remote({1: 2})")], [("h", "k[0]")]]),
    ("x = f(a for a in g(b))\n", [[("a for", "b for"), ("in g", "in h")]]),
    ("x = [f(a), *g(b), {**h(c)}]; y = f\n", [[("f(a)", "F(a)")], [("h(c)", "H(c)")]]),
    ("@f(1)\ndef g(a: b(1) = c(2)) -> d(3): pass\n", [[("f(1)", "F")], [("b(1)", "B")], [("c(2)", "C")], [("d(3)", "D")]]),
    ("return_ = lambda : f(1)\nx = f'{g(1)!r:>{h}}'\n", [[("f(1)", "F(\n 2)")], [("g(1)", "G(3)")]]),
    (
        "with f(1) as x, (\n    g(2)): pass\nassert f\\\n  (3)\n",
        [[("f(1)", "F")], [("g(2)", "G(\n)")], [("f\\\n", "h\\\n"), ("(3)", "(4)")]],
    ),
]


@pytest.mark.parametrize(("text", "groups"), NESTED)
def test_nested_expressions(text: str, groups: list[list[Change]]) -> None:
    check(text, groups, [])


ROWS = [
    # comments and blank lines outside of the lines stay, in whichever block they stand
    ("def f():\n    # a\n    x\n    # b\n    y\n    # c\n# d\nz\n", [("    x\n", ""), ("    y\n", "    pass\n")]),
    ("def f():\n    if x:\n        y\n        # a\n      # b\n\n    z\n", [("    if x:\n        y\n", "")]),
    ("def f():\n    if x:\n        y\n        # a\n    # b\n", [("    if x:\n        y\n", "    pass\n")]),
    ("x\n\ny\n\nz\n", [("y\n\n", "")]),
    ("# a\n\n# b\nx\n", [("x\n", "import c\n\n")]),
    ("try:\n    x\nexcept E:\n    pass\n    # a\n\n# b\ny\n", [("    # a\n", "")]),
    ("x\ny", [("y", "")]),
    ("def f():\r\n\tx", [("\tx", "\tpass")]),
    ("x", [("", "\n\nimport y\n")]),
    ("x\n", [("", "\nimport y\n\nz(\n    1,\n)\n")]),
    ("", [("", "import y\n")]),
    ("@a\n# why\n@b\ndef f():\n    pass\n    # c\nx; y\nclass A: pass\n", [("x; y\n", ""), ("class A: pass\n", "")]),
    ("match x:\n    case 1:\n        y\n    # a\n    case 2:\n        z\n", [("        y\n", "        pass\n")]),
]


@pytest.mark.parametrize(("text", "lines"), ROWS)
def test_lines(text: str, lines: list[Change]) -> None:
    check(text, [], lines)


def test_import_before_the_comments_that_end_a_block() -> None:
    """Such comments are part of the block for libcst, so they are moved out of it."""
    script = Script("try:\n    import a\nexcept ImportError:\n    a = None\n    # no a\n  # odd\n\nx = Data()\n")
    text = edit(script.file, Edits((script.handle("Data()"),)), PROGRAM)
    assert text == (
        f"try:\n    import a\nexcept ImportError:\n    a = None\n\n{HEAD}\n"
        '    # no a\n  # odd\n\nx = splitter_runtime.RemoteDataset("train")\n'
    )


def test_import_between_the_comments_of_the_header() -> None:
    script = Script('"""Doc."""  # a\n# b\n\nx = Data()')
    text = edit(script.file, Edits((script.handle("Data()"),)), PROGRAM)
    assert text == f'"""Doc."""  # a\n\n{HEAD}\n# b\n\nx = splitter_runtime.RemoteDataset("train")'


def test_wrapped_handle_in_a_deep_block() -> None:
    """New lines hold their indentation themselves; the block adds none."""
    long = "b" * 90
    script = Script(f"import os\nif 1:\n\tif 2:\n\t\tx = [Data(), {long}]\n\t\ty = DataLoader(x, {long})\n")
    handle, loader = script.handle("Data()", environment=("args.size",)), script.loader(f"DataLoader(x, {long})", feed="v", explicit=True)
    text = edit(script.file, Edits((handle,), (loader,)), None)
    assert text == (
        "import os\n\nimport splitter_runtime\n\nif 1:\n\tif 2:\n"
        '\t\tx = [splitter_runtime.RemoteDataset(\n\t\t\t"train",\n\t\t\t{"args.size": args.size},\n\t\t), ' + f"{long}]\n"
        f'\t\ty = splitter_runtime.DataLoader(\n\t\t\tx, {long}, feed="v")\n'
    )


def test_an_edit_that_is_no_expression_is_an_error() -> None:
    with pytest.raises(ValueError, match="no expression around offset 0"):
        check("import os\n", [[("import", "export")]], [])


def test_new_text_that_is_no_expression_is_an_error() -> None:
    with pytest.raises(SyntaxError, match="libcst: "):
        check("x = f(1)\n", [[("f(1)", "f(1")]], [])


def test_a_word_that_would_run_into_the_new_text_is_an_error() -> None:
    with pytest.raises(SyntaxError):
        check("def f():\n    return[1]\n", [[("[1]", "g")]], [])


@pytest.mark.parametrize("arguments", [["--help"], ["explain", "S301"], ["transform", "train.py"]])
def test_libcst_is_imported_for_edits_only(arguments: list[str], tmp_path: Path) -> None:
    """It takes longer to import than the rest of the compiler; the script here has no loader."""
    (tmp_path / "train.py").write_text("x = 1\n")
    command = [sys.executable, "-X", "importtime", "-m", "splitter", *arguments]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "splitter.cli" in ended.stderr
    assert "libcst" not in ended.stderr
    assert "| torch" not in ended.stderr
