"""Runs a program as it is and writes down what its DataLoaders give: `python -m splitter_runtime.record --out FILE PROGRAM ARGS...`

What `splitter verify` compares. The program runs as `__main__`, with its own sys.argv, sys.path[0] and `__file__`. When it
imports torch's DataLoader, `DataLoader.__iter__` and the `__next__` of its iterators are replaced by ones that call the
originals and write. They see torch's own loader and the runtime's alike, since the runtime's takes only the iterator's
place. No generator is touched, but for --seed, which seeds them before the program does; in forked processes nothing is
written.

One event a line, as JSON: {"event": "loader", "loader": 0, "name": "train_loader"}, {"event": "begin" or "batch" or
"finished" or "left" or "raised", "loader": 0, "epoch": 0, ...}, at last {"event": "end", "how": "stopped" or "ended"}.
Loaders are numbered by their first iteration, epochs and batches from 0.

When every loader that is in use has had its epochs and one begins another, the program is stopped with SystemExit(0).
"""

from __future__ import annotations

import argparse
import builtins
import copy
import ctypes
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import random
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

_PR_SET_PDEATHSIG = 1
_TRIES = 3  # to stop a program by SystemExit


class Stop(SystemExit):
    """Ends the program once enough is recorded."""


@dataclass
class Loader:
    """A loader that has been iterated. Clock times count the beginnings of epochs of all loaders."""

    number: int
    epochs: int = 0
    first: int = 0
    last: int = 0


@dataclass
class Epoch:
    """One run through a loader."""

    loader: int
    number: int
    recorded: bool
    taken: int = 0
    over: bool = False


@dataclass(frozen=True)
class Head:
    """What a loop in these lines of a file does first with a batch, as the text of a function: the split gives what this gives."""

    path: str
    first: int
    last: int
    function: str

    def apply(self, batch: object) -> object:
        """The batch behind the head, when the loop is running; a copy is worked on. Else the batch."""
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            if self.first <= frame.f_lineno <= self.last and os.path.realpath(frame.f_code.co_filename) == self.path:
                names = {**frame.f_globals, **frame.f_locals}
                made: dict[str, Any] = {}
                exec(compile(self.function, self.path, "exec", dont_inherit=True), names, made)
                (function,) = made.values()
                return function(copy.deepcopy(batch))
            frame = frame.f_back
        return batch


