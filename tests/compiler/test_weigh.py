"""transform, check, show and verify with samples run: what is recorded, kept, and used again."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from scratch import Scratch

ARGS = ("--", "pictures", "--size", "96", "--batch-size", "8", "--epochs", "1", "--seed", "1")
RUN = ("--samples", "4", "--price", "5")
NAMES = ("train_worker.py", "train_trainer.py", "train_split.md", "train_split.json")
FINISH = "finish=(transforms.Compose([splitter_runtime.ScaleToFloat(), normalize]), None),"


@pytest.fixture
def folder(scratch: Scratch) -> Path:
    return scratch.copy("imagenet")


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in NAMES}


def test_a_cut_is_recorded_once(scratch: Scratch, folder: Path) -> None:
    first = scratch.splitter("transform", "train.py", *RUN, *ARGS, folder=folder)
    assert (first.returncode, first.stderr) == (0, "")
    made = files(folder)
    assert made["train_trainer.py"].decode().count(FINISH) == 2
    assert made["train_worker.py"].decode().count("transforms.PILToTensor(),  # the rest") == 2
    assert "27,656 bytes a sample cross instead of 110,600 (4.0 times fewer)" in made["train_split.md"].decode()
    plan = json.loads(made["train_split.json"])
    assert [feed["crossing"]["bytes_per_sample"] for feed in plan["feeds"]] == [27_656, 27_656]
    assert plan["feeds"][0]["uncut"] is None and plan["profile"]["reasons"] == {}

    shutil.rmtree(folder / "pictures")  # nothing is run any more
    again = scratch.splitter("transform", "train.py", *RUN, *ARGS, folder=folder)
    assert (again.returncode, again.stderr, files(folder)) == (0, "", made)
    assert scratch.splitter("check", "train.py", folder=folder).stdout == "train.py: the generated files are current\n"
    shown = scratch.splitter("show", "train.py", "--after", "cut", *RUN, *ARGS, folder=folder).stdout
    assert "27,656 bytes a sample cross, 110,600 with the cut at the loader" in shown
    assert "trainer aten.div.Tensor(v9) -> v10: float32 3x96x96, 110,592 bytes  [pointwise]" in shown

    dear = scratch.splitter("transform", "train.py", "--samples", "4", "--price", "0", *ARGS, folder=folder)
    assert dear.returncode == 0 and "finish=" not in (folder / "train_trainer.py").read_text()  # nothing is gained

    other = scratch.splitter("transform", "train.py", *RUN, "--again", *ARGS, folder=folder)
    assert other.returncode == 0
    assert "splitter: note: train: the cut stays at the loader: the script failed: FileNotFoundError: " in other.stderr
    assert "finish=" not in (folder / "train_trainer.py").read_text()
    assert "the cut stays at the loader: the script failed" in (folder / "train_split.md").read_text()
    assert scratch.splitter("check", "train.py", folder=folder).returncode == 0


def test_a_cut_keeps_every_bit(scratch: Scratch, folder: Path) -> None:
    ended = scratch.splitter("verify", "train.py", *RUN, *ARGS, folder=folder)
    assert ended.stdout == "train_loader: 6 batches in 1 epoch are identical\nval_loader: 2 batches in 1 epoch are identical\n", (
        ended.stderr
    )


def test_arguments_that_are_missing_are_a_note(scratch: Scratch, folder: Path) -> None:
    ended = scratch.splitter("transform", "train.py", "--samples", "4", folder=folder)
    assert ended.returncode == 0
    assert ended.stderr.splitlines() == [
        f"splitter: note: {name}: the cut stays at the loader: the script ended with exit status 2" for name in ("train", "val")
    ]


def test_halves_of_two_cuts_do_not_meet(scratch: Scratch, folder: Path) -> None:
    """A worker that finishes samples itself and a trainer that finishes them once more would be wrong without a word."""
    digests = set()
    for price in ("0", "5"):
        assert scratch.splitter("transform", "train.py", "--samples", "4", "--price", price, *ARGS, folder=folder).returncode == 0
        texts = [(folder / f"train_{side}.py").read_text() for side in ("worker", "trainer")]
        digests |= {found for text in texts for found in re.findall(r'digest="(sha256:\w+)"', text)}
    assert len(digests) == 2
