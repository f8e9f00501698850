"""Many real workers at once: a process that has imported everything forks them, each with a command line of its own.

python crowd.py FOLDER < JSON list of lists of arguments      the workers; ends them when its standard input ends

with crowd(scratch, {"plain": ["--listen", "127.0.0.1:0"]}) as workers:
    workers["plain"].address, workers["plain"].log()
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from scratch import Scratch

LIMIT_S = 60
DIGEST = "sha256:0"
TRAINER = f"""
import splitter_runtime
splitter_runtime.program("worker.py", digest="{DIGEST}", script="train.py")
data = splitter_runtime.RemoteDataset("numbers", {{}})
print([batch.sum().item() for count in (0, 2) for batch in splitter_runtime.DataLoader(data, batch_size=4, num_workers=count)])
"""
PAUSED = TRAINER.replace("print(", "len(data), __import__('time').sleep(3)\nprint(")
PRINTED = "[30, 78, 30, 78]\n"


@dataclass(frozen=True)
class Worker:
    """One of them; `status` is its exit status when it has ended by itself, before it listened."""

    arguments: Sequence[str]
    file: Path
    pid: int
    status: int | None = None

    def log(self) -> str:
        """What it has written to standard error."""
        return self.file.read_text()

    @property
    def address(self) -> str:
        """Where it listens."""
        return re.findall(r"listening on (\S+)", self.log())[0]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def templates(self) -> list[psutil.Process]:
        """Its templates, which are below its launcher."""
        return [template for launcher in psutil.Process(self.pid).children() for template in launcher.children()]


def train(scratch: Scratch, target: str, text: str = TRAINER, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a real trainer of such a worker; a good one prints PRINTED."""
    folder = scratch.folder / "trainer"
    folder.mkdir(exist_ok=True)
    for name, content in {"train.py": "", "worker.py": "", "trainer.py": text}.items():
        (folder / name).write_text(content)
    return scratch.run([sys.executable, "trainer.py"], folder, SPLITTER_WORKERS=target, **environment)


@contextlib.contextmanager
def crowd(folder: Path, environment: Mapping[str, str], commands: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Worker]]:
    """Start workers, and wait until each of them listens or has ended."""
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, __file__, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(environment), cwd=folder
    )
    assert process.stdin is not None and process.stdout is not None
    with process:
        try:
            process.stdin.write(json.dumps(commands) + "\n")
            process.stdin.flush()
            yield {
                name: Worker(commands[name], folder / f"{name}.log", pid, status)
                for name, (pid, status) in json.loads(process.stdout.readline()).items()
            }
        finally:
            process.stdin.close()


def main(folder: Path) -> None:
    """The process that forks them."""
    import torch

    import splitter_runtime

    class Numbers(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.arange(3) + index

    @splitter_runtime.dataset("numbers")
    def numbers() -> Numbers:
        return Numbers()

    commands = json.loads(sys.stdin.readline())
    pids = {}
    for name, arguments in commands.items():
        (folder / f"{name}.log").unlink(missing_ok=True)
        pids[name] = os.fork()
        if not pids[name]:
            os.dup2(os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            sys.argv = ["worker.py", *arguments]
            splitter_runtime.serve(digest=DIGEST, script="train.py")
    print(json.dumps({name: [pid, _ready(pid, folder / f"{name}.log")] for name, pid in pids.items()}), flush=True)
    sys.stdin.read()
    for pid in pids.values():
        with contextlib.suppress(ProcessLookupError, ChildProcessError):  # those that have ended before
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _ready(pid: int, log: Path) -> int | None:
    """Wait until it listens: None, or its exit status."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if log.exists() and "listening on" in log.read_text():
            return None
        time.sleep(0.02)
    raise TimeoutError(log.read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
