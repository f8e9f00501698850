"""Whether what a call gives leaves a function as it is, always: nothing in between looks at it, computes with it or keeps it.

    if self.transform is not None:            yes: it is only part of what is returned, and all that is returned has it
        image = self.transform(image)
    return {"image": image, "label": label}

    image = self.transform(image)             no: it may be something else by then, though not in the samples that were run
    if image.dtype == torch.uint8: ...

What is looked at is the text of the functions between a container of transforms and the sample that it is a part of. Needs no torch.
"""

from __future__ import annotations

import ast
import os.path
import sys
import types
from collections.abc import Iterator
from typing import Any

from splitter.trace_lines import node_of

_LEAVING = (ast.Return, ast.Yield)


def passes_on(frame: types.FrameType | None, until: types.CodeType) -> bool:
    """Whether each function from the frame out to the one of `until` only passes on what the call that it is in gives."""
    while frame is not None and frame.f_code is not until:
        if not _frame_passes_on(frame):
            return False
        frame = frame.f_back
    return frame is not None


def _frame_passes_on(frame: types.FrameType) -> bool:
    code = frame.f_code
    if code.co_name == "<listcomp>" or is_torchs(code):
        return True  # its place in the function around it is looked at; the wrappers of datasets do nothing with samples
    function = node_of(code)
    if function is None:
        return False
    place = _place(frame)
    makers = frozenset(name for name in code.co_names if only_holds(frame.f_globals.get(name)))
    if isinstance(function, ast.Lambda):
        return any(_is_at(part, place) for part in parts(function.body, makers))
    return flows_out(function, place, makers)


Place = tuple[int, int, int, int] | int  # of a call, or the line of it


def calls_at(frame: types.FrameType) -> list[ast.expr]:
    """The calls, or the one, that a frame is in; with Python 3.10 all those of its line."""
    function, place = node_of(frame.f_code), _place(frame)
    return [node for node in ast.walk(function) if isinstance(node, ast.expr) and _is_at(node, place)] if function is not None else []


def is_torchs(code: types.CodeType) -> bool:
    """Whether it is of torch's own datasets and loaders."""
    return os.path.join("torch", "utils", "data") in code.co_filename


def only_holds(value: Any) -> bool:
    """Whether it is a named tuple, which does nothing with what it is made of."""
    return isinstance(value, type) and tuple in value.__bases__ and hasattr(value, "_fields") and "__init__" not in vars(value)


def _place(frame: types.FrameType) -> Place:
    if sys.version_info >= (3, 11):
        line, end_line, column, end_column = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        if None not in (line, end_line, column, end_column):
            return (line or 0, column or 0, end_line or 0, end_column or 0)
    return frame.f_lineno


def _is_at(node: ast.expr, place: Place) -> bool:
    if isinstance(place, tuple):
        return (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset) == place
    return isinstance(node, (ast.Call, ast.Subscript, ast.ListComp)) and node.lineno <= place <= (node.end_lineno or 0)


Statement = ast.Assign | ast.AnnAssign | ast.Return | ast.Yield


def parts(value: ast.expr | None, makers: frozenset[str]) -> Iterator[ast.expr]:
    """What an expression gives, alone or in tuples, lists and dicts that it makes."""
    if value is None:
        return
    yield value
    inner: list[ast.expr] = []
    if isinstance(value, (ast.Tuple, ast.List)):
        inner = value.elts
    elif isinstance(value, ast.Dict):
        inner = value.values
    elif isinstance(value, ast.IfExp) and _guards(value.test, value.body):
        inner = [value.body]
    elif isinstance(value, ast.ListComp):
        inner = [value.elt]
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in makers:
        inner = [*value.args, *(keyword.value for keyword in value.keywords)]
    for part in inner:
        yield from parts(part, makers)


