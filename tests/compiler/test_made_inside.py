"""Which containers of transforms may be parted that functions and classes of the script make."""

from __future__ import annotations

from pathlib import Path

import pytest

from splitter.compile import compile_script
from splitter.ir_cut import Tail

SCRIPT = """
import functools
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose, Normalize, RandomCrop, ToTensor

MEAN = [0.5]
scale = Normalize(MEAN, [0.5])


class Images(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.transform(Image.new("L", (8, 8), index)), index


@definitions


def main(args):
    data = @made
    loader = DataLoader(data, num_workers=1)
    @loop
    for x, y in loader:
        print(x)


if __name__ == "__main__":
    main(None)
"""

BOTH = "def get(train):\n    if train:\n        return Compose([RandomCrop(4), ToTensor(), scale])\n    return Compose([ToTensor(), scale])"
OWN = "class Own(Images):\n    def __init__(self, train=True):\n        "


def found(tmp_path: Path, definitions: str, made: str, loop: str = "") -> tuple[Tail, ...]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("@definitions", definitions).replace("@made", made).replace("@loop", loop))
    return compile_script(script).tails


@pytest.mark.parametrize(
    ("definitions", "made", "elements"),
    [
        ("def get():\n    return Compose([ToTensor(), scale])", "Images(get())", 2),
        ("def get():\n    t = Compose([ToTensor(), scale])\n    return t", "Images(transform=get())", 2),
        ("def get():\n    s = Normalize(MEAN, MEAN)\n    return Compose([RandomCrop(4), ToTensor(), s])", "Images(get())", 3),
        ("def inner():\n    return Compose([ToTensor(), scale])\n\ndef get():\n    return inner()", "Images(get())", 2),
        (BOTH, "Images(get(True))", 3),
        (BOTH, "Images(get(train=False))", 2),
        (BOTH.replace("train)", "train=None)"), "Images(get())", 2),
        (BOTH.replace("if train:", "if train == 'train' or train in ('a', 'b'):"), "Images(get('b'))", 3),
        (OWN + "self.transform = Compose([ToTensor(), scale])", "Own()", 2),
        (OWN + "t = Compose([ToTensor(), scale])\n        with torch.no_grad():\n            self.transform = t", "Own(False)", 2),
        (
            OWN + "if train:\n            self.transform = scale\n        else:\n            self.transform = Compose([ToTensor()])",
            "Own(False)",
            1,
        ),
    ],
)
def test_found(tmp_path: Path, definitions: str, made: str, elements: int) -> None:
    (tail,) = found(tmp_path, definitions, made)
    assert (len(tail.elements), tail.definition is not None) == (elements, True)


@pytest.mark.parametrize(
    ("definitions", "made", "loop"),
    [
        (BOTH, "Images(get(args.train))", ""),
        (BOTH, "Images(get(**args.options))", ""),
        (BOTH.replace("    if", "    train = not train\n    if"), "Images(get(True))", ""),
        (BOTH.replace("if train:", "if train > 0:"), "Images(get(True))", ""),
        (BOTH, "Images(get(True) if args.fast else get(False))", ""),
        ("@functools.cache\ndef get():\n    return Compose([ToTensor(), scale])", "Images(get())", ""),
        ("def get(s):\n    return Compose([ToTensor(), Normalize(s, s)])\n", "Images(functools.partial(get, MEAN)())", ""),
        ("def get():\n    return Compose([ToTensor(), scale]) if MEAN else None", "Images(get())", ""),
        ("def get():\n    for s in MEAN:\n        return Compose([ToTensor(), scale])", "Images(get())", ""),
        ("def get():\n    t = Compose([ToTensor(), scale])\n    t.transforms.append(scale)\n    return t", "Images(get())", ""),
        ("def get():\n    t = Compose([ToTensor(), scale])\n    t = Compose([t])\n    return t", "Images(get())", ""),
        ("def get():\n    return lambda x: Compose([ToTensor(), scale])(x)", "Images(get())", ""),
        (OWN + "self.transform = Compose([ToTensor(), scale])", "Own()", "data.transform = scale"),
        (OWN + "self.transform = Compose([ToTensor(), scale])\n        if train is MEAN:\n            self.transform = scale", "Own()", ""),
        (
            OWN + "self.transform = Compose([ToTensor(), scale])\n\n    def plain(self):\n        self.transform = scale",
            "Own()",
            "args.photos.transform = None",
        ),
        (OWN + "self.transform = Compose([ToTensor(), scale])\n\nclass Below(Own):\n    pass", "Below()", ""),
        (OWN + "setattr(self, 'transform', Compose([ToTensor(), scale]))", "Own()", ""),
    ],
)
def test_not_found(tmp_path: Path, definitions: str, made: str, loop: str) -> None:
    """What the container becomes depends on more than the text, or is looked at on the way."""
    assert found(tmp_path, definitions, made, loop) == ()


def test_names_that_the_handle_does_not_have(tmp_path: Path) -> None:
    """Elements are written again where the dataset was made."""
    assert found(tmp_path, "def get(by):\n    return Compose([ToTensor(), Normalize(by, by)])", "Images(get(MEAN))") == ()
    (tail,) = found(tmp_path, "def get():\n    return Compose([scale, ToTensor()])", "Images(get())", "scale = 3")
    assert tail.movable == 1


def test_definitions_that_others_need(tmp_path: Path) -> None:
    """The text of a definition is there once; a call with other constants makes another container."""
    twice = "Images(get(True))\n    val = DataLoader(Images(get(True)), num_workers=1)"
    loop = "for x in val:\n        print(x)"
    assert {tail.builder: tail.shared for tail in found(tmp_path, BOTH, twice, loop)} == {"data": ("val",), "val": ("data",)}
    tails = found(tmp_path, BOTH, twice.replace("Images(get(True)), n", "Images(get(False)), n"), loop)
    assert sorted((len(tail.elements), tail.shared) for tail in tails) == [(2, ()), (3, ())]
