"""The command line: what it prints where, what it writes, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from scratch import quickly

SPLIT = """\
import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.tensor([float(i)])


data = Numbers()
loader = DataLoader(data, batch_size=4, num_workers=1)
for x in loader:
    print(x)
"""
NOISY = SPLIT.replace("torch.tensor([float(i)])", "torch.rand(1)").replace(", num_workers=1", "")
CUDA = SPLIT.replace("torch.tensor([float(i)])", "torch.tensor([float(i)]).cuda()")
WRITTEN = ["train_split.json", "train_split.md", "train_trainer.py", "train_worker.py"]
MAIN = "import sys\nfrom splitter.__main__ import main\nsys.argv = ['splitter', *sys.argv[1:]]\n"


def splitter(folder: Path, *args: str, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MAIN + before + "\nmain()\n"] if before else [sys.executable, "-m", "splitter"]
    return subprocess.run(
        [*command, *quickly(args)],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", **environment},
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SPLIT)
    return tmp_path


def test_transform_writes_beside_the_script(folder: Path) -> None:
    ended = splitter(folder, "transform", "train.py")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[-1] == ("wrote train_worker.py, train_trainer.py, train_split.md, train_split.json")
    assert ended.stdout.splitlines()[1].split()[1:4] == ["train.py:14", "split", "moved"]
    assert names(folder) == sorted(["train.py", *WRITTEN])
    assert (folder / "train.py").read_text() == SPLIT


def test_transform_of_a_script_elsewhere(folder: Path) -> None:
    out = folder / "out"
    ended = splitter(folder.parent, "transform", f"{folder.name}/train.py", "--out", str(out), "--", "--epochs", "3")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"{folder.name}/train.py:14" in ended.stdout
    assert names(folder) == ["out", "train.py"]
    assert names(out) == WRITTEN
    assert 'script="../train.py"' in (out / "train_trainer.py").read_text()


def test_json_alone_on_standard_output(folder: Path) -> None:
    ended = splitter(folder, "transform", "train.py", "--json")
    assert ended.returncode == 0
    assert ended.stdout == (folder / "train_split.json").read_text()
    assert json.loads(ended.stdout)["version"] == 1


def test_diff_alone_on_standard_output(folder: Path) -> None:
    ended = splitter(folder, "transform", "train.py", "--diff")
    assert ended.returncode == 0
    assert ended.stdout.startswith("--- train.py\n+++ train_trainer.py\n@@ ")
    assert "wrote train_worker.py" in ended.stderr
    patched = subprocess.run(["patch", "-o", "-", "train.py"], input=ended.stdout, cwd=folder, text=True, capture_output=True, check=True)
    assert patched.stdout == (folder / "train_trainer.py").read_text()


def test_streams(folder: Path) -> None:
    (folder / "train.py").write_text(NOISY)
    assert splitter(folder, "transform", "train.py").returncode == 0
    assert "num_workers" not in (folder / "train_trainer.py").read_text()
    ended = splitter(folder, "transform", "train.py", "--streams", "2")
    assert ended.returncode == 0, ended.stderr
    assert "batch_size=4, num_workers=2)" in (folder / "train_trainer.py").read_text()


@pytest.mark.parametrize("command", ["transform", "run", "verify"])
def test_nothing_to_split(command: str, folder: Path) -> None:
    (folder / "train.py").write_text(CUDA)
    ended = splitter(folder, command, "train.py")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr.splitlines() == [
        "train.py:10:16: S302 the dataset or collate function uses a device: torch.tensor([float(i)]).cuda()",
        "   10 |         return torch.tensor([float(i)]).cuda()",
        "      |                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        "  hint: keep the data on the CPU there and move the batch in the training loop",
        "splitter: nothing was split, the loader stays as it is; no file was written",
    ]
    assert names(folder) == ["train.py"]


def test_some_split_and_some_left(folder: Path) -> None:
    more = CUDA.replace("Numbers", "Cuda").split("class", 1)[1].replace("loader", "other").replace("data =", "more =")
    (folder / "train.py").write_text(SPLIT + "\n\nclass" + more.replace("DataLoader(data", "DataLoader(more"))
    ended = splitter(folder, "transform", "train.py")
    assert ended.returncode == 0
    assert "S302" in ended.stderr
    assert [row.split()[2] for row in ended.stdout.splitlines()[1:3]] == ["split", "left"]
    assert "1 of 2 loaders split." in (folder / "train_split.md").read_text()


def test_syntax_error_shows_its_line(folder: Path) -> None:
    (folder / "train.py").write_text("import torch\nx = (1\ny = 2\n")
    ended = splitter(folder.parent, "transform", f"{folder.name}/train.py")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"{folder.name}/train.py:2:5: S103" in ended.stderr
    assert "    2 | x = (1\n" in ended.stderr


def test_a_file_of_the_users_own_is_in_the_way(folder: Path) -> None:
    (folder / "train_worker.py").write_text("print('mine')\n")
    ended = splitter(folder, "transform", "train.py")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "S105" in ended.stderr and "was not written by splitter" in ended.stderr
    assert names(folder) == ["train.py", "train_worker.py"]


BAD = [
    (["transform"], "SCRIPT"),
    (["transform", "train.py", "other.py"], "unexpected argument 'other.py'"),
    (["run", "train.py", "other.py", "--", "x"], "unexpected argument 'other.py'"),
    (["transform", "train.py", "--epochs", "3"], "--epochs"),
    (["transform", "train.py", "--streams", "0"], "--streams"),
    (["transform", "train.py", "--json", "--diff"], "give one of them"),
    (["show", "train.py", "--after", "lunch"], "the steps are read, find, effects, slice, trace, cut, emit"),
    (["explain", "S999"], "there is no code S999"),
    (["dance"], "dance"),
]


@pytest.mark.parametrize(("args", "said"), BAD)
def test_bad_options(args: list[str], said: str, folder: Path) -> None:
    ended = splitter(folder, *args)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert names(folder) == ["train.py"]


FAIL = "import splitter.compile, splitter.plan\ndef fail(*_, **__): return splitter.plan.plan(None)\nsplitter.compile.plan = fail"


def test_an_internal_error_is_one_line(folder: Path) -> None:
    ended = splitter(folder, "transform", "train.py", before=FAIL)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("splitter: S901 step plan failed on train.py: AttributeError: ")
    assert ended.stderr.endswith("; please report it with the script; nothing was written\n")
    assert ended.stderr.count("\n") == 1
    assert names(folder) == ["train.py"]


def test_an_internal_error_with_its_traceback(folder: Path) -> None:
    ended = splitter(folder, "transform", "train.py", before=FAIL, SPLITTER_TRACEBACK="1")
    assert ended.returncode == 1
    assert "Traceback (most recent call last)" in ended.stderr


def test_interrupted_quietly(folder: Path) -> None:
    before = "import splitter.compile\ndef fail(*_, **__): raise KeyboardInterrupt\nsplitter.compile.plan = fail"
    ended = splitter(folder, "transform", "train.py", before=before)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_run_is_the_script_with_workers(folder: Path) -> None:
    """Local modules, data beside the script, arguments, output and status; nothing is left."""
    (folder / "sizes.py").write_text("from pathlib import Path\nSIZE = int(Path(__file__).with_name('size').read_text())\n")
    (folder / "size").write_text("4")
    text = SPLIT.replace("batch_size=4", "batch_size=SIZE").replace("float(i)", "i + SIZE, len(Path(__file__).read_text())")
    text = "import sys\nfrom pathlib import Path\n\nfrom sizes import SIZE\n" + text
    text += "print(sys.argv[1:], Path(__file__).name, sys.path[0])\nsys.exit(7)\n"
    (folder / "train.py").write_text(text)
    before = names(folder)
    temporary = folder.parent / "temporary"
    temporary.mkdir()
    plain = subprocess.run([sys.executable, "train.py", "-x", "--", "y"], cwd=folder, capture_output=True, text=True)
    ended = splitter(folder, "run", "train.py", "--", "-x", "--", "y", TMPDIR=str(temporary))
    assert (ended.stdout, ended.returncode) == (plain.stdout, 7), ended.stderr
    assert names(folder) == before
    assert names(temporary) == []


def test_version_help_and_explain(folder: Path) -> None:
    assert splitter(folder, "--version").stdout == "splitter 0.1.0\n"
    assert splitter(folder, "--help").returncode == 0
    assert "batch_size" not in splitter(folder, "explain", "s302").stdout
    assert splitter(folder, "explain", "s302").stdout.startswith("S302 (error): uses a device\n")
    assert splitter(folder, "explain", "R101").stdout.startswith("R101 (run time)\n")


@pytest.mark.parametrize("step", ["read", "find", "effects", "slice", "emit"])
def test_show(step: str, folder: Path) -> None:
    ended = splitter(folder, "show", "train.py", "--after", step)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "train.py" in ended.stdout or step == "effects"
    assert names(folder) == ["train.py"]


@pytest.mark.parametrize("args", [["--help"], ["explain", "S301"], ["transform", "train.py"], ["show", "train.py", "--after", "emit"]])
def test_torch_is_not_imported(args: list[str], folder: Path) -> None:
    before = "import atexit\natexit.register(lambda: sys.stderr.write(' '.join({'torch', 'numpy', 'grpc'} & sys.modules.keys())))"
    ended = splitter(folder, *args, before=before)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_same_text_under_another_hash_seed(folder: Path) -> None:
    first = splitter(folder, "transform", "train.py", "--json", PYTHONHASHSEED="1")
    files = {name: (folder / name).read_bytes() for name in WRITTEN}
    second = splitter(folder, "transform", "train.py", "--json", PYTHONHASHSEED="2")
    assert first.stdout == second.stdout
    assert files == {name: (folder / name).read_bytes() for name in WRITTEN}
