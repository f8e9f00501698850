"""Follows a sample through the steps that a person sees in the source, and measures them.

    read -> `image = load(path)` -> RandomCrop -> ToTensor -> `return image, label`

A step is a statement of the first function of the user's that runs (seen by sys.settrace, in the user's files only), or an element of a
container of transforms (Compose, Sequential), whose elements are replaced by ones that tell when they are called, for as long as samples
are run. What runs in neither belongs to the step around it, at last to the one that the sample began with. Runs in the child process only.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from splitter.graph import Part
from splitter.ir import Span
from splitter.knowledge_ops import CHOOSING, IN_TURN
from splitter.trace_lines import Statement, elements_of, lines_of, names_at
from splitter.trace_merge import Enter, Leaf, Leave, Result, Seen
from splitter.trace_record import Recorder, leaves_of

_NO_DATA = (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


@dataclass
class User:
    """The user's own files: those below the script's folder, and not below the folders of installed packages."""

    folder: str
    _known: dict[str, str | None] = field(default_factory=dict)

    def path(self, filename: str) -> str | None:
        """The path of a file relative to the script's folder; None for a library's."""
        if filename not in self._known:
            real = os.path.realpath(filename)
            inside = real.startswith(self.folder + os.sep) and os.path.isfile(real)
            library = any(part in ("site-packages", "dist-packages") for part in real.split(os.sep))
            installed = real.startswith((os.path.realpath(sys.prefix) + os.sep,)) and not self.folder.startswith(sys.prefix)
            self._known[filename] = os.path.relpath(real, self.folder) if inside and not library and not installed else None
        return self._known[filename]


@dataclass
class Plans:
    """What is a step, and what has turned out to be too fine: containers by id, compound statements by file and line."""

    user: User
    made: dict[int, tuple[str, int]]  # where containers were made
    steps: dict[str, Seen] = field(default_factory=dict)
    opaque: set[int] = field(default_factory=set)
    whole: set[tuple[str, int]] = field(default_factory=set)
    owners: dict[str, int | tuple[str, int]] = field(default_factory=dict)  # what to make coarser, by step

    def coarser(self, steps: tuple[str, ...]) -> bool:
        """Make one step of each thing that has these; False when there is nothing left to join."""
        before = len(self.opaque) + len(self.whole)
        for owner in (self.owners[step] for step in steps if step in self.owners):
            if isinstance(owner, int):
                self.opaque.add(owner)
            else:
                self.whole.add(owner)
        return len(self.opaque) + len(self.whole) > before


class Element:
    """Stands for an element of a container while samples are run. It is of the element's class for whoever asks."""

    def __init__(self, inner: Any, step: str, call: Callable[[str, Any, Any, Any], Any]) -> None:
        self.__dict__["_traced"] = (inner, step, call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inner, step, call = self.__dict__["_traced"]
        return call(step, inner, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_traced"][0], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_traced"][0], name, value)

    @property
    def __class__(self) -> Any:
        return type(self.__dict__["_traced"][0])

    def __repr__(self) -> str:
        return repr(self.__dict__["_traced"][0])


def name_of(callable_: Any) -> str:
    """How a person calls a transform."""
    name = getattr(callable_, "__qualname__", None) or type(callable_).__name__
    return str(name).rsplit("<locals>.", 1)[-1]


