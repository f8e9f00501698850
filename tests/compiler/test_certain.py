"""Which statements of a function run for certain."""

from __future__ import annotations

import ast

import pytest

from splitter.certain import constants, run, truth


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        ("train", True),
        ("not train", False),
        ("train and other", None),
        ("train or other", True),
        ("not train and other", False),
        ("mode == 'val'", False),
        ("mode != 'val'", True),
        ("mode in ('train', 'both')", True),
        ("mode not in ['train']", False),
        ("mode in (other, 'train')", None),
        ("size is None", True),
        ("mode is not None", True),
        ("mode is other", None),
        ("mode > 'a'", None),
        ("f(train)", None),
        ("True", True),
    ],
)
def test_truth(test: str, holds: bool | None) -> None:
    assert truth(expression(test), {"train": True, "mode": "train", "size": None}) is holds


@pytest.mark.parametrize(
    ("call", "known"),
    [
        ("f(1, True)", {"a": 1, "b": True, "c": 3}),
        ("f(x, b=False, c='d')", {"b": False, "c": "d"}),
        ("f(1, *rest)", {}),
        ("f(1, **rest)", {}),
    ],
)
def test_constants(call: str, known: dict[str, object]) -> None:
    function, node = ast.parse("def f(a, b, *, c=3, d=4):\n    d = 5").body[0], expression(call)
    assert isinstance(function, ast.FunctionDef) and isinstance(node, ast.Call)
    assert constants(function, node, bound=False) == known


@pytest.mark.parametrize(
    ("body", "ran"),
    [
        ("a\nreturn\nb", "a! return!"),
        ("if yes:\n    return a\nreturn b", "return a!"),
        ("if no:\n    return a\nreturn b", "return b!"),
        ("if maybe:\n    return a\nreturn b", "return a? return b?"),
        ("if maybe:\n    a\nelse:\n    b\nreturn c", "a? b? return c!"),
        ("for x in y:\n    a\nreturn b", "a? return b!"),
        ("with x:\n    a\nreturn b", "a! return b!"),
        ("try:\n    a\nexcept E:\n    b\nreturn c", "a? b? return c!"),
        ("while x:\n    raise a\nreturn b", "raise a? return b?"),
        ("if yes:\n    if no:\n        a\n    elif maybe:\n        b\n    else:\n        return c\nd", "b? return c? d?"),
    ],
)
def test_run(body: str, ran: str) -> None:
    found = [f"{ast.unparse(stmt)}{'!' if sure else '?'}" for stmt, sure in run(ast.parse(body).body, {"yes": True, "no": False})]
    assert " ".join(found) == ran
