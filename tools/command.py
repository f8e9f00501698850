"""Runs the programs that the tools compare, and says in one line what went wrong with one.

Every program gets a process group of its own, so that what it started ends with it when it takes too long or the tool is interrupted.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

LISTENING = re.compile(r"listening on (\S+)")
STOP_SECONDS = 15.0  # how long a server may take to end after it was told to


class CommandError(Exception):
    """A program failed; the message is one line for the user."""


@dataclass(frozen=True)
class Finished:
    """What a program that ended well wrote."""

    stdout: str
    stderr: str
    started: float = 0.0  # time.monotonic() just before its process was made


def name_of(argv: Sequence[str], folder: Path) -> str:
    """How a program is called in messages."""
    return f"`{shlex.join([Path(argv[0]).name, *argv[1:]])}` in {folder}"


def kill_group(process: subprocess.Popen[str]) -> None:
    """End the process and everything in its group at once. It was started with a group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def start(argv: Sequence[str], *, folder: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start `argv` in `folder`, in a process group of its own, its output in pipes. Raises CommandError when it can't be started."""
    try:
        return subprocess.Popen(
            argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
        )
    except OSError as error:
        raise CommandError(f"{name_of(argv, folder)} can't be started: {error}") from None


def ended_badly(argv: Sequence[str], folder: Path, status: int, stdout: str, stderr: str) -> CommandError:
    """The error for a program that ended with `status`: its last line says the most."""
    said = (stderr.strip() or stdout.strip()).splitlines()
    last = f": {said[-1].strip()}" if said else ""
    return CommandError(f"{name_of(argv, folder)} ended with status {status}{last}")


def run_command(argv: Sequence[str], *, folder: Path, seconds: float, env: Mapping[str, str] | None = None) -> Finished:
    """Run `argv` in `folder` and wait for at most `seconds`.

    Raises CommandError when it can't be started, takes longer, or ends with a status other than 0.
    """
    began = time.monotonic()
    process = start(argv, folder=folder, env=env)
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise CommandError(f"{name_of(argv, folder)} had not ended after {seconds:.0f} seconds") from None
    finally:
        if process.poll() is None:
            kill_group(process)
    if process.returncode != 0:
        raise ended_badly(argv, folder, process.returncode, stdout, stderr)
    return Finished(stdout, stderr, began)


def _listen(stream: IO[str], found: queue.Queue[str | None], last: deque[str]) -> None:
    """Read a server's output to its end, so that it never waits for us; hand on the address that it says."""
    for line in stream:
        last.append(line.strip())
        if match := LISTENING.search(line):
            found.put(match[1])
    found.put(None)


@contextlib.contextmanager
def server(argv: Sequence[str], *, folder: Path, seconds: float, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run `argv` while the block runs; gives the address that it prints as "listening on ADDRESS" on standard error.

    Raises CommandError when it ends, or says nothing for `seconds`.
    """
    process = start(argv, folder=folder, env=env)
    assert process.stdout is not None and process.stderr is not None
    found: queue.Queue[str | None] = queue.Queue()
    last: deque[str] = deque(maxlen=1)
    readers = [
        threading.Thread(target=_listen, args=(process.stderr, found, last), daemon=True),
        threading.Thread(target=_listen, args=(process.stdout, queue.Queue(), deque(maxlen=1)), daemon=True),
    ]
    for reader in readers:
        reader.start()
    try:
        address = found.get(timeout=seconds)
        if address is None:
            raise ended_badly(argv, folder, process.wait(), "", "\n".join(last))
        yield address
    except queue.Empty:
        raise CommandError(f"{name_of(argv, folder)} wasn't listening after {seconds:.0f} seconds") from None
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            kill_group(process)
