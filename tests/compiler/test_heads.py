"""The head of a loop: which statements the text lets move, and what ends it. As many must stay as may move."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

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


MOVE = {
    "cast": ("images = images.float() / 255", 1),
    "augmented": ("images = images.float()\nimages /= 255", 2),
    "one-hot": ("labels = F.one_hot(labels, CLASSES)", 1),
    "permute": ("images = images.permute(0, 2, 3, 1).contiguous()", 1),
    "reshape": ("images = images.view(images.size(0), -1)", 1),
    "dtype": ("labels = labels.to(torch.float32)", 1),
    "mask": ("images = torch.where(images > 3, images, 0)", 1),
    "two at once": ("images, labels = images.float(), labels.long()", 1),
    "annotated": ("images: torch.Tensor = images.float()", 1),
    "a temporary": ("scale = images.float()\nimages = scale / 255", 2),
    "a constant temporary": ("scale = torch.tensor([1.0, 2.0, 3.0, 4.0])\nimages = images / scale", 2),
    "behind what stays": ("optimizer.zero_grad()\nstep = 3\nimages = images.float()", 1),
    "behind a clock": ("began = time.time()\nimages = images.float()", 1),
    "over lines": ("images = images.float(\n) / 255", 1),
}

STAY = {
    "a device": ("images = images.to(device)", "moves to a device"),
    "a device by another name": ("images = images.to(gpu)", "may move to a device"),
    "cuda": ("images = images.cuda()", "moves to a device"),
    "a device keyword": ("images = images.to(device=gpu)", "may move to a device"),
    "draws": ("images = images * (torch.rand(4) > 0.5)", "draws random numbers"),
    "draws in a function": ("images = noisy(images)", "isn't known"),
    "draws numpy": ("images = images + np.random.rand()", "draws random numbers"),
    "the model": ("images = model(images)", "`model`"),
    "prints": ("print(images.shape)", "prints"),
    "prints in a function": ("images = shout(images)", "isn't known"),
    "an attribute": ("model.last = images", "doesn't only give names"),
    "another name that is read": ("inputs = images.float()\nimages = inputs + 1\nprint(inputs)", "read behind the head"),
    "a branch": ("if images.sum() > 3:\n    images = images.float()", "branches"),
    "a context": ("with torch.no_grad():\n    images = images.float()", "branches"),
    "a method in place": ("images.add_(1)", "doesn't only give names"),
    "gradients": ("images = images.float().requires_grad_()", "gradient"),
    "unknown": ("images = kornia.flip(images)", "isn't known"),
    "state": ("labels = counting(labels)", "isn't known"),
    "a walrus": ("images = (n := images.float())", "doesn't only give names"),
}


@pytest.mark.parametrize("case", MOVE)
def test_moves(case: str, tmp_path: Path) -> None:
    body, count = MOVE[case]
    (head,) = heads(tmp_path, loop(body))
    assert len(head.statements) == count
    assert head.end is not None and "`model`" in head.end.why
    assert [name for name, _ in head.parts] == ["images", "labels"]


@pytest.mark.parametrize("case", STAY)
def test_ends(case: str, tmp_path: Path) -> None:
    """What ends the head, with a statement before it that moves and one behind it that doesn't."""
    body, why = STAY[case]
    (head,) = heads(tmp_path, loop(f"labels = labels + 1\n{body}\nlabels = labels * 2"))
    assert texts(tmp_path, head) == ["labels = labels + 1"]
    assert head.end is not None and why in head.end.why


TARGETS = {
    "enumerate": ("step, (images, labels)", "enumerate(loader)"),
    "enumerate from one": ("step, (images, labels)", "enumerate(loader, 1)"),
    "a progress bar": ("images, labels", "tqdm(loader, desc='train')"),
    "a progress bar in enumerate": ("step, (images, labels)", "enumerate(tqdm(loader))"),
    "enumerate in a progress bar": ("step, (images, labels)", "tqdm(enumerate(loader), total=len(loader))"),
    "a list": ("[images, labels]", "loader"),
}


