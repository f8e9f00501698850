"""Places where the program gives an attribute or a parameter its value.

self.options = {"batch_size": 4}          stored(`self.options`)   -> the dict
def make(data, merge=pad): ...            values(`merge` inside)   -> `pad`, and what the calls give
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from splitter.flow import reaching
from splitter.kinds import Kinds
from splitter.read import Module
from splitter.resolve import Definition, Library, Resolver, argument, default
from splitter.scopes import FunctionNode

_DEPTH = 12
# Options that hold functions: no plain data can give them.
FUNCTIONS = frozenset({"collate_fn", "worker_init_fn"})


@dataclass(frozen=True, eq=False)
class Place:
    """An expression and the module where it stands."""

    module: Module
    expr: ast.expr


class Places:
    """Looks them up."""

    def __init__(self, resolver: Resolver, kinds: Kinds) -> None:
        self.resolver = resolver
        self.program = resolver.program
        self.kinds = kinds

    def stored(self, module: Module, expr: ast.Attribute) -> Iterator[Place]:
        """The values that the program gives to an attribute of that name, of the same object as far as the text tells."""
        for other, target in self.program.mentions(expr.attr):
            parent = other.names.parent_of.get(target)
            value = parent.value if isinstance(parent, (ast.Assign, ast.AnnAssign)) else None
            if isinstance(target.ctx, ast.Load) or value is None:
                continue
            if isinstance(target, ast.Attribute):
                if target.attr == expr.attr and self.related(module, expr.value, other, target.value):
                    yield Place(other, value)
            else:
                owner = other.names.scope_of[target].node
                if isinstance(owner, ast.ClassDef) and self._of_class(module, expr.value, Definition(other, owner)):
                    yield Place(other, value)

    def _class_of(self, module: Module, expr: ast.expr) -> Definition | None:
        definition = self.resolver.definition(module, expr)
        return definition if definition and isinstance(definition.node, ast.ClassDef) else self.kinds.instance_of(module, expr)

    def related(self, module: Module, first: ast.expr, other: Module, second: ast.expr) -> bool:
        """Whether two objects may be the same: not when both are of classes that have nothing to do with each other."""
        owner = self._class_of(other, second)
        return owner is None or self._of_class(module, first, owner)

    def _of_class(self, module: Module, expr: ast.expr, owner: Definition) -> bool:
        mine = self._class_of(module, expr)
        if mine is None:
            return True
        above, below = self.resolver.ancestry(mine)[1], self.resolver.ancestry(owner)[1]
        return any(one.node is owner.node for one in above) or any(one.node is mine.node for one in below)

    def escapes(self, module: Module, function: FunctionNode) -> bool:
        """Whether a function may be called from where the text doesn't show; a constructor is when its class is held as a value."""
        if self.resolver.escapes(function):
            return True
        owner = self.resolver.owner(module, function)
        if owner is None or isinstance(function, ast.Lambda) or function.name != "__init__":
            return False
        return any(not self._named(other, node) for name in self._family(owner) for other, node in self.program.mentions(name))

    def _family(self, owner: Definition) -> list[str]:
        """The names of a class and of those below it."""
        names = [owner.node.name]
        for name in names:
            for other, node in self.program.mentions(name):
                above = other.names.parent_of.get(node)
                if isinstance(above, ast.ClassDef) and node in above.bases and above.name not in names:
                    names.append(above.name)
        return names

    def _named(self, module: Module, node: ast.Name | ast.Attribute) -> bool:
        """Whether a class is called, subclassed, looked into or asked about there, and not held as a value."""
        parent = module.names.parent_of.get(node)
        match parent:
            case ast.Call():
                asked = ("builtins.super", "builtins.isinstance", "builtins.issubclass")
                return parent.func is node or self.resolver.library(module, parent.func) in asked
            case ast.ClassDef() | ast.Attribute():
                return True
            case ast.arg() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Subscript() | ast.AnnAssign():
                return parent.value is not node if isinstance(parent, (ast.Subscript, ast.AnnAssign)) else True
        return not isinstance(node.ctx, ast.Load) or self.resolver.definition(module, node) is None

    def values(self, place: Place, depth: int = 0) -> list[Place]:
        """The expressions that a parameter or an attribute stands for, when all that give it can be seen; else the expression itself."""
        module, expr = place.module, place.expr
        if isinstance(expr, ast.Attribute) and self.kinds.instance_of(module, expr.value) is not None:
            return [value for given in self.stored(module, expr) for value in self.values(given, depth + 1)] or [place]
        scope = module.names.scope_of[expr].lookup(expr.id) if isinstance(expr, ast.Name) and expr in module.names.scope_of else None
        if scope is None or not isinstance(expr, ast.Name) or depth > _DEPTH:
            return [place]
        bindings = reaching(expr, expr.id, module.names, scope)
        owner = self.resolver.module(scope)
        if len(bindings) != 1 or bindings[0].kind != "param":
            return [place]
        function = function_of(owner, bindings[0].node)
        if function is None or bindings[0].node in (function.args.vararg, function.args.kwarg) or self.escapes(owner, function):
            return [place]
        bound, found = self.resolver.owner(owner, function) is not None, []
        for caller, call in self.resolver.call_sites(function):
            given, fallback = argument(call, function, expr.id, bound=bound), default(function, expr.id)
            hidden = any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)
            if given is None and (hidden or fallback is None):
                return [place]
            if given is not None:
                found += self.values(Place(caller, given), depth + 1)
            elif fallback is not None:
                found.append(Place(owner, fallback))
        return found or [place]

    def alternatives(self, place: Place) -> list[Place]:
        """What a variable, a parameter or an attribute may have been given, as far as the text shows; never the expression itself."""
        module, expr = place.module, place.expr
        found = [value for value in self.values(place) if value.expr is not expr]
        scope = module.names.scope_of[expr].lookup(expr.id) if isinstance(expr, ast.Name) else None
        if found or scope is None or not isinstance(expr, ast.Name):
            return found
        owner = self.resolver.module(scope)
        for binding in reaching(expr, expr.id, module.names, scope):
            values = [binding.value] if binding.value is not None and not binding.path else []
            function = function_of(owner, binding.node) if binding.kind == "param" else None
            if function is not None:
                calls = self.resolver.call_sites(function)
                found += [Place(m, arg) for m, c in calls if (arg := argument(c, function, expr.id, bound=False)) is not None]
                values = [value for value in [default(function, expr.id)] if value is not None]
            found += [Place(owner, value) for value in values]
        return found

    @cached_property
    def loose(self) -> bool:
        """Whether the program puts a collate or init function under its name anywhere but in a call's or function's own arguments."""
        for name in FUNCTIONS:
            for module in self.program.containing(name):
                for node in ast.walk(module.tree):
                    if isinstance(node, ast.Constant) and node.value == name:
                        return True
                    if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store):
                        return True
                    if isinstance(node, ast.Call) and any(k.arg == name for k in node.keywords) and self._makes_dict(module, node):
                        return True
        return False

    def _makes_dict(self, module: Module, call: ast.Call) -> bool:
        """`dict(...)`, `options.update(...)`, `EasyDict(...)`: what can put a keyword into a dict or a namespace."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("update", "setdefault"):
            return True
        target = self.resolver.target(module, call.func)
        if isinstance(target, Library):
            return not target.name.endswith(("DataLoader", "partial")) and target.name != "builtins.super"
        if isinstance(target, Definition) and isinstance(target.node, ast.ClassDef):
            init = self.resolver.method(target, "__init__")
            names = {arg.arg for arg in (*init.node.args.args, *init.node.args.kwonlyargs)} if init else set()  # type: ignore[union-attr]
            return not names & FUNCTIONS and not any(name.endswith("DataLoader") for name in self.resolver.ancestry(target)[0])
        return False


def function_of(module: Module, arg: ast.AST) -> FunctionNode | None:
    """The function that has `arg` among its parameters."""
    ups = module.names.ancestors(arg)
    return next((up for up in ups if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))), None)
