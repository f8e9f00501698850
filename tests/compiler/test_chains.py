"""Which operations at the end of a function that makes samples the trainer may run, and how the two programs read then."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from splitter.compile import compile_script
from splitter.emit_finish import finish_text, without_tail
from splitter.ir_cut import Finish, Tail
from splitter.splice import Grid

SCRIPT = """
import random
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MEAN = torch.tensor([0.5])
STD = 0.25
CHANGED = [1.0]
count = 0


def scaled(x, by=2):
    return x * by


def noisy(x):
    return x + random.random()


class Images(Dataset):
    def __init__(self):
        self.images = torch.arange(64).view(8, 8)
        self.gain = 2

    def __len__(self):
        return 8

@body


def main(args):
    CHANGED[0] = 3.0
    loader = DataLoader(Images(), num_workers=1)
    for x in loader:
        print(x)


if __name__ == "__main__":
    main(None)
"""


def found(tmp_path: Path, body: str, more: str = "") -> tuple[Grid, tuple[Tail, ...]]:
    method = "    def __getitem__(self, i):\n" + textwrap.indent(body, " " * 8)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("@body", method + textwrap.indent(more, "    ")))
    return Grid(script.read_text()), compile_script(script).tails


READ = "x = self.images[i]\n"


@pytest.mark.parametrize(
    ("body", "links"),
    [
        (READ + "return x.float() / 255", ["x.float()", "x.float() / 255"]),
        (READ + "x = x.float()\nx = (x - MEAN) / STD\nreturn x, i", ["x.float()", "x - MEAN", "(x - MEAN) / STD"]),
        (READ + "y = 1 - scaled(x, by=3)\nreturn {'y': y}", ["scaled(x, by=3)", "1 - scaled(x, by=3)"]),
        (READ + "return F.pad(x.float(), (1, 1))[None], 3", ["x.float()", "F.pad(x.float(), (1, 1))", "F.pad(x.float(), (1, 1))[None]"]),
        (READ + "if i > 3:\n    x = x.flip(0)\nx = x.float()\nreturn x", ["x.float()"]),
        (READ + "z = noisy(x)\nx = x.float()\nreturn x, z", ["x.float()"]),
        ("return self.images[i].float(), i", ["self.images[i].float()"]),
        (READ + "x = x.float()\nx = x * self.gain\nreturn x / 2", ["x / 2"]),
        (READ + "x = x.float()\nx.mul_(2)\nreturn x / 2", ["x / 2"]),
    ],
)
def test_found(tmp_path: Path, body: str, links: list[str]) -> None:
    grid, tails = found(tmp_path, body)
    assert [[grid.slice(span) for span in tail.elements] for tail in tails] == [links]


@pytest.mark.parametrize(
    "body",
    [
        READ + "return x",
        READ + "return x * self.gain",
        READ + "return noisy(x)",
        READ + "return x + torch.rand(3)",
        READ + "return x + i",
        READ + "return x.float().bernoulli()",
        READ + "return torch.bernoulli(x.float())",
        READ + "return F.dropout(x.float())",
        READ + "return x.to(args.device)",
        READ + "return x * CHANGED[0]",
        READ + "x /= 255\nreturn x",
        READ + "return x.add_(1)",
        READ + "x = x.float()\nif x.sum() > 3:\n    x = x * 2\nreturn x",
        READ + "x = x.float()\nself.last = x\nreturn x",
        READ + "x = x.float()\nprint(x)\nreturn x",
        READ + "if i:\n    return x.float()\nreturn x",
        READ + "return x if i else x.float()",
        READ + "return (lambda: x.float())()",
        READ + "return [y.float() for y in x]",
        READ + "global count\ncount = 3\nreturn x * count",
        READ + "return (y := x.float())",
    ],
)
def test_not_found(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body)[1] == ()


def test_other_methods(tmp_path: Path) -> None:
    """A method whose result a sample has is looked at as well; how it is called is for the samples to show."""
    more = "\n\ndef read(self, i):\n    return self.images[i].float()\n\n@property\ndef first(self):\n    return self.images[0].float()"
    assert [tail.callee for tail in found(tmp_path, "return self.read(i), i", more)[1]] == ["Images.read"]


@pytest.mark.parametrize(
    ("body", "first", "worker", "trainer"),
    [
        (READ + "return x.float() / 255", 0, READ + "return x", "lambda x: x.float() / 255"),
        (READ + "return x.float() / 255", 1, READ + "return x.float()", "lambda x: x / 255"),
        (READ + "x = x.float()\nx = x - MEAN\nreturn x", 0, READ + "return x", "lambda x: x.float() - MEAN"),
        (READ + "x = x.float()\nx = x - MEAN\nreturn x", 1, READ + "x = x.float()\nreturn x", "lambda x: x - MEAN"),
        (READ + "y = x.float()\nz = y - MEAN\nreturn z / STD", 1, READ + "y = x.float()\nz = y\nreturn z", "lambda y: (y - MEAN) / STD"),
        (READ + "y = x.float()\nz = y - MEAN\nreturn z, i", 0, READ + "y = x\nz = y\nreturn z, i", "lambda x: x.float() - MEAN"),
        ("return scaled(self.images[i] - 1, by=3)", 0, "return self.images[i]", "lambda value: scaled(value - 1, by=3)"),
        (READ + "return (x - MEAN) / STD", 0, READ + "return x", "lambda x: (x - MEAN) / STD"),
        (READ + "y = x.float()  # real\nreturn -(y\n         + 1)", 0, READ + "y = x\nreturn (y)", "lambda x: -(x.float() + 1)"),
    ],
)
def test_text(tmp_path: Path, body: str, first: int, worker: str, trainer: str) -> None:
    grid, (tail,) = found(tmp_path, body)
    finish = Finish(tail, first, half=False, template="{0}")
    parted = without_tail(grid, finish, "splitter_runtime")
    lines = parted.text.splitlines()[tail.container.line : tail.container.end_line]
    assert len(parted.text.splitlines()) == len(grid.text.splitlines())
    bare = "\n".join(line.split("  # ")[0].strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    assert bare.replace("(y\n)", "(y)") == worker
    assert finish_text(grid, finish, "splitter_runtime") == f"finish={trainer}"


def test_a_long_text(tmp_path: Path) -> None:
    grid, (tail,) = found(tmp_path, READ + "return x.float().clamp(0, 200).sub(3).div(255) - MEAN, i")
    finish = Finish(tail, 0, half=False, template="({0}, None)")
    assert finish_text(grid, finish, "splitter_runtime", "    ", "    ", room=60) == (
        "finish=(lambda x: (\n        x.float().clamp(0, 200).sub(3).div(255) - MEAN\n    ), None)"
    )
