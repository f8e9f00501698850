"""What the worker program says about draws: each case is a `__getitem__`, or a whole program, and what is known of it."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from splitter.compile import compile_script
from splitter.emit_worker import emit_worker

HEAD = """
import functools, os, random, threading, time, warnings
import numpy as np
import skimage.util
import torch
import torch.nn.functional as F
import torchvision.transforms as T
from torch.utils.data import DataLoader, Dataset, TensorDataset, get_worker_info

class Rows(Dataset):
    def __init__(self, f=None, count=8):
        self.x = torch.randn(count, 3)
        self.f = f
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        return self.x[i]

class Mapped(Rows):
    def __getitem__(self, i):
        return self.f(self.x[i])

def noisy(x):
    return x + np.random.rand()

def double(x):
    return x * 2
"""

BODIES: dict[str, tuple[str, ...] | None] = {
    "return self.x[i] * 2": (),
    "time.sleep(0.1)\nreturn self.x[i]": (),
    "with open('x.txt') as f:\n    return int(f.read()) + i": (),
    "rng = np.random.default_rng(i)\nreturn rng.normal()": (),
    "g = torch.Generator().manual_seed(i)\nreturn torch.rand(3, generator=g)": (),
    "return F.pad(self.x[i], (1, 1))": (),
    "return getattr(self, 'x')[i]": (),
    "return torch.rand(3)": ("torch",),
    "return np.random.rand() + random.random()": ("numpy", "random"),
    "return torch.zeros(3).normal_()": ("torch",),
    "return F.dropout(self.x[i])": ("torch",),
    "return list(map(random.uniform, [0], [1]))": ("random",),
    "return noisy(self.x[i])": ("numpy",),
    "return T.RandomCrop(2)(self.x[i])": ("torch",),
    "return get_worker_info() is None": None,
    "return threading.get_ident()": None,
    "return skimage.util.random_noise(self.x[i])": None,
    "print(i)\nreturn self.x[i]": None,
    "warnings.warn('again')\nreturn self.x[i]": None,
    "self.last = i\nreturn self.x[i]": None,
    "torch.manual_seed(i)\nreturn torch.rand(3)": None,
    "return getattr(np.random, 'rand')()": None,
    "return getattr(self.f, self.name)(i)": None,
    "return self.f.sample(i)": None,
    "return self.__class__(i)": None,
    "source = np.random\nreturn source.rand()": None,
    "return torch.get_num_threads()": None,
}

PROGRAMS: dict[str, tuple[str, ...] | None] = {
    "loader = DataLoader(TensorDataset(torch.randn(8, 3)))": (),
    "loader = DataLoader(Mapped(double))": (),
    "loader = DataLoader(Mapped(noisy))": ("numpy",),
    "loader = DataLoader(Mapped(lambda x: x + torch.rand(1)))": ("torch",),
    "loader = DataLoader(Mapped(torch.rand_like))": ("torch",),
    "loader = DataLoader(Mapped(functools.partial(torch.add, other=1)))": (),
    "loader = DataLoader(Mapped(T.Compose([T.Resize(4), T.RandomHorizontalFlip()])))": ("torch",),
    "loader = DataLoader(Mapped(T.Compose([T.Resize(4), T.ToTensor()])))": (),
    "loader = DataLoader(Mapped(skimage.util.invert))": None,
    # made whenever a batch is: what its constructor draws is drawn then
    """
    class Noise:
        def __init__(self):
            self.by = random.random()
    class Fresh(Rows):
        def __getitem__(self, i):
            return self.x[i] + Noise().by
    loader = DataLoader(Fresh())
    """: ("random",),
    # made by a function that is called just once
    """
    def make():
        return torch.rand(4)
    class Given(Rows):
        def __init__(self, x):
            self.x = x
    loader = DataLoader(Given(make()))
    """: (),
    # the generator is the dataset's own state
    """
    class Own(Rows):
        def __init__(self):
            super().__init__()
            self.g = torch.Generator().manual_seed(0)
        def __getitem__(self, i):
            return torch.rand(3, generator=self.g)
    loader = DataLoader(Own())
    """: None,
    # of a dataset that it takes as a handle
    """
    class Noisy(Rows):
        def __getitem__(self, i):
            return self.x[i] + random.random()
    def main():
        inner = Noisy()
        first = DataLoader(inner, num_workers=2)
        class Outer(Rows):
            def __init__(self, data):
                self.x = data
        outer = Outer(inner)
        loader = DataLoader(outer)
    main()
    """: ("random",),
}

COLLATES: dict[str, tuple[str, ...] | None] = {
    "collate_fn=lambda rows: torch.stack(rows)": (),
    "collate_fn=lambda rows: torch.stack(rows) + torch.rand(1)": ("torch",),
    "collate_fn=lambda rows: (os.getpid(), rows)": None,
    "collate_fn=double, worker_init_fn=lambda worker: np.random.seed(worker)": None,
}


def draws(folder: Path, program: str, kind: str) -> tuple[str, ...] | None:
    """What the last builder of that kind says."""
    (folder / "train.py").write_text(HEAD + textwrap.dedent(program))
    builders = [one for one in compile_script(folder / "train.py").worker.builders if one.kind == kind]
    return builders[-1].draws if builders else None


@pytest.mark.parametrize("body", BODIES)
def test_draws_of_a_method(tmp_path: Path, body: str) -> None:
    text = textwrap.indent(body, " " * 8)
    program = f"class Mine(Rows):\n    def __getitem__(self, i):\n{text}\nloader = DataLoader(Mine(), num_workers=2)"
    assert draws(tmp_path, program, "dataset") == BODIES[body]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda text: text.strip()[:60])
def test_draws_of_a_program(tmp_path: Path, program: str) -> None:
    assert draws(tmp_path, re.sub(r"(loader = DataLoader\(.*)\)", r"\1, num_workers=2)", program), "dataset") == PROGRAMS[program]


@pytest.mark.parametrize("options", COLLATES)
def test_draws_of_a_loader(tmp_path: Path, options: str) -> None:
    assert draws(tmp_path, f"loader = DataLoader(Rows(), num_workers=2, {options})", "loader") == COLLATES[options]


def test_draws_reach_the_worker_program(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HEAD + "loader = DataLoader(Rows(), num_workers=2, collate_fn=lambda rows: rows + [torch.rand(1)])")
    text = emit_worker(compile_script(tmp_path / "train.py"), script="train.py", folder=None).text
    assert "stateless=True, draws=())" in text
    assert 'stateless=True, draws=("torch",))' in text
