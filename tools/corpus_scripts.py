"""Chooses the training scripts of a source tree. Nothing of the tree is executed.

A `.py` file is chosen when all of these hold:

- It parses with this Python, and no folder on the way to it is hidden or called `__pycache__`, `node_modules` or `site-packages`.
- It runs something. Either it has the main guard (a comparison of `__name__` with "__main__" in an `if` at the top level), or its top-level
  code, which includes the branches of `if`, `try` and `with` there, has a `for`, `while` or `with`, or a statement that calls a function
  defined in the file, such as `main()`.
- It or a local module that it reaches by imports constructs a DataLoader. That is a file which calls or subclasses `DataLoader` as
  imported from torch.utils.data, under its own or another name, or which imports torch and calls or subclasses `<anything>.DataLoader`.
  Local modules are found as Python would find them with the script's folder first on sys.path, imports in functions included.
- It doesn't import `splitter_runtime`: what splitter wrote is no script.
"""

from __future__ import annotations

import ast
import functools
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from splitter.ir import SourceFile
from splitter.read import Module, imported_names
from splitter.roots import locate

SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})
CLASS = "DataLoader"
BLOCKS = (ast.If, ast.Try, ast.With, ast.AsyncWith)
WORKS = (ast.For, ast.While, ast.With)


@dataclass(frozen=True)
class Facts:
    """What one file says: whether it constructs loaders, whether it does something when run, its import statements."""

    constructs: bool
    runs: bool
    imports: ast.Module


def find_scripts(folder: Path) -> list[Path]:
    """The scripts below `folder`, by the rules above, sorted. Each file is parsed once."""
    return [path for path in sorted(_files(folder)) if _is_script(path)]


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(".")]
        yield from (Path(root, name) for name in names if name.endswith(".py"))


def _is_script(path: Path) -> bool:
    found = facts(path)
    if found is None or not found.runs or "splitter_runtime" in _names(found, ""):
        return False
    return any(one.constructs for one in _reached(path))


def _reached(script: Path) -> Iterator[Facts]:
    """The facts of a script and of every local module that it reaches."""
    pending = [(script, "")]
    seen = {script}
    while pending:
        path, package = pending.pop()
        found = facts(path)
        if found is None:
            continue
        yield found
        for name in _names(found, package):
            local = locate(script.parent, name)
            if local is not None and local not in seen:
                seen.add(local)
                pending.append((local, name if local.name == "__init__.py" else name.rpartition(".")[0]))


def _names(found: Facts, package: str) -> Iterable[str]:
    return set(imported_names(Module("", SourceFile("", "", ""), found.imports, package, [])))


@functools.cache
def facts(path: Path) -> Facts | None:
    """Facts of one file; None when it can't be read or parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    imports: list[ast.stmt] = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return Facts(_constructs(tree), _runs(tree), ast.Module(imports, []))


def _constructs(tree: ast.Module) -> bool:
    own: set[str] = set()
    torch = False
    used: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            torch |= any(alias.name.split(".")[0] == "torch" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "torch":
            torch = True
            if (node.module or "").startswith("torch.utils.data"):
                own |= {alias.asname or CLASS for alias in node.names if alias.name in (CLASS, "*")}
        elif isinstance(node, ast.Call):
            used.append(node.func)
        elif isinstance(node, ast.ClassDef):
            used += node.bases
    return torch and any(
        (isinstance(node, ast.Attribute) and node.attr == CLASS) or (isinstance(node, ast.Name) and node.id in own) for node in used
    )


def _runs(tree: ast.Module) -> bool:
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return any(_guards(node) or isinstance(node, WORKS) or _calls(node, defined) for node in _top_level(tree.body))


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, BLOCKS):
            yield from _top_level(node.body)
            yield from _top_level(getattr(node, "orelse", []))
            yield from _top_level(getattr(node, "finalbody", []))
            for handler in getattr(node, "handlers", []):
                yield from _top_level(handler.body)


def _guards(node: ast.stmt) -> bool:
    if not isinstance(node, ast.If):
        return False
    names = {inner.id for inner in ast.walk(node.test) if isinstance(inner, ast.Name)}
    values = {inner.value for inner in ast.walk(node.test) if isinstance(inner, ast.Constant)}
    return "__name__" in names and "__main__" in values


def _calls(node: ast.stmt, defined: set[str]) -> bool:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    return isinstance(node.value.func, ast.Name) and node.value.func.id in defined
