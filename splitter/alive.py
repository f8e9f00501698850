"""Which of the carried code runs on the worker, when the trainer builds the dataset and sends it.

class Rows(Dataset):
    def __init__(self, path): ...        no: the trainer builds it
    def __getitem__(self, i):            yes
        return self.crop(i)
    def crop(self, i): ...               yes, since that names it
    def show(self): ...                  no: nothing there names it
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set

from splitter.carry import Phase
from splitter.effects import Fact
from splitter.slice import Slicer

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CONSTRUCTORS = ("__init__", "__post_init__", "__new__")


def on_worker(slicer: Slicer, roots: Sequence[ast.AST]) -> tuple[list[tuple[Phase, Fact]], set[str]]:
    """The facts of code that runs on the worker, and the identifiers in it.

    Not of constructors, nor of functions and methods that nothing there names; `roots` is what runs in any case. A file that is opened
    and kept can't be sent, wherever that happens.
    """
    nodes = [definition.node for definition in slicer.carried.definitions]
    methods = [stmt for node in nodes if isinstance(node, ast.ClassDef) for stmt in node.body if isinstance(stmt, FUNCTIONS)]
    alive = {id(node) for node in nodes if node in roots}
    alive |= {id(stmt) for stmt in methods if stmt.name.startswith("__") and stmt.name not in CONSTRUCTORS}
    every = {id(node): node for node in [*nodes, *methods]}
    before, named = -1, set[str]()
    while before != len(alive):
        before = len(alive)
        named = {name for root in [*roots, *slicer.body.values()] for name in _named(root, every.keys() - alive)}
        named |= {name for node in nodes if id(node) in alive for name in _named(node, every.keys() - alive)}
        alive |= {key for key, node in every.items() if node.name in named and node.name not in CONSTRUCTORS}
    dead = every.keys() - alive
    return [
        (phase, fact)
        for phase, fact in slicer.carried.facts
        if fact.effect == "opens" or not any(id(up) in dead for up in fact.module.names.ancestors(fact.node))
    ], named


def _named(root: ast.AST, dead: Set[int]) -> Iterator[str]:
    """The identifiers and texts in some code, what is `dead` left out."""
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in dead:
            continue
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        stack.extend(ast.iter_child_nodes(node))
