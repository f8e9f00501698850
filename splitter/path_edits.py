"""What a program puts on sys.path, as far as its text tells.

here = osp.dirname(__file__)
def add_path(path):                            ("front", "/home/me/project/tools/../lib")
    sys.path.insert(0, path)            ->
add_path(osp.join(here, "..", "lib"))
sys.path.append("core")                        ("end", "core")
"""

from __future__ import annotations

import ast
import os.path
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from splitter.scopes import Names

Value = str | Path | tuple["Value", ...]
Known = Mapping[str, Value]
PATHS: dict[str, Callable[..., str]] = {
    f"os.path.{function.__name__}": function
    for function in (os.path.join, os.path.abspath, os.path.dirname, os.path.realpath, os.path.normpath, os.path.expanduser)
}
WHERE: dict[object, str] = {0: "front", 1: "second"}


def path_edits(tree: ast.Module, names: Names, file: str) -> Iterator[tuple[ast.stmt, str, str | None]]:
    """Every statement that changes sys.path, with where it puts which folder; None for one that the text doesn't give.

    `file` is what `__file__` is there: absolute. A function that is given the folder counts with every call of it.
    """
    reader = _Reader(tree, names, file)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Expr, ast.AugAssign, ast.Assign)):
            for where, given in reader.edit(node):
                for value in reader.values(given):
                    yield node, where, None if value is None else os.fspath(value)


class _Reader:
    def __init__(self, tree: ast.Module, names: Names, file: str) -> None:
        self.tree = tree
        self.names = names
        self.file = file

    def edit(self, stmt: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
        """Where a statement puts the value of which expression."""
        if isinstance(stmt, ast.AugAssign) and self.dotted(stmt.target) == "sys.path":
            yield from (("end", item) for item in _items(stmt.value))
        call = stmt.value if isinstance(stmt, ast.Expr) else None
        if not isinstance(call, ast.Call) or not call.args:
            return
        name = self.dotted(call.func)
        if name == "sys.path.append":
            yield "end", call.args[0]
        elif name == "sys.path.extend":
            yield from (("end", item) for item in _items(call.args[0]))
        elif name == "sys.path.insert" and len(call.args) == 2:
            index = call.args[0]
            yield WHERE.get(index.value, "second") if isinstance(index, ast.Constant) else "second", call.args[1]

    def values(self, expr: ast.expr) -> Iterator[str | Path | None]:
        """The values of an expression: one, or one for each call of the function whose parameter it uses."""
        function = next((up for up in self.names.ancestors(expr) if isinstance(up, ast.FunctionDef)), None)
        parameters = [arg.arg for arg in function.args.args] if function else []
        used = {node.id for node in ast.walk(expr) if isinstance(node, ast.Name)} & set(parameters)
        calls: list[Known] = [{}]
        if function is not None and used:
            calls = [
                {name: value for name, arg in zip(parameters, call.args, strict=False) if (value := self.value(arg, {})) is not None}
                for call in ast.walk(self.tree)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == function.name
            ]
        for known in calls:
            value = self.value(expr, known)
            yield None if isinstance(value, tuple) else value

    def value(self, expr: ast.expr, known: Known, depth: int = 0) -> Value | None:
        """A path or string that the text gives; a tuple for `.parents`."""
        if depth > 12:
            return None
        match expr:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id=name):
                return known[name] if name in known else self._name(expr, depth)
            case ast.BinOp(left=left, op=ast.Add() | ast.Div(), right=right):
                one, other = self.value(left, known, depth + 1), self.value(right, known, depth + 1)
                if isinstance(one, str) and isinstance(other, str) and isinstance(expr.op, ast.Add):
                    return one + other
                if isinstance(one, Path) and isinstance(other, (str, Path)) and isinstance(expr.op, ast.Div):
                    return one / other
            case ast.Attribute(value=base, attr="parent" | "parents" as attribute):
                path = self.value(base, known, depth + 1)
                if isinstance(path, Path):
                    return path.parent if attribute == "parent" else tuple(path.parents)
            case ast.Subscript(value=base, slice=ast.Constant(value=int(index))):
                parents = self.value(base, known, depth + 1)
                if isinstance(parents, tuple) and index < len(parents):
                    return parents[index]
            case ast.Call(func=func, args=args, keywords=[]):
                return self._call(func, [self.value(arg, known, depth + 1) for arg in args], known, depth)
        return None

    def _name(self, expr: ast.Name, depth: int) -> Value | None:
        if expr.id == "__file__":
            return self.file
        scope = self.names.scope_of[expr].lookup(expr.id)
        bindings = scope.bindings[expr.id] if scope is not None else []
        if len(bindings) != 1 or bindings[0].kind != "assign" or bindings[0].path or bindings[0].value is None:
            return None
        return self.value(bindings[0].value, {}, depth + 1)

    def _call(self, func: ast.expr, given: list[Value | None], known: Known, depth: int) -> Value | None:
        plain = [value for value in given if isinstance(value, (str, Path))]
        name = self.dotted(func)
        if len(plain) != len(given):
            return None
        if name in PATHS and plain:
            return PATHS[name](*plain)
        if name in ("pathlib.Path", "pathlib.PurePath") and plain:
            return Path(*plain)
        if name == "builtins.str" and len(plain) == 1:
            return str(plain[0])
        if name in ("os.getcwd", "pathlib.Path.cwd"):
            return "." if name == "os.getcwd" else Path()
        if isinstance(func, ast.Attribute) and func.attr in ("resolve", "absolute", "joinpath", "as_posix"):
            base = self.value(func.value, known, depth + 1)
            if isinstance(base, Path):
                return base.joinpath(*plain) if func.attr == "joinpath" else base.as_posix() if func.attr == "as_posix" else base
        return None

    def dotted(self, expr: ast.expr) -> str:
        """The library name of an expression, by the module's imports; "" when it is something else."""
        if isinstance(expr, ast.Attribute):
            base = self.dotted(expr.value)
            return f"{base}.{expr.attr}" if base else ""
        if not isinstance(expr, ast.Name):
            return ""
        scope = self.names.scope_of[expr].lookup(expr.id)
        if scope is None:
            return f"builtins.{expr.id}"
        origins = {binding.origin.replace(":", ".") if binding.origin else "" for binding in scope.bindings[expr.id]}
        return origins.pop() if len(origins) == 1 else ""


def _items(expr: ast.expr) -> list[ast.expr]:
    return expr.elts if isinstance(expr, (ast.List, ast.Tuple)) else [expr]
