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
    found = re.findall(r"^\| `([^|]*)` \| ([a-z ]+) \| ([^|]*) \| ([^|]*) \| [0-9.]+ \|$", text, re.MULTILINE)
    return {script: rest for script, *rest in found}


def test_a_tree(tree: Path) -> None:
    before = files_below(tree)
    ended = corpus(tree, "--jobs", "2")
    assert ended.returncode == 0, ended.stderr
    assert files_below(tree) == before
    assert rows(tree) == {
        "call.py": ["split", "1 moved", ""],
        "deep/both.py": ["split", "1 moved", "1 S302"],
        "deep/cuda.py": ["left", "", "1 S302"],
        "deep/helped.py": ["split", "1 moved", ""],
        "guard.py": ["split", "1 moved", ""],
        "loop.py": ["split", "1 moved", ""],
    }
    assert ended.stdout.startswith(
        """\
scripts: 6 (5 split, 1 left)
loaders: 7 (5 moved, 0 replicated, 0 sent, 2 left)
  S302 2
5 of 7 torch loaders are split (71.4%)
one script takes """
    )
    text = (tree.parent / "report.md").read_text()
    assert "| moved | the dataset is built on the worker | 5 | 5 |\n" in text
    assert "| S302 | uses a device | 2 | 2 |\n" in text
    assert "| all | 6 |\n" in text
    assert groups(text) == [
        ["`.`", "3", "3", "3", "0", "0", "", "0", "0"],
        ["`deep`", "3", "4", "2", "0", "0", "2 S302", "0", "0"],
        ["all", "6", "7", "5", "0", "0", "2 S302", "0", "0"],
    ]
    assert [line.split()[1].rstrip(":") for line in sorted(ended.stderr.splitlines(), key=lambda line: line.split()[1])] == CHOSEN


def groups(report: str) -> list[list[str]]:
    """The rows of the report's table of folders, without the seconds."""
    table = report[report.index("| folder | scripts |") :].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")][:-2] for line in table.splitlines()[2:]]


def test_a_list_of_scripts(tree: Path) -> None:
    (tree.parent / "list.txt").write_text("# mine\n\nold.py\nplain.py\nloop.py\nloop.py\ndefines.py\n")
    ended = corpus(tree, "--scripts", "list.txt")
    assert ended.returncode == 0, ended.stderr
    assert list(rows(tree).items()) == [
        ("old.py", ["bad input", "", ""]),
        ("plain.py", ["no loader", "", ""]),
        ("loop.py", ["split", "1 moved", ""]),
        ("defines.py", ["split", "1 moved", ""]),
    ]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--scripts", "missing.txt"], "corpus: can't read missing.txt"),
        (["--scripts", "wrong.txt"], "corpus: wrong.txt: there is no file nothing.py in"),
        (["--limit", "0"], "--limit must be above 0"),
        (["--jobs", "0"], "--jobs and --levels at least 1"),
        (["--levels", "0"], "--jobs and --levels at least 1"),
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
    assert ended.stdout.startswith("scripts: 1 (1 slow)\nloaders: 0 (0 moved, 0 replicated, 0 sent, 0 left)\n")
    assert ended.stdout.endswith("\nslow: loop.py\n")
    assert rows(tree) == {"loop.py": ["slow", "", ""]}


def pretend(tree: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Run the tool with another `splitter`, whose command line is `program`."""
    fake = tree.parent / "fake" / "splitter"
    fake.mkdir(parents=True)
    for name in ("ir", "read", "scopes", "diagnostics", "roots"):
        (fake / f"{name}.py").write_bytes((ROOT / "splitter" / f"{name}.py").read_bytes())
    (fake / "__init__.py").write_text("")
    (fake / "__main__.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(fake.parent))


# Three loaders: one gets two datasets that are split, one gets a dataset that leaves it, one is alone.
SEVERAL = """
import json, sys
from pathlib import Path
out = Path(sys.argv[4])
out.mkdir()
(out / (Path(sys.argv[2]).stem + "_trainer.py")).write_text("")
found = [(9, "sent", None), (9, "moved", None), (5, "moved", None), (7, "moved", None), (7, None, "S313")]
print(json.dumps({"feeds": [
    {"loader": {"line": line}, "status": "left" if code else "split", "dataset": word, "code": code} for line, word, code in found
]}))
"""


def test_loaders_with_several_datasets_in_two_levels_of_folders(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tree, monkeypatch, SEVERAL)
    (tree.parent / "list.txt").write_text("loop.py\ndeep/both.py\ndeep/parts/feed.py\n")
    ended = corpus(tree, "--scripts", "list.txt", "--levels", "2")
    assert ended.returncode == 0, ended.stderr
    assert rows(tree)["loop.py"] == ["split", "1 moved, 1 sent", "1 S313"]
    assert groups((tree.parent / "report.md").read_text()) == [
        ["`.`", "1", "3", "1", "0", "1", "1 S313", "0", "0"],
        ["`deep`", "1", "3", "1", "0", "1", "1 S313", "0", "0"],
        ["`deep/parts`", "1", "3", "1", "0", "1", "1 S313", "0", "0"],
        ["all", "3", "9", "3", "0", "3", "3 S313", "0", "0"],
    ]
    assert "\n6 of 9 torch loaders are split (66.7%)\n" in ended.stdout


# Does to a script what its name says.
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
print('{"feeds": [{"loader": {"line": 1}, "status": "split", "dataset": "moved", "code": null}]}')
"""


def test_faults_of_splitter(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tree, monkeypatch, WRONG)
    (tree.parent / "list.txt").write_text("call.py\nguard.py\nloop.py\nplain.py\n")
    ended = corpus(tree, "--scripts", "list.txt")
    assert ended.returncode == 1, ended.stderr
    assert [row[0] for row in rows(tree).values()] == ["crashed", "crashed", "not parsing", "not parsing"]
    text = (tree.parent / "report.md").read_text()
    assert "\n## crashed: `call.py`\n\n```\nTraceback (most recent call last):\n" in text
    assert "RuntimeError: a fault\n```\n" in text
    assert "## crashed: `guard.py`\n\n```\n" in text
    assert "loop_trainer.py: '(' was never closed" in text
    assert "exit status 0 with 1 feeds and the files []" in text
    assert ended.stdout.endswith("\ncrashed: call.py\ncrashed: guard.py\nnot parsing: loop.py\nnot parsing: plain.py\n")
