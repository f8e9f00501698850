"""Random pipelines of transforms and of statements: whatever the cut leaves to the trainer, script and split give the same batches.

Each example is one script with many data sets, each with a pipeline of its own, so that one run of samples and one of `splitter verify`
are enough for all of them.
"""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scratch import Scratch

PIPELINES = 20
SCRIPT = """
import random

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision.transforms import v2


MEAN = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)


class Tuples(Dataset):
    def __init__(self, transform=None):
        self.transform = transform
        self.gain = 1.5

    def __len__(self):
        return 8

    def image(self, index):
        return Image.fromarray(np.random.RandomState(index).randint(0, 256, (30, 34, 3), dtype=np.uint8))

    def __getitem__(self, index):
        return self.transform(self.image(index)), index


class Dicts(Tuples):
    def __getitem__(self, index):
        sample = {"image": self.image(index), "label": index}
        sample["image"] = self.transform(sample["image"])
        return sample


class Alone(Tuples):
    def __getitem__(self, index):
        image = self.image(index)
        if self.transform is not None:
            image = self.transform(image)
        return image


class Shift:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x - self.by


class Clipped:
    def __call__(self, x):
        if x.max() > 0.9:
            x = x * 0.9
        return x


def scaled(x):
    return x * 2 - 1


def noisy(x):
    return x + 0.01 * torch.randn_like(x)


def sometimes(x):
    return x.flip(-1) if random.random() < 0.5 else x


def standardised(x):
    return (x - x.mean()) / (x.std() + 1e-6)


@definitions@
def main():
    torch.manual_seed(0)
    random.seed(0)
@loaders@
    for loader in (@names@):
        for batch in loader:
            pass


if __name__ == "__main__":
    main()
"""
IMAGES = (
    "RandomCrop(24, padding=2)", "RandomResizedCrop(20)", "CenterCrop(26)", "RandomHorizontalFlip()", "RandomVerticalFlip(0.3)",
    "ColorJitter(0.4, 0.4)", "RandomRotation(15)", "Grayscale(3)", "RandomGrayscale(0.5)", "Pad(2)", "Resize((22, 26))", "GaussianBlur(3)",
    "RandomAutocontrast()", "RandomSolarize(128, 0.4)",
)  # fmt: skip
TENSORS = {
    "T": (("T.ToTensor()",), ("T.PILToTensor()", "T.ConvertImageDtype(torch.float32)"), ("T.PILToTensor()", "lambda x: x.float() / 255")),
    "v2": (
        ("v2.ToImage()", "v2.ToDtype(torch.float32, scale=True)"),
        ("v2.PILToTensor()", "v2.ConvertImageDtype(torch.float32)"),
        ("T.ToTensor()",),
    ),
}
VALUES = (
    "{0}.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])", "{0}.Normalize([0.5] * 3, [0.25] * 3, inplace=True)",
    "{0}.RandomErasing(0.7)", "{0}.RandomHorizontalFlip()", "{0}.CenterCrop(16)", "{0}.Lambda(scaled)",
    "{0}.Lambda(lambda x: x.clamp_(0, 1))",
    "T.Lambda(noisy)", "scaled", "noisy", "sometimes", "standardised", "Shift(0.25)", "Clipped()", "torch.nn.Hardtanh()",
    "lambda x: x ** 2",
    "lambda x: x.half().float()", "torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Identity())",
)  # fmt: skip
ENDS = ("lambda x: x.permute(1, 2, 0)", "lambda x: x.flatten()", "lambda x: x[:, ::2]", "lambda x: x.double()", "lambda x: x.unsqueeze(0)")


