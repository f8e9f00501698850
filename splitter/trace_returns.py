"""Whether what a call gives leaves a function as it is: nothing in between looks at it, computes with it or keeps it.

    image = self.transform(image)             yes: it is only part of what is returned
    return {"image": image, "label": label}

    image = self.transform(image)             no: it may be something else by then, though not in the samples that were run
    if image.dtype == torch.uint8: ...

What is looked at is the text of the functions between a container of transforms and the sample that it is a part of. Needs no torch.
"""

from __future__ import annotations

import ast
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
    if code.co_name == "<listcomp>":
        return True  # its place in the function around it is looked at
    function = node_of(code)
    if function is None:
        return False
    place = _place(frame)
    makers = frozenset(name for name in code.co_names if _only_holds(frame.f_globals.get(name)))
    if isinstance(function, ast.Lambda):
        return any(_is_at(part, place) for part in _parts(function.body, makers))
    return flows_out(function, place, makers)


Place = tuple[int, int, int, int] | int  # of a call, or the line of it


def _only_holds(value: Any) -> bool:
    """Whether it is a named tuple, which does nothing with what it is made of."""
    return isinstance(value, type) and tuple in value.__bases__ and hasattr(value, "_fields") and "__init__" not in vars(value)


def _place(frame: types.FrameType) -> Place:
    if sys.version_info >= (3, 11):
        line, end_line, column, end_column = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        if None not in (line, end_line, column, end_column):
            return (line or 0, column or 0, end_line or 0, end_column or 0)
    return frame.f_lineno


def _is_at(node: ast.expr, place: Place) -> bool:
    if not isinstance(node, (ast.Call, ast.Subscript, ast.ListComp)):
        return False
    found = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
    return found == place if isinstance(place, tuple) else node.lineno <= place <= (node.end_lineno or 0)


def _parts(value: ast.expr | None, makers: frozenset[str]) -> Iterator[ast.expr]:
    """What an expression gives, alone or in tuples, lists and dicts that it makes."""
    if value is None:
        return
    yield value
    inner: list[ast.expr] = []
    if isinstance(value, (ast.Tuple, ast.List)):
        inner = value.elts
    elif isinstance(value, ast.Dict):
        inner = value.values
    elif isinstance(value, ast.IfExp):
        inner = [value.body, value.orelse]
    elif isinstance(value, ast.ListComp):
        inner = [value.elt]
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in makers:
        inner = [*value.args, *(keyword.value for keyword in value.keywords)]
    for part in inner:
        yield from _parts(part, makers)


def flows_out(function: ast.FunctionDef | ast.AsyncFunctionDef, place: Place, makers: frozenset[str] = frozenset()) -> bool:
    """Whether the value of the call at a place only goes into what the function returns or yields.

    `makers`: names of classes that only hold what they are given.
    """
    for node in ast.walk(function):
        if isinstance(node, (*_LEAVING, ast.Assign, ast.AnnAssign)) and any(_is_at(part, place) for part in _parts(node.value, makers)):
            return isinstance(node, _LEAVING) or _names_flow_out(function, node, makers)
    return False


def _names_flow_out(function: ast.FunctionDef | ast.AsyncFunctionDef, made: ast.Assign | ast.AnnAssign, makers: frozenset[str]) -> bool:
    """Whether the names that a statement binds, and those bound to them, go nowhere else."""
    todo: list[ast.Assign | ast.AnnAssign] = [made]
    done: set[tuple[int, str]] = set()
    while todo:
        statement = todo.pop()
        names = _bound(function, statement)
        if names is None:
            return False
        for name in names - {name for line, name in done if line == statement.lineno}:
            done.add((statement.lineno, name))
            if not _is_fresh(function, statement, name):
                return False
            for read in _reads_after(function, statement, name):
                found = _carrier(function, read, makers)
                if found is None:
                    return False
                if isinstance(found, (ast.Assign, ast.AnnAssign)):
                    todo.append(found)
    return True


def _bound(function: ast.AST, statement: ast.Assign | ast.AnnAssign) -> set[str] | None:
    """The names that a statement gives a value, or into which it puts one; None for attributes and more."""
    found: set[str] = set()
    for target in _targets(statement):
        for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            inner = part.value if isinstance(part, ast.Subscript) else part
            if not isinstance(inner, ast.Name) or (inner is not part and not _is_made(function, inner.id)):
                return None
            found.add(inner.id)
    return found


def _is_made(function: ast.AST, name: str) -> bool:
    """Whether a name stands only for dicts and lists that the function makes itself: nobody else has them."""
    made = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and any(isinstance(t, ast.Name) and t.id == name for t in _targets(node))
    ]
    return bool(made) and all(isinstance(value, (ast.Dict, ast.List)) for value in made)


def _targets(statement: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def _reads_after(function: ast.AST, statement: ast.stmt, name: str) -> Iterator[ast.Name]:
    """Where a name is read when the statement has run: below it, and in the loops around it anywhere else."""
    loops = [node for node in ast.walk(function) if isinstance(node, (ast.For, ast.While)) and _encloses(node, statement)]
    own = set(map(id, ast.walk(statement)))
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Del) and id(node) not in own:
            if _is_rebound(function, node):
                continue
            after = (node.lineno, node.col_offset) > (statement.end_lineno or 0, statement.end_col_offset or 0)
            if after or any(_encloses(loop, node) for loop in loops):
                yield node


def _is_rebound(function: ast.AST, name: ast.Name) -> bool:
    """Whether a name is given something else here, `x = ...`, or a dict that the function has made gets another part, `sample[key] = ...`."""
    stored = [node for node in ast.walk(function) if isinstance(node, ast.Subscript) and node.value is name]
    target = stored[0] if stored else name
    if not isinstance(target.ctx, ast.Store) or any(
        isinstance(node, ast.AugAssign) and node.target is target for node in ast.walk(function)
    ):
        return False
    return not stored or _is_made(function, name.id)


def _is_fresh(function: ast.AST, statement: ast.stmt, name: str) -> bool:
    """Whether a statement in a loop that reads what it binds reads what this turn of the loop has bound before it."""
    loops = [node for node in ast.walk(function) if isinstance(node, (ast.For, ast.While)) and _encloses(node, statement)]
    reads = any(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) for node in ast.walk(statement))
    if not loops or not reads:
        return True
    inner = min(loops, key=lambda loop: (loop.end_lineno or 0) - loop.lineno)
    before = [stmt for stmt in inner.body if stmt.lineno < statement.lineno and isinstance(stmt, (ast.Assign, ast.AnnAssign))]
    given = {node.id for node in ast.walk(inner.target) if isinstance(node, ast.Name)} if isinstance(inner, ast.For) else set()
    return name in given or any(name in (_bound(function, stmt) or ()) for stmt in before)


def _carrier(function: ast.AST, read: ast.Name, makers: frozenset[str]) -> ast.Return | ast.Yield | ast.Assign | ast.AnnAssign | None:
    """The statement that a name which is read goes on with as it is; None when something is done with it."""
    for node in ast.walk(function):
        if isinstance(node, (ast.Return, ast.Yield, ast.Assign, ast.AnnAssign)) and any(
            part is read for part in _parts(node.value, makers)
        ):
            return node
    return None


def _encloses(outer: ast.AST, inner: ast.AST) -> bool:
    return any(node is inner for node in ast.walk(outer))
