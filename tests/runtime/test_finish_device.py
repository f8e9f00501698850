"""Finishing whole batches in the loop that takes them: the bits, strides and types of finishing each sample on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pairs import Pair, assert_same, run_both
from sameness import difference
from scratch import Scratch
from torch import nn
from torchvision import transforms
from torchvision.transforms import v2

from splitter_runtime import finish_on_device
from splitter_runtime.errors import ConfigError
from splitter_runtime.finish import Finish, ScaleToFloat
from splitter_runtime.finish_device import Rest, whole

MEAN = torch.tensor([0.4, 0.5, 0.6])[:, None, None]
BYTES = torch.arange(7 * 3 * 8 * 5).remainder(251).to(torch.uint8).view(7, 3, 8, 5)
FLOATS = torch.linspace(-2, 2, BYTES.numel()).view(BYTES.shape)
SAME: dict[str, tuple[Callable[[Any], Any], torch.Tensor]] = {
    "ImageNet": (transforms.Compose([ScaleToFloat(), transforms.Normalize([0.4] * 3, [0.2] * 3)]), BYTES),
    "v2": (v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.4] * 3, [0.2] * 3)]), BYTES),
    "in a row": (nn.Sequential(transforms.ConvertImageDtype(torch.float64), transforms.Normalize([0.4] * 3, [0.2] * 3)), BYTES),
    "in place": (transforms.Normalize([0.4] * 3, [0.2] * 3, inplace=True), FLOATS),
    "a function": (lambda x: (x.float() / 255 - MEAN) / 0.3, BYTES),
    "turned": (lambda x: x.permute(1, 2, 0).flip(0) * 2, FLOATS),
    "other channels": (lambda x: x[[2, 1, 0]] / 7, BYTES),
    "limits": (lambda x: x.clamp(-0.5, 0.5).relu().half(), FLOATS),
    "larger": (lambda x: nn.functional.pad(torch.cat([x, x]), (1, 2)), BYTES),
    "nothing": (lambda x: x, BYTES),
    "channels last": (lambda x: x / 3, FLOATS.to(memory_format=torch.channels_last)),
    "a mask": (lambda x: torch.where(x > 0, x, torch.zeros(())), FLOATS),
}


@pytest.mark.parametrize("in_main", [False, True])
@pytest.mark.parametrize("case", SAME)
def test_whole_batches(case: str, in_main: bool) -> None:
    step, batch = SAME[case]
    expected = Finish(step).batch(batch.clone(), in_main=in_main)
    for inference in (False, True):
        with torch.inference_mode(inference):
            made = whole(step, batch.clone(), in_main=in_main)
            assert made.is_inference() == inference and not made.requires_grad
        assert difference(expected, made) is None and made.stride() == expected.stride()


def test_refused() -> None:
    refused: dict[str, Callable[[Any], Any]] = {
        "R605: the finish on the device: a transform that has parameters": lambda x: x * nn.Parameter(torch.ones(3, 1, 1)),
        "R605: the finish on the device: pow": lambda x: x**0.5,
        "R604: a transform gives a tuple where a tensor was": lambda x: (x, x),
    }
    for said, step in refused.items():
        with pytest.raises(ConfigError) as caught:
            whole(step, FLOATS)
        assert str(caught.value).startswith(said), caught.value
    with pytest.raises(ConfigError, match=r"R604: a batch is a tensor of shape \(\)"):
        whole(lambda x: x, torch.tensor(3))
    with pytest.raises(RuntimeError, match="vmap"):  # what follows the values of a sample can't be done to all of them
        whole(lambda x: x if x[0, 0, 0] > 3 else -x, FLOATS)


def rest(structure: Any, batch: Any, *, collates: bool = True) -> Any:
    class Loader:
        _rest = Rest(Finish(structure, on_device=True), in_main=False, collates=collates)

    Loader._rest.note(batch)
    return Loader


def test_parts_of_batches() -> None:
    scale = ScaleToFloat()
    batch = {"image": BYTES, "pair": [torch.arange(7), BYTES], "name": ["a"] * 7}
    structure = {"image": scale, "pair": (None, scale), "name": None}
    expected = Finish(structure).batch(copy.deepcopy(batch))
    loader = rest(structure, batch)
    assert difference(expected, finish_on_device(copy.deepcopy(batch), loader)) is None
    assert difference(expected["pair"], finish_on_device(copy.deepcopy(batch["pair"]), loader, "pair")) is None
    assert difference(expected["image"], finish_on_device(BYTES, loader, "image")) is None
    assert finish_on_device(BYTES, loader, "name") is BYTES and finish_on_device(BYTES, object(), 0) is BYTES
    assert difference(scale(BYTES[0]), finish_on_device(BYTES[0], rest(scale, BYTES[0], collates=False))) is None
    assert difference(expected, loader._rest.copied(batch)) is None and batch["image"] is BYTES


def test_what_else_comes() -> None:
    batch = [BYTES, torch.arange(7)]
    loader = rest((ScaleToFloat(), None), batch)
    for value, said in (
        (BYTES.float(), r"R606: batch\[0\] is a tensor of float32 where it is finished, and was uint8"),
        (BYTES.numpy(), r"R606: batch\[0\] is ndarray where it is finished"),
    ):
        with pytest.raises(ConfigError, match=said):
            finish_on_device(value, loader, 0)
    with pytest.raises(ConfigError, match="R604: the part of a batch at \\(3,\\)"):
        finish_on_device(BYTES, loader, 3)
    with pytest.raises(ConfigError, match="R604: batch is a Tensor where a sequence of 2 was"):
        finish_on_device(BYTES, loader)
    with pytest.raises(ConfigError, match="R606"):  # once is enough
        finish_on_device(finish_on_device(BYTES, loader, 0), loader, 0)


# --- programs

MOVED = '''
from torchvision import transforms


class Pictures(Dataset):
    """A label and an image, as bytes."""

    def __init__(self, transform, n=21):
        self.transform, self.n = transform, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        pixels = torch.from_numpy(np.random.RandomState(i).randint(0, 256, (3, 7, 5), dtype=np.uint8))
        return i, self.transform(pixels.flip(-1) if torch.rand(1) < 0.5 else pixels)
'''
BUILDERS = """
@splitter_runtime.dataset("train", stateless=True, draws=("torch",), unfinished=True)
def train():
    return Pictures(transforms.Compose([]))
