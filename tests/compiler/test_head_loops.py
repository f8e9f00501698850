"""Which loop takes a loader's batches, who else reads them, and what of the trainer a head may read."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from head_scripts import BEFORE, heads, texts

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
