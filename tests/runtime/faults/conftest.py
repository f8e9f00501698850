"""The split that all tests of faults run, and what its script says."""

from __future__ import annotations

import fcntl
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scratch import Scratch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent.parent / "tools"))

from stage import KINDS, Stage, by_kind  # noqa: E402


@pytest.fixture(scope="session")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with script and split, and with the output of the script in script.txt; made once for all processes of pytest."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if root.name.startswith("popen-") else root
    folder = root / "faults"
    with open(root / "faults.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "script.txt").exists():
            folder.mkdir(exist_ok=True)
            make(folder)
    return folder


def make(folder: Path) -> None:
    """Split the script, and run it with every kind of loader."""
    scratch = Scratch(folder, folder)
    shutil.copyfile(HERE / "script.py", folder / "train.py")
    ended = scratch.splitter("transform", "train.py", "--", *KINDS, folder=folder)
    assert ended.returncode == 0, ended.stderr
    ended = scratch.run([sys.executable, "train.py", *KINDS], folder, OMP_NUM_THREADS="1")
    assert ended.returncode == 0, ended.stderr
    assert tuple(by_kind(ended.stdout)) == KINDS
    (folder / "script.txt").write_text(ended.stdout)


@pytest.fixture
def stage(scratch: Scratch, split: Path) -> Iterator[Stage]:
    with Stage(scratch, split) as opened:
        yield opened
