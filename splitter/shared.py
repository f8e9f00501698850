"""State that moved code changes and the trainer looks at.

seen = []                          the dataset appends to `seen` (in the main process, with num_workers=0),
data = Logged(rows, seen)          and the script prints its length: the trainer's own list would stay empty
print(len(seen))
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from splitter.changes import changes_in, loads
from splitter.effects import Effects
from splitter.find import Found
from splitter.ir import Diagnostic
from splitter.read import Module
from splitter.resolve import Definition
from splitter.slice import Slicer

BUILDING = ("__init__", "__post_init__", "__new__")


def shared_state(found: Found, effects: Effects, slicer: Slicer, roots: list[ast.AST], *, main_process: bool) -> Diagnostic | None:
    """S314 for an object that is given to moved code, changed there and read by the trainer.

    `main_process`: whether the script runs the batches in its own process (num_workers=0), so that it sees what they change;
    what a constructor changes it sees in any case.
    """
    module = slicer.module
    for root in (*roots, *slicer.body.values()):
        for name in ast.walk(root):
            if not isinstance(name, ast.Name) or not isinstance(name.ctx, ast.Load) or name not in module.names.scope_of:
                continue  # (a function of another module needs only what that module defines)
            outside = [use for use in loads(module, name) if id(use) not in slicer.carried.inside]
            if not outside:
                continue
            for place, node in _changes(found, effects, module, name, main_process):
                return Diagnostic("S314", place.span(node), (("name", f"`{name.id}`"), ("line", str(outside[0].lineno))))
    return None


def _changes(found: Found, effects: Effects, module: Module, name: ast.Name, main_process: bool) -> Iterator[tuple[Module, ast.AST]]:
    own = found.kinds.instance_of(module, name)
    if own is not None and main_process and found.kinds.of(module, name) == "object":
        yield from _writes(effects, own, lambda what: True)
    parent = module.names.parent_of[name]
    call = module.names.parent_of[parent] if isinstance(parent, ast.keyword) else parent
    taker = found.resolver.definition(module, call.func) if isinstance(call, ast.Call) and call.func is not name else None
    init = found.resolver.method(taker, "__init__") if taker and isinstance(taker.node, ast.ClassDef) else None
    if taker is None or init is None or not isinstance(call, ast.Call) or isinstance(init.node, ast.ClassDef):
        return
    names = [arg.arg for arg in init.node.args.args][1:]
    position = call.args.index(name) if name in call.args else -1
    parameter = parent.arg if isinstance(parent, ast.keyword) else names[position] if 0 <= position < len(names) else None
    if parameter is None:
        return
    yield from ((init.module, node) for node in changes_in(init.node, parameter))
    if main_process:
        held = {f"self.{attr}" for attr in _attributes(init, parameter)}
        yield from _writes(effects, taker, lambda what: what in held)


def _writes(effects: Effects, definition: Definition, wanted: Callable[[str], bool]) -> Iterator[tuple[Module, ast.AST]]:
    """Where the methods of a class, its constructor aside, change itself."""
    for owner in effects.resolver.ancestry(definition)[1]:
        for stmt in owner.node.body:
            if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)) and stmt.name not in BUILDING:
                for fact in effects.of(owner.module, stmt):
                    if fact.effect == "writes-self" and wanted(fact.what):
                        yield owner.module, fact.node


def _attributes(init: Definition, parameter: str) -> Iterator[str]:
    """The attributes in which a constructor keeps a parameter: `self.log = log`."""
    for node in ast.walk(init.node):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == parameter:
            yield from (target.attr for target in node.targets if isinstance(target, ast.Attribute))
