"""A forked program finds itself, and is found, as one that a new Python runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from scratch import Scratch

from splitter import start
from splitter.compile import compile_script
from splitter.trace import describe, trace

LOOK = '''"""What a program sees of itself."""
import atexit, gc, json, os, resource, signal, sys, threading

import torch

atexit.register(print, "the end")
names = ("__name__", "__file__", "__doc__", "__package__", "__cached__", "__annotations__")
seen = {
    "main": {name: repr(globals().get(name, "-")) for name in names},
    "names": sorted(vars(sys.modules["__main__"])),
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "path": sys.path,
    "finders": [repr(type(finder)) for finder in sys.meta_path],
    "splitter": sorted(name for name in sys.modules if name.partition(".")[0] in ("splitter", "libcst", "typer", "nursery")),
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "umask": os.umask(0),
    "limits": [resource.getrlimit(which) for which in range(16)],
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "input": sys.stdin.read(),
    "streams": [[f.name, f.mode, f.encoding, f.errors, f.line_buffering, f.isatty()] for f in (sys.stdin, sys.stdout, sys.stderr)],
    "same": [sys.stdout is sys.__stdout__, sys.stdin.fileno()],
    "parent": os.getppid(),
    "leads": os.getsid(0) == os.getpid(),
    "signals": [repr(signal.getsignal(number)) for number in range(1, 32)],
    "threads": [threading.active_count(), threading.current_thread().name, threading.get_native_id() == os.getpid()],
    "collector": [gc.isenabled(), gc.get_threshold()],
    "bytecode": sys.dont_write_bytecode,
    "torch threads": torch.get_num_threads(),
}
print(json.dumps(seen, indent=1))
print("at once", file=sys.stderr)
'''


def look(scratch: Scratch, anew: bool, *command: str, **environment: str) -> str:
    environment = {"OMP_NUM_THREADS": "2", **environment}
    ended = scratch.run([sys.executable, *command], scratch.folder, anew=anew, **environment)
    assert (ended.returncode, ended.stderr) == (0, "at once\n"), ended.stderr
    return ended.stdout


@pytest.mark.parametrize(
    "environment", [{}, {"PYTHONPATH": "/nowhere:.", "OMP_NUM_THREADS": "1"}, {"PYTHONUNBUFFERED": "1", "ODD": "\udcff"}]
)
def test_a_program_sees_the_same(environment: dict[str, str], scratch: Scratch) -> None:
    folder = scratch.folder / "below"
    folder.mkdir()
    (folder / "look.py").write_text(LOOK)
    seen = look(scratch, False, "below/look.py", "-x", "--", "", **environment)
    assert seen == look(scratch, True, "below/look.py", "-x", "--", "", **environment)
    assert json.loads(seen.removesuffix("the end\n"))["parent"] == os.getpid()


def test_a_module_sees_the_same(scratch: Scratch) -> None:
    package = scratch.folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "look.py").write_text(LOOK)
    assert look(scratch, False, "-m", "package.look", "a") == look(scratch, True, "-m", "package.look", "a")


DRAW = "import random, numpy, torch; print(random.random(), numpy.random.random(), torch.rand(()).item())"


def test_programs_that_do_not_seed_are_all_different(scratch: Scratch) -> None:
    (scratch.folder / "train.py").write_text(DRAW)
    drawn = [scratch.run([sys.executable, "train.py"], scratch.folder).stdout.split() for _ in range(3)]
    assert all(len(set(numbers)) == 3 for numbers in zip(*drawn, strict=True))


ENDS = {
    "raises": "def f():\n    raise ValueError('no')\nf()",
    "no Python": "x =",
    "exits": "import sys; sys.exit(300)",
    "exits with a text": "import sys; print('a', end=''); sys.exit('no')",
    "is interrupted": "def f():\n    raise KeyboardInterrupt\nf()",
    "is killed": "import os; os.kill(os.getpid(), 9)",
    "leaves without a word": "import os; print('a'); os._exit(4)",
    "lets go of what it has": "class A:\n    def __del__(self):\n        print('gone')\na = A()",
    "has a thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
}


@pytest.mark.parametrize("how", ENDS)
def test_it_ends_the_same(how: str, scratch: Scratch) -> None:
    (scratch.folder / "train.py").write_text(ENDS[how])
    one, other = (scratch.run([sys.executable, "train.py"], scratch.folder, anew=anew) for anew in (False, True))
    assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)


def test_a_file_that_is_missing(scratch: Scratch) -> None:
    one, other = (scratch.run([sys.executable, "train.py"], scratch.folder, anew=anew) for anew in (False, True))
    assert (one.returncode, one.stderr) == (other.returncode, other.stderr)


def test_it_is_found_by_its_mark_and_dies_of_signals(scratch: Scratch) -> None:
    (scratch.folder / "train.py").write_text("import time; print('here', flush=True); time.sleep(600)")
    process = scratch.start([sys.executable, "train.py"], scratch.folder)
    with process:
        assert process.stdout is not None and process.stdout.readline() == "here\n"
        assert scratch.processes() == [psutil.Process(process.pid)]
        assert psutil.Process(process.pid).ppid() == os.getpid()
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM


RECORD = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(1)
for batch in DataLoader(TensorDataset(torch.rand(6)), batch_size=2, shuffle=True):
    print(batch[0].sum().item())
"""


def test_hooks_hold_for_what_is_imported_before(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    """What splitter starts runs in a new Python outside of tests."""
    (scratch.folder / "train.py").write_text(RECORD)
    monkeypatch.chdir(scratch.folder)
    seen = []
    for anew in (False, True):
        if anew:
            monkeypatch.setattr(start, "open_process", subprocess.Popen)
        command = [
            sys.executable,
            "-m",
            "splitter_runtime.record",
            "--out",
            "record",
            "--parent",
            str(os.getpid()),
            "--seed",
            "1",
            "train.py",
        ]
        with start.started(command, scratch.environment(), Path("said")) as process:
            assert process.wait() == 0, Path("said.err").read_text()
        plan = compile_script(Path("train.py"))
        graphs = [describe(graph) for graph in trace(plan, Path("train.py"), (), samples=2).graphs.values()]
        seen.append((Path("record").read_text(), Path("said.out").read_text(), graphs))
    assert seen[0] == seen[1]
    assert seen[0][0].count("\n") > 4 and len(seen[0][2]) == 1


def test_samples_and_verify_with_nothing_forked(scratch: Scratch) -> None:
    """Once as a user runs them."""
    folder = scratch.copy("cut_v2_dict")
    command = [sys.executable, "-m", "splitter", "transform", "train.py", "--samples", "4", "--price", "1000"]
    ended = scratch.run_anew(command, folder)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "finish=" in (folder / "train_trainer.py").read_text()
    ended = scratch.run_anew([*command[:3], "verify", *command[4:]], folder)
    assert ended.returncode == 0 and "identical" in ended.stdout, ended.stdout + ended.stderr