@dataclass
class Recorder:
    """What has been seen so far. Only the process that made it writes."""

    out: BinaryIO
    batches: int
    epochs: int
    heads: tuple[Head, ...] = ()
    process: int = field(default_factory=os.getpid)
    loaders: dict[int, Loader] = field(default_factory=dict)
    running: list[Epoch] = field(default_factory=list)
    keep: list[object] = field(default_factory=list)  # the loaders themselves, so that no id is used twice
    clock: int = 0
    stops: int = 0

    def write(self, event: str, **fields: object) -> None:
        self.out.write(json.dumps({"event": event, **fields}, separators=(",", ":")).encode() + b"\n")
        self.out.flush()

    def begin(self, dataset_loader: object, iterate: Any) -> Any:
        """An epoch of a loader begins: its iterator. Stop when enough is recorded."""
        seen = self.loaders.get(id(dataset_loader))
        if seen is None:
            seen = self.loaders[id(dataset_loader)] = Loader(len(self.loaders), first=self.clock)
            self.keep.append(dataset_loader)
            self.write("loader", loader=seen.number, name=variable_name(dataset_loader, seen.number))
        if seen.epochs >= self.epochs and self.enough(seen):
            self.stop()
        self.clock += 1
        seen.last = self.clock
        seen.epochs += 1
        epoch = Epoch(seen.number, seen.epochs - 1, seen.epochs <= self.epochs)
        iterator = iterate(dataset_loader)
        before = vars(iterator).get("_recorded_epoch")
        if before is not None:  # an iterator with persistent workers, used again
            self.leave(before)
        vars(iterator)["_recorded_epoch"] = epoch
        self.running = [other for other in self.running if not other.over] + [epoch]
        if epoch.recorded:
            feed = getattr(getattr(dataset_loader, "_site", None), "feed", None)
            self.write("begin", loader=epoch.loader, epoch=epoch.number, states=states(), feed=feed)
        return iterator

    def enough(self, beginning: Loader) -> bool:
        """Whether every loader has had its epochs; those not used since `beginning` was first are not waited for."""
        others = (other for other in self.loaders.values() if other.last > beginning.first)
        return all(other.epochs >= self.epochs for other in others)

    def stop(self) -> None:
        self.stops += 1
        if self.stops > _TRIES or threading.current_thread() is not threading.main_thread():
            # the program catches SystemExit, or it would only end a thread
            self.end("stopped")
            sys.stdout.flush()
            end_children()
            os._exit(0)
        raise Stop(0)

    def leave(self, epoch: Epoch) -> None:
        """The program has stopped taking from this epoch before its end."""
        if not epoch.over:
            epoch.over = True
            if epoch.recorded:
                self.write("left", loader=epoch.loader, epoch=epoch.number, taken=epoch.taken)

    def end(self, how: str) -> None:
        for epoch in self.running:
            self.leave(epoch)
        self.write("end", how=how)

    def take(self, iterator: Any, advance: Any) -> Any:
        """The next batch of an iterator."""
        epoch: Epoch | None = vars(iterator).get("_recorded_epoch")
        if epoch is None or not epoch.recorded or epoch.over:
            return advance(iterator)
        try:
            batch = advance(iterator)
        except StopIteration:
            epoch.over = True
            self.write("finished", loader=epoch.loader, epoch=epoch.number, taken=epoch.taken, states=states())
            raise
        except Exception as error:
            epoch.over = True
            what = last_line(traceback.format_exception_only(type(error), error))
            self.write("raised", loader=epoch.loader, epoch=epoch.number, taken=epoch.taken, error=what)
            raise
        if epoch.taken < self.batches:
            from .record_values import describe

            rest = getattr(self.keep[epoch.loader], "_rest", None)  # what the split's loop does first
            made = batch if rest is None else rest.copied(batch)
            value = describe(functools.reduce(lambda made, head: head.apply(made), self.heads, made))
            self.write("batch", loader=epoch.loader, epoch=epoch.number, batch=epoch.taken, value=value, states=states())
        epoch.taken += 1
        return batch


def states() -> dict[str, str]:
    from .record_values import generator_states

    return generator_states()


def last_line(lines: Sequence[str]) -> str:
    """The type of an exception and the last line of its text."""
    text = "".join(lines).strip().splitlines()
    kind = text[0].split(":", 1)[0] if text else ""
    return text[-1] if len(text) == 1 else f"{kind}: {text[-1]}"


def variable_name(dataset_loader: object, number: int) -> str:
    """How the program names a loader: a variable of the outermost frame that has it, also inside a dictionary or `self`."""
    found = f"loader {number}"
    frame: types.FrameType | None = sys._getframe(3)  # of the code that iterates
    while frame is not None:
        for name, value in (*frame.f_globals.items(), *frame.f_locals.items()):
            if value is dataset_loader:
                found = name
            elif isinstance(value, dict) and not name.startswith("__"):
                found = next((f"{name}[{key!r}]" for key, item in value.items() if item is dataset_loader), found)
            elif name == "self":
                members = getattr(value, "__dict__", {})
                found = next((f"self.{key}" for key, item in members.items() if item is dataset_loader), found)
        frame = frame.f_back
    return found


def end_children() -> None:
    """End the processes that multiprocessing started here."""
    import multiprocessing

    for child in multiprocessing.active_children():
        child.terminate()
        child.join(5)


# --- hooks


def hook(module: types.ModuleType, recorder: Recorder) -> None:
    """Put the recorder between the program and the loaders of torch's module."""
    loader_class: Any = module.DataLoader
    iterator_class: Any = module._BaseDataLoaderIter
    iterate, advance = loader_class.__iter__, iterator_class.__next__

    @functools.wraps(iterate)
    def recorded_iter(self: Any) -> Any:
        return recorder.begin(self, iterate) if os.getpid() == recorder.process else iterate(self)

    @functools.wraps(advance)
    def recorded_next(self: Any) -> Any:
        return recorder.take(self, advance) if os.getpid() == recorder.process else advance(self)

    loader_class.__iter__ = recorded_iter
    iterator_class.__next__ = recorded_next


