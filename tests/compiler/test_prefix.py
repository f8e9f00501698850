"""What of forward may move, and where nothing may: models and loops around them, by the text alone.

forward: rows = x % self.count; return self.table(rows)      loop: model(x)      results {"rows": "x"}
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from splitter.compile import compile_script
from splitter.emit import emit
from splitter.ir import Plan

HEAD = """
import argparse, random
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TABLE = torch.tensor([3, 1, 2])
PAIRS = [(0, 1), (1, 2)]
COUNTS = []

class Rows(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.arange(3) + i, float(i), i

def mixed(x, by=7):
    return (x * 31 + by) % 97

def counted(x):
    COUNTS.append(1)
    return x

@torch.compile
def compiled(x):
    return x + 1

class Net(nn.Module):
    WIDTH = 4

    def __init__(self, count, more=5):
        super().__init__()
        self.count = count
        self.more = more
        self.pairs = [(0, 2)]
        self.edges = torch.tensor([1, 2])
        self.register_buffer("kept", torch.tensor([1, 2]))
        self.register_buffer("left", torch.tensor([1, 2]), persistent=False)
        self.noise = torch.randn(3)
        self.weight = nn.Parameter(torch.ones(3))
        self.table = nn.EmbeddingBag(100, self.WIDTH)
        self.step = 0

    def bump(self):
        self.step += 1

    def forward(self, x, price):
FORWARD

args = argparse.ArgumentParser().parse_args()
"""
LOOP = """
loader = DataLoader(Rows(), batch_size=4, num_workers=1)
model = Net(args.count)
for x, price, label in loader:
    loss = model(x, price)
"""
# Statements, and the names that take the places of inputs; None: nothing moves.
FORWARDS: dict[str, dict[str, str] | None] = {
    "rows = x % self.count\nreturn self.table(rows)": {"x": "rows"},
    "x = mixed(x)\nreturn self.table(x)": {"x": "x"},
    "rows = torch.bucketize(x, self.edges)\nreturn self.table(rows)": {"x": "rows"},
    "rows = torch.stack([mixed(x[:, a], b) for a, b in PAIRS], 1)\nreturn self.table(rows)": {"x": "rows"},
    "rows = torch.stack([x[:, a] + x[:, b] for a, b in self.pairs], 1) + self.more\nreturn self.table(rows)": {"x": "rows"},
    "rows = TABLE[x] + self.left[0] + self.kept[0] + self.WIDTH\nreturn self.table(rows)": {"x": "rows"},
    "rows: torch.Tensor = x.long()\nreturn self.table(rows) * price": {"x": "rows"},
    '"""Says what it does."""\nrows = x + 1\nreturn self.table(rows)': {"x": "rows"},
    "rows = x + 1\nprice = price.long()\nreturn self.table(rows) * price": {"x": "rows", "price": "price"},
    "rows = x + price.long()\nreturn self.table(rows)": {"x": "rows"},  # `price` comes as before, for nothing
    "rows = x + price.long()\nreturn self.table(rows) * price": {"x": "rows"},
    "rows = x + 1\nmask = x > 0\nreturn self.table(rows) * mask": None,  # `mask` has no place, and without it x is read
    "a = x + 1\nb = x + 2\nreturn self.table(a), self.table(b)": None,
    "return self.table(x)": None,
    "rows = x * self.training\nreturn self.table(rows)": None,
    "rows = x * self.weight.long()\nreturn self.table(rows)": None,
    "rows = x + self.noise.long()\nreturn self.table(rows)": None,
    "rows = x + self.step\nreturn self.table(rows)": None,
    "rows = x + torch.randint(0, 2, (3,))\nreturn self.table(rows)": None,
    "rows = x + random.randrange(3)\nreturn self.table(rows)": None,
    "rows = x.to(self.table.weight.device)\nreturn self.table(rows)": None,
    "rows = torch.zeros(3, device=x.device)\nreturn self.table(rows)": None,
    "rows = x.cuda()\nreturn self.table(rows)": None,
    "rows = counted(x)\nreturn self.table(rows)": None,
    "rows = compiled(x)\nreturn self.table(rows)": None,
    "rows = x.add_(1)\nreturn self.table(rows)": None,
    "x[0] = 1\nreturn self.table(x)": None,
    "x += 1\nreturn self.table(x)": None,
    "rows = x + torch.is_grad_enabled()\nreturn self.table(rows)": None,
    "self.last = x\nreturn self.table(x)": None,
    "print(x)\nreturn self.table(x)": None,
    "if self.count:\n    x = x + 1\nreturn self.table(x)": None,
    "rows = (lambda: x)()\nreturn self.table(rows)": None,
    "rows = self.bump() or x\nreturn self.table(rows)": None,
}
PLAIN = "rows = x % self.count\nreturn self.table(rows)"
# Loops, and the code of the note; None: it moves.
LOOPS: dict[str, str | None] = {
    LOOP: None,
    LOOP.replace("model(x, price)", "model(x.to('cuda:0'), price=price.cuda())"): None,
    LOOP.replace("    loss", "    x, price = x.cuda(), price.cuda(non_blocking=True)\n    loss"): None,
    LOOP.replace("    loss", "    x = x.to(device=args.device)\n    loss"): None,
    LOOP.replace("in loader", "in loader")
    .replace("for x, price, label", "for i, (x, price, label)")
    .replace("in loader", "in enumerate(loader)"): None,
    LOOP.replace("for x, price, label", "for batch").replace("(x, price)", "(batch[0], batch[1])"): None,
    LOOP.replace("for x, price, label", "for batch").replace("    loss", "    x, price, _ = batch\n    loss"): None,
    LOOP + "for x, _, label in loader:\n    print(label, model(x, label))\n": None,
    LOOP + "for _, _, label in loader:\n    print(label)\n": None,
    LOOP + "model.eval()\nprint(sum(p.numel() for p in model.parameters()), model)\n": None,
    LOOP.replace("model = Net(args.count)", "model = Net(count=args.count).to(args.device)\nmodel.train()"): None,
    LOOP.replace("loss = model", "with torch.no_grad():\n        loss = model"): None,
    LOOP.replace("loader = ", "loaders = {'train': ").replace("=1)", "=1)}").replace("in loader", "in loaders['train']"): None,
    "def build(n, more=3):\n    return Net(n, more)\n" + LOOP.replace("Net(args", "build(args"): None,
    "def build(cfg):\n    n = cfg.count * 2\n    return Net(n, more=cfg.more)\n" + LOOP.replace("Net(args.count", "build(args"): None,
    "COUNT = 3\n" + LOOP.replace("args.count", "COUNT"): None,
    "def main(config):\n" + textwrap.indent(LOOP.replace("args.count", "config.count"), "    ") + "\nmain(args)\n": None,
    # something else is done with the input
    LOOP + "    print(x)\n": "S421",
    LOOP + "print(x)\n": "S421",
    LOOP + "for x, price, label in loader:\n    print(x.sum())\n": "S421",
    LOOP + "    x = x + 1\n    model(x, price)\n": "S421",
    LOOP.replace("model(x, price)", "model(x.float(), price)"): "S421",
    LOOP.replace("model(x, price)", "model(x.to(torch.float16), price)"): "S421",
    LOOP.replace("model(x, price)", "model(x.to('cuda', torch.float16), price)"): "S421",
    LOOP.replace("model(x, price)", "model(x, x)"): "S421",
    LOOP.replace("    loss", "    if label[0]:\n        x = price\n    loss"): "S421",
    LOOP.replace("model(x, price)", "(lambda: model(x, price))()"): "S421",
    LOOP.replace("loss = model(x, price)", "try:\n        loss = model(x, price)\n    except ValueError:\n        pass"): "S421",
    LOOP.replace("for x, price, label", "for batch").replace("(x, price)", "(*batch[:2])"): "S421",
    # the model gets something else as well
    LOOP + "model(torch.ones(1, 3), 1)\n": "S421",
    LOOP + "for x in [torch.ones(1, 3)]:\n    model(x, 1)\n": "S421",
    LOOP + "x, price, label = next(iter(loader))\nmodel(x, price)\n": "S421",
    LOOP + "for (x, price, _), _ in zip(loader, range(3)):\n    model(x, price)\n": "S421",
    LOOP + "for x, price, label in DataLoader(Rows(), in_order=False):\n    model(x, price)\n": "S421",
    LOOP + "print([model(x, price) for x, price, _ in loader])\n": "S421",
    # what it reads of the model changes
    LOOP + "    model.count += 1\n": "S423",
    LOOP + "    setattr(model, 'count', 3)\n": "S424",
    LOOP.replace("args.count", "COUNTS[0]") + "    COUNTS.append(3)\n": "S423",
    LOOP.replace("model =", "args.count = 3\nmodel ="): "S423",
    "COUNT = 3\n" + LOOP.replace("args.count", "COUNT") + "COUNT = 4\n": None,
    LOOP.replace("model =", "COUNT = 4\nmodel =").replace("args.count", "COUNT"): "S423",
    "few = [1]\n" + LOOP.replace("args.count", "few[0]").replace("model =", "few[0] = 2\nmodel ="): "S423",
    LOOP.replace("args.count", "len(loader)"): "S423",
    "data = Rows()\n" + LOOP.replace("Rows()", "data").replace("args.count", "len(data)"): "S423",
    LOOP.replace("args.count", "random.randrange(9)"): "S423",
    LOOP.replace("args.count", "loader"): "S423",
    # the model can't be followed
    LOOP.replace("Net(args.count)", "torch.compile(Net(args.count))"): "S424",
    LOOP.replace("Net(args.count)", "nn.Sequential(Net(args.count))"): "S424",
    LOOP + "import copy\nother = copy.deepcopy(model)\n": "S424",
    LOOP + "model.register_forward_pre_hook(print)\n": "S424",
    LOOP + "models = [model]\n": "S424",
    LOOP + "model.forward(x, price)\n": "S424",
    LOOP + "class Other(Net):\n    pass\n": "S424",
    LOOP + "second = Net(3)\n": "S424",
    LOOP.replace("Net(args.count)", "Net(args.count) if args.x else nn.Linear(3, 3)"): "S424",
}


def planned(folder: Path, forward: str, loop: str) -> Plan:
    """The plan of a script, whose files can be written down."""
    text = HEAD.replace("FORWARD", textwrap.indent(forward, " " * 8)) + loop
    (folder / "train.py").write_text(text)
    plan = compile_script(folder / "train.py", model_prefix=True)
    assert emit(plan).files
    return plan


@pytest.mark.parametrize("forward", FORWARDS)
def test_what_moves(forward: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, forward, LOOP)
    moved = None if plan.prefix is None else {parameter: result for result, parameter in plan.prefix.results}
    assert moved == FORWARDS[forward]
    assert {found.code for found in plan.diagnostics} == (
        set() if moved else {"S423"} if "noise" in forward or "step" in forward else {"S422"}
    )


@pytest.mark.parametrize("loop", LOOPS)
def test_where_it_may_not_move(loop: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, PLAIN, loop)
    notes = [found.code for found in plan.diagnostics if found.code[:3] == "S42"]
    assert notes == ([] if LOOPS[loop] is None else [LOOPS[loop]])
    assert (plan.prefix is None) == bool(notes)


def test_nobody_asked(tmp_path: Path) -> None:
    planned(tmp_path, PLAIN, LOOP)
    plan = compile_script(tmp_path / "train.py")
    assert plan.prefix is None and not plan.diagnostics and not plan.model_prefix


def test_a_checkpoint_may_write_what_it_holds(tmp_path: Path) -> None:
    forward = "rows = x + self.kept[0]\nreturn self.table(rows)"
    loop = LOOP + "model.load_state_dict(torch.load('x.pt'))\n"
    assert [found.code for found in planned(tmp_path, forward, loop).diagnostics] == ["S423"]
    assert planned(tmp_path, forward.replace("kept", "left"), loop).prefix is not None


def test_another_digest_for_another_split(tmp_path: Path) -> None:
    """Worker and trainer of splits with and without must not work together."""
    plan = planned(tmp_path, PLAIN, LOOP)
    assert plan.without is not None and plan.without.without is None
    assert plan.digest != plan.without.digest == compile_script(tmp_path / "train.py").digest


def test_names_that_are_taken(tmp_path: Path) -> None:
    """The loop's and the model's names don't get into each other's way."""
    forward = "batch = x + self.more\nlabel = batch % self.count\nreturn self.table(label)"
    loop = LOOP.replace("args.count", "args.count, args.label")
    text = emit(planned(tmp_path, forward, loop)).files[0].content.decode()
    head = text[text.index("    def head") : text.index("    return splitter_runtime.Loader")]
    assert head == (
        "    def head(batch_):\n"
        "        x, price, label_ = batch_\n"
        "        batch = x + more\n"
        "        label = batch % count\n"
        "        return [label, price, label_]\n\n"
    )
    assert "    count = args.count\n    more = args.label\n" in text or "    more = args.label\n    count = args.count\n" in text
