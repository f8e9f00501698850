"""Follows a sample through the steps that a person sees in the source, and measures them.

    read -> `image = load(path)` -> RandomCrop -> ToTensor -> `return image, label`

A step is a statement of the first function of the user's that runs (seen by sys.settrace, in the user's files only), or an element of a
container of transforms (Compose, Sequential), whose elements are replaced by ones that tell when they are called, for as long as samples
are run. What runs in neither belongs to the step around it, at last to the one that the sample began with. Runs in the child process only.
"""

from __future__ import annotations

import ast
import contextlib
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from splitter.graph import Part
from splitter.trace_events import Enter, Leaf, Leave, Result, Seen
from splitter.trace_lines import Statement, User, expression_at, lines_of, names_of, pairs, parts_read, unzipped
from splitter.trace_record import Recorder, is_leaf, leaves_of

_NO_DATA = (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)

_NOTHING = object()


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
        self.values: dict[Any, Any] = {}  # of what variables tell apart
        self.before: dict[Any, Any] = {}  # the same when the statement began
        self.batch: tuple[Any, list[Leaf], list[Any]] | None = None  # what is collated, its leaves, the parts of the samples these are
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

    def end(self, results: list[Result], changes: bool, branches: bool = False) -> None:
        step = self.stack.pop()
        self.depth.pop()
        if self.recorder:
            took = self.times.pop(step, 0) / 1000
            draws = tuple(sorted(self.draws.pop(step, ())))
            self.recorder.mark(Leave(step, tuple(results), changes, draws, step in self.opened, branches, took))

    @contextlib.contextmanager
    def running(self, step: str, recorder: Recorder | None = None) -> Iterator[None]:
        """One sample, or one call of a collate function with `batch`."""
        self.recorder = recorder
        self._states = self.states() if self.states else {}
        self.serial = 0
        self.values = {}
        self.returned = None
        self.begin(step, self.batch[1] if self.batch else [], given=False)
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

    def call_link(self, step: str, inner: Any, args: Any, kwargs: Any) -> Any:
        """An operation of a chain runs; inside an element of a container it is a part of that."""
        inside = len(self.stack) > 1 and not self.depth[-1]
        return inner(*args, **kwargs) if inside else self.call(step, inner, args, kwargs)

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
        self.before = dict(self.values)
        self.begin(step, names, given=self.given(frame), statement=True)

    def given(self, frame: types.FrameType) -> bool:
        """Whether a library has called the function with parts of the sample, and not with an index."""
        return frame.f_code.co_name not in ("__getitem__", "__getitems__", "__iter__", "__next__")

    def end_statement(self, frame: types.FrameType, argument: Any, returns: bool) -> None:
        statement = self.statement
        assert statement is not None
        self.statement = None
        if self.recorder is None:
            self.end([], changes=False)
            return
        results: list[Result] = []
        changed = [name for name in statement.changes if not (self.assigns(statement) and _container(frame.f_locals.get(name)))]
        if returns and argument is not None:
            results = self.valued(frame, statement.value, argument, "")
            self.returned = (argument, [result.leaf for result in results])
        if not returns or changed:
            for name in statement.gives:
                if statement.value is not None and name in frame.f_locals and not returns:
                    results += self.valued(frame, statement.value, frame.f_locals[name], name)
                else:
                    results += self.given_names(frame, statement, name)
        self.end(results, bool(changed), statement.branches)

    def assigns(self, statement: Statement) -> bool:
        return isinstance(statement.node, (ast.Assign, ast.AnnAssign))

    def given_names(self, frame: types.FrameType, statement: Statement, name: str) -> list[Result]:
        """The leaves of a local variable after a statement; a number that is the same as before is no result."""
        results = []
        near = tuple(self.read_by(frame, statement.node.value)) if isinstance(statement.node, ast.Assign) else None
        zipped = unzipped(statement, name)
        if zipped is not None and self.batch is not None and frame.f_locals.get(zipped[0]) is self.batch[0]:
            near = tuple(self.parts({zipped[1]}))
        for number, leaf in enumerate(self.leaves(frame, (name,))):
            variable = leaf.key is not None and leaf.key[0] == "v"
            before = self.before.get(leaf.key, _NOTHING) if variable else _NOTHING
            if before is _NOTHING or not _equal(before, self.values[leaf.key]):
                results.append(Result(leaf, f"{name} {number}", near, variable))
        return results

    def valued(self, frame: types.FrameType, expression: ast.expr | None, made: Any, name: str) -> list[Result]:
        """What a statement returns or gives a name, part by part, each with what it may have been made from."""
        if name and (name in ("self", "cls") or isinstance(made, _NO_DATA) or callable(made)):
            return []
        results: list[Result] = []
        parts = pairs(expression, made) if expression is not None and not is_leaf(made) else [(expression, made)]
        for part, value in parts:
            leaves = leaves_of(value, self.keep)
            near = None if part is None else tuple(self.read_by(frame, part))
            source = self.named(leaves, part.id) if isinstance(part, ast.Name) and part.id != name else None
            for place, leaf in enumerate(leaves):
                number = len(results)
                fresh = leaf.key is None
                if fresh and source is not None and not name:
                    leaf, fresh = source[place], False  # a variable, returned
                elif fresh:
                    leaf = replace(leaf, key=("v", self.serial, name, number))
                results.append(Result(leaf, f"{name or 'out'} {number}", near, fresh, source[place] if source and fresh else None))
        return results

    def named(self, leaves: list[Leaf], name: str) -> list[Leaf]:
        """Leaves of a local variable: what can't be told apart is told apart by its name."""
        found = []
        for place, leaf in enumerate(leaves):
            if leaf.key is None:
                leaf = replace(leaf, key=("v", self.serial, name, place))
                self.values[leaf.key] = self.keep[len(self.keep) - len(leaves) + place]
            found.append(leaf)
        return found

    def leaves(self, frame: types.FrameType, names: tuple[str, ...]) -> list[Leaf]:
        if self.recorder is None:
            return []
        found: list[Leaf] = []
        for name in names:
            value = frame.f_locals.get(name)
            if not _local(frame, name) or isinstance(value, _NO_DATA) or callable(value):
                continue
            batch = self.batch is not None and value is self.batch[0]
            found += self.batch[1] if batch and self.batch else self.named(leaves_of(value, self.keep), name)
        return found

    def near(self) -> tuple[tuple[Leaf, ...] | None, bool]:
        """What the expression reads that is being evaluated in the user's function, None inside a transform.

        And whether it reads no local variable but `self`, so that nothing of the sample is in it, nor its index.
        """
        if self.frame is None or not self.depth or not self.depth[-1]:
            return None, False
        path = self.plans.user.path(self.frame.f_code.co_filename) or ""
        expression = expression_at(self.frame.f_code, self.frame.f_lasti, self.whole(path))
        if expression is None:
            return None, False
        free = not any(_local(self.frame, name) for name in names_of(expression))
        return tuple(self.read_by(self.frame, expression)), free

    def read_by(self, frame: types.FrameType, expression: ast.AST) -> list[Leaf]:
        """The leaves that an expression reads; of a batch, only the parts that it reads of each sample."""
        found: list[Leaf] = []
        for name in names_of(expression):
            parts = parts_read(expression, name) if self.batch is not None and frame.f_locals.get(name) is self.batch[0] else None
            found += self.leaves(frame, (name,)) if parts is None else self.parts(parts)
        return found

    def parts(self, parts: set[Any]) -> list[Leaf]:
        assert self.batch is not None
        return [leaf for leaf, part in zip(self.batch[1], self.batch[2], strict=True) if part in parts]


def _local(frame: types.FrameType, name: str) -> bool:
    """Whether a name is a variable that may hold something of the sample: not `self`, nor one of an enclosing function."""
    return name in frame.f_locals and name not in ("self", "cls") and name not in frame.f_code.co_freevars


def _container(value: Any) -> bool:
    return isinstance(value, (dict, list)) and not is_leaf(value)


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)
