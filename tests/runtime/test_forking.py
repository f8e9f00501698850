"""A local worker is a fork of its trainer, or a new Python where a fork wouldn't do; what comes out is the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pairs import PROGRAM, Pair
from running import running
from scratch import Scratch

from splitter_runtime import growth
from splitter_runtime.growth import Growth

MOVED = """
class Words(Dataset):
    def __init__(self, n):
        self.words = [f"word {i}" for i in range(n)]

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        return len(self.words[i]) + torch.rand(2)
"""
BUILDERS = """
@splitter_runtime.dataset("words", stateless=True, draws=("torch",))
def words(n):
    return Words(n)
"""
BODY = """
import sys
for batch in DataLoader(Words(500), batch_size=10, shuffle=True, num_workers=2):
    see(batch)
    if len(sys.argv) > 1 and _count == 3:
        print("going", flush=True)
        sys.stdin.readline()
show()
"""
SWAPS = (("Words(500)", 'splitter_runtime.RemoteDataset("words", {"n": 500})'),)
PAIR = Pair(MOVED, BUILDERS, BODY, SWAPS)
# What stands before the call: text that is not flushed, an exit handler, a signal handler, a file with a buffer of its own.
BEFORE = """
import atexit, signal, sys, numpy, torch
print("said once")
log = open("log", "w")
log.write("written once")
atexit.register(print, "ended once")
signal.signal(signal.SIGTERM, lambda *_: print("never"))
"""
THREAD = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


def written(scratch: Scratch, before: str = "", fresh: bool = False) -> Path:
    folder = PAIR.write(scratch.folder / "pair")
    trainer = folder / "train_trainer.py"
    program = PROGRAM.replace('script="train.py")', 'script="train.py", fresh=True)') if fresh else PROGRAM
    trainer.write_text(before + trainer.read_text().replace(PROGRAM, program))
    return folder


@pytest.mark.parametrize(
    ("before", "fresh", "fork", "forked"),
    [("", False, "", True), (BEFORE, False, "1", True), ("", False, "0", False), ("", True, "", False), (THREAD, False, "", False)],
)
def test_fork_or_new_python(scratch: Scratch, before: str, fresh: bool, fork: str, forked: bool) -> None:
    folder = written(scratch, before, fresh)
    expected = scratch.run_anew([sys.executable, "train.py"], folder).stdout
    with running(scratch, folder, "train_trainer.py", "stay", anew=True, SPLITTER_FORK=fork) as trainer:
        trainer.until("going")
        worker = trainer.below()[0]
        assert (worker.cmdline() == psutil.Process(trainer.process.pid).cmdline()) == forked
        assert worker.name() == ("train_worker.py" if forked else psutil.Process(trainer.process.pid).name())
        trainer.go_on()
        assert trainer.process.stdout is not None
        said = trainer.process.stdout.read()
        assert trainer.ended() == (0, "")
    assert said.replace("ended once\n", "") == expected and said.count("ended once") == before.count("ended once")
    if before == BEFORE:
        assert (folder / "log").read_text() == "written once"


def test_what_is_printed_before_the_fork_is_printed_once(scratch: Scratch) -> None:
    folder = written(scratch, BEFORE)
    ended = scratch.run_anew([sys.executable, "train_trainer.py"], folder)
    assert (ended.stdout.count("said once"), ended.stdout.count("ended once")) == (1, 1), ended.stdout
    assert (folder / "log").read_text() == "written once"


def test_a_worker_program_that_fails_in_a_fork_says_where(scratch: Scratch) -> None:
    folder = written(scratch)
    (folder / "train_worker.py").write_text("\n\nimport nothing_of_that_name\n")
    ended = scratch.run_anew([sys.executable, "train_trainer.py"], folder)
    assert f'Traceback (most recent call last):\n  File "{folder}/train_worker.py", line 3, in <module>\n' in ended.stderr
    assert "it ended while it started (exit status 1)" in ended.stderr


def test_a_program_begins_without_torch() -> None:
    """A script may set what torch reads when it is imported, and its worker program as well."""
    text = "import sys, splitter_runtime; splitter_runtime.program; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout == "False\n"


def test_neither_yes_nor_no(scratch: Scratch) -> None:
    ended = scratch.run_anew([sys.executable, "train_trainer.py"], written(scratch), SPLITTER_FORK="yes")
    assert ended.returncode == 1
    assert ended.stderr.strip().splitlines()[-1].endswith("R601: SPLITTER_FORK: 'yes' is neither 0 nor 1. Correct it and start again.")


SMALL = """
import os
import splitter_runtime.growth as growth
growth.LIMIT, growth.LIFETIME = 1 << 18, 0.0
"""


@pytest.mark.parametrize("draws", ["()", '("torch",)'])
def test_a_stream_that_copies_memory_goes_on_in_a_new_fork(scratch: Scratch, draws: str) -> None:
    moved = SMALL + MOVED.replace(
        "        return len(self.words[i])", '        open(f"pids/{os.getpid()}", "w").close()\n        return len(self.words[i])'
    )
    moved = moved.replace("+ torch.rand(2)", "+ torch.zeros(2)") if draws == "()" else moved
    body = BODY.replace("500", "300000").replace("batch_size=10", "batch_size=5000")
    swaps = (("Words(300000)", 'splitter_runtime.RemoteDataset("words", {"n": 300000})'),)
    folder = Pair(moved, BUILDERS.replace('("torch",)', draws), body, swaps).write(scratch.folder / "pair")
    (folder / "pids").mkdir()
    script = scratch.run_anew([sys.executable, "train.py"], folder)
    assert len(list((folder / "pids").iterdir())) == 2
    split = scratch.run_anew([sys.executable, "train_trainer.py"], folder, SPLITTER_LOG="info")
    assert script.stdout == split.stdout and script.stdout, split.stderr
    assert len(list((folder / "pids").iterdir())) > 4  # two of the script, two of the split, and at least one more
    assert "60 batches" in split.stderr and "move" not in split.stderr


def test_growth_counts_pages_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "LIFETIME", 0.0)
    quiet, kept = Growth(), []
    for _ in range(growth.SETTLE + 2):
        assert not quiet.too_much()
    for _ in range(3):  # memory that comes and goes
        passing = bytearray(growth.LIMIT + (1 << 20))
        del passing
        assert not quiet.too_much()
    for _ in range(4):
        kept.append(bytearray(b"x") * growth.LIMIT)
    assert any(quiet.too_much() for _ in range(2))
