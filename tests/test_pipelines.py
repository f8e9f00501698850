"""Random pipelines of transforms: whatever the cut leaves to the trainer, script and split give the same batches.

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
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision.transforms import v2


class Tuples(Dataset):
    def __init__(self, transform):
        self.transform = transform

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


@st.composite
def pipelines(draw: st.DrawFn) -> str:
    """A data set with its pipeline, as text."""
    package = draw(st.sampled_from(("T", "v2")))
    elements = [f"{package}.{element}" for element in draw(st.lists(st.sampled_from(IMAGES), max_size=3))]
    elements += draw(st.sampled_from(TENSORS[package]))
    elements += [element.format(package) for element in draw(st.lists(st.sampled_from(VALUES), max_size=3))]
    elements += draw(st.lists(st.sampled_from(ENDS), max_size=1))
    return f"{draw(st.sampled_from(('Tuples', 'Dicts', 'Alone')))}({package}.Compose([{', '.join(elements)}]))"


def program(made: list[str]) -> str:
    lines = []
    for number, dataset in enumerate(made):
        lines.append(f"    set{number} = {dataset}")
        lines.append(f"    loader{number} = DataLoader(set{number}, batch_size=4, shuffle=True, num_workers={int(number % 4 > 0)})")
    names = ", ".join(f"loader{number}" for number in range(len(made)))
    return SCRIPT.replace("@loaders@", "\n".join(lines)).replace("@names@", names)


@settings(
    max_examples=1,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.large_base_example],
)
@given(made=st.lists(pipelines(), min_size=PIPELINES, max_size=PIPELINES, unique=True))
def test_script_and_split_give_the_same(made: list[str], scratch: Scratch) -> None:
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
