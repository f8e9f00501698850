"""`transform --bundle`: the worker and its local modules in one place, run as a worker from a list with real processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from scratch import FIXTURES, Scratch

from splitter.bundle import bundle
from splitter.compile import compile_script

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runtime"))
from running import running

# Everything that a bundle must bring along: a module, a package with relative imports, an import inside of a function, and a
# module that only `__init__.py` imports; `models` and `unrelated` are not needed.
FILES = {
    "train.py": '''\
"""Prints every batch."""
import sys

import torch
from torch.utils.data import DataLoader, Dataset

import models
from pkg.readers import Rows
from shapes import pad


class Scaled(Dataset):
    def __init__(self, rows, factor):
        self.rows = rows
        self.factor = factor
        print("made", len(rows), "of", type(rows).__module__)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if index == 7 and self.factor < 0:
            raise ValueError(f"row {index}")
        return self.rows[index] * self.factor


def main():
    torch.manual_seed(3)
    path, factor = sys.argv[1], float(sys.argv[2])
    data = Scaled(Rows(path), factor)
    loader = DataLoader(data, batch_size=3, shuffle=True, num_workers=2, collate_fn=pad)
    for epoch in range(2):
        for batch in loader:
            print(epoch, models.total(batch), batch.tolist())


if __name__ == "__main__":
    main()
''',
    "shapes.py": """\
from torch.nn.utils.rnn import pad_sequence


def pad(samples):
    from sizes import most

    return pad_sequence(samples, batch_first=True)[:, : most()]
""",
    "sizes.py": "def most():\n    return 4\n",
    "pkg/__init__.py": "from .units import UNIT\n",
    "pkg/units.py": "UNIT = 0.5\n",
    "pkg/readers.py": """\
import torch

from . import UNIT
from .sub.lines import lines


