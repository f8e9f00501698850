"""The process that forks programs (see `nursery`), and what a forked process does to be like a new Python: `python nursed.py KIND FD`

gRPC is imported before the forks and started by nobody before them. A process that forks ends when its standard input closes.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import importlib.machinery
import importlib.util
import io
import json
import os
import resource
import signal
import socket
import struct
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import nursery

_PR_SET_PDEATHSIG = 1
# What every program or runtime imports, also in passing. Not torch._dynamo: it puts others in the place of torch.manual_seed and more.
TORCH = """numpy.random numpy.ma torch.utils.data torch._subclasses.schema_check_mode multiprocessing.popen_fork multiprocessing.queues
multiprocessing.synchronize grpc._channel grpc._server grpc._interceptor grpc.experimental grpc_health.v1.health
splitter_runtime.data_loader splitter_runtime.remote_dataset splitter_runtime.serving splitter_runtime.session
splitter_runtime.worker splitter_runtime.record splitter_runtime.record_values""".split()
MORE = """torchvision torchvision.datasets torchvision.models torchvision.transforms.v2 PIL.JpegImagePlugin PIL.PngImagePlugin
sklearn.datasets importlib.resources importlib.readers""".split()
COMPILER = """splitter.cli splitter.cli_errors splitter.console splitter.compile splitter.emit splitter.write splitter.run splitter.verify
splitter.trace splitter.cut splitter.finish splitter.profile splitter.progress splitter.plan_json splitter.diff splitter.show
splitter.current splitter.bundle splitter.head_text splitter.prefix_choice rich.console typer.core""".split()
TRACING = "splitter.trace_child splitter.trace_samples splitter.trace_prefix".split()
PRELOADED = {"torch": (TORCH, COMPILER + TRACING), "more": (TORCH + MORE, COMPILER + TRACING), "compiler": ((), COMPILER)}


class Fresh:
    """What Python has at the start of a program, and what programs that are not splitter's must not find."""

    path: list[str]
    finders: list[Any]
    compiler: set[str]


def serve(listening: socket.socket, until: int | None) -> None:
    """Fork a process for each order that comes, until a descriptor is closed."""
    import select

    while True:
        ready, _, _ = select.select([listening, *(() if until is None else (until,))], [], [])
        if listening not in ready:
            return
        asking, _ = listening.accept()
        with asking:
            header, descriptors, _, _ = socket.recv_fds(asking, 8, 3)
            left = struct.unpack("!Q", header)[0]
            text = b""
            while len(text) < left:
                text += asking.recv(left - len(text))
            pid, go = fork(json.loads(text.decode("utf-8", "surrogateescape")), descriptors, (asking, listening))
            for descriptor in descriptors:
                os.close(descriptor)
            asking.sendall(struct.pack("!Q", pid))
            os.close(go)


def preload(kind: str) -> None:
    """Import what every program needs; none of it starts a thread."""
    before, compiler = PRELOADED[kind]
    for name in before:
        importlib.import_module(name)
    known = set(sys.modules) - {"nursery"}
    for name in compiler:
        importlib.import_module(name)
    Fresh.compiler = set(sys.modules) - known
    # Not this process's own folder and PYTHONPATH.
    Fresh.path = sys.path[1 + len(python_path(os.environ)) :]
    Fresh.finders = list(sys.meta_path)
    gc.collect()
    gc.freeze()
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads must not fork"


def fork(order: Mapping[str, Any], descriptors: list[int], mine: tuple[socket.socket, ...]) -> tuple[int, int]:
    """Fork a process that is nobody's child any more: its number, and what to close when it may go on."""
    (waits, go), (reads, tells) = os.pipe(), os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid:
            os.write(tells, struct.pack("!Q", pid))
            os._exit(0)
        for descriptor in (go, reads, tells, *(each.detach() for each in mine)):
            os.close(descriptor)
        os.read(waits, 1)  # until the other two are gone
        os.close(waits)
        leave(lambda: become(order, descriptors))
    os.waitpid(between, 0)
    pid = struct.unpack("!Q", os.read(reads, 8))[0]
    for descriptor in (waits, reads, tells):
        os.close(descriptor)
    return pid, go


# What the forked process does


def become(order: Mapping[str, Any], descriptors: list[int]) -> None:
    """Run a program as `python FILE ...` or `python -m MODULE ...` does."""
    if order["session"]:
        os.setsid()
    word, *arguments = order["command"]
    if [word, *arguments[:1]] == ["-m", "splitter"] and "torch" in sys.modules:
        fork_below(order["nursery"], descriptors)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    os.chdir(order["folder"])
    os.umask(order["umask"])
    for which, limits in order["limits"]:
        resource.setrlimit(which, limits)
    environment = order["environment"]
    show_mark(environment.get(nursery.MARK, nursery.NO_MARK))
    os.environ.clear()
    os.environ.update(environment)
    like_new(environment)
    sys.orig_argv[:] = [sys.executable, *order["command"]]
    if word == "-m":
        run_module(*arguments, environment=environment)
    else:
        run_file(word, arguments, environment)