STATEMENTS = (
    "x = x.float()", "x = x.float() / 255", "x = x - MEAN", "x = (x - MEAN) / 0.25", "x = F.pad(x, (1, 1))", "x = x.flip(0)", "x = -x",
    "x = noisy(x.float())", "x = scaled(x)", "x = x.clamp(0, 1)", "x = x[:, ::2]", "x = 1 - x", "x = x * self.gain", "x = x.double()",
    "if index == 5:\n    x = x * 2", "y = x.sum()", "x *= 2", "x = x.float().exp()", "y = x.float()\nx = y * 0.5", "x = x.to(torch.int32)",
)  # fmt: skip
RETURNS = ("x, index", "{'x': x, 'index': index}", "x / 2", "x.mul(3), x.amax((1, 2))", "[x, -(x + 1)]", "(x.sum(0) - 0.5).float(), 3")
FORMS = (  # where the container is made; definitions with a number, and the data set
    ("", "{kind}({container})"),
    ("", "{kind}({container})"),
    ("def get@n(train):\n    if train:\n        return {container}\n    return T.Compose([T.ToTensor()])", "{kind}(get@n(True))"),
    ("def get@n():\n    made = {container}\n    return made", "{kind}(transform=get@n())"),
    ("class Own@n({kind}):\n    def __init__(self):\n        super().__init__()\n        self.transform = {container}", "Own@n()"),
)
OWN = """class Own@n(Tuples):
    def __getitem__(self, index):
        x = torch.from_numpy(np.array(self.image(index))).permute(2, 0, 1)
        {statements}
        return {returned}"""


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[str, str]:
    """Definitions, and a data set, as text with "@n" in it."""
    if draw(st.integers(0, 2)) == 0:
        statements = "\n".join(draw(st.lists(st.sampled_from(STATEMENTS), max_size=5))) or "pass"
        return OWN.format(statements=statements.replace("\n", "\n        "), returned=draw(st.sampled_from(RETURNS))), "Own@n()"
    package = draw(st.sampled_from(("T", "v2")))
    elements = [f"{package}.{element}" for element in draw(st.lists(st.sampled_from(IMAGES), max_size=3))]
    elements += draw(st.sampled_from(TENSORS[package]))
    elements += [element.format(package) for element in draw(st.lists(st.sampled_from(VALUES), max_size=3))]
    elements += draw(st.lists(st.sampled_from(ENDS), max_size=1))
    container, kind = f"{package}.Compose([{', '.join(elements)}])", draw(st.sampled_from(("Tuples", "Dicts", "Alone")))
    definitions, dataset = (text.format(container=container, kind=kind) for text in draw(st.sampled_from(FORMS)))
    return definitions, dataset


def program(made: list[tuple[str, str]]) -> str:
    lines, definitions = [], []
    for number, (definition, dataset) in enumerate(made):
        definitions.append(f"{definition.replace('@n', str(number))}\n\n" if definition else "")
        lines.append(f"    set{number} = {dataset.replace('@n', str(number))}")
        lines.append(f"    loader{number} = DataLoader(set{number}, batch_size=4, shuffle=True, num_workers={int(number % 4 > 0)})")
    names = ", ".join(f"loader{number}" for number in range(len(made)))
    script = SCRIPT.replace("@definitions@", "\n".join(definitions))
    return script.replace("@loaders@", "\n".join(lines)).replace("@names@", names)


@settings(
    max_examples=1,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.large_base_example],
)
@given(made=st.lists(pipelines(), min_size=PIPELINES, max_size=PIPELINES, unique=True))
def test_script_and_split_give_the_same(made: list[tuple[str, str]], scratch: Scratch) -> None:
    folder = Path(scratch.folder, f"pipelines{len(list(scratch.folder.iterdir()))}")
    folder.mkdir()
    (folder / "train.py").write_text(program(made))
    options = ("--samples", "4", "--price", "1000")
    ended = scratch.splitter("transform", "train.py", *options, folder=folder)
    assert ended.returncode == 0, ended.stderr
    text = (folder / "train_trainer.py").read_text()
    plan = json.loads((folder / "train_split.json").read_text())
    assert {feed["status"] for feed in plan["feeds"]} == {"split"}, ended.stderr
    assert text.count("finish=") >= PIPELINES // 5, text

    ended = scratch.splitter("verify", "train.py", *options, folder=folder)
    assert ended.returncode == 0, f"{ended.stdout}{ended.stderr}{text}"
    assert ended.stdout.count("identical") == PIPELINES
