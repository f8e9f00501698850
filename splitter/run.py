"""`splitter run`: the trainer program from a temporary folder, with its workers, in place of the script.

Who owns what: this process owns the folder and removes it when the trainer has ended. The trainer is its only child,
in the same process group, so Ctrl-C reaches it from the terminal; signals sent to this process alone are passed on.
When this process is killed, the kernel kills the trainer (PR_SET_PDEATHSIG), and the trainer's workers follow it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from splitter.emit import emit
from splitter.ir import Plan
from splitter.write import write

PR_SET_PDEATHSIG = 1
SI_KERNEL = 0x80
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


@contextlib.contextmanager
def temporary(plan: Plan, folder: Path) -> Iterator[Path]:
    """The split's programs in a folder that is removed afterwards; gives the trainer's path.

    `folder` is the script's, which the programs find again from where they are.
    Raises InputError (S105) when there is no place to write.
    """
    root = Path(tempfile.mkdtemp(prefix="splitter-")).resolve()
    try:
        # Not relative: `__file__` is then spelled as in the script, with the symbolic links of the user's path.
        bundle = emit(plan, os.path.abspath(folder))
        write(bundle, root)
        yield root / next(file.name for file in bundle.files if file.name.endswith("_trainer.py"))
    finally:
        shutil.rmtree(root, ignore_errors=True)


def relative(folder: Path, out: Path) -> str | None:
    """The script's folder as seen from the output folder; None when they are the same."""
    path = os.path.relpath(folder.resolve(), out.resolve())
    return None if path == "." else path


def execute(trainer: Path, args: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the trainer program to its end and return its status: negative when a signal ended it."""
    watched = {*PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        command = [sys.executable, str(trainer), *args]
        child = subprocess.Popen(command, env=dict(environment), preexec_fn=_prepare(before))
        try:
            while child.poll() is None:
                received = signal.sigwaitinfo(watched)
                if received.si_signo != signal.SIGCHLD and received.si_code != SI_KERNEL:
                    child.send_signal(received.si_signo)
        finally:
            if child.returncode is None:
                child.kill()
                child.wait()
        return child.returncode
    finally:
        # What came in while the child was ending is dropped here, or it would hit this process on the next line.
        while signal.sigtimedwait(watched, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare(mask: set[int | signal.Signals]) -> Callable[[], None]:
    """What the child does before it becomes the trainer."""
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return prepare


def leave(status: int) -> int:
    """The exit status of the trainer as this process's own: a signal that ended the trainer ends this process too."""
    if status >= 0:
        return status
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.flush()
    sys.stderr.flush()
    if -status != signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    return 128 - status
