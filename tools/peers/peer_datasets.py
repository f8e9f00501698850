"""The datasets of tools/measured/memory.py and jpeg.py, in a module that peers' worker processes can import."""

from __future__ import annotations

import argparse
import functools
import json
import os
from typing import Any

import torch
from torch.utils.data import Dataset
from torchvision import datasets, transforms


class Samples(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, kept: int, shape: list[int], length: int) -> None:
        self.samples = torch.rand(kept, *shape)
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.samples[index % len(self.samples)], index


def photos(data: str) -> datasets.ImageFolder:
    """Photographs, cropped and flipped at random and normalised."""
    steps = [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
    ]
    return datasets.ImageFolder(os.path.join(data, "train"), transforms.Compose(steps))


def make(args: argparse.Namespace) -> Any:
    """The dataset that the program's arguments ask for."""
    return Samples(args.kept, args.shape, args.length) if args.kind == "memory" else photos(args.data)


@functools.cache
def kept(arguments: str) -> Any:
    """The same, made once in each process; `arguments` as JSON."""
    return make(argparse.Namespace(**json.loads(arguments)))
