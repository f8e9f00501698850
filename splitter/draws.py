"""What the code of a builder draws while it makes batches, when all of it is known.

    def __getitem__(self, i):
        return self.x[i] + torch.rand(3)    ("torch",)
        return self.x[i]                    (): any process may make any batch, in any order
        return self.x[i] + pkg.noise(3)     None: nobody knows
        return self.x[i], os.getpid()       None: it matters which process makes it

"Known" is shown by names: every library name in the code, also where datasets are built, must be in the tables of `trusted`. Then the
objects at hand can only be of those libraries, of the script's own classes, or plain data.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from splitter.checks import closed
from splitter.find import Found
from splitter.knowledge import row
from splitter.read import Module
from splitter.resolve import Definition, Library, Value
from splitter.scopes import FunctionNode
from splitter.slice import Slicer
from splitter.trusted import DOUBTFUL_METHODS, OPENING, is_module, trusted

CONSTRUCTORS = frozenset({"__init__", "__post_init__", "__new__", "__init_subclass__", "__set_name__"})
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
GENERATORS = ("numpy", "random", "torch")
# What makes batches depend on more than their indices and generators, or shows in more than the batch.
TELLING = frozenset(
    "unstable reseeds in-place writes-self writes-global writes-file prints device setting lists unknown model gradient".split()
)
DATA = frozenset({"plain", "tensor", "argument"})
HIDING = frozenset("__class__ __globals__ __dict__ __subclasses__ __self__ __wrapped__ __closure__".split())  # ways around names
SAYING = ("builtins.print", "warnings.", "logging.", "tqdm")


def drawn(found: Found, slicer: Slicer, stateless: bool | None) -> tuple[str, ...] | None:
    """Names of the global generators that making batches may draw from, sorted; None when that isn't known, or the process matters.

    Datasets that the code refers to by a handle are not looked at.
    """
    if stateless is not True:
        return None
    code = _Code(found, slicer)
    if not all(code.known(module, node) for module, node in code.nodes):
        return None
    drawing = set()
    for phase, fact in slicer.carried.facts:
        if fact.effect == "unknown":
            return None
        if fact.effect == "opens":
            if not closed(found, fact):
                return None
            continue
        later = phase == "batch" or fact.makes or code.later(fact.module, fact.node)
        if later and fact.effect in TELLING and (phase, fact.effect) != ("build", "writes-self"):  # that's a constructor's new object
            return None
        if fact.effect == "draws" and (later or not isinstance(fact.node, ast.Call)):
            drawing.add(fact.what)
    return tuple(name for name in GENERATORS if name in drawing)


class _Code:
    """All that a builder runs, at whatever time."""

    def __init__(self, found: Found, slicer: Slicer) -> None:
        self.found = found
        self.resolver = found.resolver
        roots = list(_roots(slicer))
        self.own = {id(root) for _, root in roots}
        self.nodes = list({id(node): (module, node) for module, root in roots for node in ast.walk(root)}.values())
        self.made_often: set[int] = set()  # classes that may be constructed while batches are made
        self.functions: dict[int, bool] = {}  # whether they may be called then
        before = -1
        while before != len(self.made_often):
            before = len(self.made_often)
            self.functions.clear()
            self.made_often |= {id(made.node) for module, node in self.nodes for made in self._constructed(module, node)}
        self.functions.clear()

    def later(self, module: Module, node: ast.AST) -> bool:
        """Whether code may run while batches are made; no only where it is sure that it runs while the dataset is built."""
        within = []
        for up in (node, *module.names.ancestors(node)):
            if isinstance(up, FUNCTIONS):
                within.append(up)
            if id(up) in self.own:
                break
        return len(within) > 1 or any(self._called_later(module, function) for function in within)

    def _called_later(self, module: Module, function: FunctionNode) -> bool:
        if isinstance(function, ast.Lambda):
            return True
        if id(function) not in self.functions:
            self.functions[id(function)] = False  # until something says so
            owner = self.resolver.owner(module, function)
            if owner is not None:
                found = function.name not in CONSTRUCTORS or id(owner.node) in self.made_often
            else:
                found = bool(function.decorator_list or self.resolver.escapes(function))
                found = found or any(self.later(other, call) for other, call in self.resolver.call_sites(function))
            self.functions[id(function)] = found
        return self.functions[id(function)]

    def _constructed(self, module: Module, node: ast.AST) -> Iterator[Definition]:
        """Classes that code constructs while batches are made, or that it hands to somebody who may; with their bases."""
        parent = module.names.parent_of.get(node)
        if not isinstance(node, (ast.Name, ast.Attribute)) or isinstance(parent, (ast.ClassDef, ast.Attribute, ast.arg, ast.AnnAssign)):
            return
        definition = self.resolver.definition(module, node)
        if definition is None or not isinstance(definition.node, ast.ClassDef):
            return
        caller = parent.func if isinstance(parent, ast.Call) else None
        looked = caller is not None and self.resolver.library(module, caller) in ("builtins.super", "builtins.isinstance")
        if self.later(module, node) if caller is node else not looked:
            yield from self.resolver.ancestry(definition)[1]

    def known(self, module: Module, node: ast.AST) -> bool:
        """Whether the facts tell all about a node."""
        if isinstance(node, ast.Call):
            return self._call(module, node)
        if isinstance(node, ast.Attribute) and node.attr in HIDING:
            parent = module.names.parent_of.get(node)
            return isinstance(parent, ast.Attribute) and parent.attr == "__name__"
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            return self._name(module, node)
        return not isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith))

    def _call(self, module: Module, call: ast.Call) -> bool:
        func = call.func
        name = self.resolver.library(module, func) or ""
        if isinstance(func, ast.Call):  # Compose([...])(image)
            maker = self.resolver.target(module, func.func)
            return isinstance(maker, Definition) or (isinstance(maker, Library) and not maker.name.startswith("builtins."))
        if name == "builtins.getattr":
            attribute = call.args[1].value if len(call.args) > 1 and isinstance(call.args[1], ast.Constant) else None
            return isinstance(attribute, str) and attribute not in DOUBTFUL_METHODS and not self._outside(module, call.args[0])
        if name in OPENING:
            return isinstance(module.names.parent_of.get(call), ast.withitem)
        if name.startswith("datasets."):
            return not any(keyword.arg in ("streaming", None) for keyword in call.keywords)
        if isinstance(func, ast.Attribute) and not name and func.attr in DOUBTFUL_METHODS:
            if func.attr == "open":
                return isinstance(module.names.parent_of.get(call), ast.withitem)
            return self.resolver.definition(module, func) is not None or self._own_method(module, func) or not self.later(module, call)
        return True

    def _own_method(self, module: Module, func: ast.Attribute) -> bool:
        instance = self.found.kinds.instance_of(module, func.value)
        return instance is not None and self.resolver.method(instance, func.attr) is not None

    def _outside(self, module: Module, expr: ast.expr) -> bool:
        return any(not isinstance(target, (Definition, Value)) for target in self.resolver.targets(module, expr))

    def _name(self, module: Module, node: ast.Name | ast.Attribute) -> bool:
        """A library name: what it stands for is trusted, or it is called just once, to get the data that a dataset holds."""
        parent = module.names.parent_of.get(node)
        if isinstance(parent, ast.Attribute):
            return True  # the longer name is looked at
        names = [target.name for target in self.resolver.targets(module, node) if isinstance(target, Library)]
        called = isinstance(parent, ast.Call) and parent.func is node
        if any(is_module(name) for name in names):
            return isinstance(parent, (ast.Import, ast.ImportFrom))
        return all(trusted(name) or (called and _gives_data(name) and not self.later(module, node)) for name in names)


def _roots(slicer: Slicer) -> Iterator[tuple[Module, ast.AST]]:
    carried = slicer.carried
    yield from carried.code
    yield from ((definition.module, definition.node) for definition in carried.definitions)
    yield from carried.statements.values()
    yield from ((slicer.module, stmt) for stmt in slicer.body.values())


def _gives_data(name: str) -> bool:
    known = row(name)
    return name.startswith(SAYING) or (known.gives in DATA and not known.effects & {"unknown", "opens"})