"""
HEAD = """
from torchvision import transforms


def finished(images, loader):
    return images


scale = transforms.Compose([transforms.ConvertImageDtype(torch.float32), transforms.Normalize([0.4] * 3, [0.2] * 3)])
dataset = Pictures(scale)
"""
SWAPS = (
    ("Pictures(scale)", 'splitter_runtime.RemoteDataset("train", finish=(None, scale), finish_on="device")'),
    ("return images", "return splitter_runtime.finish_on_device(images, loader, 1)"),
)


def pair(body: str) -> Pair:
    return Pair(MOVED, BUILDERS, HEAD + body, SWAPS)


def test_loops(scratch: Scratch) -> None:
    body = """
import threading

for loader in (
    DataLoader(dataset, batch_size=4, shuffle=True),
    DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2),
    DataLoader(dataset, batch_size=4, num_workers=2, persistent_workers=True),
    DataLoader(dataset, batch_size=None, num_workers=1),
    DataLoader(Subset(dataset, range(9)), batch_size=4, num_workers=1),
    DataLoader(ConcatDataset([dataset, Subset(dataset, [2, 1])]), batch_size=4),
    DataLoader([(1, torch.ones(2))] * 3, batch_size=2),
):
    for epoch in range(2):
        for labels, images in loader:
            images = images.to("cpu")
            images = finished(images, loader)
            see([labels, images])
    with torch.inference_mode():
        for labels, images in loader:
            see([labels, finished(images, loader)])
see([dataset[3], list(dataset)[-1]])
print([thread.name for thread in threading.enumerate() if "finish" in thread.name])
show()
"""
    assert "[]" in assert_same(scratch, pair(body))


def test_joined_with_others(scratch: Scratch) -> None:
    body = """
other = splitter_runtime.RemoteDataset("train", finish=(None, scale))


def refused(make):
    try:
        make()
    except RuntimeError as error:
        print(str(error).split(". ")[0])


refused(lambda: DataLoader(ConcatDataset([dataset, other])))
refused(lambda: DataLoader(torch.utils.data.StackDataset(dataset, other)))
refused(lambda: splitter_runtime.RemoteDataset("train", finish=(None, scale), finish_on="gpu"))
print(len(DataLoader(torch.utils.data.StackDataset(dataset, dataset))))
"""
    _, split = run_both(scratch, pair(body), quick=True)
    assert split.stdout.splitlines() == [
        "R601: a ConcatDataset joins datasets whose samples the trainer finishes in different ways",
        "R601: a StackDataset joins datasets that are finished in different places",
        'R601: finish_on=\'gpu\' is neither "cpu" nor "device"',
        "21",
    ], split.stderr
