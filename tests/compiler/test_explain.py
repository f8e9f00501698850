"""The examples that `splitter explain` prints: `before` has the code, and `after` is split. Both follow the same few lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from splitter.compile import Weighing, compile_script, weigh
from splitter.console import explained
from splitter.diagnostics import CODES
from splitter.examples import EXAMPLES
from splitter.examples_prefix import PREFIX

HEAD = """\
import json, os, random, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self, rows=(1.0, 2.0, 3.0)):
        self.rows = rows
        self.strength = 1

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.tensor([self.rows[i]])

    def set_strength(self, strength):
        self.strength = strength

"""
# The local modules of the example of S315.
SIDE_EFFECTS = HEAD + 'os.makedirs("logs")\n'


def compiled(folder: Path, code: str, example: str) -> tuple[set[str], list[str]]:
    """The codes found in the example of a code, and what became of its loaders."""
    (folder / "rows.py").write_text(SIDE_EFFECTS)
    (folder / "tables.py").write_text(HEAD)
    (folder / "train.py").write_text(HEAD + example)
    plan = compile_script(folder / "train.py", model_prefix=code in PREFIX)
    if code == "S425":  # seen when samples run
        plan = weigh(plan, folder / "train.py", (), Weighing(samples=2), folder, lambda *_: None)
    return {found.code for found in plan.diagnostics}, [feed.status for feed in plan.feeds]


@pytest.mark.parametrize("code", EXAMPLES)
def test_before_has_the_code_and_after_is_split(code: str, tmp_path: Path) -> None:
    found, became = compiled(tmp_path, code, EXAMPLES[code].before)
    assert found == {code}
    assert became == (["left"] if CODES[code].severity == "error" else ["split"])
    found, became = compiled(tmp_path, code, EXAMPLES[code].after)
    assert (found, became) == (set(), ["split"])


def test_every_code_about_a_loader_has_an_example() -> None:
    assert list(EXAMPLES) == sorted(code for code in CODES if code[1] in "234")


def test_it_is_printed() -> None:
    assert (
        explained("S308")
        == """\
S308 (error): order depends on timing

  in_order=False: the order of this loader's batches depends on timing, so no split can keep it
  hint: remove in_order=False

  instead of

      loader = DataLoader(Rows(), num_workers=2, in_order=False)

  write

      loader = DataLoader(Rows(), num_workers=2)
"""
    )
