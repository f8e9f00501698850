"""Containers of transforms (Compose, Sequential): finds them, and has their elements tell when they are called.

    Compose([RandomCrop(32), ToTensor()])    ->    Compose([Element(RandomCrop(32)), Element(ToTensor())]), for a while

Runs in the child process only.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

from splitter.ir import Span
from splitter.knowledge_ops import CHOOSING, IN_TURN
from splitter.trace_events import Seen
from splitter.trace_lines import User, elements_of
from splitter.trace_links import Chain
from splitter.trace_steps import Plans, Tracker

_DEEPEST = 8
_LONGEST = 64  # of a list or dictionary whose elements are looked at


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

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.__dict__["_traced"][0])

    def __repr__(self) -> str:
        return repr(self.__dict__["_traced"][0])


def name_of(callable_: Any) -> str:
    """How a person calls a transform."""
    name = getattr(callable_, "__qualname__", None) or type(callable_).__name__
    return str(name).rsplit("<locals>.", 1)[-1]


def find_containers(*roots: Any) -> list[Any]:
    """The containers of transforms that can be reached from a dataset or a collate function, in a fixed order."""
    found: list[Any] = []
    seen: set[int] = set()
    todo = [(root, 0) for root in reversed(roots)]
    while todo:
        value, depth = todo.pop()
        if id(value) in seen or depth > _DEEPEST or isinstance(value, (str, bytes, int, float, types.ModuleType)) or value is None:
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
        return list(value) if len(value) <= _LONGEST else []
    if isinstance(value, dict):
        return list(value.values()) if len(value) <= _LONGEST else []
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
                store[key] = Element(element, step, tracker.call_link if isinstance(container, Chain) else tracker.call)
                undo.append(functools.partial(operator.setitem, store, key, element))
        yield
    finally:
        for put_back in reversed(undo):
            put_back()


def _spans(container: Any, inside: list[Any], plans: Plans) -> list[Span | None]:
    """Where the elements stand in the source: in the call that made the container, or where they are defined."""
    if isinstance(container, Chain):
        return list(container.tail.elements)
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
