"""Small programs and what is decided about them: most say why something must stay."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from splitter.compile import compile_script

HEAD = """
import random, copy, sys
import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset, random_split

class Rows(Dataset):
    def __init__(self, rows=(1, 2, 3), f=None):
        self.rows = rows
        self.epoch = 0
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        return torch.tensor(self.rows[i])
    def set_epoch(self, epoch):
        self.epoch = epoch

class Noisy(Rows):
    def __getitem__(self, i):
        return torch.rand(2) + self.rows[i]

class Scale:
    def __init__(self, k):
        self.k = k
    def __call__(self, x):
        return x * self.k
"""

SPLIT = {
    "plain": "loader = DataLoader(Rows([1, 2]), batch_size=2)",
    "draws with workers": "loader = DataLoader(Noisy(), num_workers=2)",
    "worker count from arguments": """
        import argparse
        args = argparse.ArgumentParser().parse_args()
        loader = DataLoader(Noisy(), num_workers=args.workers)""",
    "shuffled list is sent": "rows = [1, 2, 3]\nrandom.shuffle(rows)\nloader = DataLoader(Rows(rows))",
    "list filled in a loop is copied": "rows = []\nfor i in range(3):\n    rows.append(i)\nloader = DataLoader(Rows(rows))",
    "set_epoch is sent": "data = Rows()\nloader = DataLoader(data, num_workers=1)\nfor e in range(2):\n    data.set_epoch(e)",
    "plain attribute written": "data = Rows()\nloader = DataLoader(data, num_workers=1)\ndata.epoch = 3",
    "random_split": "a, b = random_split(Rows(), [2, 1])\nloader = DataLoader(a)\nother = DataLoader(b)",
    "concatenated": "loader = DataLoader(ConcatDataset([Rows(), Rows([4])]))\nn = len(loader.dataset)",
    "through a helper": "def make(k):\n    return Rows([k])\nloader = DataLoader(make(3))",
    "helper with a loader": "def make(k):\n    data = Rows([k])\n    return DataLoader(data)\na, b = make(1), make(2)",
    "both branches": "import sys\nif len(sys.path) > 3:\n    data = Rows()\nelse:\n    data = Rows([9])\nloader = DataLoader(data)",
    "collate is a lambda": "k = 3\nloader = DataLoader(Rows(), collate_fn=lambda rows: torch.stack(rows) * k)",
    "tensors from the script": "x = torch.randn(4, 2)\nloader = DataLoader(TensorDataset(x))",
    "keywords in a dict": "options = {'batch_size': 2}\noptions.update(num_workers=1)\nloader = DataLoader(Noisy(), **options)",
    "object built on both sides": "scale = Scale(3)\nclass Scaled(Rows):\n    def __init__(self, f):\n        super().__init__()\n"
    "        self.f = f\nloader = DataLoader(Scaled(scale))",
    "loader only iterated": "loader = DataLoader(Rows())\nfor i, x in enumerate(loader):\n    pass\nn = len(loader)",
    "class in a function": "def main():\n    class Own(Rows):\n        pass\n    loader = DataLoader(Own())\nmain()",
    "collate object counts in workers": """
        class Collate:
            calls = 0
            def __call__(self, rows):
                self.calls += 1
                return torch.stack(rows)
        collate = Collate()
        loader = DataLoader(Rows(), collate_fn=collate, num_workers=2)
        print(collate.calls)""",
    "file read in the constructor": "class F(Rows):\n    def __init__(self):\n        self.rows = open('x').read().split()\n"
    "loader = DataLoader(F(), num_workers=2)",
    "draws in the main process": "loader = DataLoader(Noisy())",
    "draw in collate": "loader = DataLoader(Rows(), collate_fn=lambda rows: torch.stack(rows) * torch.rand(1))",
    "generators on the CPU seeded in the main process": """
        class Seeded(Rows):
            def __getitem__(self, i):
                random.seed(i)
                np.random.seed(i)
                kept = torch.get_rng_state()
                noise = torch.rand(2) + random.random()
                torch.set_rng_state(kept)
                return noise
        loader = DataLoader(Seeded())""",
    "library switch": "torch.set_flush_denormal(True)\nloader = DataLoader(Rows())",
}

LEFT = {
    ("S305", "class body reads arguments"): """
        import argparse
        args = argparse.ArgumentParser().parse_args()
        class G(Rows):
            size = args.size
        loader = DataLoader(G())""",
    ("S303", "torch seeded in the main process"): """
        class Seeded(Rows):
            def __getitem__(self, i):
                torch.manual_seed(i)
                return torch.rand(2)
        loader = DataLoader(Seeded())""",
    ("S303", "seeded in collate, by a helper"): """
        def seed(n):
            torch.random.manual_seed(n)
        def collate(rows):
            seed(len(rows))
            return torch.stack(rows)
        loader = DataLoader(Rows(), collate_fn=collate)""",
    ("S304", "through Subset"): "data = Subset(Rows(), [0])\nloader = DataLoader(data)\ndata.dataset.f = Scale(2)",
    ("S304", "list grows later"): "rows = [1, 2]\nloader = DataLoader(Rows(rows))\nrows.append(3)",
    (
        "S304",
        "list grows later, in a function",
    ): "def grow(r):\n    r.append(3)\nrows = [1, 2]\nloader = DataLoader(Rows(rows))\ngrow(rows)",
    ("S304", "shuffled later"): "rows = [1, 2]\nloader = DataLoader(Rows(rows))\nrandom.shuffle(rows)",
    ("S304", "attribute that is named like a result"): "f = Scale(2)\nloader = DataLoader(Rows([1], f))\nf.mean = 3",
    ("S304", "tensor written later"): "x = torch.ones(4)\nloader = DataLoader(TensorDataset(x))\nx.mul_(2)",
    ("S304", "attribute's list sorted"): "data = Rows([3, 1])\nloader = DataLoader(data)\ndata.rows.sort()",
    ("S304", "alias of an attribute changed"): "data = Rows([3, 1])\nloader = DataLoader(data)\nr = data.rows\nr[0] = 5",
    ("S304", "in a loop over loaders"): "a, b = DataLoader(Rows()), DataLoader(Rows())\nfor l in (a, b):\n    l.dataset.f = Scale(1)",
    ("S304", "collate replaced"): "loader = DataLoader(Rows(), num_workers=1)\nloader.collate_fn = Scale(1)",
    ("S305", "open connection"): "import sqlite3\ndb = sqlite3.connect(':memory:')\nloader = DataLoader(Rows(db))",
    ("S305", "one generator in two places"): "g = np.random.default_rng(0)\nloader = DataLoader(Rows(g))\nprint(g.random())",
    (
        "S306",
        "clock",
    ): "import time\nclass Clock(Rows):\n    def __getitem__(self, i):\n        return time.time()\nloader = DataLoader(Clock())",
    (
        "S306",
        "environment",
    ): "import os\nclass Env(Rows):\n    def __getitem__(self, i):\n        return os.environ['X']\nloader = DataLoader(Env())",
    (
        "S306",
        "rank of another library",
    ): """
        from mpi4py import MPI
        class Ranked(Rows):
            def __getitem__(self, i):
                return MPI.COMM_WORLD.Get_rank()
        loader = DataLoader(Ranked())""",
    ("S301", "model in collate"): "net = nn.Linear(2, 2)\nloader = DataLoader(Rows(), collate_fn=lambda rows: net(torch.stack(rows)))",
    ("S301", "model in the dataset"): "net = nn.Linear(2, 2)\nloader = DataLoader(Rows(net))",
    (
        "S302",
        "cuda",
    ): "class C(Rows):\n    def __getitem__(self, i):\n        return super().__getitem__(i).cuda()\nloader = DataLoader(C())",
    ("S307", "gradient"): "x = torch.ones(3, requires_grad=True)\nloader = DataLoader(TensorDataset(x))",
    ("S308", "any order"): "loader = DataLoader(Rows(), num_workers=2, in_order=False)",
    ("S310", "batch is the dataset's"): "loader = DataLoader(Rows(), batch_size=None)\nfor x in loader:\n    x.add_(1)",
    ("S311", "global edited later"): """
        K = 1
        class G(Rows):
            def __getitem__(self, i):
                return K
        loader = DataLoader(G(), num_workers=1)
        for e in range(2):
            K += 1""",
    ("S311", "class attribute stored"): "loader = DataLoader(Rows(), num_workers=1)\nRows.extra = 3",
    (
        "S311",
        "closure rebound later",
    ): "def main():\n    k = 1\n    loader = DataLoader(Rows(), collate_fn=lambda r: r * k)\n    k = 2\nmain()",
    (
        "S313",
        "file kept open",
    ): "class F(Rows):\n    def __init__(self):\n        self.f = open('x')\nloader = DataLoader(F(), num_workers=2)",
    ("S314", "global counted"): """
        SEEN = []
        class G(Rows):
            def __getitem__(self, i):
                SEEN.append(i)
                return i
        loader = DataLoader(G())
        print(len(SEEN))""",
    ("S314", "list filled by batches"): """
        class G(Rows):
            def __init__(self, log):
                super().__init__()
                self.log = log
            def __getitem__(self, i):
                self.log.append(i)
                return i
        log = []
        loader = DataLoader(G(log))
        print(log)""",
    ("S314", "collate object counts"): """
        class Collate:
            calls = 0
            def __call__(self, rows):
                self.calls += 1
                return torch.stack(rows)
        collate = Collate()
        loader = DataLoader(Rows(), collate_fn=collate)
        print(collate.calls)""",
    ("S314", "function attribute"): """
        def f(x):
            f.calls = 1
            return x
        class G(Rows):
            def __getitem__(self, i):
                return f(i)
        loader = DataLoader(G())
        print(f.calls)""",
    ("S318", "handed to a library"): "import mystery\nmystery.fit(DataLoader(Rows()))",
    (
        "S319",
        "library switch that depends",
    ): "def main(n):\n    torch.set_flush_denormal(bool(n))\n    loader = DataLoader(Rows())\nmain(3)",
    ("S201", "unknown maker"): "import mystery\nloader = DataLoader(mystery.make())",
    ("S203", "keywords from elsewhere"): "import mystery\nloader = DataLoader(Rows(), **mystery.options())",
}


# Can't be built a second time on the worker: the trainer builds it and sends it. The value says with which number of workers.
SENT = {
    "printed while built": """
        if len(sys.argv) > 1:
            print('big')
            f = Scale(2)
        else:
            f = Scale(1)
        loader = DataLoader(Rows(f))""",
    "transform replaced": "data = Rows()\nloader = DataLoader(data, num_workers=1)\ndata.f = Scale(2)",
    "through loader.dataset": "loader = DataLoader(Rows(), num_workers=1)\nloader.dataset.f = Scale(2)",
    "list grows later": "rows = [1, 2]\nloader = DataLoader(Rows(rows), num_workers=1)\nrows.append(3)",
    "tensor written later": "x = torch.ones(4)\nloader = DataLoader(TensorDataset(x), num_workers=1)\nx.mul_(2)",
    "one generator in two places": "g = np.random.default_rng(0)\nloader = DataLoader(Rows(g), num_workers=1)\nprint(g.random())",
    "set order": "loader = DataLoader(Rows(list(set(['a', 'b']))))",
    "unseeded generator": "class G(Rows):\n    def __init__(self):\n        super().__init__()\n"
    "        self.g = np.random.default_rng()\nloader = DataLoader(G())",
    "list sorted by the constructor": """
        class G(Rows):
            def __init__(self, rows):
                rows.sort()
                super().__init__(rows)
        rows = [3, 1]
        loader = DataLoader(G(rows), num_workers=1)
        print(rows)""",
    "two statements on a line": "rows = [1, 2]; torch.manual_seed(0)\nloader = DataLoader(Rows(rows))",
    "its own method collates": """
        class Own(Rows):
            def loader(self):
                return DataLoader(self, num_workers=1, collate_fn=self.collate)
            def collate(self, rows):
                return torch.stack(rows)
        loader = Own().loader()""",
    "looked up in a dict of classes": "KINDS = dict(rows=Rows, noisy=Noisy)\nloader = DataLoader(KINDS[sys.argv[1]](), num_workers=1)",
    "a method that only the trainer calls": """
        class Shown(Rows):
            def show(self):
                return torch.zeros(1).cuda()
        data = Shown()
        loader = DataLoader(data, num_workers=1)
        data.f = Scale(data.show())""",
}


def _plan(tmp_path: Path, text: str):
    script = tmp_path / "train.py"
    script.write_text(HEAD + textwrap.dedent(text) + "\n")
    return compile_script(script)


@pytest.mark.parametrize("text", SPLIT.values(), ids=SPLIT.keys())
def test_is_split(tmp_path: Path, text: str) -> None:
    plan = _plan(tmp_path, text)
    assert plan.feeds
    assert [(feed.status, feed.code) for feed in plan.feeds] == [("split", None)] * len(plan.feeds), plan.diagnostics


@pytest.mark.parametrize(("key", "text"), LEFT.items(), ids=[f"{code} {name}" for code, name in LEFT])
def test_is_left(tmp_path: Path, key: tuple[str, str], text: str) -> None:
    plan = _plan(tmp_path, text)
    assert {feed.code for feed in plan.feeds} == {key[0]}
    assert plan.worker.builders == () and plan.handles == () and plan.loaders == ()
    assert any(diagnostic.code == key[0] and diagnostic.span is not None for diagnostic in plan.diagnostics)


@pytest.mark.parametrize("text", SENT.values(), ids=SENT.keys())
def test_is_sent(tmp_path: Path, text: str) -> None:
    plan = _plan(tmp_path, text)
    assert [(feed.status, feed.residence) for feed in plan.feeds] == [("split", "sent")], plan.diagnostics
    (edit,) = plan.loaders
    assert plan.handles == () and edit.explicit and "dataset" in edit.send
    assert edit.inline == ("num_workers" not in text)


SENT_NEVER = {
    "changed meanwhile, in one process": "rows = set(['a', 'b'])\nloader = DataLoader(Rows(list(rows)))\nloader.dataset.rows.append(3)",
    "lambda in it": "class L(Rows):\n    pass\nloader = DataLoader(L(list(set(['a'])), lambda x: x), num_workers=1)",
    "class inside of a function": """
        def make():
            class L(Rows):
                pass
            d = L(list(set(['a'])))
            return DataLoader(d, num_workers=1)
        l = make()""",
    "shared value": "import multiprocessing\nv = multiprocessing.Value('i')\nloader = DataLoader(Rows(v), num_workers=1)",
    "collate replaced": "loader = DataLoader(Rows(list(set(['a']))), num_workers=1)\nloader.collate_fn = Scale(1)",
    "clock with each sample": "import time\nclass C(Rows):\n    def __getitem__(self, i):\n        return time.time()\n"
    "loader = DataLoader(C(list(set(['a']))), num_workers=1)",
    "seeded library that nobody knows": "import mystery\nmystery.seed(3)\nloader = DataLoader(mystery.Rows(Scale(1)), num_workers=1)",
    "part of it is on the worker": "a = Rows()\none = DataLoader(a, num_workers=1)\nb = Rows(list(set(['a'])))\nb.other = a\n"
    "two = DataLoader(Rows(a, list(set(['a']))), num_workers=1)",
}


@pytest.mark.parametrize("text", SENT_NEVER.values(), ids=SENT_NEVER.keys())
def test_is_not_sent(tmp_path: Path, text: str) -> None:
    plan = _plan(tmp_path, text)
    assert "sent" not in {feed.residence for feed in plan.feeds}
    assert "left" in {feed.status for feed in plan.feeds}


def test_one_left_loader_keeps_its_dataset_for_all(tmp_path: Path) -> None:
    plan = _plan(tmp_path, "data = Rows()\na = DataLoader(data, num_workers=1)\nb = DataLoader(data, num_workers=2, in_order=False)")
    assert [feed.code for feed in plan.feeds] == ["S308", "S308"]


def test_shuffled_list_is_sent_not_rebuilt(tmp_path: Path) -> None:
    plan = _plan(tmp_path, SPLIT["shuffled list is sent"])
    assert plan.worker.builders[0].environment == ("rows",) and plan.worker.builders[0].body == ()


def test_streams_stand_in_for_workers(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD + "loader = DataLoader(Noisy())\n")
    plan = compile_script(script, streams=3)
    assert plan.feeds[0].status == "split" and plan.loaders[0].streams == 3


def test_a_file_that_a_module_opens_is_not_opened_twice(tmp_path: Path) -> None:
    (tmp_path / "lines.py").write_text(
        "from torch.utils.data import Dataset\nLINES = open('lines.txt')\n\n\nclass Lines(Dataset):\n"
        "    def __len__(self):\n        return 6\n\n    def __getitem__(self, i):\n        return float(LINES.readline())\n"
    )
    plan = _plan(tmp_path, "from lines import Lines\nloader = DataLoader(Lines(), num_workers=2)")
    assert [feed.code for feed in plan.feeds] == ["S305"]


def test_an_object_with_an_encode_method_is_no_text(tmp_path: Path) -> None:
    text = "class Words:\n    def __init__(self):\n        self.known = []\n    def encode(self, x):\n        return len(self.known)\n"
    plan = _plan(tmp_path, text + "words = Words()\nloader = DataLoader(Rows(words))\nprint(words.encode('a'))\nwords.known.append('b')")
    assert [feed.code for feed in plan.feeds] == ["S304"]
