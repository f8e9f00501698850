"""Whether every call of something, anywhere in the user's files, passes on what it gives: the samples that ran have seen only some of them.

    x = self.transform(image)                        samples have come here, and it leaves as it is
    if index == 7:
        level = self.transform(blank).mean()         they have not come here, where the worker's shorter transform would be seen

`Way` is how something is called: by an attribute, a name, an index. What isn't known here to be harmless counts as harmful. Needs no torch.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from splitter.trace_lines import User, tree_of
from splitter.trace_returns import calls_at, flows_out, is_torchs, only_holds, parts

LOOKING = frozenset({"len", "isinstance", "type", "repr", "str", "print", "hasattr", "callable", "id", "bool"})
_DEEPEST = 8  # objects inside one another
_LONGEST = 64  # of a list or dict whose items are looked at
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Way:
    """`kind` "attribute": `self.transform(x)`; "name": `transform(x)`; "function": both, of a function of the files; "items":
    `self.base[i]`, `base[i]`, `self[i]`. `classes`: in whose methods `self` is such an object, None for all.
    """

    kind: str
    name: str
    classes: frozenset[str] | None = None


class Mentions:
    """The text of one file."""

    def __init__(self, tree: ast.Module, makers: frozenset[str]) -> None:
        self.nodes = list(ast.walk(tree))
        self.parent = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.makers = makers

    def harmless(self, way: Way) -> bool:
        """Whether nothing in the file calls it and does something else with the result than to pass it on."""
        return all(self._harmless(way, node) for node in self._of(way))

    def _of(self, way: Way) -> Iterator[ast.expr]:
        """Where it is mentioned to be read."""
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and node.attr == way.name and way.kind != "name" and isinstance(node.ctx, ast.Load):
                owner = self._owner(node)
                if not _is_self(node.value) or way.classes is None or owner is None or owner in way.classes:
                    yield node
            elif isinstance(node, ast.Name) and node.id == way.name and isinstance(node.ctx, ast.Load):
                if way.kind in ("name", "function"):
                    yield node
                elif way.kind == "items" and (not _is_self(node) or way.classes is None or self._owner(node) in way.classes):
                    yield node
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
                if any(isinstance(given, ast.Constant) and given.value == way.name for given in node.args):
                    yield node

    def _owner(self, node: ast.AST) -> str | None:
        """The innermost class around a node."""
        while (outer := self.parent.get(node)) is not None:
            if isinstance(outer, ast.ClassDef):
                return outer.name
            node = outer
        return None

    def _harmless(self, way: Way, node: ast.expr) -> bool:
        parent = self.parent[node]
        if isinstance(node, ast.Call):
            return False  # getattr
        if isinstance(parent, ast.Call) and parent.func is node:
            return way.kind == "items" or self._passed_on(parent)
        if isinstance(parent, ast.Subscript) and parent.value is node and way.kind == "items":
            return not isinstance(parent.ctx, ast.Load) or self._passed_on(parent)
        if isinstance(node, ast.Name) and way.kind != "function":
            return True  # it is handed on: whoever keeps it is looked at by the name of what it is kept in
        if way.kind == "items" and isinstance(parent, ast.Attribute):
            return True
        return self._looked_at(node, parent) or (way.kind == "function" and self._given_to_class(node, parent))

    def _looked_at(self, node: ast.expr, parent: ast.AST) -> bool:
        """`if self.transform is not None`, `len(self.base)`, `f"{self.transform}"`."""
        while isinstance(parent, (ast.BoolOp, ast.UnaryOp)):
            node, parent = parent, self.parent[parent]
        if isinstance(parent, ast.Compare):
            return all(isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)) for op in parent.ops)
        if isinstance(parent, (ast.If, ast.IfExp, ast.While, ast.Assert)):
            return parent.test is node
        if isinstance(parent, ast.Call) and node in parent.args:
            return isinstance(parent.func, ast.Name) and parent.func.id in LOOKING
        return isinstance(parent, ast.FormattedValue)

    def _given_to_class(self, node: ast.expr, parent: ast.AST) -> bool:
        """`Lambda(function)`, `Photos(root, transform=function)`: the object that keeps it is looked at by its own names."""
        call = self.parent[parent] if isinstance(parent, ast.keyword) else parent
        while isinstance(call, (ast.List, ast.Tuple)):
            call = self.parent[call]
        if not isinstance(call, ast.Call) or call.func is node:
            return False
        name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
        return name[:1].isupper()

    def _passed_on(self, call: ast.expr) -> bool:
        """Whether what a call gives goes out of its function and nowhere else. At the level of a module it is the trainer's own."""
        node: ast.AST = call
        while not isinstance(node, _FUNCTIONS):
            if node not in self.parent:
                return True
            node = self.parent[node]
        if isinstance(node, ast.Lambda):
            return any(part is call for part in parts(node.body, self.makers))
        return flows_out(node, (call.lineno, call.col_offset, call.end_lineno or 0, call.end_col_offset or 0), self.makers)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def used_alike(frame: types.FrameType | None, until: types.CodeType, user: User, held: frozenset[Way]) -> bool:
    """Whether what the frames from here out to the one of `until` call is called nowhere else with another use of what it gives.

    `held`: how else the innermost of it can be called (see `holders`).
    """
    ways = set(held)
    while frame is not None and frame.f_code is not until:
        if not is_torchs(frame.f_code):
            found = [*_calls(frame), *called_as(frame, user)]
            if None in found:
                return False
            ways.update(way for way in found if way is not None)
        frame = frame.f_back
    files = _files(user)
    return all(mentions.harmless(way) for mentions in files for way in ways)


