"""`splitter check`: whether the generated files are current, and the diff that makes them so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scratch import quickly

SCRIPT = """\
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
CUDA = SCRIPT.replace("torch.tensor([float(i)])", "torch.tensor([float(i)]).cuda()")
# The loader stands in a local module, so that `transform` writes a patched copy of it.
HELPER = SCRIPT.split("data = ")[0] + "def make():\n    return DataLoader(Numbers(), batch_size=4, num_workers=1)\n"
CALLS_HELPER = "from loaders import make\n\nfor x in make():\n    print(x)\n"
ALL = "train_worker.py, train_trainer.py, train_split.md, train_split.json"


def splitter(folder: Path, *args: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys\nfrom splitter.__main__ import main\nsys.argv = ['splitter', *sys.argv[1:]]\n{before}\nmain()\n"
    return subprocess.run(
        [sys.executable, "-c", code, *quickly(args)], cwd=folder, capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL
    )


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def patch(folder: Path, diff: str) -> None:
    subprocess.run(["patch", "-p0", "-s", "-E"], input=diff, cwd=folder, encoding="utf-8", check=True)


def transformed(folder: Path, *args: str) -> None:
    ended = splitter(folder, "transform", *args)
    assert ended.returncode == 0, ended.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def assert_current(folder: Path, *args: str, shown: str = "train.py") -> None:
    before = listing(folder)
    ended = splitter(folder, "check", *args)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{shown}: the generated files are current\n", "")
    assert listing(folder) == before


def test_current(folder: Path) -> None:
    transformed(folder, "train.py")
    assert_current(folder, "train.py")
    assert_current(folder.parent, f"{folder.name}/train.py", shown=f"{folder.name}/train.py")


def test_a_changed_script(folder: Path) -> None:
    transformed(folder, "train.py")
    (folder / "train.py").write_text(SCRIPT.replace("float(i)", "float(i) + 1"))
    before = listing(folder)
    ended = splitter(folder.parent, "check", f"{folder.name}/train.py")
    assert ended.returncode == 1
    assert listing(folder) == before
    assert f"--- {folder.name}/train_worker.py\n+++ {folder.name}/train_worker.py\n@@ " in ended.stdout
    assert "\n-        return torch.tensor([float(i)])\n+        return torch.tensor([float(i) + 1])\n" in ended.stdout
    assert ended.stderr == f"splitter: {folder.name}/train.py: {ALL} are not current; run splitter transform again\n"
    patch(folder.parent, ended.stdout)
    assert_current(folder, "train.py")


def test_a_generated_file_that_was_edited(folder: Path) -> None:
    transformed(folder, "train.py")
    trainer = folder / "train_trainer.py"
    text = trainer.read_text()
    trainer.write_text(text + "print('more')")
    ended = splitter(folder, "check", "train.py")
    assert ended.returncode == 1
    assert ended.stdout.endswith("-print('more')\n\\ No newline at end of file\n")
    assert ended.stderr == "splitter: train.py: train_trainer.py is not current; run splitter transform again\n"


def test_no_file_yet(folder: Path) -> None:
    ended = splitter(folder, "check", "train.py")
    assert ended.returncode == 1
    assert ended.stderr == f"splitter: train.py: {ALL} are missing; run splitter transform again\n"
    assert ended.stdout.count("--- /dev/null\n") == 4
    patch(folder, ended.stdout)
    assert_current(folder, "train.py")


def test_a_patched_copy_that_is_left_over(folder: Path) -> None:
    (folder / "loaders.py").write_text(HELPER)
    (folder / "train.py").write_text(CALLS_HELPER)
    transformed(folder, "train.py")
    assert_current(folder, "train.py")
    (folder / "train_split" / "mine.py").write_text("print('a file of my own')\n")
    assert_current(folder, "train.py")
    (folder / "train.py").write_text(SCRIPT)
    ended = splitter(folder, "check", "train.py")
    assert ended.returncode == 1
    assert "--- train_split/loaders.py\n+++ /dev/null\n" in ended.stdout
    assert ended.stderr.endswith("; train_split/loaders.py is left over; run splitter transform again\n")
    patch(folder, ended.stdout)
    assert sorted(listing(folder / "train_split")) == ["mine.py"]
    assert_current(folder, "train.py")


def test_files_in_another_folder(folder: Path) -> None:
    transformed(folder, "train.py", "--out", "out")
    assert_current(folder, "train.py", "--out", "out")
    assert splitter(folder, "check", "train.py").returncode == 1
    (folder / "out" / "train_split.md").unlink()
    ended = splitter(folder, "check", "train.py", "--out", "out")
    assert (ended.returncode, ended.stdout[:40]) == (1, "--- /dev/null\n+++ out/train_split.md\n@@ -"[:40])


def test_streams(folder: Path) -> None:
    (folder / "train.py").write_text(SCRIPT.replace("torch.tensor([float(i)])", "torch.rand(1)").replace(", num_workers=1", ""))
    transformed(folder, "train.py", "--streams", "2")
    assert_current(folder, "train.py", "--streams", "2")
    assert splitter(folder, "check", "train.py", "--streams", "3").returncode == 1
    assert splitter(folder, "check", "train.py").returncode == 1


def test_nothing_can_be_split_any_more(folder: Path) -> None:
    transformed(folder, "train.py")
    (folder / "train.py").write_text(CUDA)
    before = listing(folder)
    ended = splitter(folder, "check", "train.py")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "train.py:10:16: S302" in ended.stderr
    assert ended.stderr.endswith("splitter: train.py: no loader can be split any more\n")
    assert listing(folder) == before


def test_a_loader_that_is_left_is_no_news(folder: Path) -> None:
    more = CUDA.replace("Numbers", "Cuda").split("class", 1)[1].replace("loader", "other").replace("data =", "more =")
    (folder / "train.py").write_text(SCRIPT + "\n\nclass" + more.replace("DataLoader(data", "DataLoader(more"))
    transformed(folder, "train.py")
    assert_current(folder, "train.py")


def test_text_that_is_not_utf_8(folder: Path) -> None:
    script = b"# -*- coding: latin-1 -*-\r\n" + SCRIPT.replace("print(x)", "print('\u00e9', x)").replace("\n", "\r\n").encode("latin-1")
    (folder / "train.py").write_bytes(script)
    transformed(folder, "train.py")
    assert_current(folder, "train.py")
    (folder / "train.py").write_bytes(script.replace(b"'\xe9'", b"'\xe8'"))
    command = [sys.executable, "-m", "splitter", "check", "train.py"]
    ended = subprocess.run(command, cwd=folder, capture_output=True)
    assert ended.returncode == 1
    assert b"-    print('\xe9', x)\r\n+    print('\xe8', x)\r\n" in ended.stdout
    subprocess.run(["patch", "--binary", "-p0", "-s"], input=ended.stdout, cwd=folder, check=True)
    assert_current(folder, "train.py")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["missing.py"], "S101"),
        (["wrong.py"], "wrong.py:1:5: S103"),
        (["train.py", "--streams", "0"], "--streams"),
        (["train.py", "--", "--epochs"], "S101"),
        ([], "SCRIPT"),
    ],
)
def test_bad_input(args: list[str], said: str, folder: Path) -> None:
    (folder / "wrong.py").write_text("x = (1\n")
    transformed(folder, "train.py")
    ended = splitter(folder, "check", *args)
    assert ended.returncode == 2
    assert said in ended.stderr


def test_a_folder_where_a_file_should_be(folder: Path) -> None:
    (folder / "train_worker.py").mkdir()
    ended = splitter(folder, "check", "train.py")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "can't read train_worker.py: Is a directory" in " ".join(ended.stderr.split())


def test_several_scripts(folder: Path) -> None:
    """Each is looked at, whatever came before; the status is the one that needs most attention."""
    transformed(folder, "train.py")
    (folder / "again.py").write_text(SCRIPT)
    (folder / "cuda.py").write_text(CUDA)
    for args, status in (
        (["train.py", "train.py"], 0),
        (["cuda.py", "train.py"], 3),
        (["again.py", "cuda.py", "train.py"], 1),
        (["missing.py", "again.py", "cuda.py", "train.py"], 2),
    ):
        ended = splitter(folder, "check", *args)
        assert ended.returncode == status
        assert ended.stdout.endswith("train.py: the generated files are current\n")


def test_an_internal_error_names_its_script(folder: Path) -> None:
    before = "import splitter.compile, splitter.plan\ndef fail(*_, **__): return splitter.plan.plan(None)\nsplitter.compile.plan = fail"
    ended = splitter(folder, "check", "train.py", before=before)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("splitter: S901 step plan failed on train.py: AttributeError: ")
