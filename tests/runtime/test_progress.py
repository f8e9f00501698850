"""The live line: what it says, and that only a terminal sees it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from scratch import python_environment

from splitter_runtime import progress
from splitter_runtime.errors import ConfigError
from splitter_runtime.progress import Speeds, row

PROGRAM = """
import threading
from splitter_runtime import notices, progress
from splitter_runtime.tally import Tally

drawn = threading.Event()
text = progress.Board.text


def seen(board):
    made = text(board)
    if "batch 5" in str(made):
        drawn.set()
    return made


progress.Board.text = seen
print("the script's own", flush=True)
tally = Tally.of("train", lambda: 2)
tally.begin()
for _ in range(5):
    tally.took("local", 1000, 0.0)
if notices.above is not None:
    drawn.wait()
tally.end()
print("the end", flush=True)
"""


def test_speeds_are_those_of_the_last_seconds() -> None:
    speeds = Speeds()
    assert speeds.add(0.0, (0, 0, 0.0)) == (0.0, 0.0, 0.0)
    assert speeds.add(2.0, (20, 2000, 1.0)) == (10.0, 1000.0, 0.5)
    speeds.add(10.0, (20, 2000, 9.0))
    assert speeds.add(12.0, (30, 2000, 9.5)) == (1.0, 0.0, 0.85)  # since 2.0


def test_what_a_row_says() -> None:
    expected = "train: batch 120, 31.2 batches/s, 4% waiting for data, 812.3 MB/s, 1 worker"
    assert row("train", 120, (31.2, 812.3e6, 0.04), 1) == expected


def on_a_terminal(program: str, **environment: str) -> tuple[str, str]:
    """Standard output, a pipe, and what a terminal saw of standard error."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=python_environment(SPLITTER_PROGRESS="1", TERM="xterm", COLUMNS="100", **environment),
        text=True,
    )
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 1 << 16):
            seen += piece
    except OSError:
        pass  # nobody has the other end any more
    os.close(ours)
    assert process.stdout is not None
    out = process.stdout.read()
    assert process.wait() == 0, seen
    return out, seen.decode()


def test_a_terminal_sees_it() -> None:
    out, seen = on_a_terminal(PROGRAM)
    assert out == "the script's own\nthe end\n"
    assert "train: batch 5, " in seen
    assert "\x1b[2Ksplitter: train: 5 batches in " in seen  # above what is drawn
    assert "\x1b[?25l" not in seen.split("batch 5")[1]  # the cursor is not hidden


def test_the_second_rank_does_not_draw() -> None:
    _, seen = on_a_terminal(PROGRAM, LOCAL_RANK="1")
    assert "\x1b" not in seen


def test_a_file_sees_the_lines_after_epochs_only() -> None:
    environment = python_environment(SPLITTER_PROGRESS="1")
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment)
    assert (ended.returncode, ended.stdout) == (0, "the script's own\nthe end\n")
    assert ended.stderr.startswith("splitter: train: 5 batches in ") and ended.stderr.count("\n") == 1


def test_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(ConfigError, match=r"needs the package rich: pip install 'splitter-runtime\[progress\]'"):
        progress.start({})
