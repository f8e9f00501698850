"""Scripts with loops over batches, and the heads that the compiler finds in them."""

from __future__ import annotations

import textwrap
from pathlib import Path

from splitter.compile import compile_script
from splitter.ir_cut import Head

BEFORE = """
import random, time
import kornia
import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

CLASSES = 10
VOCABULARY = {"a": 1, "b": 2}


class Rows(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.zeros(3, 4, 4, dtype=torch.uint8), i


class Words(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return {"text": "a b a", "label": i}


class Tokenizer:
    def __init__(self, size):
        self.size = size

    def __call__(self, texts):
        return torch.tensor([[VOCABULARY[word] % self.size for word in text.split()] for text in texts])


class Counting(Tokenizer):
    def __call__(self, texts):
        self.seen = len(texts)
        return super().__call__(texts)


def tokens(texts):
    return torch.tensor([[VOCABULARY[word] for word in text.split()] for text in texts])


def noisy(images):
    return images + torch.rand(4)


def shout(images):
    print("here")
    return images


tokenizer = Tokenizer(9)
counting = Counting(9)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
gpu = device
"""


def heads(folder: Path, text: str) -> tuple[Head, ...]:
    script = folder / "train.py"
    script.write_text(BEFORE + textwrap.dedent(text), encoding="utf-8")
    return compile_script(script).heads


def texts(folder: Path, head: Head) -> list[str]:
    """The statements that could move."""
    lines = (folder / "train.py").read_text(encoding="utf-8").splitlines()
    return [lines[own.span.line - 1][own.span.column : own.span.end_column] for own in head.statements]


LOOP = """
loader = DataLoader({data}(), batch_size=4)
for {target} in {loader}:
{body}
    optimizer.zero_grad()
    loss = model({first}).sum()
"""


def loop(body: str, target: str = "images, labels", loader: str = "loader", data: str = "Rows", first: str = "images") -> str:
    return LOOP.format(data=data, target=target, loader=loader, body=textwrap.indent(textwrap.dedent(body).strip(), "    "), first=first)
