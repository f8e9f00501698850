"""Trainer and workers as real processes, what they say, and the comparison with the script.

    a, b = stage.worker(), stage.worker()
    trainer = stage.trainer("noise", workers=(a, b), pauses=["noise:0:6"])
    trainer.until("pause noise:0:6")
    a.family().host.kill()
    trainer.go()
    stage.assert_same(trainer)

A trainer that pauses waits for a line on its standard input, so a fault hits when the loop has taken just so many batches, while the
streams are at work ahead of it. What is waited for is output, the end of a process, or a state of processes, always with a limit.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

import psutil
from chaos_processes import Family, alive, children, eventually, local_families, remote_family, send
from quick import nurseries
from scratch import Scratch

LIMIT_S = 60.0
OUTPUT_S = 5.0
KINDS = (
    *("noise", "counted", "shards", "marked", "lasting", "lasting_counted", "pure", "large"),
    *("inline", "inline_noise", "inline_counted", "told", "sent"),
)


def by_kind(output: str) -> dict[str, list[str]]:
    """The lines of each kind of loader, those that say pause left out."""
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        if line.startswith("start "):
            kind = line.removeprefix("start ")
            found[kind] = []
        if not line.startswith("pause "):
            found[kind].append(line)
    return found


class Program:
    """A running process whose lines are kept as they come."""

    def __init__(self, command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._changed = threading.Condition()
        self._open = 2
        self._process: subprocess.Popen[str] = nurseries().start(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        assert self._process.stdin is not None and self._process.stdout is not None and self._process.stderr is not None
        self._input = self._process.stdin
        self.process = psutil.Process(self._process.pid)
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, self.lines), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, self.errors), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, file: IO[str], lines: list[str]) -> None:
        with file:
            for line in file:
                with self._changed:
                    lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def _wait_for(self, lines: list[str], text: str) -> str:
        """The first line that has `text` in it, once there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0 or any(text in line for line in lines), LIMIT_S)
            found = [line for line in lines if text in line]
        assert found, f"never said {text!r}; {self.told()}"
        return found[0]

    def until(self, text: str) -> str:
        """Wait for a line of standard output that holds `text`."""
        return self._wait_for(self.lines, text)

    def until_error(self, text: str) -> str:
        """Wait for a line of standard error that holds `text`."""
        return self._wait_for(self.errors, text)

    def told(self) -> str:
        """The last lines of everything, for messages."""
        return "\n".join(["standard output:", *self.lines[-4:], "standard error:", *self.errors[-30:]])

    def go(self) -> None:
        """Let it go on from a pause."""
        self._input.write("\n")
        self._input.flush()

    def status(self) -> int:
        """Exit status, once it has ended."""
        try:
            status = self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {LIMIT_S:.0f} s; {self.told()}") from None
        self._join_readers()
        return status

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal, and wait for the end."""
        self._process.send_signal(number)
        return self.status()

    def close(self) -> None:
        """End it when it hasn't ended, and all below it."""
        if self._process.poll() is None:
            below = self.process.children(recursive=True)
            self._process.kill()
            send(below, signal.SIGKILL)
        self._process.wait(LIMIT_S)
        self._join_readers()
        with contextlib.suppress(BrokenPipeError):
            self._input.close()

    def _join_readers(self) -> None:
        """Wait for the last lines; not for long, as what the process left behind, when it did, keeps its output open."""
        for reader in self._readers:
            reader.join(OUTPUT_S)


class Worker(Program):
    """A worker program that listens."""

    address = ""

    def listening(self) -> Worker:
        """Wait until it listens."""
        self.address = self.until_error("listening on").split()[-1]
        return self

    def family(self) -> Family:
        return remote_family(self.process)


class Trainer(Program):
    """A trainer program and the kinds of loaders that it was told to run."""

    kinds: tuple[str, ...] = ()

    def local(self) -> tuple[Family, ...]:
        return local_families(self.process)


class Stage:
    """A folder with the split, and the processes that a test runs in it; all of them are ended on leaving."""

    def __init__(self, scratch: Scratch, split: Path) -> None:
        self._scratch, self._split = scratch, split
        self._expected = by_kind((split / "script.txt").read_text())
        self._programs: list[Program] = []

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        for program in reversed(self._programs):
            program.close()

    def worker(self, *options: str, listen: str = "127.0.0.1:0", inside: Sequence[str] = (), wait: bool = True) -> Worker:
        """Start a worker; `inside` is what its command starts with."""
        command = [*inside, sys.executable, "train_worker.py", "--listen", listen, *options]
        worker = Worker(command, self._split, self._scratch.environment(OMP_NUM_THREADS="1"))
        self._programs.append(worker)
        return worker.listening() if wait else worker

    def trainer(
        self,
        *kinds: str,
        workers: str | Iterable[Worker | str] = "local",
        pauses: Sequence[str] = (),
        inside: Sequence[str] = (),
        **more: str,
    ) -> Trainer:
        """Start a trainer; `more` goes into its environment."""
        if not isinstance(workers, str):
            workers = ",".join(worker if isinstance(worker, str) else worker.address for worker in workers)
        options = [part for place in pauses for part in ("--pause", place)]
        environment = self._scratch.environment(SPLITTER_WORKERS=workers, OMP_NUM_THREADS="1", **more)
        trainer = Trainer([*inside, sys.executable, "train_trainer.py", *kinds, *options], self._split, environment)
        trainer.kinds = kinds
        self._programs.append(trainer)
        return trainer

    def assert_same(self, trainer: Trainer) -> None:
        """It ends well, and has printed what the script prints: every batch, every loss, the generators."""
        status = trainer.status()
        expected = [line for kind in trainer.kinds for line in self._expected[kind]]
        seen = [line for lines in by_kind("\n".join(trainer.lines)).values() for line in lines]
        for here, there in zip(expected, seen, strict=False):
            assert there == here, f"\nscript: {here}\nsplit:  {there}\n{trainer.told()}"
        assert (len(seen), status) == (len(expected), 0), trainer.told()

    def free_address(self) -> str:
        """An address where a worker can be started later."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            return "{}:{}".format(*taken.getsockname())


def assert_ends(processes: Iterable[psutil.Process], seconds: float) -> None:
    """All of them end within so many seconds."""
    left = list(processes)
    assert eventually(lambda: not any(alive(process) for process in left), seconds), [each for each in left if alive(each)]


__all__ = ["KINDS", "Program", "Stage", "Trainer", "Worker", "alive", "assert_ends", "by_kind", "children", "eventually"]
