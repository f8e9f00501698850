"""The child process of `trace` as its parent sees it: started early, given its task, read until it is done.

    with child(script, arguments) as waiting:       # imports torch, if the script begins with that
        plan = compile_script(script)               # meanwhile
        for event in waiting.run(task, seconds=20): ...

Processes: the child leads its own process group, which is killed when it has answered, when the time is over, when nobody has a task for it
and when this process is interrupted. When this process is killed, the kernel kills the child. The child has no token for workers. It waits
on its standard input for a byte; its task is in a file by then.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitter.start import started
from splitter.trace_input import terminal

STARTING_S = 0.5  # of the time is kept for the child to notice that it is over


@dataclass(frozen=True)
class Child:
    """A child that waits for its task. `reading` is the pipe that it writes events to, `task` the file for its task."""

    process: subprocess.Popen[bytes]
    reading: int
    task: Path

    def run(self, task: Mapping[str, object], seconds: float) -> Iterator[dict[str, Any]]:
        """What the child says, until it has ended or `seconds` are over."""
        deadline = time.monotonic() + seconds
        if self.process.poll() is not None:
            return
        told = {**task, "seconds": max(seconds - STARTING_S, 0.0), "terminal": terminal()}
        self.task.write_text(json.dumps(told), encoding="utf-8")
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; that is seen below
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        ended = os.pidfd_open(self.process.pid)
        try:
            yield from _events(self.reading, ended, deadline)
        finally:
            os.close(ended)

    def how(self) -> str:
        """How it ended."""
        status = self.process.wait()
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"


@contextlib.contextmanager
def child(script: Path, arguments: Sequence[str]) -> Iterator[Child]:
    """Start the child for a script with its arguments."""
    with tempfile.TemporaryDirectory(prefix="splitter-trace-") as scratch:
        pipe, task = os.path.join(scratch, "pipe"), Path(scratch, "task")
        os.mkfifo(pipe, 0o600)
        command = [sys.executable, "-m", "splitter.trace_child", "--out", pipe, "--task", str(task), "--parent", str(os.getpid())]
        reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            environment = _environment(os.environ)
            with started([*command, str(script), *arguments], environment, Path(scratch, "script"), stdin=subprocess.PIPE) as process:
                try:
                    yield Child(process, reading, task)
                finally:
                    process.kill()  # not asked to end first: a script may do a lot when it is asked
        finally:
            os.close(reading)


@contextlib.contextmanager
def early(script: Path, arguments: Sequence[str], out: Path, wanted: bool = True, again: bool = False) -> Iterator[Child | None]:
    """A child for samples that may be wanted; None where there is a split in `out`, with what was recorded, or no such script."""
    known = (out / f"{script.stem}_split.json").exists() and not again
    if known or not (wanted and sys.platform.startswith("linux") and script.is_file()):
        yield None
        return
    with child(script, arguments) as waiting:
        yield waiting


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What the child gets: nothing of workers, of which a token is the secret part, and the same order of sets in every run."""
    kept = {name: value for name, value in environment.items() if not name.startswith("SPLITTER_") or name == "SPLITTER_TRACEBACK"}
    return {"PYTHONHASHSEED": "0", **kept}


def _events(reading: int, ended: int, deadline: float) -> Iterator[dict[str, Any]]:
    """The lines that the child writes, until it ends or the time is over."""
    rest = b""
    sources = [reading, ended]
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select(sources, [], [], left)
        chunk = os.read(reading, 1 << 20) if reading in ready else b""
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (json.loads(line) for line in lines)
        if not chunk and ready:
            return  # the child has closed the pipe, or it has ended and there is nothing left in the pipe
