"""Where loaders are constructed, however it is written: what becomes of each, and the edits."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from splitter.compile import compile_script
from splitter.diagnostics import hint, message
from splitter.emit import emit

HEAD = """\
import functools
from functools import partial
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self, n=4):
        self.n = n
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        return torch.tensor([float(i)])

def pad(rows):
    return torch.stack(rows)

def use(loader):
    for x in loader:
        print(x)

"""
SUBCLASS = "class L(DataLoader):\n    def __init__(self, {}):\n        {}\n"


def subclass(parameters: str, *body: str) -> str:
    return SUBCLASS.format(parameters, "\n        ".join(body))


SPLIT = [
    # the script, what its trainer has instead of it
    (
        "ls = [DataLoader(Rows(n), n) for n in (1, 2)]\n",
        'ls = [splitter_runtime.DataLoader(splitter_runtime.RemoteDataset("ls", {"n": n}), n) for',
    ),
    ("a = {'x': DataLoader(Rows(), num_workers=1)}\nuse(a['x'])\n", "a = {'x': splitter_runtime.DataLoader("),
    ("it = iter(DataLoader(Rows(), 2))\n", 'it = iter(splitter_runtime.DataLoader(splitter_runtime.RemoteDataset("data"), 2))'),
    ("print(len(DataLoader(Rows(), 2).dataset))\n", 'splitter_runtime.DataLoader(splitter_runtime.RemoteDataset("data"), 2).dataset'),
    ("def run(loader=DataLoader(Rows())):\n    use(loader)\nrun()\n", "def run(loader=splitter_runtime.DataLoader("),
    (
        "use(DataLoader(batch_size=2, dataset=Rows()))\n",
        "splitter_runtime.DataLoader(batch_size=2, dataset=splitter_runtime.RemoteDataset(",
    ),
    ("use(DataLoader(*(Rows(), 2)))\n", "splitter_runtime.DataLoader(*(splitter_runtime.RemoteDataset("),
    ("use(DataLoader[int](Rows()))\n", "use(splitter_runtime.DataLoader(splitter_runtime.RemoteDataset("),
    ("use(DataLoader(Rows(), 2) if pad else DataLoader(Rows(), 3))\n", "else splitter_runtime.DataLoader("),
    # partials
    ("make = partial(DataLoader, num_workers=1)\nuse(make(Rows()))\n", "make = partial(splitter_runtime.DataLoader, num_workers=1)"),
    ("use(partial(DataLoader, num_workers=1)(Rows()))\n", "use(partial(splitter_runtime.DataLoader, num_workers=1)(splitter_runtime.Re"),
    ("m = partial(partial(DataLoader, num_workers=1), batch_size=2)\nuse(m(Rows()))\n", "m = partial(partial(splitter_runtime.DataLoader,"),
    ("class T:\n    make = partial(DataLoader, num_workers=1)\nuse(T().make(Rows()))\n", "make = partial(splitter_runtime.DataLoader,"),
    ("def build(make, d):\n    return make(d)\nuse(build(DataLoader, Rows()))\n", "build(splitter_runtime.DataLoader, splitter_runtime.Re"),
    # classes in variables
    ("class L(DataLoader):\n    pass\nC = L if use else DataLoader\nuse(C(Rows()))\n", "C = L if use else splitter_runtime.DataLoader"),
    ("class L(DataLoader):\n    pass\nC = DataLoader\nif use:\n    C = L\nuse(C(Rows()))\n", "C = splitter_runtime.DataLoader"),
    # subclasses
    (subclass("d, n", "super(L, self).__init__(d, n, collate_fn=pad)") + "use(L(Rows(), 2))\n", "class L(splitter_runtime.DataLoader):"),
    (subclass("d", "DataLoader.__init__(self, d)") + "use(L(Rows()))\n", "splitter_runtime.DataLoader.__init__(self, d)"),
    (
        subclass("d, k", "self.k = k", "super().__init__(d, 2, collate_fn=partial(add, k=self.k))")
        + "def add(rows, k):\n    return torch.stack(rows) + k\nuse(L(Rows(), 2))\n",
        'env={"self.k": self.k})',
    ),
    (
        subclass("n, **kw", "super().__init__(Rows(n), **kw)") + "use(L(3, batch_size=2))\n",
        'super().__init__(splitter_runtime.RemoteDataset("data"',
    ),
    (
        subclass("*a, n, **kw", "super().__init__(*a, **kw)") + "use(L(Rows(), 2, n=1))\n",
        'use(L(splitter_runtime.RemoteDataset("data"), 2, n=1))',
    ),
    (
        subclass("d, merge=pad, **kw", "super().__init__(d, collate_fn=merge, **kw)") + "use(L(Rows(), num_workers=1))\n",
        "use(L(splitter_runtime.",
    ),
    ("class L(DataLoader[torch.Tensor]):\n    pass\nuse(L(Rows()))\n", "class L(splitter_runtime.DataLoader):"),
    # keywords
    ("kw = {'num_workers': 1}\nkw |= {'collate_fn': pad}\nuse(DataLoader(Rows(), **kw))\n", "**kw))"),
    ("def f(d, o=None):\n    return DataLoader(d, **(o or {}))\nuse(f(Rows(), dict(batch_size=2)))\n", "**(o or {}))"),
    ("def f(d, **kw):\n    return DataLoader(d, **kw)\nuse(f(Rows(), collate_fn=pad))\n", "RemoteDataset("),
    ("import yaml\ncfg = yaml.safe_load(open('c'))\nuse(DataLoader(Rows(), **cfg['loader']))\n", "**cfg['loader']))"),
    ("kw = {'dataset': Rows()}\nuse(DataLoader(**kw))\n", "kw = {'dataset': splitter_runtime.RemoteDataset("),
]


@pytest.mark.parametrize(("script", "expected"), SPLIT)
def test_is_edited(script: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HEAD + script)
    plan = compile_script(tmp_path / "train.py")
    assert {feed.status for feed in plan.feeds} == {"split"}, [message(found) for found in plan.diagnostics]
    texts = {file.name: file.content.decode() for file in emit(plan).files}
    flat = " ".join(texts["train_trainer.py"].split()).replace("( ", "(")
    assert " ".join(expected.split()) in flat
    ast.parse(texts["train_worker.py"])


LEFT = [
    # the script, the code, a part of the message and hint
    ("a = (Rows(), 2)\nuse(DataLoader(*a))\n", "S203", "`*a`"),
    ("import argparse\na = argparse.ArgumentParser().parse_args()\nuse(DataLoader(Rows(), **vars(a)))\n", "S203", "vars(a)"),
    (
        "import yaml\nc = yaml.safe_load(open('c'))\nc['collate_fn'] = pad\nuse(DataLoader(Rows(), **c))\n",
        "S203",
        "`yaml.safe_load(open('c'))`",
    ),
    ("kw = {}\nfor k in 'ab':\n    kw[k] = 1\nuse(DataLoader(Rows(), **kw))\n", "S203", "kw[k]"),
    (
        "class T:\n    def __init__(self, f):\n        self.kw = {'collate_fn': torch.stack}\n"
        "        if f:\n            self.kw['collate_fn'] = pad\n"
        "    def go(self):\n        use(DataLoader(Rows(), **self.kw))\nT(1).go()\n",
        "S203",
        "collate_fn",
    ),
    ("use(DataLoader(Rows(), **{'in_order': False, 'num_workers': 2}))\n", "S308", "in_order"),
    (subclass("d", "super().__init__(d)", "self.collate_fn = pad") + "use(L(Rows()))\n", "S202", "sets `self.collate_fn`"),
    (subclass("d", "self.data = d") + "use(L(Rows()))\n", "S202", "doesn't call DataLoader's"),
    (
        subclass("d", "super().__init__(d, collate_fn=self.f)") + "    def f(self, r):\n        return r\nuse(L(Rows()))\n",
        "S305",
        "`self.f`",
    ),
    (
        "class M:\n    def __init__(self, *a):\n        super().__init__(*a)\nclass L(M, DataLoader):\n    pass\nuse(L(Rows()))\n",
        "S202",
        "other bases",
    ),
    (
        "class L(DataLoader):\n    def __iter__(self):\n        for x in super().__iter__():\n            x.mul_(2)\n            yield x\n"
        "use(L(Rows(), batch_size=None))\n",
        "S310",
        "x.mul_(2)",
    ),
    (
        subclass("n, **kw", "super().__init__(Rows(n), **kw)") + "CLASSES = {'l': L}\nuse(L(3))\nuse(CLASSES['l'](4, collate_fn=pad))\n",
        "S203",
        "`kw`",
    ),
    ("class L(DataLoader):\n    def env(self):\n        pass\nuse(L(Rows()))\n", "S202", "its own `env`"),
    ("class L(DataLoader):\n    def end(self):\n        self._iterator._shutdown_workers()\nuse(L(Rows()))\n", "S202", "_shutdown_workers"),
    ("class L(DataLoader):\n    pass\nC = L\nl = C(Rows())\nprint(isinstance(l, C))\n", "S202", "may be something else"),
    ("from torch_geometric.loader import DataLoader as D\nuse(D(Rows()))\n", "S202", "PyG's DataLoader"),
    ("from torch_geometric.loader import NeighborLoader\nuse(NeighborLoader(Rows(), [2]))\n", "S202", "graph sampling"),
    ("from torchdata.stateful_dataloader import StatefulDataLoader\nuse(StatefulDataLoader(Rows()))\n", "S202", "its state is that"),
    ("import webdataset as wds\nuse(wds.WebLoader(Rows()))\n", "S202", "batch_size=None"),
    ("import monai.data\nuse(monai.data.DataLoader(Rows()))\n", "S202", "list_data_collate"),
    ("from torchtext.data import BucketIterator\na, b = BucketIterator.splits((1, 2))\n", "S202", "torchtext iterator"),
    ("from torch_geometric.loader import DataLoader as D\nclass L(D):\n    pass\nuse(L(Rows()))\n", "S202", "L, PyG's DataLoader,"),
    (
        "try:\n    from torchdata.stateful_dataloader import StatefulDataLoader as D\n"
        "except ImportError:\n    D = DataLoader\nuse(D(Rows()))\n",
        "S202",
        "StatefulDataLoader",
    ),
]


@pytest.mark.parametrize(("script", "code", "said"), LEFT)
def test_is_left(script: str, code: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HEAD + script)
    plan = compile_script(tmp_path / "train.py")
    assert [(feed.status, feed.code) for feed in plan.feeds] == [("left", code)]
    assert any(said in f"{message(found)}; {hint(found)}" for found in plan.diagnostics)
