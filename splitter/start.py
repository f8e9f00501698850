"""Starts a program that runs code of the user's, and leaves nothing of it behind.

    with started([sys.executable, "-m", "splitter.trace_child", ...], environment, Path("scratch/script")) as process:
        process.wait()                          # scratch/script.out, scratch/script.err

Processes: the program leads its own process group, which is ended with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

open_process: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen  # how any of them is started
_WAIT_S = 10  # for a program to end after it is asked to


@contextlib.contextmanager
def started(
    command: Sequence[str], environment: Mapping[str, str], files: Path, stdin: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a process group of its own, with its output in files; nothing of it is left afterwards.

    Its standard input is `stdin`, as Popen takes it, or the terminal if there is one, since scripts ask that for its width.
    """
    given = None if os.isatty(0) else subprocess.DEVNULL
    with open(f"{files}.out", "wb") as output, open(f"{files}.err", "wb") as errors:
        process = open_process(
            command,
            stdin=given if stdin is None else stdin,
            stdout=output,
            stderr=errors,
            env=dict(environment),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_WAIT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