class Rows:
    def __init__(self, path):
        self.rows = [[float(part) for part in line.split()] for line in lines(path)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        noise = torch.rand(len(self.rows[index]))
        return torch.tensor(self.rows[index]) * UNIT + noise
""",
    "pkg/sub/lines.py": "def lines(path):\n    with open(path) as stream:\n        return stream.read().splitlines()\n",
    "models.py": "def total(batch):\n    return batch.sum().item()\n",
    "unrelated.py": "raise RuntimeError\n",
}
MODULES = ["pkg/__init__.py", "pkg/readers.py", "pkg/sub/lines.py", "pkg/units.py", "shapes.py", "sizes.py"]


@pytest.fixture
def project(scratch: Scratch) -> Path:
    folder = scratch.folder / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (scratch.folder / "rows").write_text("".join(f"{' '.join(str(n) for n in range(row % 5 + 1))}\n" for row in range(11)))
    return folder


def transformed(scratch: Scratch, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    ended = scratch.splitter("transform", "train.py", *args, folder=folder)
    assert ended.returncode == 0, ended.stderr
    return ended


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(("bundle", "program"), [("worker", "train_worker.py"), ("worker.pyz", "")])
def test_a_bundle_is_all_that_a_worker_needs(scratch: Scratch, project: Path, bundle: str, program: str) -> None:
    arguments = [str(scratch.folder / "rows"), "2"]
    expected = scratch.run([sys.executable, "train.py", *arguments], project)
    assert expected.returncode == 0, expected.stderr
    transformed(scratch, project, "--bundle", f"../bundles/{bundle}")
    # Nothing of the project is where the bundle could find it by a path.
    away = Path(shutil.move(scratch.folder / "bundles", scratch.folder / "host" / "deep"))
    moved = project.rename(scratch.folder / "renamed")
    worker = str(away / bundle / program) if program else str(away / bundle)
    elsewhere = scratch.folder / "elsewhere"
    elsewhere.mkdir()
    with running(scratch, elsewhere, worker, "--listen", "127.0.0.1:0") as host:
        trainer = [sys.executable, "train_trainer.py"]
        ended = scratch.run([*trainer, *arguments], moved, SPLITTER_WORKERS=host.address())
        assert (ended.stdout, ended.returncode) == (expected.stdout, 0), ended.stderr
        failed = scratch.run([*trainer, arguments[0], "-1"], moved, SPLITTER_WORKERS=host.address())
        assert failed.returncode == 1
        # The traceback names the script's line.
        line = FILES["train.py"].splitlines().index('            raise ValueError(f"row {index}")') + 1
        assert f'File "{moved}/train.py", line {line}, in __getitem__' in failed.stderr, failed.stderr
        assert "ValueError: row 7" in failed.stderr


def test_modules_from_elsewhere(scratch: Scratch) -> None:
    """They stand under their names, and the worker imports them with nothing of the project around."""
    folder = scratch.copy("package_script", "project")
    ended = scratch.splitter("transform", "waves/train.py", "--bundle", "../worker.pyz", folder=folder)
    assert ended.returncode == 0, ended.stderr
    assert "train_worker.py, waves/__init__.py, waves/data.py, waves/loaders.py to ../worker.pyz" in ended.stdout
    shutil.rmtree(folder)
    ended = scratch.run([sys.executable, str(scratch.folder / "worker.pyz"), "--help"], scratch.folder)
    assert ended.returncode == 0, ended.stderr
    assert "makes the batches of the loaders `loader` and `held_out`" in ended.stdout


def test_modules_of_the_project_are_in_a_bundle() -> None:
    script = FIXTURES / "project_root/scripts/train.py"
    bundled = bundle(compile_script(script), script.parent)
    assert [file.name for file in bundled.files[1:]] == [f"waves/{name}.py" for name in ("__init__", "data", "loaders", "registry")]
    assert b"roots" not in bundled.files[0].content


def test_files_of_a_bundle(scratch: Scratch, project: Path) -> None:
    ended = transformed(scratch, project, "--bundle", "../worker")
    assert ended.stdout.splitlines()[-1] == (
        f"wrote train_worker.py, train_trainer.py, train_split.md, train_split.json; train_worker.py, {', '.join(MODULES)} to ../worker"
    )
    assert ended.stderr == ""
    bundle = scratch.folder / "worker"
    assert names(bundle) == sorted(["train_bundle.json", "train_worker.py", *MODULES])
    assert (bundle / "train_worker.py").read_bytes() == (project / "train_worker.py").read_bytes()
    listed = json.loads((bundle / "train_bundle.json").read_text())
    assert listed["digest"] == json.loads((project / "train_split.json").read_text())["digest"]
    assert sorted(listed["files"]) == sorted(["train_worker.py", *MODULES])


def test_an_archive_is_the_same_each_time(scratch: Scratch, project: Path) -> None:
    transformed(scratch, project, "--bundle", "../worker.pyz")
    archive = scratch.folder / "worker.pyz"
    first = archive.read_bytes()
    assert sorted(zipfile.ZipFile(archive).namelist()) == sorted(["__main__.py", "pkg/", "pkg/sub/", *MODULES])
    for name in MODULES:
        (project / name).touch()
    transformed(scratch, project, "--bundle", "../worker.pyz", "--out", "../elsewhere")
    assert archive.read_bytes() == first


def test_a_bundle_is_replaced(scratch: Scratch, project: Path) -> None:
    """What it had and has no more is removed; what was put beside it stays."""
    transformed(scratch, project, "--bundle", "../worker")
    bundle = scratch.folder / "worker"
    (bundle / "labels.txt").write_text("mine\n")
    (project / "shapes.py").write_text(FILES["shapes.py"].replace("from sizes import most", "most = int").replace("most()", "4 + most()"))
    transformed(scratch, project, "--bundle", "../worker")
    assert names(bundle) == sorted(["labels.txt", "train_bundle.json", "train_worker.py", *(m for m in MODULES if m != "sizes.py")])
    assert (bundle / "shapes.py").read_bytes() == (project / "shapes.py").read_bytes()


@pytest.mark.parametrize("before", [None, "--bundle"])
def test_files_of_the_users_own_are_not_replaced(scratch: Scratch, project: Path, before: str | None) -> None:
    bundle = scratch.folder / "worker"
    if before:
        transformed(scratch, project, before, "../worker")
    bundle.mkdir(exist_ok=True)
    (bundle / "shapes.py").write_text("print('mine')\n")
    found = names(bundle)
    ended = scratch.splitter("transform", "train.py", "--bundle", "../worker", folder=project)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "S105 can't write to ../worker/shapes.py: it is there already and was not written by splitter" in ended.stderr
    assert names(bundle) == found
    assert (bundle / "shapes.py").read_text() == "print('mine')\n"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (".", "give another folder"),
        ("../project", "give another folder"),
        ("out", "give another folder"),
        ("train.py", "S105 can't write to train.py"),
        ("pkg.pyz", "S105 can't write to pkg.pyz: it is a folder"),
    ],
)
def test_a_wrong_place(scratch: Scratch, project: Path, path: str, said: str) -> None:
    (project / "pkg.pyz").mkdir()
    ended = scratch.splitter("transform", "train.py", "--bundle", path, "--out", "out", folder=project)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in " ".join(ended.stderr.split())
    assert (project / "train.py").read_text() == FILES["train.py"]


def test_nothing_split_writes_no_bundle(scratch: Scratch, project: Path) -> None:
    (project / "train.py").write_text(FILES["train.py"].replace("self.rows[index]", "self.rows[index].cuda()"))
    ended = scratch.splitter("transform", "train.py", "--bundle", "../worker", folder=project)
    assert ended.returncode == 3
    assert not (scratch.folder / "worker").exists()


def test_modules_that_read_their_own_place(scratch: Scratch, project: Path) -> None:
    """Such files are found when they are put into the bundle's folder; the user is told of the place."""
    reads = "from pathlib import Path\n\n\ndef most():\n    return int(Path(__file__).with_name('most.txt').read_text())\n"
    (project / "sizes.py").write_text(reads)
    (project / "most.txt").write_text("4\n")
    ended = transformed(scratch, project, "--bundle", "../worker")
    assert ended.stderr == (
        "splitter: note: sizes.py:5 reads __file__, which is inside ../worker there; files that it finds by it are not in the bundle\n"
    )
    shutil.copy(project / "most.txt", scratch.folder / "worker")
    arguments = [str(scratch.folder / "rows"), "2"]
    expected = scratch.run([sys.executable, "train.py", *arguments], project)
    with running(scratch, scratch.folder, "worker/train_worker.py", "--listen", "127.0.0.1:0") as host:
        ended = scratch.run([sys.executable, "train_trainer.py", *arguments], project, SPLITTER_WORKERS=host.address())
        assert (ended.stdout, ended.returncode) == (expected.stdout, 0), ended.stderr


LOADERS = """\
from torch.utils.data import DataLoader


def make(data):
    return DataLoader(data, num_workers=1, collate_fn=lambda rows: 1 / rows[0])
"""
DIVIDES = """\
from loaders import make

try:
    list(make([1, 0]))
except ZeroDivisionError as error:
    print(error)
"""


def test_tracebacks_name_local_modules_wherever_the_programs_are(scratch: Scratch) -> None:
    folder = scratch.folder / "project"
    folder.mkdir()
    (folder / "loaders.py").write_text(LOADERS)
    (folder / "train.py").write_text(DIVIDES)
    transformed(scratch, folder, "--out", "../generated/deep", "--bundle", "../bundle")
    with running(scratch, scratch.folder, "bundle/train_worker.py", "--listen", "127.0.0.1:0") as host:
        for spec in ("local", host.address()):
            ended = scratch.run([sys.executable, "../generated/deep/train_trainer.py"], folder, SPLITTER_WORKERS=spec)
            assert ended.returncode == 0, ended.stderr
            assert f'File "{folder}/loaders.py", line 5, in <lambda>' in ended.stdout
