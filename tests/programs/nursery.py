"""Processes forked from one that has imported much already, such as torch: far quicker than a new Python, and a process all the same.

    nurseries = Nurseries()
    with nurseries.start([sys.executable, "train.py"], cwd=folder, stdout=PIPE) as process:     # a subprocess.Popen
        process.communicate()
    ended = nurseries.run(folder, "train.py", seconds=60)     # Ended(status=0, stdout="...", stderr="...")

A program runs as `__main__` in a process that has nothing of other programs, with its own argv, folder, environment, descriptors, limits
and session, and is a child of whoever started it: signals, waiting and the exit status are real. What can't be forked is started as ever.

Who owns what: `Nurseries` owns the processes that fork, which end with it; who starts a program owns it, as with any process.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVER = Path(__file__).resolve().with_name("nursed.py")
MARK = "SPLITTER_TEST_MARK"
NO_MARK = "0" * 32  # each program puts its own in this place, where other processes see it
_PR_SET_CHILD_SUBREAPER = 36
_LIMITS = (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_NPROC)

Find = Callable[[str, str], "str | None"]  # kind, seed of hashes -> the socket of a nursery, if there is one


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit status (negative for a signal, None for too late), and what it printed."""

    status: int | None
    stdout: str
    stderr: str


class Nurseries:
    """All nurseries of this process, each started when it is first needed, which takes a second or two.

    By kind: `compiler` has imported splitter and no torch, `torch` has imported torch and the runtime, `more` torchvision and scikit-learn
    as well; these two have imported splitter too, for runs of it that start a program of the user's, and no other program finds it there.
    A seed of hashes holds for a whole process, so that each has a nursery of its own.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="splitter-nurseries-")
        self._processes: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self._end = weakref.finalize(self, end, self._processes, self._folder)

    def __enter__(self) -> Nurseries:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the nurseries."""
        self._end()

    def find(self, kind: str, seed: str) -> str:
        """The socket of a nursery."""
        path = self.path(kind, seed)
        if (kind, seed) not in self._processes:
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(path)
                listening.listen(64)
                kept = {name: value for name, value in os.environ.items() if not name.startswith("SPLITTER_") and name != "OMP_NUM_THREADS"}
                # numpy's threads would be there before the forks
                more = {"OPENBLAS_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", "PYTHONHASHSEED": seed, MARK: NO_MARK}
                self._processes[kind, seed] = subprocess.Popen(
                    [sys.executable, str(SERVER), kind, str(listening.fileno())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    env={**kept, **more},
                    pass_fds=[listening.fileno()],
                )
        return path

    def path(self, kind: str, seed: str) -> str:
        return os.path.join(self._folder.name, f"{kind}-{seed}")

    def start(self, command: Sequence[str], **given: Any) -> subprocess.Popen[Any]:
        """subprocess.Popen for a Python program."""
        return Forked(command, self.find, **given)

    def run(self, folder: Path, program: str, *arguments: str, seconds: float, environment: Mapping[str, str] | None = None) -> Ended:
        """Run a program of the folder, with the folder as working directory, for at most `seconds`; `environment` is added."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPLITTER_")}
        more = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            command = [sys.executable, program, *arguments]
            given: dict[str, Any] = {"env": {**kept, **more, **(environment or {})}, "stdin": subprocess.DEVNULL, "start_new_session": True}
            process = self.start(command, cwd=folder, stdout=out, stderr=err, **given)
            status = until(process, seconds)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode("utf-8", "replace"))
        return Ended(status, *texts)


def until(process: subprocess.Popen[Any], seconds: float) -> int | None:
    """The exit status of a process that leads a session; None when it was killed with all of it because it took longer."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def end(processes: dict[tuple[str, str], subprocess.Popen[bytes]], folder: tempfile.TemporaryDirectory[str]) -> None:
    for process in processes.values():
        assert process.stdin is not None
        process.stdin.close()
    for process in processes.values():
        process.wait()
    folder.cleanup()


def kind_of(command: Sequence[str], folder: Path) -> str:
    """Which nursery has what a program needs: what the files beside it and beside the scripts among its arguments import."""
    if command[1:3] == ["-m", "splitter"] and not starts_programs(command[3:]):
        return "compiler"
    folders = {folder, *((folder / word).parent for word in command if word.endswith(".py") and (folder / word).is_file())}
    texts = (path.read_bytes() for each in folders for path in each.rglob("*.py"))
    return "more" if any(b"torchvision" in text or b"sklearn" in text for text in texts) else "torch"


def starts_programs(arguments: Sequence[str]) -> bool:
    """Whether splitter runs code of the user's."""
    return arguments[:1] == ["verify"] or (arguments[:1] in (["transform"], ["show"]) and "--static" not in arguments)


def seed_of(environment: Mapping[str, str] | None) -> str:
    """PYTHONHASHSEED; where there is none any will do."""
    seed = (os.environ if environment is None else environment).get("PYTHONHASHSEED", "")
    return seed if seed.isdecimal() else "0"


class Forked(subprocess.Popen[Any]):
    """A Popen whose process is forked by a nursery that `find` knows; one that is started as ever when there is none."""

    def __init__(self, command: Sequence[str], find: Find, **given: Any) -> None:
        self._find = find
        super().__init__(command, **given)

    # The one function of Popen that knows how a process begins; parameters that are not looked at go on to the real one.
    def _execute_child(self, args: Any, executable: Any, preexec: Any, close: Any, passed: Any, cwd: Any, env: Any, *rest: Any) -> None:
        start: Any = super()._execute_child  # type: ignore[misc]
        (shell, *pipes), session = rest[2:9], rest[14]
        p2cread, _, _, c2pwrite, _, errwrite = pipes
        folder = os.path.abspath(cwd or ".")
        socket_path = None
        if not (preexec or passed or shell) and can_fork(args):
            socket_path = self._find(kind_of(args, Path(folder)), seed_of(env))
        if socket_path is None:
            start(args, executable, preexec, close, passed, cwd, env, *rest)
            return
        given = [own if fd == -1 else fd for own, fd in enumerate((p2cread, c2pwrite, errwrite))]
        self.pid = fork(socket_path, order_of(args, folder, env, session=bool(session)), given)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def can_fork(command: Sequence[Any]) -> bool:
    """Whether it is `python FILE ...` or `python -m MODULE ...`, with this Python."""
    if len(command) < 2 or command[0] != sys.executable:
        return False
    return str(command[1]).endswith(".py") or command[1] == "-m"


def order_of(command: Sequence[Any], folder: str, environment: Mapping[str, str] | None, session: bool) -> dict[str, Any]:
    umask = os.umask(0)
    os.umask(umask)
    return {
        "command": [str(word) for word in command[1:]],
        "folder": folder,
        "environment": dict(os.environ if environment is None else environment),
        "session": session,
        "umask": umask,
        "limits": [(which, resource.getrlimit(which)) for which in _LIMITS],
    }


def fork(path: str, order: Mapping[str, Any], descriptors: Sequence[int]) -> int:
    """Have a nursery fork a process, which becomes a child of this one; its number.

    The nursery's child forks it and ends, and the kernel gives an orphan to the nearest ancestor that wants orphans: this process, for
    the moment.
    """
    text = json.dumps({**order, "nursery": path}).encode("utf-8", "surrogateescape")
    adopt = ctypes.CDLL(None).prctl
    adopt(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(path)
            socket.send_fds(asking, [struct.pack("!Q", len(text))], list(descriptors))
            asking.sendall(text)
            answer = asking.recv(8)
    finally:
        adopt(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    if len(answer) != 8:
        raise OSError(f"the nursery at {path} gave no answer")
    return int(struct.unpack("!Q", answer)[0])
