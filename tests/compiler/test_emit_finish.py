"""Tails of transforms as text: what the worker's list loses, whatever its layout, and what the trainer says instead."""

from __future__ import annotations

import ast

import pytest

from splitter.emit_finish import finish_text, names, without_tail
from splitter.ir import Span
from splitter.ir_cut import Finish, Tail
from splitter.splice import Grid

LAYOUTS = {
    "lines": """data = Photos(root, T.Compose([
    Flip(),
    T.ToTensor(),
    normalize,
]))
""",
    "no comma": """data = Photos(
    root,
    T.Compose([
        Flip(),
        T.ToTensor(),
        normalize
    ]))
""",
    "one line": "data = Photos(root, T.Compose([Flip(), T.ToTensor(), normalize]), seed=1)\n",
    "one line, comma": "transform = T.Compose([Flip(), T.ToTensor(), normalize, ])\n",
    "as CIFAR": """transform = T.Compose(
    [Flip(), T.ToTensor(),
     normalize])
""",
    "comments": """transform = T.Compose([  # for training
    Flip(),  # left and right
    T.ToTensor(),  # 0 to 1
    # as ImageNet's
    normalize,  # at last
    # nothing else
])
""",
    "first on the line": """transform = T.Compose([Flip(),
                       T.ToTensor(),
                       normalize])
""",
    "nested": """transform = T.Compose([
    T.RandomApply([Blur(3), Flip()], p=0.5), T.ToTensor(),
    T.Normalize(
        mean=[0.5, 0.5],  # of both
        std=[0.5, 0.5],
    ),
])
""",
    "tabs": "def f():\n\ttransform = T.Compose([\n\t\tFlip(),\n\t\tT.ToTensor(),\n\t\tnormalize,\n\t])\n",
    "not ASCII": 'transform = T.Compose([Flip("ä → ö"), T.ToTensor(), Named("größer")])  # über\n',
    "spaces": "transform = T . Compose( [ Flip( ) , T . ToTensor( ) , normalize , ] )\n",
    "backslash": 'label = "a" \\\n    "b"\ntransform = T.Compose([Flip(), T.ToTensor(),\n    normalize])\n',
    "ends with it": """transform = T.Compose([
    Flip(),
    T.ToTensor()  # 0 to 1
])
""",
    "ends on the line": "transform = T.Compose([Flip(), T.ToTensor()])\n",
    "ends without a comment": """transform = T.Compose([
    Flip(),
    T.ToTensor()
])
""",
    "arguments": """transform = nn.Sequential(
    Flip(),
    T.ToTensor(),
    normalize,
)
""",
}
CASES = [(name, first, half) for name in LAYOUTS for first, half in ((0, False), (1, False), (2, False), (2, True))]
CASES = [case for case in CASES if not case[0].startswith("ends") or case[1:] != (2, False)]  # nothing would be left out


def span(node: ast.expr, text: str) -> Span:
    def column(line: int, offset: int) -> int:
        return len(text.splitlines()[line - 1].encode()[:offset].decode())

    assert node.end_lineno is not None and node.end_col_offset is not None
    return Span(
        "train.py", node.lineno, column(node.lineno, node.col_offset), node.end_lineno, column(node.end_lineno, node.end_col_offset)
    )


def container(text: str) -> tuple[ast.Call, list[ast.expr]]:
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    call = next(node for node in found if node.func.attr in ("Compose", "Sequential"))  # type: ignore[attr-defined]
    return call, call.args[0].elts if isinstance(call.args[0], ast.List) else call.args if call.func.attr == "Sequential" else []  # type: ignore[attr-defined]


def finish(text: str, first: int, half: bool, template: str = "({0}, None)", arrays: bool = False) -> Finish:
    call, elements = container(text)
    callee = ast.unparse(call.func)
    tail = Tail(
        "train", "__main__", span(call, text), callee, tuple(span(one, text) for one in elements), 0, (1,), callee != "nn.Sequential"
    )
    return Finish(tail, first, half, template, arrays)


def left(text: str, first: int, half: bool) -> str:
    """What the worker has: without the lines that become empty."""
    parted = without_tail(Grid(text), finish(text, first, half), "splitter_runtime")
    return "".join(line for number, line in enumerate(Grid(parted.text).lines, 1) if number not in parted.gone)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(("name", "first", "half"), CASES)