class Tracker:
    """Knows which step is running. With a recorder it writes down what goes in and out; without, it only measures."""

    def __init__(self, plans: Plans, part: Part, states: Callable[[], dict[str, Any]] | None = None, keep: list[Any] | None = None) -> None:
        self.plans, self.part, self.states = plans, part, states
        self.keep = keep if keep is not None else []
        self.recorder: Recorder | None = None
        self.stack: list[str] = []
        self.depth: list[bool] = []  # whether the step is a statement
        self.times: dict[str, int] = {}  # nanoseconds of CPU, of the step alone
        self.draws: dict[str, set[str]] = {}
        self.opened: set[str] = set()
        self.frame: types.FrameType | None = None
        self.statement: Statement | None = None
        self.serial = 0
        self.returned: tuple[Any, list[Leaf]] | None = None
        self.statements = True
        self.quiet = True
        self._last = self._spent = 0
        self._states: dict[str, Any] = {}

    # --- time, draws

    def pause(self) -> None:
        """What ran since the last time belongs to the step that is running."""
        if self.recorder:
            self.recorder.muted = True
        if self.stack:
            spent = self.recorder.spent if self.recorder else 0
            took = time.thread_time_ns() - self._last - (spent - self._spent)
            self.times[self.stack[-1]] = self.times.get(self.stack[-1], 0) + took
            if self.states is not None:
                now = self.states()
                drawn = {name for name, state in now.items() if self._states.get(name) != state}
                self.draws.setdefault(self.stack[-1], set()).update(drawn)
                self._states = now
        self.quiet = True

    def resume(self) -> None:
        self.quiet = False
        if self.recorder:
            self.recorder.muted = False
        self._spent = self.recorder.spent if self.recorder else 0
        self._last = time.thread_time_ns()

    def saw(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit event: a file is opened by the step that is running."""
        if event == "open" and self.stack and not self.quiet:
            path = arguments[0]
            if not (isinstance(path, str) and path.endswith((".py", ".pyc", ".so", "/cmdline", "/status"))):
                self.opened.add(self.stack[-1])

    # --- steps

    def begin(self, step: str, inputs: list[Leaf], given: bool, statement: bool = False) -> None:
        if self.recorder:
            self.recorder.escaped = False
            self.recorder.mark(Enter(step, tuple(inputs), given))
        self.stack.append(step)
        self.depth.append(statement)

    def end(self, results: list[Result], changes: bool) -> None:
        step = self.stack.pop()
        self.depth.pop()
        if self.recorder:
            took = self.times.pop(step, 0) / 1000
            draws = tuple(sorted(self.draws.pop(step, ())))
            self.recorder.mark(Leave(step, tuple(results), changes, draws, step in self.opened, took))

    @contextlib.contextmanager
    def running(self, step: str, recorder: Recorder | None = None) -> Iterator[None]:
        """One sample, or one call of a collate function."""
        self.recorder = recorder
        self._states = self.states() if self.states else {}
        self.serial = 0
        self.returned = None
        self.begin(step, [], given=False)
        if self.statements:
            sys.settrace(self.called)
        self.resume()
        try:
            yield
        finally:
            sys.settrace(None)
            self.pause()
            self.frame = self.statement = None

    def call(self, step: str, inner: Any, args: Any, kwargs: Any) -> Any:
        """An element of a container is called."""
        if not self.stack or self.quiet:
            return inner(*args, **kwargs)
        self.pause()
        tracing = sys.gettrace()
        sys.settrace(None)  # what a transform does inside is one step
        recorder = self.recorder
        depth = len(self.stack)
        self.begin(step, leaves_of((args, kwargs), self.keep) if recorder else [], given=True)
        self.resume()
        try:
            made = inner(*args, **kwargs)
            self.pause()
            leaves = leaves_of(made, self.keep) if recorder else []
            self.end([Result(leaf, f"out {number}") for number, leaf in enumerate(leaves)], changes=True)
        finally:
            del self.stack[depth:], self.depth[depth:]
            sys.settrace(tracing)
            self.resume()
        return made

    # --- statements

    def called(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        """A function begins: the first of the user's is followed."""
        if self.frame is not None or self.quiet or event != "call":
            return None
        path = self.plans.user.path(frame.f_code.co_filename)
        if path is None or lines_of(frame.f_code, self.whole(path)) is None:
            return None
        self.pause()
        self.frame = frame
        self.serial += 1
        self.resume()
        return self.line

    def whole(self, path: str) -> frozenset[int]:
        return frozenset(line for file, line in self.plans.whole if file == path)

    def line(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        """A line of the user's function begins, or the function returns."""
        if frame is not self.frame or event == "exception":
            return self.line
        path = self.plans.user.path(frame.f_code.co_filename) or ""
        lines = lines_of(frame.f_code, self.whole(path))
        assert lines is not None
        found = lines.by_line.get(frame.f_lineno) if event == "line" else None
        if event == "line" and found is self.statement:
            return self.line
        self.pause()
        if self.statement is not None:
            self.end_statement(frame, argument, returns=event == "return")
        if event == "return":
            self.frame = self.statement = None
        elif found is not None:
            self.begin_statement(frame, path, found)
        self.resume()
        return self.line

    def begin_statement(self, frame: types.FrameType, path: str, found: Statement) -> None:
        self.statement = found
        step = f"{path}:{found.line}"
        if step not in self.plans.steps:
            self.plans.steps[step] = Seen(found.text, self.part, found.span(path))
            if found.outer:
                self.plans.owners[step] = (path, found.outer)
        names = self.leaves(frame, found.reads)
        self.begin(step, names, given=self.given(frame), statement=True)

    def given(self, frame: types.FrameType) -> bool:
        """Whether a library has called the function with parts of the sample, and not with an index."""
        return frame.f_code.co_name not in ("__getitem__", "__getitems__", "__iter__", "__next__")

    def end_statement(self, frame: types.FrameType, argument: Any, returns: bool) -> None:
        statement = self.statement
        assert statement is not None
        results: list[Result] = []
        if self.recorder:
            if returns and statement.parts:
                results = self.parts(frame, statement, argument)
                self.returned = (argument, [result.leaf for result in results])
            elif returns:
                results = [Result(leaf, f"out {number}") for number, leaf in enumerate(leaves_of(argument, self.keep)) if leaf.key]
            if not returns or statement.changes:
                for name in statement.gives:
                    results += [Result(leaf, f"{name} {number}") for number, leaf in enumerate(self.leaves(frame, (name,)))]
        self.end(results, statement.changes)
        self.statement = None

    def parts(self, frame: types.FrameType, statement: Statement, made: Any) -> list[Result]:
        """What a function returns, part by part, each with what it may have been made from."""
        parts = statement.parts
        values = list(made) if len(parts) > 1 and isinstance(made, (tuple, list)) and len(made) == len(parts) else [made]
        results: list[Result] = []
        for number, value in enumerate(values):
            part = parts[number] if len(values) == len(parts) else None
            leaves = leaves_of(value, self.keep)
            if part is not None and part.name is not None:
                leaves = self.named(leaves, part.name)
            near = tuple(self.leaves(frame, part.reads)) if part is not None else None
            named = part is not None and part.name is not None
            unknown = [replace(leaf, key=("r", self.serial, number, place)) if leaf.key is None and not named else leaf for place, leaf in enumerate(leaves)]
            results += [Result(leaf, f"out {number}.{place}", near) for place, leaf in enumerate(unknown)]
        return results

    def named(self, leaves: list[Leaf], name: str) -> list[Leaf]:
        """Leaves of a local variable: what can't be told apart is told apart by its name."""
        return [replace(leaf, key=("v", self.serial, name, place)) if leaf.key is None else leaf for place, leaf in enumerate(leaves)]

    def leaves(self, frame: types.FrameType, names: tuple[str, ...]) -> list[Leaf]:
        if self.recorder is None:
            return []
        found: list[Leaf] = []
        for name in names:
            value = frame.f_locals.get(name)
            if name not in frame.f_locals or name in ("self", "cls") or isinstance(value, _NO_DATA) or callable(value):
                continue
            found += self.named(leaves_of(value, self.keep), name)
        return found

    def near(self) -> tuple[Leaf, ...] | None:
        """What the expression reads that is being evaluated in the user's function; None inside a transform."""
        if self.frame is None or not self.depth or not self.depth[-1]:
            return None
        path = self.plans.user.path(self.frame.f_code.co_filename) or ""
        names = names_at(self.frame.f_code, self.frame.f_lasti, self.whole(path))
        return None if names is None else tuple(self.leaves(self.frame, names))


# --- containers


def find_containers(*roots: Any) -> list[Any]:
    """The containers of transforms that can be reached from a dataset or a collate function, in a fixed order."""
    found: list[Any] = []
    seen: set[int] = set()
    todo = [(root, 0) for root in reversed(roots)]
    while todo:
        value, depth = todo.pop()
        if id(value) in seen or depth > 8 or isinstance(value, (str, bytes, int, float, types.ModuleType)) or value is None:
            continue
        seen.add(id(value))
        if elements(value) is not None and type(value).__name__ not in CHOOSING:
            found.append(value)
        todo += [(inner, depth + 1) for inner in reversed(_inner(value))]
    return found


def elements(container: Any) -> dict[Any, Any] | None:
    """The elements of a container by where they are kept; None for what is none."""
    name = type(container).__name__
    kept = getattr(container, "__dict__", {})
    listed = kept.get("transforms")
    if isinstance(listed, list) and callable(container) and all(callable(one) for one in listed):
        return dict(enumerate(listed))
    if name in IN_TURN and isinstance(kept.get("_modules"), dict) and "transforms" not in kept["_modules"]:
        return dict(kept["_modules"])
    return None


def _inner(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return list(value) if len(value) <= 64 else []
    if isinstance(value, dict):
        return list(value.values()) if len(value) <= 64 else []
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
        return cells + [value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__]
    if isinstance(value, type):
        return []
    kept = list(getattr(value, "__dict__", {}).values())
    methods = [vars(type(value)).get(name) for name in ("__getitem__", "__iter__", "__call__", "forward")]
    return kept + [method for method in methods if isinstance(method, types.FunctionType)]


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


@contextlib.contextmanager
def traced_containers(containers: list[Any], tracker: Tracker) -> Iterator[None]:
    """Replace the elements of containers by ones that tell the tracker, for a while."""
    undo: list[Callable[[], None]] = []
    inner = {id(container) for container in containers}
    plans = tracker.plans
    try:
        for number, container in enumerate(containers):
            if id(container) in plans.opaque:
                continue
            kept = vars(container)
            store = kept["transforms"] if isinstance(kept.get("transforms"), list) else kept["_modules"]
            before = elements(container) or {}
            spans = _spans(container, list(before.values()), plans)
            for place, (key, element) in enumerate(before.items()):
                if id(element) in inner and id(element) not in plans.opaque:
                    continue
                step = f"{number}.{place} {name_of(element)}"
                plans.steps.setdefault(step, Seen(name_of(element), tracker.part, spans[place]))
                plans.owners[step] = id(container)
                store[key] = Element(element, step, tracker.call)
                undo.append(lambda store=store, key=key, element=element: store.__setitem__(key, element))  # type: ignore[misc]
        yield
    finally:
        for put_back in reversed(undo):
            put_back()


def _spans(container: Any, inside: list[Any], plans: Plans) -> list[Span | None]:
    """Where the elements stand in the source: in the call that made the container, or where they are defined."""
    file, line = plans.made.get(id(container), ("", 0))
    path = plans.user.path(file) if file else None
    found = elements_of(file, line, type(container).__name__, len(inside)) if path else None
    if path and found:
        return [Span(path, e.lineno, e.col_offset, e.end_lineno or e.lineno, e.end_col_offset or e.col_offset) for e in found]
    return [_defined(element, plans.user) for element in inside]


def _defined(element: Any, user: User) -> Span | None:
    function = element
    for name in ("__call__", "forward"):
        if not isinstance(function, types.FunctionType):
            function = getattr(type(element), name, None)
    code = getattr(function, "__code__", None)
    path = user.path(code.co_filename) if code is not None else None
    return Span(path, code.co_firstlineno, 0, code.co_firstlineno, 0) if path and code is not None else None