def _calls(frame: types.FrameType) -> Iterator[Way | None]:
    """How a function calls what it is just calling; None for what can't be looked for."""
    classes = _classes(frame.f_locals.get("self"))
    return (_way(call, frame.f_code, classes) for call in calls_at(frame))


def called_as(frame: types.FrameType, user: User) -> frozenset[Way]:
    """How a function can be called itself."""
    code, me = frame.f_code, frame.f_locals.get("self")
    if code.co_name == "__getitem__":
        return frozenset({Way("items", "self", _classes(me))})
    if user.path(code.co_filename) is None or code.co_name.startswith(("__", "<")):
        return frozenset()
    return frozenset({Way("function" if me is None else "attribute", code.co_name, _classes(me))})


def _classes(value: Any) -> frozenset[str] | None:
    return None if value is None else frozenset(base.__name__ for base in type(value).__mro__)


def _way(call: ast.expr, code: types.CodeType, classes: frozenset[str] | None) -> Way | None:
    while isinstance(call, ast.ListComp):
        call = call.elt
    if not isinstance(call, (ast.Subscript, ast.Call)):
        return None
    kind = "items" if isinstance(call, ast.Subscript) else "attribute"
    callee = call.value if isinstance(call, ast.Subscript) else call.func
    if isinstance(callee, ast.Attribute):
        return Way(kind, callee.attr, classes if _is_self(callee.value) else None)
    if not isinstance(callee, ast.Name):
        return None
    if kind == "items":
        return Way(kind, callee.id, classes)
    return None if callee.id in code.co_varnames or callee.id in code.co_cellvars else Way("name", callee.id)


def holders(root: Any, target: Any, user: User) -> frozenset[Way]:
    """The attributes, closures and globals that hold an object, as far as they can be reached from `root`, or from methods of what can."""
    found: set[Way] = set()
    seen: set[int] = set()
    todo: list[tuple[Any, int]] = [(root, 0)]
    while todo:
        value, depth = todo.pop()
        if id(value) in seen or depth > _DEEPEST or isinstance(value, (str, bytes, int, float, type, types.ModuleType)):
            continue
        seen.add(id(value))
        todo += [(method, depth + 1) for method in _methods(value, user)]
        for way, inner in _held(value):
            within = inner if isinstance(inner, (list, tuple)) else list(inner.values()) if isinstance(inner, dict) else []
            parts = [inner, *(within if len(within) <= _LONGEST else [])]
            if any(part is target for part in parts):
                found.add(way)
            todo += [(part, depth + 1) for part in parts]
    return frozenset(found)


def _methods(value: Any, user: User) -> Iterator[types.FunctionType]:
    """The methods of an object that are the user's."""
    for base in type(value).__mro__:
        for member in vars(base).values():
            if isinstance(member, types.FunctionType) and user.path(member.__code__.co_filename) is not None:
                yield member


def _held(value: Any) -> Iterator[tuple[Way, Any]]:
    if isinstance(value, types.MethodType):
        yield from ((Way("attribute", value.__name__), part) for part in (value.__self__, value.__func__))
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield Way("name", name), cell.cell_contents
            except ValueError:  # not yet given a value
                continue
        yield from ((Way("name", name), value.__globals__[name]) for name in value.__code__.co_names if name in value.__globals__)
    else:
        yield from ((Way("attribute", name, _classes(value)), part) for name, part in getattr(value, "__dict__", {}).items())


def _files(user: User) -> list[Mentions]:
    """The files of the user's that have been imported."""
    found: dict[str, Mentions] = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path not in found and user.path(path) is not None:
            tree = tree_of(path)
            if tree is not None:
                makers = frozenset(name for name, value in list(vars(module).items()) if only_holds(value))
                found[path] = Mentions(tree, makers)
    return list(found.values())
