"""The photographs that demo and benchmarks run on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

TOOL = Path(__file__).resolve().parent.parent / "tools" / "photos.py"


def run_photos(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True)


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_same_seed_same_files(tmp_path: Path) -> None:
    for name, seed in (("one", "3"), ("two", "3"), ("other", "4")):
        ended = run_photos(str(tmp_path / name), "--count", "24", "--val", "8", "--seed", seed)
        assert (ended.returncode, ended.stderr) == (0, "")
    one, two, other = (files_below(tmp_path / name) for name in ("one", "two", "other"))
    assert one == two
    assert one.keys() == other.keys()
    assert one != other


def test_layout_and_sizes(tmp_path: Path) -> None:
    assert run_photos(str(tmp_path / "out"), "--count", "40", "--val", "8").returncode == 0
    classes = sorted(path.name for path in (tmp_path / "out" / "train").iterdir())
    assert len(classes) >= 6
    assert classes == sorted(path.name for path in (tmp_path / "out" / "val").iterdir())
    sizes = []
    for path in (tmp_path / "out").rglob("*.jpg"):
        with Image.open(path) as image:
            assert (image.format, image.mode) == ("JPEG", "RGB")
            sizes.append(image.size)
    assert len(sizes) == 48
    assert len(set(sizes)) > 40
    assert all(200 <= side <= 500 for size in sizes for side in size)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["full"], "isn't an empty folder"),
        (["full/file"], "isn't an empty folder"),
        (["new", "--count", "3"], "at least 8"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    ended = run_photos(str(tmp_path / arguments[0]), *arguments[1:])
    assert ended.returncode == 2
    assert ended.stderr.startswith("photos: ")
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert (tmp_path / "full" / "file").read_text() == "mine"
