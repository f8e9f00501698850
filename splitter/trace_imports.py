"""What a script imports first, imported while nothing else is known of it; in the child process of `trace`.

    \"\"\"Train.\"\"\"
    import os, torch                        imported
    from torchvision import transforms      imported
    from mine import Photos                 the first that is the script's own, or that isn't known: nothing from here on

Only where that can't be told from importing it when the script runs: nothing of the script has run before these statements.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable

KNOWN = sys.stdlib_module_names | {"torch", "torchvision", "numpy", "PIL"}


def import_first(script: str) -> None:
    """Run the imports that a script begins with. Whatever goes wrong goes wrong again when the script runs."""
    folder = os.path.dirname(os.path.realpath(script))
    if os.path.exists(os.path.join(folder, "__init__.py")):
        return  # a module of a package, which may be imported before it
    try:
        with open(script, "rb") as file:
            tree = ast.parse(file.read(), script)
    except (OSError, SyntaxError, ValueError):
        return
    found = first(tree, lambda name: name in KNOWN and not own(folder, name))
    if not found:
        return
    sys.path[0] = folder
    try:
        exec(compile(ast.Module(found, []), script, "exec", dont_inherit=True), {"__name__": "__main__"})
    except Exception:  # of a library's import: the script says it
        return


def first(tree: ast.Module, known: Callable[[str], bool]) -> list[ast.stmt]:
    """The imports before any other statement, as long as all of what they import is known."""
    found: list[ast.stmt] = []
    for statement in tree.body:
        match statement:
            case ast.Expr(ast.Constant(str())) | ast.ImportFrom(module="__future__"):
                continue
            case ast.Import(names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                modules = [module]
            case _:
                break
        if not all(known(module.partition(".")[0]) for module in modules):
            break
        found.append(statement)
    return found


def own(folder: str, name: str) -> bool:
    """Whether there is a module of this name beside the script, which comes before a library's."""
    return any(os.path.exists(os.path.join(folder, name + ending)) for ending in ("", ".py", ".pyc", ".so"))
