"""Programs that run while a test looks at them: their lines, the processes below them, and their end."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from scratch import Scratch

LIMIT_S = 60


@dataclass
class Running:
    """A process and what it has said. Waiting is for its output or its end, with a limit."""

    process: subprocess.Popen[str]
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line)
            if "listening on" in line:
                self._listening.set()
        self._listening.set()

    def line(self) -> str:
        """The next line of standard output, "" at its end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def until(self, text: str) -> None:
        """Read lines until one is `text`."""
        while (line := self.line()) != text:
            assert line, f"ended before it said {text!r}: {self.ended()}"

    def go_on(self) -> None:
        """Give it a line on its standard input, on which it waits."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def address(self) -> str:
        """Where a worker listens."""
        assert self._listening.wait(LIMIT_S)
        found = [line.split()[-1] for line in self.errors if "listening on" in line]
        assert found, self.errors
        return found[0]

    def ended(self) -> tuple[int, str]:
        """Exit status and standard error, once it has ended."""
        status = self.process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        return status, "".join(self.errors)

    def below(self) -> list[psutil.Process]:
        """The chain of first children: for a trainer with its own pool that is worker, template, then all streams."""
        chain = []
        current = psutil.Process(self.process.pid)
        while children := current.children():
            if len(children) > 1:
                return chain + children
            current = children[0]
            chain.append(current)
        return chain


@contextlib.contextmanager
def running(scratch: Scratch, folder: Path, *command: str, anew: bool = False, **environment: str) -> Iterator[Running]:
    """Run a Python program of the folder, in a new Python if `anew`; ends it, when it hasn't ended, on leaving."""
    process = scratch.start([sys.executable, *command], folder, anew=anew, **environment)
    try:
        yield Running(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