def _guards(test: ast.expr, call: ast.expr) -> bool:
    """Whether a test asks only if there is what the call calls: `self.transform is not None`."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.IsNot, ast.NotEq)) and len(test.ops) == 1:
        against = test.comparators[0]
        test = test.left if isinstance(against, ast.Constant) and against.value is None else test
    return isinstance(call, ast.Call) and ast.dump(test) == ast.dump(call.func)


def flows_out(function: ast.FunctionDef | ast.AsyncFunctionDef, place: Place, makers: frozenset[str] = frozenset()) -> bool:
    """Whether the value of the call at a place always goes into what the function returns or yields, and nowhere else.

    `makers`: names of classes that only hold what they are given.
    """
    return _Flow(function, makers).leaves(place)


class _Flow:
    """The way of one value through a function."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef, makers: frozenset[str]) -> None:
        self.nodes = list(ast.walk(function))
        self.parent = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.carriers: list[Statement] = [node for node in self.nodes if isinstance(node, Statement)]
        self.parts = {node: list(parts(node.value, makers)) for node in self.carriers}

    def leaves(self, place: Place) -> bool:
        found = [(node, part) for node in self.carriers for part in self.parts[node] if _is_at(part, place)]
        if len(found) != 1 or not self._always(*found[0]):
            return False
        made, part = found[0]
        reached: list[Statement] = [made]
        for node in reached:  # grows
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                put = [part] if node is made else [each for each in self.parts[node] if isinstance(each, ast.Name)]
                after = self._after(node, {_key(node, each) for each in put})
                if after is None or (node is not made and not self._around(node) <= self._around(made)):
                    return False
                reached += [other for other in after if all(other is not before for before in reached)]
        leaving = [node for node in self.carriers if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None]
        return all(any(node is other for other in reached) for node in leaving)

    def _always(self, made: Statement, part: ast.expr) -> bool:
        """Whether the function comes to the statement each time, or leaves before by raising, or hasn't got what is called."""
        for node in self._around(made):
            if isinstance(node, ast.If) and not (_guards(node.test, part) and any(self._within(made, stmt) for stmt in node.body)):
                return False
            if isinstance(node, (ast.For, ast.While)) and not any(isinstance(inner, ast.Yield) for inner in ast.walk(node)):
                return False
            if isinstance(node, (ast.Try, ast.FunctionDef, ast.Lambda, ast.AsyncFunctionDef)):
                return False
        return True

    def _around(self, node: ast.AST) -> set[ast.AST]:
        """The statements around one that decide whether it runs, and functions in the function."""
        found: set[ast.AST] = set()
        while (outer := self.parent.get(node)) is not None:
            deciding = isinstance(outer, (ast.If, ast.For, ast.While, ast.Match)) or (isinstance(outer, ast.Try) and outer.handlers)
            if deciding or (isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and outer in self.parent):
                found.add(outer)
            node = outer
        return found

    def _within(self, node: ast.AST, outer: ast.AST) -> bool:
        while node is not outer:
            if node not in self.parent:
                return False
            node = self.parent[node]
        return True

    def _after(self, statement: ast.Assign | ast.AnnAssign, keys: set[object]) -> list[Statement] | None:
        """The statements that go on with what one has bound; None when something else is done with it."""
        names = self._bound(statement)
        if names is None or not all(self._is_fresh(statement, name) for name in names):
            return None
        found = []
        for name in names:
            for node in self._mentions_after(statement, name):
                if isinstance(node.ctx, ast.Store):
                    return None
                carrier = next((one for one in self.carriers if any(part is node for part in self.parts[one])), None)
                if carrier is not None:
                    found.append(carrier)
                elif not self._is_other_part(node, keys):
                    return None
        return found

    def _bound(self, statement: ast.Assign | ast.AnnAssign) -> set[str] | None:
        """The names that a statement gives a value, or into which it puts one; None for attributes and more."""
        found: set[str] = set()
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                inner = part.value if isinstance(part, ast.Subscript) else part
                if not isinstance(inner, ast.Name) or (inner is not part and not self._is_made(inner.id)):
                    return None
                found.add(inner.id)
        return found

    def _is_made(self, name: str) -> bool:
        """Whether a name stands only for dicts and lists that the function makes itself: nobody else has them."""
        stored = [node for node in self.nodes if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)]
        owners = [self.parent[node] for node in stored]
        return bool(owners) and all(
            isinstance(one, (ast.Assign, ast.AnnAssign)) and isinstance(one.value, (ast.Dict, ast.List)) for one in owners
        )

    def _mentions_after(self, statement: ast.stmt, name: str) -> Iterator[ast.Name]:
        """Where a name stands when the statement has run: below it, and where loops around it read it."""
        loops = [node for node in self._around(statement) if isinstance(node, (ast.For, ast.While))]
        end = (statement.end_lineno or 0, statement.end_col_offset or 0)
        for node in self.nodes:
            if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Del) and not self._within(node, statement):
                again = isinstance(node.ctx, ast.Load) and any(self._within(node, loop) for loop in loops)
                if (node.lineno, node.col_offset) > end or again:
                    yield node

    def _is_other_part(self, name: ast.Name, keys: set[object]) -> bool:
        """`sample["label"] = ...`: another part of a dict that the function has made."""
        node = self.parent[name]
        if not isinstance(node, ast.Subscript) or node.value is not name or not isinstance(node.ctx, ast.Store):
            return False
        other = isinstance(node.slice, ast.Constant) and None not in keys and node.slice.value not in keys
        return other and not isinstance(self.parent[node], ast.AugAssign) and self._is_made(name.id)

    def _is_fresh(self, statement: ast.stmt, name: str) -> bool:
        """Whether a statement in a loop that reads what it binds reads what this turn of the loop has bound before it."""
        loops = [node for node in self._around(statement) if isinstance(node, (ast.For, ast.While))]
        reads = any(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) for node in ast.walk(statement))
        if not loops or not reads:
            return True
        inner = min(loops, key=lambda loop: (loop.end_lineno or 0) - loop.lineno)
        given = {node.id for node in ast.walk(inner.target) if isinstance(node, ast.Name)} if isinstance(inner, ast.For) else set()
        before = [one for one in inner.body if one.lineno < statement.lineno and isinstance(one, (ast.Assign, ast.AnnAssign))]
        return name in given or any(name in (self._bound(one) or ()) for one in before)


def _key(statement: ast.Assign | ast.AnnAssign, part: ast.expr) -> object:
    """The key under which a statement puts a part into a dict; None when that isn't a constant."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    key: ast.expr | None = target.slice if isinstance(target, ast.Subscript) else None
    if isinstance(statement.value, ast.Dict):
        key = next((key for key, value in zip(statement.value.keys, statement.value.values, strict=True) if value is part), None)
    return key.value if isinstance(key, ast.Constant) else None