def fork_below(path: str, descriptors: list[int]) -> None:
    """Leave a process that forks for this one: those of another's can't become its children."""
    address = f"\0splitter-nursery-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(8)
        parent = os.getpid()
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(0)
            for descriptor in descriptors:
                os.close(descriptor)
            serve(listening, None)
    kind, _, seed = os.path.basename(path).rpartition("-")
    start: Any = sys.modules["splitter.start"]
    start.open_process = functools.partial(nursery.Forked, find=lambda *asked: address if asked == (kind, seed) else None)


def like_new(environment: Mapping[str, str]) -> None:
    """What Python and libraries take from the environment, or at random, when they are imported."""
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    encoding, _, errors = environment.get("PYTHONIOENCODING", "").partition(":")
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        how = errors or ("backslashreplace" if name == "stderr" else "strict")
        unbuffered = bool(environment.get("PYTHONUNBUFFERED")) and mode == "w"
        raw: Any = open(number, f"{mode}b", buffering=0, closefd=False)
        raw.name = f"<{name}>"
        buffer = raw if unbuffered else io.BufferedWriter(raw) if mode == "w" else io.BufferedReader(raw)
        lines = not unbuffered and (name == "stderr" or os.isatty(number))
        file: Any = io.TextIOWrapper(buffer, encoding or "utf-8", how, line_buffering=lines, write_through=unbuffered)
        file.mode = mode
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)
    sys.meta_path[:] = Fresh.finders
    importlib.invalidate_caches()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # that of random is another one after each fork
    if "torch" in sys.modules:
        torch: Any = sys.modules["torch"]
        torch.default_generator.seed()
        threads = environment.get("OMP_NUM_THREADS", "")
        if threads.isdecimal():
            torch.set_num_threads(int(threads))


def show_mark(mark: str) -> None:
    """Put the mark of the test where others see the environment of this process: what it began with, which fork has copied."""
    with open("/proc/self/stat") as file:
        numbers = file.read().rpartition(")")[2].split()
    start, end = int(numbers[47]), int(numbers[48])
    place = ctypes.string_at(start, end - start).find(f"{nursery.MARK}={nursery.NO_MARK}".encode())
    ctypes.memmove(start + place + len(nursery.MARK) + 1, mark.encode(), len(nursery.NO_MARK))


def python_path(environment: Mapping[str, str]) -> list[str]:
    return [os.path.abspath(part) for part in environment.get("PYTHONPATH", "").split(":") if part]


def run_file(program: str, arguments: list[str], environment: Mapping[str, str]) -> None:
    path = os.path.join(os.getcwd(), program)
    sys.argv[:] = [program, *arguments]
    sys.path[:] = [os.path.dirname(os.path.realpath(path)), *python_path(environment), *Fresh.path]
    hide()
    if not os.path.isfile(path):
        print(f"{sys.executable}: can't open file {path!r}: [Errno 2] No such file or directory", file=sys.stderr)
        sys.exit(2)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    main = types.ModuleType("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=__builtins__, __file__=path, __loader__=loader, __cached__=None)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def run_module(module: str, *arguments: str, environment: Mapping[str, str]) -> None:
    sys.path[:] = [os.getcwd(), *python_path(environment), *Fresh.path]
    if module.partition(".")[0] != "splitter":
        hide()
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations is not None:
        module += ".__main__"
        spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        print(f"{sys.executable}: No module named {module}", file=sys.stderr)
        sys.exit(1)
    sys.argv[:] = [spec.origin, *arguments]
    code = spec.loader.get_code(module)  # type: ignore[union-attr]
    main = types.ModuleType("__main__")
    names = {"__file__": spec.origin, "__loader__": spec.loader, "__package__": spec.parent, "__spec__": spec, "__cached__": spec.cached}
    main.__dict__.update(__annotations__={}, __builtins__=__builtins__, **names)
    sys.modules["__main__"] = main
    assert code is not None
    exec(code, main.__dict__)


def hide() -> None:
    """A program that is none of splitter's has nothing of it, nor of this file."""
    for name in Fresh.compiler:
        del sys.modules[name]


def leave(body: Callable[[], None]) -> None:
    """Run `body` and end this process as Python ends: status, threads, exit handlers, what is left of the program, buffers."""
    import atexit
    import threading

    status: int | None = 0
    mine = sys.modules["__main__"]
    try:
        body()
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        error.__traceback__ = of_program(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        status = None if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if sys.modules["__main__"] is not mine:
        vars(sys.modules["__main__"]).clear()
    for file in (sys.stdout, sys.stderr):
        file.flush()
    if status is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status or 0)


def of_program(trace: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the frames of this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    preload(sys.argv[1])
    serve(socket.socket(fileno=int(sys.argv[2])), 0)
