"""Scripts that must be left alone, `# expect: S301` on the line that the refusal has to point at; and bad input."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from scratch import FIXTURES, Scratch, files_below
from test_fixtures import errors_of, marks

from splitter.diagnostics import CODES

REFUSED = sorted(path.parent.name for path in FIXTURES.glob("refuse_*/train.py"))
WHERE = re.compile(r"^(?P<path>\S+?):(?P<line>\d+):(?P<column>\d+): .*?\b(?P<code>S\d{3})\b", re.MULTILINE)


def first_words(code: str) -> str:
    """The part of a code's hint that has no arguments in it."""
    return CODES[code].hint.split("{")[0].strip()


@pytest.mark.parametrize("fixture", REFUSED)
def test_refusal(fixture: str, scratch: Scratch) -> None:
    folder = scratch.copy(fixture)
    before = files_below(folder)
    wanted = marks(folder)
    assert wanted, "a refusal's place is marked in its script"

    ended = scratch.splitter("transform", "train.py", "--json", folder=folder)
    assert ended.returncode == 3, ended.stderr
    assert_points_at(ended.stderr, folder, wanted)
    plan = json.loads(ended.stdout)
    assert errors_of(plan) == wanted
    assert all(found["message"] and found["hint"] and found["column"] >= 1 for found in plan["diagnostics"])
    assert {(feed["status"], feed["code"]) for feed in plan["feeds"]} == {("left", code) for code, _, _ in wanted}
    assert files_below(folder) == before, "a refused script's folder was written to"


def assert_points_at(text: str, folder: Path, wanted: set[tuple[str, str, int]]) -> None:
    """`text` has, for each finding, path:line:column, the source line itself and the hint."""
    found = {(match["code"], match["path"], int(match["line"])): int(match["column"]) for match in WHERE.finditer(text)}
    assert found.keys() == wanted, text
    for (code, path, number), column in found.items():
        line = (folder / path).read_text(encoding="utf-8").splitlines()[number - 1]
        assert 1 <= column <= len(line)
        assert line.split("  # expect")[0].strip() in text
        assert first_words(code) in " ".join(text.split())


def run_on(scratch: Scratch, *arguments: str) -> subprocess.CompletedProcess[str]:
    return scratch.splitter("transform", *arguments, folder=scratch.folder)


def assert_bad_input(ended: subprocess.CompletedProcess[str], code: str, status: int = 2) -> None:
    assert ended.returncode == status, ended.stderr
    assert ended.stdout == ""
    assert code in ended.stderr
    assert "Traceback" not in ended.stderr


LOADER = "from torch.utils.data import DataLoader\nfor x in DataLoader(range(9), num_workers=1):\n    print(x)\n"


def test_no_such_file(scratch: Scratch) -> None:
    assert_bad_input(run_on(scratch, "missing.py"), "S101")


def test_a_folder(scratch: Scratch) -> None:
    (scratch.folder / "train.py").mkdir()
    assert_bad_input(run_on(scratch, "train.py"), "S102")


@pytest.mark.parametrize(
    ("text", "line"),
    [(LOADER + "def broken(:\n", 4), (LOADER + "   indented = 1\n", 4), ("print 'python 2'\n" + LOADER, 1)],
    ids=["syntax", "indent", "python2"],
)
def test_not_python(text: str, line: int, scratch: Scratch) -> None:
    (scratch.folder / "train.py").write_text(text)
    ended = run_on(scratch, "train.py")
    assert_bad_input(ended, "S103")
    assert f"train.py:{line}:" in ended.stderr


@pytest.mark.parametrize("content", [b"\x00\x01\x02", b"x = '\xff\xfe'\n", b"\x7fELF" + bytes(64)], ids=["nul", "utf-8", "elf"])
def test_not_text(content: bytes, scratch: Scratch) -> None:
    (scratch.folder / "train.py").write_bytes(content)
    assert_bad_input(run_on(scratch, "train.py"), "S103")


@pytest.mark.parametrize(
    "text",
    ["", "import torch\nprint(torch.rand(1))\n", "class DataLoader: pass\nDataLoader()\n"],
    ids=["empty", "none", "own"],
)
def test_no_loader(text: str, scratch: Scratch) -> None:
    (scratch.folder / "train.py").write_text(text)
    assert_bad_input(run_on(scratch, "train.py"), "S104", status=3)


def test_out_that_can_not_be_written(scratch: Scratch) -> None:
    (scratch.folder / "train.py").write_text(LOADER)
    (scratch.folder / "taken").write_text("a file where a folder should be\n")
    before = files_below(scratch.folder)
    assert_bad_input(run_on(scratch, "train.py", "--out", "taken"), "S105")
    assert files_below(scratch.folder) == before


@pytest.mark.parametrize(
    "arguments",
    [[], ["train.py", "--nonsense"], ["train.py", "--streams", "many"], ["train.py", "--streams", "0"], ["train.py", "other.py"]],
)
def test_bad_options(arguments: list[str], scratch: Scratch) -> None:
    (scratch.folder / "train.py").write_text(LOADER)
    ended = run_on(scratch, *arguments)
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (scratch.folder / "train_worker.py").exists()
