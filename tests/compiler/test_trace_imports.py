"""What a script imports first is imported while the rest of it is still looked at: which statements these are."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from splitter.trace_imports import KNOWN, first, own

CASES = {
    '"""Train."""\nimport os, sys\nimport torch': ["import os, sys", "import torch"],
    "from __future__ import annotations\nfrom torch.utils.data import DataLoader as D": ["from torch.utils.data import DataLoader as D"],
    "import torchvision.transforms as T\nx = 1\nimport torch": ["import torchvision.transforms as T"],
    "import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport torch": ["import os"],
    "import mine\nimport torch": [],
    "import os, mine\nimport torch": [],
    "from . import data\nimport torch": [],
    "from .data import Photos\nimport torch": [],
    "import numpy\nfrom mine import x\nimport torch": ["import numpy"],
    "try:\n    import torch\nexcept ImportError:\n    pass": [],
    "if True:\n    import torch": [],
    "def f():\n    import torch": [],
    "import wandb\nimport torch": [],
    "": [],
}


@pytest.mark.parametrize("text", CASES)
def test_the_statements(text: str) -> None:
    assert [ast.unparse(each) for each in first(ast.parse(text), lambda name: name in KNOWN)] == CASES[text]


def test_a_module_beside_the_script_comes_first(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("")
    (tmp_path / "numpy").mkdir()
    assert [name for name in ("random", "numpy", "torch") if own(str(tmp_path), name)] == ["random", "numpy"]


PROGRAM = """
import sys
from splitter.trace_imports import import_first
before = set(sys.modules)
import_first(sys.argv[1])
print(*sorted({"wave", "colorsys", "sndhdr"} & (set(sys.modules) - before)))
"""


@pytest.mark.parametrize(
    ("text", "files", "imported"),
    [
        ("import wave\nfrom colorsys import *\nprint('ran')\nimport sndhdr", {}, "colorsys wave"),
        ("import colorsys, nothing", {}, ""),
        ("import colorsys\nfrom wave import nothing", {}, "colorsys wave"),
        ("import colorsys\nimport wave", {"wave.py": "print('ran')"}, "colorsys"),
        ("import colorsys", {"__init__.py": "print('ran')"}, ""),
        ("import colorsys\nx =", {}, ""),
        ("import colorsys\0", {}, ""),
    ],
)
def test_nothing_of_the_script_runs(text: str, files: dict[str, str], imported: str, tmp_path: Path) -> None:
    for name, content in {**files, "train.py": text}.items():
        (tmp_path / name).write_text(content)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "train.py")]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    assert (ended.stdout.strip(), ended.stderr) == (imported, "")
    missing = subprocess.run([*command[:-1], str(tmp_path / "other.py")], capture_output=True, text=True)
    assert (missing.stdout.strip(), missing.stderr) == ("", "")
