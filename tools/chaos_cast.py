"""The processes of a chaos run: the trainer, its workers, and what connects them.

    with Cast(folder, environment, cable) as cast:
        cast.start()
        cast.trainer.lines                lines with the times at which they came
        cast.remotes[0].restart()

Every process is a child of this one, in a session of its own, and is killed by the kernel when this one ends, however it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from chaos_network import ADDRESSES, Cable, Proxy
from chaos_processes import Family, local_families, remote_family

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
LIMIT_S = 60.0


def start(command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path, stdout: int) -> subprocess.Popen[str]:
    """Start a program whose standard error is added to the log, and which ends with this process."""
    parent = os.getpid()

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    with open(log, "ab") as errors:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=errors,
            encoding="utf-8",
            start_new_session=True,
            preexec_fn=prepare,
        )


class Remote:
    """A worker behind an address, started again and again on the same port."""

    def __init__(self, name: str, listen: str, folder: Path, environment: Mapping[str, str], inside: Sequence[str] = ()) -> None:
        self.name, self.listen = name, listen
        self._folder, self._environment = folder, environment
        options = [] if listen.startswith("127.") else ["--insecure"]
        self._command = [*inside, sys.executable, "train_worker.py", "--listen", listen, *options]
        self._process: subprocess.Popen[str] | None = None

    def __repr__(self) -> str:
        return f"<Remote {self.name} at {self.listen}, {'running' if self.running else 'not running'}>"

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def restart(self) -> bool:
        """Start it unless it runs; returns whether it was started."""
        if self.running:
            return False
        log = self._folder / f"{self.name}.log"
        self._process = start(self._command, self._folder, self._environment, log, subprocess.DEVNULL)
        return True

    def family(self) -> Family | None:
        """Its processes, None when it doesn't run."""
        if self._process is None or not self.running:
            return None
        return remote_family(psutil.Process(self._process.pid))

    def signal(self, number: signal.Signals) -> None:
        """Send its host process a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    def end(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(LIMIT_S)


class TrainerRun:
    """The trainer program, and each line that it printed with the time when it came."""

    def __init__(self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.lines: list[tuple[float, str]] = []
        self.log = folder / "trainer.log"
        command = [sys.executable, "train_trainer.py", *arguments]
        self._process = start(command, folder, environment, self.log, subprocess.PIPE)
        self._reader = threading.Thread(target=self._read, name="trainer's lines", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                self.lines.append((time.monotonic(), line.rstrip("\n")))

    @property
    def status(self) -> int | None:
        """Exit status, None while it runs."""
        return self._process.poll()

    def families(self) -> tuple[Family, ...]:
        """Its own workers."""
        return local_families(psutil.Process(self._process.pid)) if self.status is None else ()

    def wait(self, seconds: float) -> int | None:
        """Exit status; None when it hasn't ended after so many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            self._reader.join(LIMIT_S)
        return self.status

    def last_words(self) -> str:
        """The last line of standard error."""
        said = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return said[-1] if said else ""

    def end(self) -> None:
        """Kill it, when it runs."""
        self._process.kill()
        self.wait(LIMIT_S)


class Cast:
    """Remote workers, one behind a proxy, one as it is, one at the end of the cable if there is one; and a trainer with `local` too."""

    def __init__(self, folder: Path, environment: Mapping[str, str], cable: Cable | None) -> None:
        self._folder, self._environment = folder, environment
        self.cable = cable
        self.remotes = [Remote(name, f"127.0.0.1:{free_port()}", folder, environment) for name in ("behind-proxy", "plain")]
        if cable is not None:
            self.remotes.append(Remote("cabled", f"{ADDRESSES['worker']}:7077", folder, environment, cable.inside("worker")))
        self.proxy = Proxy(self.remotes[0].listen)
        self._trainer: TrainerRun | None = None

    def __enter__(self) -> Cast:
        return self

    def __exit__(self, *_: object) -> None:
        if self._trainer is not None:
            self._trainer.end()
        for remote in self.remotes:
            remote.end()
        self.proxy.close()

    @property
    def trainer(self) -> TrainerRun:
        """The trainer; start() comes first."""
        assert self._trainer is not None
        return self._trainer

    def start(self, arguments: Sequence[str], **environment: str) -> None:
        """Start the workers, then the trainer."""
        for remote in self.remotes:
            remote.restart()
        places = [self.proxy.address, *(remote.listen for remote in self.remotes[1:]), "local"]
        given = {**self._environment, **environment, "SPLITTER_WORKERS": ",".join(places)}
        self._trainer = TrainerRun(arguments, self._folder, given)

    def families(self) -> list[Family]:
        """All workers that run, the remote ones first."""
        found = [family for remote in self.remotes if (family := remote.family()) is not None]
        return [*found, *self.trainer.families()]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
