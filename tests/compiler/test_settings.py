"""Process-wide switches that moved code obeys, and files that a dataset opens while it is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from splitter.compile import compile_script

SWITCH = """\
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

{}
loader = DataLoader(TensorDataset(torch.arange(4.0)), num_workers=1)
"""
SWITCHES = {
    "torch.set_default_tensor_type('torch.FloatTensor')": None,
    "if len(sys.argv) > 1:\n    torch.set_default_tensor_type('torch.DoubleTensor')": None,
    "torch.set_default_device('cpu')": None,
    "torch.set_flush_denormal(True)": None,
    "if len(sys.argv) > 1:\n    torch.set_flush_denormal(True)": "S319",
}
OPENING = """\
import csv, json, pickle
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self, path):
        self.rows = {}
    def __len__(self): return len(self.rows)
    def __getitem__(self, index): return self.rows[index]

loader = DataLoader(Rows("rows"), num_workers=2)
"""
OPENINGS = {
    "pickle.load(open(path, 'rb'))": None,
    "json.load(open(path))": None,
    "torch.load(open(path, 'rb'))": None,
    "open(path).read()": None,
    "open(path)": "S313",
    "csv.reader(open(path))": "S313",
}


def codes(tmp_path: Path, text: str) -> set[str | None]:
    (tmp_path / "train.py").write_text(text)
    return {feed.code for feed in compile_script(tmp_path / "train.py").feeds}


@pytest.mark.parametrize("text", SWITCHES)
def test_switches(tmp_path: Path, text: str) -> None:
    assert codes(tmp_path, SWITCH.format(text)) == {SWITCHES[text]}


@pytest.mark.parametrize("text", OPENINGS)
def test_open_files(tmp_path: Path, text: str) -> None:
    assert codes(tmp_path, OPENING.replace("{}", text)) == {OPENINGS[text]}
