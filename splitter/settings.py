"""Process-wide switches of libraries that the script sets, and that moved code obeys.

torch.set_flush_denormal(True)                 carried to the worker's module level
ImageFile.LOAD_TRUNCATED_IMAGES = True         carried when the moved code uses PIL
sys.path.insert(0, "lib")                      stays: both programs are told where the modules are
sys.path.insert(0, os.environ["LIB"])          carried, where the text doesn't give the folder
torch.backends.cudnn.benchmark = True          stays: it is about a device
torch.set_default_dtype(torch.float64)         the runtime sends it with every construction
torch.set_default_device("cuda")               the runtime refuses it, when the script does it after all
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from splitter.effects import Effects
from splitter.find import Found
from splitter.ir import Diagnostic
from splitter.order import happens_before
from splitter.read import Module, statements
from splitter.resolve import Library
from splitter.slice import Slicer

STAYS = (
    "torch.backends",
    "torch.cuda",
    "torch.multiprocessing",
    "torch.distributed",
    "torch.utils",
    "torch.nn",
    "torch.optim",
    "torch.set_printoptions",
)
# What the runtime itself sends (splitter_runtime.ambient), so that it is right at every moment.
SENT = (
    "torch.set_default_dtype",
    "torch.set_default_tensor_type",
    "torch.set_default_device",
    "torch.set_grad_enabled",
    "torch.set_num_threads",
    "torch.use_deterministic_algorithms",
)


def settings(found: Found, effects: Effects, slicers: list[Slicer]) -> tuple[list[ast.stmt], Diagnostic | None]:
    """The statements of the script that set switches for these slices, with the imports they need; or why one can't be carried."""
    entry = found.program.entry
    used = {"torch", "sys"} | {package for slicer in slicers for package in _packages(found, slicer)}
    wanted: dict[int, ast.stmt] = {}
    for stmt, names in _switches(found, effects, entry):
        if not any(name.split(".")[0] in used and not name.startswith((*STAYS, *SENT)) for name in names):
            continue
        before = all(happens_before(found.resolver, entry, stmt, slicer.module, slicer.at) for slicer in slicers)
        if not before or not _unconditional(entry, stmt) or not _constant(found, entry, stmt):
            return [], Diagnostic("S319", entry.span(stmt), (("what", f"`{entry.text(stmt)}`"),))
        wanted[id(stmt)] = stmt
        wanted.update((id(top), top) for top in _imports(entry, stmt))
    return list(wanted.values()), None


def _switches(found: Found, effects: Effects, entry: Module) -> Iterator[tuple[ast.stmt, list[str]]]:
    for stmt in statements(entry.tree):
        assigned = isinstance(stmt, ast.Assign) and any(isinstance(target, ast.Attribute) for target in stmt.targets)
        if not assigned and not (isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call)):
            continue
        names = [name for fact in effects.of(entry, stmt) if fact.effect == "setting" and (name := _name(found, entry, fact.node))]
        if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
            name = found.resolver.library(entry, stmt.value.func) or ""
            names += [name] if name.startswith("sys.path.") and id(stmt) not in found.program.known_edits else []
        if names:
            yield stmt, names


def _name(found: Found, entry: Module, node: ast.AST) -> str | None:
    if isinstance(node, ast.Call):
        return found.resolver.library(entry, node.func)
    if isinstance(node, ast.Attribute):
        base = found.resolver.library(entry, node.value)
        return f"{base}.{node.attr}" if base else None
    return None


def _packages(found: Found, slicer: Slicer) -> Iterator[str]:
    carried = slicer.carried
    roots = [(slicer.module, slicer.at), *((slicer.module, stmt) for stmt in slicer.body.values()), *carried.statements.values()]
    for module, root in roots:
        for node in ast.walk(root):
            if isinstance(node, (ast.Name, ast.Attribute)) and node in module.names.scope_of and isinstance(node.ctx, ast.Load):
                yield (found.resolver.library(module, node) or "").split(".")[0]


def _unconditional(entry: Module, stmt: ast.stmt) -> bool:
    """At the top level, in a function's body, or under the main guard: not inside a condition or a loop."""
    for up in entry.names.ancestors(stmt):
        guard = isinstance(up, ast.If) and any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(up.test))
        if not isinstance(up, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)) and not guard:
            return False
    return True


def _constant(found: Found, entry: Module, stmt: ast.stmt) -> bool:
    reads = [n for n in ast.walk(stmt) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return all(isinstance(found.resolver.target(entry, name), Library) for name in reads)


def _imports(entry: Module, stmt: ast.stmt) -> Iterator[ast.stmt]:
    for node in ast.walk(stmt):
        for binding in entry.names.top.bindings.get(node.id, []) if isinstance(node, ast.Name) else ():
            top = next((up for up in [binding.node, *entry.names.ancestors(binding.node)] if up in entry.tree.body), None)
            if isinstance(top, ast.stmt) and binding.kind == "import":
                yield top
