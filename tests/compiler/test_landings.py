"""Where a loop's batches have come to their device: the line that is put in, and what keeps it out."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from splitter.compile import compile_script
from splitter.ir_cut import ANY, Keys, Landing

BEFORE = """
import sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm


class Rows(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.zeros(3, 4, 4, dtype=torch.uint8), i


class Parts(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return {"image": torch.zeros(3, 4, 4, dtype=torch.uint8), "label": i}


args = sys.argv
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
cuda = torch.cuda.is_available()
half = torch.float16
model = nn.Linear(4, 4)
loader = DataLoader(Rows(), batch_size=4)
parts = DataLoader(Parts(), batch_size=4)
"""
IN_PAIRS = "for images, target in loader:\n"


def landings(folder: Path, text: str) -> tuple[Landing, ...]:
    script = folder / "train.py"
    script.write_text(BEFORE + textwrap.dedent(text), encoding="utf-8")
    return compile_script(script, on_device=True).landings


def landing(folder: Path, text: str, keys: Keys) -> Landing:
    """That of one part in the only loop that names it."""
    (found,) = [each for each in landings(folder, text) if each.keys in (keys, None)]
    return found


# The text, the keys of the part, the line behind which the new one goes (counted from the first of the text), and what it gives a value.
LAND: dict[str, tuple[str, Keys, int, str, Keys]] = {
    "a move": (IN_PAIRS + "    images = images.to(device)\n    model(images)", (0,), 2, "images", (0,)),
    "the last part": (IN_PAIRS + "    target = target.to(device)\n    model(target)", (1,), 2, "target", (1,)),
    "options": (IN_PAIRS + "    images = images.to(device=device, non_blocking=True)\n    model(images)", (0,), 2, "images", (0,)),
    "cuda": (IN_PAIRS + "    images = images.cuda(args.gpu, non_blocking=True)\n    model(images)", (0,), 2, "images", (0,)),
    "a number": (IN_PAIRS + "    images = images.to(0)\n    model(images)", (0,), 2, "images", (0,)),
    "a text": (IN_PAIRS + '    images = images.to(f"cuda:{args.rank}")\n    model(images)', (0,), 2, "images", (0,)),
    "both": (IN_PAIRS + "    images, target = images.to(device), target.to(device)\n    model(images)", (1,), 2, "target", (1,)),
    "a branch": (IN_PAIRS + "    if cuda:\n        images = images.cuda()\n    model(images)", (0,), 3, "images", (0,)),
    "two branches": (
        IN_PAIRS + "    if cuda:\n        images = images.cuda()\n    else:\n        images = images.to(device)\n    model(images)",
        (0,),
        5,
        "images",
        (0,),
    ),
    "a comment": (IN_PAIRS + "    if cuda:\n        images = images.cuda()\n        # there\n\n    model(images)", (0,), 4, "images", (0,)),
    "twice": (IN_PAIRS + "    images = images.to('cpu')\n    images = images.to(device)\n    model(images)", (0,), 3, "images", (0,)),
    "a new name": (IN_PAIRS + "    x = images.to(device)\n    model(x)", (0,), 2, "x", (0,)),
    "renamed": (IN_PAIRS + "    x = images\n    x = x.to(device)\n    model(x)", (0,), 3, "x", (0,)),
    "counted before": (
        IN_PAIRS + "    seen = images.size(0) + len(images) + images.shape[0]\n    images = images.cuda()",
        (0,),
        3,
        "images",
        (0,),
    ),
    "a clock": (IN_PAIRS + "    began = time.time()\n    images = images.cuda()\n    print(began, images)", (0,), 3, "images", (0,)),
    "unpacked": ("for batch in loader:\n    images, target = batch\n    images = images.cuda()", (0,), 3, "images", (0,)),
    "taken": ("for batch in loader:\n    images = batch[0].cuda()\n    model(images)", (0,), 2, "images", (0,)),
    "in its place": (
        "for batch in parts:\n    batch['image'] = batch['image'].to(device)\n    model(batch)",
        ("image",),
        2,
        "batch['image']",
        ("image",),
    ),
    "numbered": ("for i, (images, _) in enumerate(tqdm(loader)):\n    images = images.cuda()\n    model(images)", (0,), 2, "images", (0,)),
    "a bar": ("bar = tqdm(loader)\nfor images, _ in bar:\n    images = images.cuda()\n    bar.update()", (0,), 3, "images", (0,)),
    "a dict": (
        "for batch in parts:\n    batch = {k: v.to(device) for k, v in batch.items()}\n    model(batch['image'])",
        ("image",),
        2,
        "batch",
        (),
    ),
    "tensors of a dict": (
        "for batch in parts:\n    batch = {k: v.cuda() if torch.is_tensor(v) else v for k, v in batch.items()}\n    model(**batch)",
        (ANY,),
        2,
        "batch",
        (),
    ),
    "a list": ("for batch in loader:\n    batch = [part.to(device) for part in batch]\n    model(batch[0])", (0,), 2, "batch", ()),
    "a tuple": ("for batch in loader:\n    batch = tuple(part.to(device) for part in batch)\n    model(*batch)", (ANY,), 2, "batch", ()),
    "a list, unpacked": (
        "for batch in loader:\n    images, target = [part.cuda() for part in batch]\n    model(images)",
        (0,),
        2,
        "images",
        (0,),
    ),
    "the last statement": (IN_PAIRS + "    images = images.cuda()", (0,), 2, "images", (0,)),
    "used behind the loop": (IN_PAIRS + "    images = images.cuda()\nprint(images)", (0,), 2, "images", (0,)),
    "another loop": (IN_PAIRS + "    images = images.cuda()\nfor images, _ in [(1, 2)]:\n    print(images)", (0,), 2, "images", (0,)),
    "in a context": ("with torch.autocast('cpu'):\n    for images, _ in loader:\n        images = images.cuda()", (0,), 3, "images", (0,)),
    "in a function": (
        "@torch.inference_mode()\ndef test(batches, dev):\n    for images, _ in batches:\n        images = images.to(dev)\n"
        "        model(images)\ntest(loader, device)",
        (0,),
        4,
        "images",
        (0,),
    ),
    "a name of its own": (
        "def test(batches, where='cuda'):\n    for x, _ in batches:\n        x = x.to(where)\ntest(loader)",
        (0,),
        3,
        "x",
        (0,),
    ),
}

STAY: dict[str, tuple[str, Keys, str]] = {
    "in the call": (IN_PAIRS + "    model(images.to(device))", (0,), "uses the batch, which no statement of its own"),
    "read before": (IN_PAIRS + "    print(images)\n    images = images.cuda()", (0,), "uses the batch"),
    "all variables": (IN_PAIRS + "    print(locals())\n    images = images.cuda()", (0,), "uses the batch"),
    "another dimension": (IN_PAIRS + "    n = images.size(1)\n    images = images.cuda()", (0,), "uses the batch"),
    "a type": (IN_PAIRS + "    images = images.to(device, torch.float16)\n    model(images)", (0,), "uses the batch"),
    "a type alone": (IN_PAIRS + "    images = images.to(torch.float32)\n    model(images)", (0,), "uses the batch"),
    "a type by a name": (IN_PAIRS + "    images = images.to(half)\n    model(images)", (0,), "uses the batch"),
    "a type named as a device": (
        "def test(batches, device):\n    for images, _ in batches:\n        images = images.to(device)\ntest(loader, half)",
        (0,),
        "uses the batch",
    ),
    "another tensor": (IN_PAIRS + "    images = images.to(target)\n    model(images)", (0,), "uses the batch"),
    "a layout": (IN_PAIRS + "    images = images.to(device, memory_format=torch.channels_last)", (0,), "uses the batch"),
    "more than a move": (IN_PAIRS + "    images = images.to(device).float()\n    model(images)", (0,), "uses the batch"),
    "a walrus": (IN_PAIRS + "    model(images := images.to(device))", (0,), "uses the batch"),
    "one branch uses it": (IN_PAIRS + "    if cuda:\n        images = images.cuda()\n        print(images)", (0,), "uses the batch"),
    "the condition": (IN_PAIRS + "    if images.sum() > 3:\n        images = images.cuda()", (0,), "uses the batch"),
    "another name in a branch": (IN_PAIRS + "    if cuda:\n        x = images.cuda()\n    print(x)", (0,), "uses the batch"),
    "in a context of the body": (IN_PAIRS + "    with torch.no_grad():\n        images = images.cuda()", (0,), "uses the batch"),
    "the old name": (IN_PAIRS + "    x = images.to(device)\n    model(images)", (0,), "may read `images`"),
    "the whole batch": ("for batch in loader:\n    images = batch[0].cuda()\n    print(batch)", (0,), "may read `batch`"),
    "a function reads it": (
        IN_PAIRS + "    images = images.cuda()\n    def show():\n        print(images)\n    show()",
        (0,),
        "may read `images`",
    ),
    "left before": (IN_PAIRS + "    if cuda:\n        break\n    images = images.cuda()\nprint(images)", (0,), "may read `images`"),
    "caught": (
        "try:\n    for images, _ in loader:\n        images = images.cuda()\nexcept OSError:\n    print(images)",
        (0,),
        "may read `images`",
    ),
    "some of a dict": (
        "for batch in parts:\n    batch = {k: v.cuda() for k, v in batch.items() if k}\n    model(batch['image'])",
        ("image",),
        "uses",
    ),
    "items one by one": (
        "for batch in parts:\n    for k in batch:\n        batch[k] = batch[k].cuda()\n    print(batch['image'])",
        ("image",),
        "uses",
    ),
    "a generator": ("for batch in loader:\n    batch = (part.cuda() for part in batch)\n    print(batch)", (ANY,), "uses the batch"),
    "taken apart": ("for (a, b), target in loader:\n    a = a.cuda()", (0,), "takes the part itself apart"),
    "a shared line": (IN_PAIRS + "    images = images.cuda(); model(images)", (0,), "shares its line"),
    "the loop's line": ("for images, _ in loader: images = images.cuda()", (0,), "shares its line"),
    "an iterator": ("first = next(iter(loader))\n" + IN_PAIRS + "    images = images.cuda()", (0,), "may be read here as well"),
    "zipped": ("for (images, _), i in zip(loader, range(3)):\n    images = images.cuda()", (0,), "may be read here as well"),
    "an attribute": (
        "class Run:\n    def __init__(self):\n        self.batches = DataLoader(Rows())\n    def run(self):\n"
        "        for images, _ in self.batches:\n            images = images.cuda()\nRun().run()",
        (0,),
        "doesn't iterate over a variable of its own",
    ),
    "another loader meanwhile": (
        "for images, _ in loader:\n    images = images.cuda()\n    if images.sum() > 3:\n        loader = DataLoader(Rows())",
        (0,),
        "may get another value",
    ),
    "a global": (
        "def test():\n    global images\n    for images, _ in loader:\n        images = images.cuda()\ntest()",
        (0,),
        "another function",
    ),
}


@pytest.mark.parametrize("case", LAND)
def test_lands(case: str, tmp_path: Path) -> None:
    text, keys, line, value, held = LAND[case]
    found = landing(tmp_path, text, keys)
    assert found.why is None and found.line is not None, found.why
    assert (found.line.after - BEFORE.count("\n"), found.line.value, found.line.keys) == (line, value, held)


@pytest.mark.parametrize("case", STAY)
def test_stays(case: str, tmp_path: Path) -> None:
    text, keys, why = STAY[case]
    found = [each for each in landings(tmp_path, text) if each.keys in (keys, None) and each.why is not None]
    assert found and found[0].line is None, found
    assert found[0].why is not None and why in found[0].why.why, found[0].why


def test_a_part_that_nobody_reads(tmp_path: Path) -> None:
    found = landing(tmp_path, "for images, target in loader:\n    model(target)", (0,))
    assert (found.line, found.why) == (None, None)