class HookedLoader(importlib.abc.Loader):
    """Loads a module as its own loader does, then does something with it. The module keeps no trace of it."""

    def __init__(self, inner: importlib.abc.Loader, after: Callable[[Any], None]) -> None:
        self._inner, self._after = inner, after

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        self._inner.exec_module(module)
        self._after(module)


class HookFinder(importlib.abc.MetaPathFinder):
    """Finds the modules that are to be hooked, where Python would find them."""

    def __init__(self, hooks: Mapping[str, Callable[[Any], None]]) -> None:
        self._hooks = hooks

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._hooks:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        if found is not None and found.loader is not None:
            found.loader = HookedLoader(found.loader, self._hooks[fullname])
        return found


def hooks(recorder: Recorder, seed: int | None) -> dict[str, Callable[[Any], None]]:
    """What to do with which module once it is imported."""
    found: dict[str, Callable[[Any], None]] = {"torch.utils.data.dataloader": lambda module: hook(module, recorder)}
    if seed is not None:
        random.seed(seed)
        found["torch"] = lambda module: module.manual_seed(seed)
        found["numpy.random"] = lambda module: module.seed(seed)
    return found


# --- the program


def run(program: str, arguments: Sequence[str], recorder: Recorder, seed: int | None = None, package: str = "") -> int:
    """Run a program as `__main__`, recorded; its exit status. Its traceback starts at its own first line, as ever."""
    try:
        run_as_main(program, arguments, hooks(recorder, seed), package)
    except Stop:
        recorder.end("stopped")
        return 0
    except SystemExit as left:
        recorder.end("ended")
        if left.code is not None and not isinstance(left.code, int):
            print(left.code, file=sys.stderr)
            return 1
        return left.code or 0
    except BaseException as error:
        recorder.end("ended")
        for _ in range(2):  # the frames of this function and of the one that it calls
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    recorder.end("ended")
    return 0


def run_as_main(program: str, arguments: Sequence[str], hooked: Mapping[str, Callable[[Any], None]], package: str = "") -> None:
    """Run a program as `__main__`, with modules hooked; raises what it raises.

    With `package` it runs as `python -m package.program` in the folder that holds the package.
    """
    main = types.ModuleType("__main__")
    path = os.path.abspath(program)
    sys.argv = [path if package else program, *arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(program))
    for _ in package.split(".") if package else ():
        sys.path[0] = os.path.dirname(sys.path[0])
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__.update(__file__=path, __builtins__=builtins, __loader__=loader, __package__=package or None, __cached__=None)
    with io.open_code(path) as file:
        text = file.read()
    sys.modules["__main__"] = main
    for name in hooked.keys() & sys.modules.keys():  # Python may have been told to import it at its start
        hooked[name](sys.modules[name])
    sys.meta_path.insert(0, HookFinder(hooked))
    if package:
        importlib.import_module(package)
    exec(compile(text, path, "exec", dont_inherit=True), main.__dict__)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends. Here as well, since `processes` imports torch."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m splitter_runtime.record", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", required=True, help="file that the events are written to")
    parser.add_argument("--batches", type=int, default=8, help="batches of each epoch that are described")
    parser.add_argument("--epochs", type=int, default=2, help="epochs of each loader that are recorded")
    parser.add_argument("--parent", type=int, default=0, help="end when the process with this number does")
    parser.add_argument("--seed", type=int, help="what the generators start from, where the program does not seed them")
    parser.add_argument("--package", default="", help="the package that the program is a module of, when it runs by -m")
    parser.add_argument("--heads", default="[]", help="what loops of the program do first that the split does on its workers, as JSON")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    if chosen.parent:
        die_with(chosen.parent)
    with open(chosen.out, "wb", buffering=1 << 20) as out:
        heads = tuple(Head(**fields) for fields in json.loads(chosen.heads))
        recorder = Recorder(out, chosen.batches, chosen.epochs, heads)
        status = run(chosen.program, chosen.arguments, recorder, chosen.seed, chosen.package)
    sys.exit(status)


if __name__ == "__main__":
    # under its own name, since the program takes the place of __main__
    from splitter_runtime.record import main as recorded_main

    recorded_main()
