"""Which transforms the text allows the trainer to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from splitter.compile import compile_script
from splitter.ir_cut import Tail

SCRIPT = """
import random

import torch
from PIL import Image
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset
from torchvision import transforms as T
from torchvision.transforms import Compose, Normalize, ToTensor, v2

normalize = Normalize([0.5], [0.5])
count = 0


class Images(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 8

    def reset(self):
        pass

    def image(self, index):
        return self[index][0]

    def __getitem__(self, index):
        return self.transform(Image.new("L", (8, 8), index)), index


class Shift:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x - self.by


class Module(nn.Module):
    def forward(self, x):
        return x * 2


class Draws(T.RandomErasing):
    pass


class Counts:
    def __init__(self):
        self.seen = 0

    def __call__(self, x):
        self.seen += 1
        return x


class CountsBelow(Counts):
    pass


class Borrowed(getattr(T, "Normalize")):
    pass


def plain(x):
    return x / 2


def noisy(x):
    return x + torch.randn(x.shape)


def counting(x):
    global count
    count += 1
    return x


def main(args):
    data = Images(@)
    loader = DataLoader(@loaded, num_workers=1)
    for x, y in loader:
        @loop


if __name__ == "__main__":
    main(None)
"""


def found(tmp_path: Path, transform: str, loaded: str = "data", loop: str = "x + 1") -> tuple[Tail, ...]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("@loaded", loaded).replace("@loop", loop).replace("@", transform))
    return containers(script)


def containers(script: Path) -> tuple[Tail, ...]:
    """The tails that aren't of statements (see test_chains)."""
    return tuple(tail for tail in compile_script(script).tails if not tail.links)


@pytest.mark.parametrize(
    ("transform", "movable", "halves"),
    [
        ("T.Compose([T.RandomCrop(4), T.ToTensor(), normalize])", 1, (1,)),
        ("Compose([T.ColorJitter(), ToTensor(), Normalize([0.5], [0.5])])", 1, (1,)),
        ("v2.Compose([v2.RandomCrop(4), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])", 1, ()),
        ("nn.Sequential(T.RandomCrop(4), Normalize([0.5], [0.5]))", 1, ()),
        ("Compose([T.RandomCrop(4), ToTensor(), Shift(0.5), Module(), plain, T.Lambda(plain), lambda x: x + 1])", 1, (1,)),
        ("Compose([ToTensor(), noisy])", None, ()),
        ("Compose([ToTensor(), T.Lambda(noisy), plain])", 2, ()),
        ("Compose([ToTensor(), T.Lambda(lambda x: noisy(x)), plain])", 2, ()),
        ("Compose([ToTensor(), lambda x: x * random.random(), plain])", 2, ()),
        ("Compose([ToTensor(), Draws(), plain])", 2, ()),
        ("Compose([ToTensor(), T.RandomErasing(), plain])", 2, ()),
        ("Compose([ToTensor(), Counts(), plain])", None, ()),
        ("Compose([ToTensor(), CountsBelow(), plain])", None, ()),
        ("Compose([ToTensor(), Borrowed([0.5], [0.5]), plain])", 2, ()),
        ("Compose([T.RandomErasing(), ToTensor()])", 1, (1,)),
        ("Compose([*[ToTensor()], plain])", 1, ()),
        ("Compose([ToTensor(), args.last])", None, ()),
        ("Compose([T.RandomCrop(4), ToTensor(), Shift(args.by), Normalize(args.mean, [0.5])])", 1, (1,)),
        ("Compose(transforms=[ToTensor(), plain])", None, ()),
        ("Compose([])", None, ()),
        ("ToTensor()", None, ()),
        ("T.RandomApply([ToTensor(), plain])", None, ()),
    ],
)
def test_elements(tmp_path: Path, transform: str, movable: int | None, halves: tuple[int, ...]) -> None:
    tails = found(tmp_path, transform)
    assert [(tail.movable, tail.halves) for tail in tails] == ([] if movable is None else [(movable, halves)])


@pytest.mark.parametrize(
    ("loaded", "loop", "count"),
    [
        ("data", "len(data)", 1),
        ("Subset(data, [1, 2])", "x + 1", 1),
        ("ConcatDataset([data, data])", "x + 1", 0),
        ("data, collate_fn=list", "x + 1", 0),
        ("data", "data.transform.transforms.pop()", 0),
        ("data", "data.transform = None", 0),
        ("data", "loader.dataset.transform = None", 0),
        ("data", "loader.dataset.transform.transforms.pop()", 0),
        ("data", "print(loader.dataset[0])", 1),
        ("data", "setattr(data, 'transform', None)", 0),
        ("data", "vars(data)['transform'] = None", 0),
        ("data", "data.reset()", 1),
        ("data", "print(data.image(3).shape)", 0),
    ],
)
def test_uses(tmp_path: Path, loaded: str, loop: str, count: int) -> None:
    """What the script does with the data set, and with what its loader makes of samples."""
    assert len(found(tmp_path, "Compose([ToTensor(), normalize])", loaded, loop)) == count


def test_the_spans_are_those_of_the_text(tmp_path: Path) -> None:
    (tail,) = found(tmp_path, "Compose([ToTensor(), Shift(0.25)])")
    line = (tmp_path / "train.py").read_text().splitlines()[tail.container.line - 1]
    assert [line[span.column : span.end_column] for span in (tail.container, *tail.elements)] == [
        "Compose([ToTensor(), Shift(0.25)])",
        "ToTensor()",
        "Shift(0.25)",
    ]
    assert (tail.callee, tail.listed) == ("Compose", True)


def test_names_that_mean_something_else_at_the_handle(tmp_path: Path) -> None:
    """A container in a statement before: its elements are written again where the data set was made."""
    text = SCRIPT.replace("    data = Images(@)", "    by = 0.5\n    made = Compose([ToTensor(), Shift(by)])\n@    data = Images(made)")
    text = text.replace("@loaded", "data").replace("@loop", "x + 1")
    script = tmp_path / "train.py"
    script.write_text(text.replace("@", ""))
    assert [tail.movable for tail in containers(script)] == [0]
    script.write_text(text.replace("@", "    by = 0.25\n"))
    assert [tail.movable for tail in containers(script)] in ([], [2])


@pytest.mark.parametrize(
    ("made", "count"),
    [
        ("t = Compose([ToTensor(), plain])\n    data = Images(transform=t)", 1),
        ("t = Compose([ToTensor(), plain])\n    t2 = v2.Compose([t])\n    data = Images(t2)", 1),
        ("if args.fast:\n        t = Compose([plain])\n    else:\n        t = Compose([ToTensor(), plain])\n    data = Images(t)", 0),
        ("t = Compose([ToTensor(), plain])\n    if args.fast:\n        t = Compose([ToTensor()])\n    data = Images(t)", 0),
        ("t = Compose([ToTensor(), plain])\n    data = Images(t if args.fast else ToTensor())", 0),
        ("t = Compose([ToTensor(), plain])\n    t2 = args.other or t\n    data = Images(t2)", 0),
        ("data = Images(Compose([ToTensor(), plain]) if args.fast else ToTensor())", 0),
        ("data = Images(lambda x: Compose([ToTensor(), plain])(x))", 0),
        ("t = Compose([ToTensor(), plain])\n    data = Images(t)\n    t.transforms.append(plain)", 0),
        ("t = Compose([ToTensor(), plain])\n    data = Images(t)\n    t.transforms[0] = plain", 0),
        ("t = [Compose([ToTensor(), plain])]\n    data = Images(t[0])", 0),
    ],
)
def test_other_arguments_of_the_script(tmp_path: Path, made: str, count: int) -> None:
    """A container that the dataset has only in some runs: the trainer would finish samples of other ones, too."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("data = Images(@)", made).replace("@loaded", "data").replace("@loop", "x + 1"))
    assert len(containers(script)) == count


def test_parameters(tmp_path: Path) -> None:
    """A parameter means the same where the data set is made, unless what it holds is changed."""
    script = tmp_path / "train.py"
    made = SCRIPT.replace("@loaded", "data").replace("@loop", "x + 11").replace("@", "Compose([ToTensor(), Shift(args.by)])")
    script.write_text(made)
    assert [tail.movable for tail in containers(script)] == [0]
    for change in ("args.by = 1", "args.by += 1"):
        script.write_text(made.replace("x + 11", change))
        assert [tail.movable for tail in containers(script)] in ([], [2]), change


@pytest.mark.parametrize("change", ["normalize.mean = [0.25]", "normalize.mean[0] = 0.25", "normalize.mean.append(3)"])
def test_elements_that_change(tmp_path: Path, change: str) -> None:
    assert [tail.halves for tail in found(tmp_path, "Compose([ToTensor(), normalize])", loop=change)] == []
