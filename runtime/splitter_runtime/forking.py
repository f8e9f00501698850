"""A worker of the trainer's own as a fork of the trainer: it has what the trainer has imported, at no cost of time and memory.

    if may_fork(os.environ):
        worker = Forked("train_worker.py", ["--control", "5"], reset)      # .pid, .wait(timeout), .kill(), as subprocess.Popen has them

The fork is made by splitter_runtime.program(), behind the script's imports and before everything else, and then runs the worker program as
`__main__`. So modules are shared, and nothing of the script's own state is there. The script would have forked its loader's workers from
the same process, later and with more in it; what survives that, survives this. Imports no torch: a script may have something to set
before. Everything else gets a new Python: a worker that is started
again when its trainer trains, one whose trainer has threads, a device, or a debugger.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import io
import os
import signal
import sys
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from subprocess import TimeoutExpired
from typing import Any, NoReturn, TextIO

from .errors import ConfigError

_PR_SET_NAME = 15
_kept: list[object] = []  # of the trainer's, in the fork: what would write its buffers a second time if it went


def may_fork(environment: Mapping[str, str]) -> bool:
    """Whether this process can be forked and the fork become a worker. ConfigError when SPLITTER_FORK is neither 0 nor 1."""
    wanted = environment.get("SPLITTER_FORK", "") or "1"
    if wanted not in ("0", "1"):
        raise ConfigError.of("R601", what=f"SPLITTER_FORK: {wanted!r} is neither 0 nor 1")
    traced = sys.gettrace() is not None or sys.getprofile() is not None
    return wanted == "1" and threading.active_count() == 1 and not traced and not _has_device() and _flushed()


def _has_device() -> bool:
    """Whether torch has set up a device: its driver doesn't survive a fork."""
    torch = sys.modules.get("torch")
    backends = [getattr(torch, name, None) for name in ("cuda", "xpu", "mtia")]
    return any(backend is not None and backend.is_initialized() for backend in backends if hasattr(backend, "is_initialized"))


def _flushed() -> bool:
    """Write what the trainer has printed: a fork would have it in its buffer, too."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return False
    return True


class Forked:
    """A child that runs a program, as far as subprocess.Popen would be used for it."""

    def __init__(self, program: str, arguments: Sequence[str], reset: Callable[[], None]) -> None:
        """Fork; returns in the trainer only. `reset` is called in the child first. OSError when no process can be made."""
        self.returncode: int | None = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: numpy's, which take care of themselves
            pid = os.fork()
        if pid == 0:
            _become(program, arguments, reset)
        self.pid = pid

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, negative for a signal. TimeoutExpired when it still runs after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.0005
        while self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, 0 if end is None else os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
                    break
            except ChildProcessError:  # the script has waited for it, as for any child
                self.returncode = 0
                break
            assert end is not None and timeout is not None
            if time.monotonic() >= end:
                raise TimeoutExpired("worker", timeout)
            time.sleep(pause)  # as subprocess.Popen waits
            pause = min(pause * 2, 0.05)
        return self.returncode

    def kill(self) -> None:
        """SIGKILL, when it hasn't been waited for."""
        if self.returncode is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def _become(program: str, arguments: Sequence[str], reset: Callable[[], None]) -> NoReturn:
    status = 1
    try:
        _forget(program, reset)
        _run(program, arguments)
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        # Without the frames of the trainer and of this file, which are above the program's first line.
        error.__traceback__ = _below(error.__traceback__, program)
        traceback.print_exception(error)
    finally:
        _leave(status)


def _forget(program: str, reset: Callable[[], None]) -> None:
    """Drop what a new Python wouldn't have: the trainer's session, streams, signal and exit handlers."""
    os.setsid()  # Ctrl-C in a terminal reaches the trainer alone
    _name_process(os.path.basename(program))
    gc.freeze()  # looking for garbage among modules would copy the pages that hold them
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)
    _kept.extend([sys.stdout, sys.stderr, sys.stdin, sys.modules["__main__"], vars(sys.modules["__main__"]).copy()])
    sys.stdin = sys.__stdin__ = _stream(0, "r", sys.__stdin__)  # type: ignore[misc, assignment]
    sys.stdout = sys.__stdout__ = _stream(1, "w", sys.__stdout__)  # type: ignore[misc, assignment]
    sys.stderr = sys.__stderr__ = _stream(2, "w", sys.__stderr__, "backslashreplace")  # type: ignore[misc, assignment]
    atexit._clear()
    if util := sys.modules.get("multiprocessing.util"):
        atexit.register(util._exit_function)
    if random := sys.modules.get("numpy.random"):
        random.seed()  # as `random` does by itself
    reset()


def _name_process(name: str) -> None:
    """Show this name for the process in `ps -o comm` and `top`, which have 15 bytes for it."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def _stream(descriptor: int, mode: str, old: TextIO | None, errors: str | None = None) -> TextIO:
    raw = open(descriptor, f"{mode}b", closefd=False)
    encoding = old.encoding if old is not None else "utf-8"
    return io.TextIOWrapper(raw, encoding, errors or (old.errors if old is not None else None), line_buffering=descriptor == 2)


def _run(program: str, arguments: Sequence[str]) -> None:
    """Run a program as `python program arguments...` does."""
    sys.argv[:] = [program, *arguments]
    importlib.invalidate_caches()
    main = types.ModuleType("__main__")
    main.__file__ = program
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    with open(program, "rb") as file:
        code = compile(file.read(), program, "exec", dont_inherit=True)
    exec(code, vars(main))


def _below(trace: Any, program: str) -> Any:
    while trace is not None and trace.tb_frame.f_code.co_filename != program:
        trace = trace.tb_next
    return trace


def _leave(status: int) -> NoReturn:
    """End as Python ends: threads, exit handlers, buffers, status."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)