@pytest.mark.parametrize("case", TARGETS)
def test_targets(case: str, tmp_path: Path) -> None:
    target, loader = TARGETS[case]
    (head,) = heads(tmp_path, loop("images = images.float()", target, loader))
    assert head.parts == (("images", (0,)), ("labels", (1,)))


def test_one_name(tmp_path: Path) -> None:
    (head,) = heads(tmp_path, loop('batch["label"] = batch["label"].float()', "batch", data="Words", first='batch["label"]'))
    assert (head.target, head.parts) == ("batch", (("batch", ()),))
    assert head.statements[0].mutates


def test_taken_apart(tmp_path: Path) -> None:
    body = "images, labels = batch\nlabels = F.one_hot(labels, CLASSES)"
    (head,) = heads(tmp_path, loop(body, "batch"))
    assert (head.target, head.parts, len(head.unpacking)) == ("batch", (("images", (0,)), ("labels", (1,))), 1)
    assert texts(tmp_path, head) == ["labels = F.one_hot(labels, CLASSES)"]


def test_items_taken(tmp_path: Path) -> None:
    body = 'text = batch["text"]\nlabels = batch["label"]\ntext = tokens(text)'
    (head,) = heads(tmp_path, loop(body, "batch", data="Words", first="text"))
    assert head.parts == (("text", ("text",)), ("labels", ("label",)))
    assert texts(tmp_path, head) == ["text = tokens(text)"]


def test_the_whole_batch_is_read_again(tmp_path: Path) -> None:
    body = 'text = batch["text"]\ntext = tokens(text)\nlabels = batch["label"]'
    assert not heads(tmp_path, loop(body, "batch", data="Words", first="text"))


def test_what_a_tokenizer_needs(tmp_path: Path) -> None:
    (head,) = heads(tmp_path, loop("text = tokenizer(text)", "(text, labels)", first="text"))
    assert texts(tmp_path, head) == ["text = tokenizer(text)"]
    lines = (tmp_path / "train.py").read_text().splitlines()
    needs = head.statements[0].needs
    needed = {lines[part.first - 1] for part in (*needs.definitions, *needs.body)}
    assert {"class Tokenizer:", 'VOCABULARY = {"a": 1, "b": 2}', "tokenizer = Tokenizer(9)"} <= needed


@pytest.mark.parametrize(
    "target",
    ["images", "images, *rest", "(images, images)", "step, batch", "images, labels.x"],
)
def test_other_targets_stay(target: str, tmp_path: Path) -> None:
    loader = "zip(range(3), loader)" if target == "step, batch" else "loader"
    found = heads(tmp_path, loop("images = images.float()", target, loader))
    assert not any(head.statements for head in found) or target == "images"


FUNCTION = """
def train(loader, epoch, scale):
    for images, labels in loader:
{body}
        loss = model(images).sum()

def main():
    loader = DataLoader(Rows(), batch_size=4)
    {other}
    for epoch in range(3):
        train(loader, epoch, 255)
main()
"""


def function(body: str, other: str = "pass") -> str:
    return FUNCTION.format(body=textwrap.indent(body, " " * 8), other=other)


def test_a_loop_in_a_function(tmp_path: Path) -> None:
    (head,) = heads(tmp_path, function("labels = F.one_hot(labels, CLASSES)"))
    assert texts(tmp_path, head) == ["labels = F.one_hot(labels, CLASSES)"]


