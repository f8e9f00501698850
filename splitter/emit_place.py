"""Where a program imports the runtime.

import os                                 import os
import torch                              import torch
LR = 0.1                          ->
                                          import splitter_runtime

                                          splitter_runtime.program("train_worker.py", ...)

                                          LR = 0.1
"""

from __future__ import annotations

import ast

from splitter.splice import Grid

# Calls that do the same when they are made a second time.
REPEATABLE = frozenset(
    """sys.path.insert sys.path.append warnings.filterwarnings warnings.simplefilter os.environ.setdefault logging.basicConfig
    logging.getLogger matplotlib.use matplotlib.pyplot.switch_backend random.seed numpy.random.seed torch.manual_seed
    torch.set_num_threads torch.set_default_dtype torch.set_float32_matmul_precision cv2.setNumThreads""".split()
)

LIGHT = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Delete, ast.Assert)


def place(grid: Grid, before: int, *, early: bool) -> int:
    """The line after which the runtime is imported; 0 is the top of the file.

    That is after the last import of the leading block, or right after docstring and `__future__` when `early`.
    `before` is the first line with an edit: the runtime must be there by then. What stands before the place sees the
    trainer's own `__file__`, so a script that reads it up there gets the early place.
    """
    body = grid.tree.body
    head = 0
    while head < len(body) and _must_be_first(body[head], head):
        head += 1
    last = head
    for index in range(head, len(body)):
        statement = body[index]
        if _last_line(statement) >= before or not _light(statement):
            break
        if _imports(statement):
            last = index + 1
    if early or last == head or any(_names(statement, "__file__") for statement in body[head:last]):
        last = head
    if last:
        return _whole_lines(body, last)
    return _first_line(body[0]) - 1 if body else len(grid.lines)


def repeatable(grid: Grid, after: int) -> bool:
    """Whether what stands up to that line may run twice in one process: imports, constants, and calls that are known to be so.

    A local worker that is forked there runs its own copy of some of these statements once more.
    """
    head = [statement for statement in grid.tree.body if _last_line(statement) <= after]
    names: dict[str, str] = {}
    for statement in head:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                names.update({alias.asname: alias.name for alias in node.names if alias.asname})
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return all(_is_repeatable(statement, names) for statement in head)


def _is_repeatable(statement: ast.stmt, names: dict[str, str]) -> bool:
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass):
        return True
    if isinstance(statement, ast.If | ast.Try):
        inner = [part for part in ast.iter_child_nodes(statement) if isinstance(part, ast.stmt)]
        inner += [part for handler in getattr(statement, "handlers", ()) for part in handler.body]
        return all(_is_repeatable(part, names) for part in inner)
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return statement.value is None or _is_constant(statement.value) or _is_known_call(statement.value, names)
    return isinstance(statement, ast.Expr) and (_is_constant(statement.value) or _is_known_call(statement.value, names))


def _is_constant(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def _is_known_call(value: ast.expr, names: dict[str, str]) -> bool:
    if not isinstance(value, ast.Call):
        return False
    first, _, rest = ast.unparse(value.func).partition(".")
    return ".".join(filter(None, (names.get(first, first), rest))) in REPEATABLE


def _must_be_first(statement: ast.stmt, index: int) -> bool:
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return True
    return (
        index == 0
        and isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _light(statement: ast.stmt) -> bool:
    """Statements that may stand between the imports of one block."""
    if isinstance(statement, ast.If | ast.Try | ast.With):
        return _imports(statement)
    return isinstance(statement, LIGHT)


def _imports(statement: ast.stmt) -> bool:
    """Whether a top-level statement imports something that later ones need (the `if __name__` block doesn't count)."""
    if isinstance(statement, ast.If) and _names(statement.test, "__name__"):
        return False
    if isinstance(statement, ast.If | ast.Try | ast.With):
        return any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(statement))
    return isinstance(statement, ast.Import | ast.ImportFrom)


def _names(node: ast.AST, name: str) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(node))


def _first_line(statement: ast.stmt) -> int:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return min([statement.lineno, *(decorator.lineno for decorator in statement.decorator_list)])
    return statement.lineno


def _last_line(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _whole_lines(body: list[ast.stmt], count: int) -> int:
    """The last line of the first `count` statements and of those that share a line with them."""
    line = _last_line(body[count - 1])
    for statement in body[count:]:
        if statement.lineno > line:
            break
        line = max(line, _last_line(statement))
    return line