def test_nothing_else_changes(name: str, first: int, half: bool, newline: str) -> None:
    text = LAYOUTS[name].replace("\n", newline)
    made = left(text, first, half)
    wanted = ast.parse(text)
    call = next(node for node in ast.walk(wanted) if ast.dump(node) == ast.dump(container(text)[0]))
    assert isinstance(call, ast.Call)
    elements = call.args[0].elts if isinstance(call.args[0], ast.List) else call.args
    if half:
        element = elements[first - 1]
        assert isinstance(element, ast.Call) and isinstance(element.func, ast.Attribute)
        element.func.attr = "PILToTensor"
    del elements[first:]
    assert ast.dump(ast.parse(made)) == ast.dump(wanted)
    assert made.count("\r") == (made.count("\n") if newline == "\r\n" else 0)
    assert not [line for line in made.splitlines() if not line.strip()]


def test_lines() -> None:
    assert left(LAYOUTS["lines"], 2, True) == (
        "data = Photos(root, T.Compose([\n    Flip(),\n"
        "    T.PILToTensor(),  # the rest, ToTensor's second half and normalize, is done on the trainer\n]))\n"
    )
    assert left(LAYOUTS["comments"], 2, False) == (
        "transform = T.Compose([  # for training\n    Flip(),  # left and right\n    T.ToTensor(),  # 0 to 1\n    # nothing else\n])\n"
    )
    assert left(LAYOUTS["ends without a comment"], 2, True) == (
        "transform = T.Compose([\n    Flip(),\n    T.PILToTensor()  # the rest, ToTensor's second half, is done on the trainer\n])\n"
    )
    assert left(LAYOUTS["one line"], 1, False) == "data = Photos(root, T.Compose([Flip()]), seed=1)\n"
    assert left(LAYOUTS["as CIFAR"], 2, True) == (
        "transform = T.Compose(\n    [Flip(), T.PILToTensor(),  # the rest, ToTensor's second half and normalize, is done on the trainer\n"
        "     ])\n"
    )


def test_halves_of_the_runtime() -> None:
    """Where torchvision's package isn't at hand under a name, and for arrays, which PILToTensor doesn't take."""
    by_name = "transform = T.Compose([Flip(), ToTensor(), normalize])\n"
    assert left(by_name, 2, True) == "transform = T.Compose([Flip(), splitter_runtime.ToUnscaledTensor()])\n"
    parted = without_tail(Grid(LAYOUTS["one line"]), finish(LAYOUTS["one line"], 2, True, arrays=True), "runtime_")
    assert "T.Compose([Flip(), runtime_.ToUnscaledTensor()])" in parted.text


@pytest.mark.parametrize(
    ("name", "first", "half", "template", "wanted"),
    [
        ("lines", 2, True, "({0}, None)", "finish=(T.Compose([splitter_runtime.ScaleToFloat(), normalize]), None)"),
        ("lines", 2, False, "{0}", "finish=normalize"),
        ("ends with it", 2, True, '{{"x": {0}}}', 'finish={"x": splitter_runtime.ScaleToFloat()}'),
        ("arguments", 1, False, "[{0}]", "finish=[nn.Sequential(T.ToTensor(), normalize)]"),
        ("one line", 2, False, "([{0}, {0}], None)", "finish=([normalize, normalize], None)"),
        ("not ASCII", 2, False, "({0},)", 'finish=(Named("größer"),)'),
    ],
)
def test_trainers_side(name: str, first: int, half: bool, template: str, wanted: str) -> None:
    text = LAYOUTS[name]
    made = finish_text(Grid(text), finish(text, first, half, template), "splitter_runtime")
    assert made == wanted
    ast.parse(f"f({made})")


def test_long_ones_are_broken() -> None:
    text = LAYOUTS["lines"].replace("\n", "\r\n")
    made = finish_text(Grid(text), finish(text, 1, False), "splitter_runtime", indent="\t", unit="\t", room=30)
    assert made == "finish=(T.Compose([\r\n\t\tT.ToTensor(),\r\n\t\tnormalize,\r\n\t]), None)"


def test_names() -> None:
    text = "t = T.Compose([a, lambda x: x, T.ToTensor(), f])\n"
    assert names(Grid(text), finish(text, 1, False)) == "a function, ToTensor and f"
    assert names(Grid(LAYOUTS["lines"]), finish(LAYOUTS["lines"], 2, True)) == "ToTensor's second half and normalize"


def test_other_text() -> None:
    """A plan that isn't of this text."""
    with pytest.raises((ValueError, IndexError)):
        without_tail(Grid("x = 1\n"), finish(LAYOUTS["lines"], 2, True), "splitter_runtime")
