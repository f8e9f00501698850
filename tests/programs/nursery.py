"""A process that has imported torch and the runtime, and forks a process for each program: far quicker than a new Python.

    with Nursery() as nursery:
        ended = nursery.run(folder, "train.py", seconds=60)     # Ended(status=0, stdout="...", stderr="...")

A program runs as `__main__` in a child that has nothing of other programs. A trainer forks its own worker, as it does everywhere.

Who owns what: the caller owns the nursery, which ends when its standard input closes; the nursery owns the programs, each in a session of
its own that is killed after `seconds`. gRPC is imported before the forks and started by nobody before them.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
# What every program or runtime imports, also in passing.
PRELOADED = """numpy.random numpy.ma torch.utils.data torch._subclasses.schema_check_mode multiprocessing.popen_fork multiprocessing.queues
multiprocessing.synchronize grpc._channel grpc._server grpc._interceptor grpc.experimental grpc_health.v1.health
splitter_runtime.data_loader splitter_runtime.remote_dataset splitter_runtime.serving splitter_runtime.session
splitter_runtime.worker""".split()


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit status (negative for a signal, None for too late), and what it printed."""

    status: int | None
    stdout: str
    stderr: str


class Nursery:
    """The caller's side."""

    def __init__(self) -> None:
        """Start the process; takes a second or two."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPLITTER_")}
        environment = {**kept, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"}
        self._process = subprocess.Popen([sys.executable, str(HERE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, folder: Path, program: str, *arguments: str, seconds: float, environment: Mapping[str, str] | None = None) -> Ended:
        """Run a program of the folder, with the folder as working directory, for at most `seconds`; `environment` is added."""
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {"folder": str(folder), "program": program, "arguments": arguments, "environment": dict(environment or {})}
        with tempfile.TemporaryDirectory() as around:
            return self._run({**order, "seconds": seconds}, around)

    def _run(self, order: dict[str, Any], around: str) -> Ended:
        assert self._process.stdin is not None and self._process.stdout is not None
        out, err = (Path(around) / kind for kind in ("stdout", "stderr"))
        order.update(stdout=str(out), stderr=str(err))
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Ended(answer, *(path.read_text(encoding="utf-8", errors="replace") for path in (out, err)))


# The nursery's side


def serve() -> None:
    """Fork a process for each order that comes."""
    import resource

    orders, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    preload()
    from splitter_runtime.processes import die_with

    for line in orders:
        order = json.loads(line)
        here = os.getpid()
        pid = os.fork()
        if pid == 0:
            die_with(here)
            os.setsid()
            for descriptor, name in ((1, order["stdout"]), (2, order["stderr"])):
                file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(file, descriptor)
                os.close(file)
            os.chdir(order["folder"])
            os.environ.update(order["environment"])
            leave(lambda order=order: become(order["program"], order["arguments"]))
        os.write(answers, json.dumps(wait(pid, order["seconds"])).encode() + b"\n")


def preload() -> None:
    """Import what every program needs; none of it starts a thread."""
    for name in PRELOADED:
        importlib.import_module(name)
    # Not the nursery's own argv, path and finders: what a program finds when it starts.
    sys.path.pop(0)
    Fresh.path, Fresh.finders = list(sys.path), list(sys.meta_path)
    gc.collect()
    gc.freeze()
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads must not fork"


def wait(pid: int, seconds: float) -> int | None:
    """The exit status of a child; None when it was killed because it took longer."""
    import select
    import signal

    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    late = not poll.poll(seconds * 1000)
    if late:
        os.killpg(pid, signal.SIGKILL)
    os.close(handle)
    _, status = os.waitpid(pid, 0)
    return None if late else os.waitstatus_to_exitcode(status)


class Fresh:
    """What Python has at the start of a program."""

    path: list[str]
    finders: list[Any]


def become(program: str, arguments: list[str]) -> None:
    """Run a program as `python program arguments...` does."""
    import types

    path = os.path.abspath(program)
    sys.argv[:] = [program, *arguments]
    sys.path[:] = [os.path.dirname(path), *Fresh.path]
    sys.meta_path[:] = Fresh.finders
    importlib.invalidate_caches()
    main = types.ModuleType("__main__")
    main.__file__ = program
    sys.modules["__main__"] = main
    with open(path, "rb") as file:
        code = compile(file.read(), program, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def leave(body: Any) -> None:
    """Run `body` and end this process as Python ends: status, threads, exit handlers, buffers."""
    import atexit
    import threading

    status = 0
    try:
        body()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    serve()