OTHERS = {
    "a second loop": "for images, labels in loader: pass",
    "a first batch": "images, labels = next(iter(loader))",
    "a list of them": "everything = list(loader)",
    "a comprehension": "sums = [images.sum() for images, labels in loader]",
    "an iterator": "batches = iter(loader)",
    "zipped": "for a, b in zip(loader, loader): pass",
    "a generator": "once = (batch for batch in loader)",
    "something else in the loop": "train([(torch.zeros(3), torch.zeros(3))], 0, 0)",
    "a loader that stays": "train(DataLoader(Rows(), batch_size=4, in_order=False), 0, 0)",
    "a method": "loader.fetch()",
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_reader(case: str, tmp_path: Path) -> None:
    found = heads(tmp_path, function("labels = F.one_hot(labels, CLASSES)", OTHERS[case]))
    assert found and not any(head.statements for head in found)
    assert all(head.end is not None for head in found)


def test_a_class_of_its_own(tmp_path: Path) -> None:
    text = """
    class Moved(DataLoader):
        def __iter__(self):
            for images, labels in super().__iter__():
                yield images + 1, labels
    loader = Moved(Rows(), batch_size=4)
    for images, labels in loader:
        images = images.float()
    """
    assert not any(head.statements for head in heads(tmp_path, text))


QUIET = {
    "its length": "n = len(loader)",
    "its dataset": "n = len(loader.dataset)",
    "its batch size": "n = loader.batch_size",
    "another loader": "other = DataLoader(Rows(), batch_size=2)\n    for images, labels in other: pass",
    "looked at": "assert loader is not None",
}


@pytest.mark.parametrize("case", QUIET)
def test_no_reader(case: str, tmp_path: Path) -> None:
    (head,) = heads(tmp_path, function("labels = F.one_hot(labels, CLASSES)", QUIET[case]))
    assert head.statements


def test_two_loaders_in_one_loop(tmp_path: Path) -> None:
    found = heads(tmp_path, function("labels = F.one_hot(labels, CLASSES)", "train(DataLoader(Rows(), batch_size=2), 0, 0)"))
    assert len({head.feed for head in found}) == 2 and all(len(head.statements) == 1 for head in found)


LATE = {
    "the epoch": "labels = labels * epoch",
    "what grows": "labels = labels * seen",
    "a global that changes": "labels = labels * TOTAL",
}


@pytest.mark.parametrize("case", LATE)
def test_state_of_the_trainer(case: str, tmp_path: Path) -> None:
    text = f"""
    TOTAL = 0
    def main():
        global TOTAL
        seen = 0
        loader = DataLoader(Rows(), batch_size=4)
        for epoch in range(3):
            for images, labels in loader:
                {LATE[case]}
                loss = model(images).sum()
                seen += 1
                TOTAL += 1
    main()
    """
    assert not heads(tmp_path, text)


def test_values_that_are_sent(tmp_path: Path) -> None:
    text = """
    import argparse
    def main():
        args = argparse.ArgumentParser().parse_args()
        classes = int(args.classes)
        loader = DataLoader(Rows(), batch_size=4)
        for images, labels in loader:
            labels = F.one_hot(labels, classes) * args.scale
            loss = model(images).sum()
    main()
    """
    (head,) = heads(tmp_path, text)
    needs = head.statements[0].needs
    assert "args.scale" in needs.environment and {"classes", "args.classes"} & {*needs.environment}


PASSED = {
    "labels = F.one_hot(labels, classes)": "classes",
    "labels = labels * args.scale": "args.scale",
}


@pytest.mark.parametrize("statement", PASSED)
@pytest.mark.parametrize("change", ["", "classes = 3\n        args.scale = 2"])
def test_what_callers_pass(statement: str, change: str, tmp_path: Path) -> None:
    text = f"""
    import argparse
    def train(loader, args, classes):
        for images, labels in loader:
            {statement}
            loss = model(images).sum()
        {change}
    def main():
        args = argparse.ArgumentParser().parse_args()
        classes = int(args.classes)
        loader = DataLoader(Rows(), batch_size=4)
        for epoch in range(3):
            train(loader, args, classes)
    main()
    """
    found = heads(tmp_path, text)
    if change:
        assert not found
    else:
        needs = found[0].statements[0].needs
        assert {PASSED[statement], "args.classes"} & {*needs.environment}


@pytest.mark.parametrize("name", ["args", "options"])
def test_another_variable_of_that_name(name: str, tmp_path: Path) -> None:
    """What is sent is read where the loader is made."""
    text = f"""
    import argparse
    args = argparse.ArgumentParser().parse_args()
    def make({name}):
        return DataLoader(Rows(), batch_size=4)
    def main():
        loader = make(3)
        for images, labels in loader:
            labels = labels * args.scale
            loss = model(images).sum()
    main()
    """
    assert bool(heads(tmp_path, text)) == (name == "options")


@pytest.mark.parametrize("value", ["SCALE", "args.scale"])
def test_a_loader_of_another_file(value: str, tmp_path: Path) -> None:
    made = "from torch.utils.data import DataLoader\nfrom rows import Rows\n\ndef make():\n    return DataLoader(Rows(), batch_size=4)\n"
    (tmp_path / "loaders.py").write_text(made, encoding="utf-8")
    rows = BEFORE[BEFORE.index("class Rows") : BEFORE.index("class Words")]
    (tmp_path / "rows.py").write_text(f"import torch\nfrom torch.utils.data import Dataset\n\n{rows}", encoding="utf-8")
    text = f"""
    import argparse
    from loaders import make
    args = argparse.ArgumentParser().parse_args()
    SCALE = 3
    def main():
        loader = make()
        for images, labels in loader:
            labels = labels * {value}
            loss = model(images).sum()
    main()
    """
    assert bool(heads(tmp_path, text)) == (value == "SCALE")


OTHERWISE = {
    "another name": "train(loader, number)",
    "two values": "train(loader, classes)\n        train(loader, number)",
    "a value that changes": "train(loader, classes)\n        classes += 1",
    "a number": "train(loader, 10)",
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_what_callers_pass_otherwise(case: str, tmp_path: Path) -> None:
    text = f"""
    def train(loader, classes):
        for images, labels in loader:
            labels = F.one_hot(labels, classes)
            loss = model(images).sum()
    def main():
        classes, number = 10, 11
        loader = DataLoader(Rows(), batch_size=4)
        {OTHERWISE[case]}
    main()
    """
    assert not heads(tmp_path, text)


def test_order_of_statements(tmp_path: Path) -> None:
    (head,) = heads(tmp_path, loop("images = images * labels\nlabels = labels.float()\nimages = images + 1"))
    assert [own.after for own in head.statements] == [(), (0,), (0,)]


def test_temporaries_stay_together(tmp_path: Path) -> None:
    (head,) = heads(tmp_path, loop("labels = labels + 1\nscale = images.float()\nimages = scale / 255"))
    assert head.together == ((1, 2),)


AROUND = {
    "autocast": "with torch.autocast('cpu'):\n    for images, labels in loader:\n        images = images.float()\n",
    "inference": "with torch.inference_mode():\n    for images, labels in loader:\n        images = images.float()\n",
    "a closure": "for images, labels in loader:\n    images = images.float()\n    f = lambda: 3\ndef show():\n    return images\n",
    "one line": "for images, labels in loader: images = images.float()\n",
    "shared lines": "for images, labels in loader:\n    images = images.float(); labels = labels + 1\n",
}


@pytest.mark.parametrize("case", AROUND)
def test_around(case: str, tmp_path: Path) -> None:
    found = heads(tmp_path, "\nloader = DataLoader(Rows(), batch_size=4)\n" + AROUND[case])
    assert not any(head.statements for head in found)


def test_no_gradients_are_no_context(tmp_path: Path) -> None:
    text = "\nloader = DataLoader(Rows())\nwith torch.no_grad():\n    for images, labels in loader:\n        images = images.float()\n"
    assert heads(tmp_path, text)[0].statements
