"""`tools/corpus.py` on small trees: which files it takes for scripts, and what it says of each."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from scratch import files_below

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "tools" / "corpus.py"

DATASET = """\
import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.tensor([float(i)])


"""
LOOP = "for x in DataLoader(Numbers(), batch_size=4, num_workers=1):\n    print(x)\n"
SPLIT = DATASET + LOOP
CUDA = SPLIT.replace("float(i)])", "float(i)]).cuda()")
ON_DEVICE = "class OnDevice(Numbers):\n    def __getitem__(self, i):\n        return torch.tensor([i]).cuda()\n"
MAIN = "\n\ndef main():\n    " + LOOP.replace("\n    ", "\n        ")
FEED = """\
from torch.utils import data

from .rows import Numbers


def make():
    return data.DataLoader(Numbers(), num_workers=1)
"""
TREE = {
    "loop.py": SPLIT,
    "guard.py": DATASET + MAIN.lstrip("\n") + '\n\nif __name__ == "__main__":\n    main()\n',
    "call.py": DATASET + MAIN.lstrip("\n") + "\n\nmain()\n",
    "deep/cuda.py": CUDA,
    "deep/both.py": f"{SPLIT}\n\n{ON_DEVICE}\n\n{LOOP.replace('Numbers', 'OnDevice')}",
    # The loader is in a module of a package, imported inside of a function.
    "deep/helped.py": "def main():\n    from parts import feed\n\n    for x in feed.make():\n        print(x)\n\n\nmain()\n",
    "deep/parts/__init__.py": "",
    "deep/parts/feed.py": FEED,
    "deep/parts/rows.py": DATASET.rstrip() + "\n",
    # Not chosen: only defines things; another library's DataLoader; no loader; doesn't parse; hidden; written by splitter.
    "defines.py": DATASET + "def main():\n    return DataLoader(Numbers())\n",
    "other.py": "from mxnet.data import DataLoader\n\nfor x in DataLoader(3):\n    print(x)\n",
    "plain.py": "for x in range(3):\n    print(x)\n",
    "old.py": "from torch.utils.data import DataLoader\nprint 'old'\n",
    ".hidden/loop.py": SPLIT,
    "loop_trainer.py": SPLIT.replace("import torch\n", "import torch\nimport splitter_runtime\n", 1),
}
CHOSEN = ["call.py", "deep/both.py", "deep/cuda.py", "deep/helped.py", "guard.py", "loop.py"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def corpus(tree: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), str(tree), "--report", "report.md", *args]
    return subprocess.run(command, cwd=tree.parent, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def rows(tree: Path) -> dict[str, list[str]]:
    """The rows of the report's table of scripts, without the seconds."""
    text = (tree.parent / "report.md").read_text()
    found = re.findall(r"^\| `(.*?)` \| (.*?) \| (.*?) \| (.*?) \| [0-9.]+ \|$", text, re.MULTILINE)
    return {script: rest for script, *rest in found}


def test_a_tree(tree: Path) -> None:
    before = files_below(tree)
    ended = corpus(tree, "--jobs", "2")
    assert ended.returncode == 0, ended.stderr
    assert files_below(tree) == before
    assert rows(tree) == {
        "call.py": ["split", "1", ""],
        "deep/both.py": ["split", "1", "1 S302"],
        "deep/cuda.py": ["left", "0", "1 S302"],
        "deep/helped.py": ["split", "1", ""],
        "guard.py": ["split", "1", ""],
        "loop.py": ["split", "1", ""],
    }
    assert ended.stdout == "scripts: 6 (5 split, 1 left)\nloaders: 7 (5 split, 2 left)\n  S302 2\n"
    text = (tree.parent / "report.md").read_text()
    assert "| split | 5 | 5 |\n| S302 | 2 | 2 |\n" in text
    assert "| all | 6 |\n" in text
    assert [line.split()[1].rstrip(":") for line in sorted(ended.stderr.splitlines(), key=lambda line: line.split()[1])] == CHOSEN


def test_a_list_of_scripts(tree: Path) -> None:
    (tree.parent / "list.txt").write_text("# mine\n\nold.py\nplain.py\nloop.py\nloop.py\ndefines.py\n")
    ended = corpus(tree, "--scripts", "list.txt")
    assert ended.returncode == 0, ended.stderr
    assert list(rows(tree).items()) == [
        ("old.py", ["bad input", "0", ""]),
        ("plain.py", ["no loader", "0", ""]),
        ("loop.py", ["split", "1", ""]),
        ("defines.py", ["split", "1", ""]),
    ]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--scripts", "missing.txt"], "corpus: can't read missing.txt"),
        (["--scripts", "wrong.txt"], "corpus: wrong.txt: there is no file nothing.py in"),
        (["--limit", "0"], "--limit must be above 0"),
        (["--jobs", "0"], "--jobs at least 1"),
    ],
)
def test_bad_input(tree: Path, args: list[str], said: str) -> None:
    (tree.parent / "wrong.txt").write_text("nothing.py\n")
    ended = corpus(tree, *args)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert not (tree.parent / "report.md").exists()


def test_no_scripts(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    ended = corpus(tmp_path / "tree")
    assert (ended.returncode, ended.stderr) == (2, f"corpus: there is no training script in {tmp_path}/tree\n")


def test_slow_scripts_are_ended(tree: Path) -> None:
    """No compiler starts within a thousandth of a second."""
    (tree.parent / "list.txt").write_text("loop.py\n")
    ended = corpus(tree, "--scripts", "list.txt", "--limit", "0.001")
    assert ended.returncode == 1
    assert ended.stdout == "scripts: 1 (1 slow)\nloaders: 0 (0 split, 0 left)\nslow: loop.py\n"
    assert rows(tree) == {"loop.py": ["slow", "0", ""]}


# Runs the tool with another `splitter`, which does to a script what its name says.
WRONG = """
import os, sys
from pathlib import Path
name = Path(sys.argv[2]).stem
if name == "call":
    raise RuntimeError("a fault")
if name == "guard":
    os.abort()
if name == "loop":
    out = Path(sys.argv[4])
    out.mkdir()
    (out / "loop_trainer.py").write_text("x = (1\\n")
print('{"feeds": [{"status": "split", "code": null}]}')
"""


def test_faults_of_splitter(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tree.parent / "fake" / "splitter"
    fake.mkdir(parents=True)
    for name in ("ir", "read", "scopes", "diagnostics"):
        (fake / f"{name}.py").write_bytes((ROOT / "splitter" / f"{name}.py").read_bytes())
    (fake / "__init__.py").write_text("")
    (fake / "__main__.py").write_text(WRONG)
    monkeypatch.setenv("PYTHONPATH", str(fake.parent))
    (tree.parent / "list.txt").write_text("call.py\nguard.py\nloop.py\nplain.py\n")
    ended = corpus(tree, "--scripts", "list.txt")
    assert ended.returncode == 1, ended.stderr
    assert [row[0] for row in rows(tree).values()] == ["crashed", "crashed", "not parsing", "not parsing"]
    text = (tree.parent / "report.md").read_text()
    assert "\n## crashed: `call.py`\n\n```\nTraceback (most recent call last):\n" in text
    assert "RuntimeError: a fault\n```\n" in text
    assert "## crashed: `guard.py`\n\n```\n" in text
    assert "loop_trainer.py: '(' was never closed" in text
    assert "exit status 0 with 1 loaders split and the files []" in text
    assert ended.stdout.endswith("\ncrashed: call.py\ncrashed: guard.py\nnot parsing: loop.py\nnot parsing: plain.py\n")
