"""The classes and functions of the program that an object may consist of.

    flip = Flip(0.5)                           Photos, Flip, load
    data = Photos(rows, flip, loader=load)
    loader = DataLoader(data)

Looks back from an expression: through variables, parameters, results of the program's own functions and what is put into containers.
Finds too many rather than too few; models, loaders and samplers are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from splitter.changes import loads
from splitter.find import Found
from splitter.knowledge import DATASET_METHODS
from splitter.origins import Tracer
from splitter.read import Module
from splitter.resolve import Definition, Library, Value, argument, default
from splitter.scopes import Binding

APART = frozenset({"model", "loader", "sampler"})
FILLS = frozenset("append extend insert update setdefault add appendleft".split())


@dataclass(eq=False)
class Reach:
    """What has been reached. `perhaps`: named in a function that makes a part of the object, but that part may well be another.

    `lambdas` are those that are handed to a class of the object.
    """

    found: Found
    definitions: dict[int, Definition] = field(default_factory=dict)
    perhaps: dict[int, Definition] = field(default_factory=dict)
    libraries: set[str] = field(default_factory=set)
    direct: set[str] = field(default_factory=set)  # libraries named other than in functions
    lambdas: list[tuple[Module, ast.Lambda]] = field(default_factory=list)
    expressions: set[int] = field(default_factory=set)
    calls: list[tuple[Module, ast.Call]] = field(default_factory=list)
    names: list[tuple[Module, ast.Name]] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tracer = Tracer(self.found.resolver, self.found.kinds, {id(site.call): site for site in self.found.sites})
        self._bodies: set[int] = set()
        self._depth = 0

    def expression(self, module: Module, expr: ast.AST) -> None:
        """Everything that an expression may give or be made of."""
        if id(expr) in self.expressions or len(self.expressions) > 4000:
            return
        self.expressions.add(id(expr))
        match expr:
            case ast.Name():
                self._name(module, expr)
            case ast.Attribute():
                self._attribute(module, expr)
            case ast.Call():
                self._call(module, expr)
            case _:
                for child in ast.iter_child_nodes(expr):
                    self.expression(module, child)

    def _name(self, module: Module, name: ast.Name) -> None:
        if not isinstance(name.ctx, ast.Load):
            return
        self.names.append((module, name))
        scope = module.names.scope_of[name].lookup(name.id)
        for target in self.found.resolver.targets(module, name):
            self._target(target)
        if scope is None:
            return
        for binding in scope.bindings.get(name.id, []):
            if binding.kind in ("assign", "augment", "walrus", "with", "for", "comp", "param"):
                self._binding(self.found.resolver.module(scope), binding)
        if any(binding.kind == "assign" for binding in scope.bindings.get(name.id, [])):
            for value in _filled(module, name):
                self.expression(module, value)

    def _target(self, target: object) -> None:
        if isinstance(target, Definition):
            self._definition(target)
        elif isinstance(target, Value):
            self._binding(target.module, target.binding)
        elif isinstance(target, Library):
            self.libraries.add(target.name)
            self.direct |= set() if self._depth else {target.name}

    def _definition(self, definition: Definition) -> None:
        if isinstance(definition.node, ast.ClassDef) and self.found.kinds.class_kind(definition) in APART:
            return
        (self.perhaps if self._depth else self.definitions).setdefault(id(definition.node), definition)

    def _binding(self, module: Module, binding: Binding) -> None:
        if binding.kind == "param":
            self._parameter(module, binding)
        elif binding.value is not None:
            self.expression(module, binding.value)
        elif isinstance(binding.node, ast.AugAssign):
            self.expression(module, binding.node.value)

    def _parameter(self, module: Module, binding: Binding) -> None:
        function = next(
            (up for up in module.names.ancestors(binding.node) if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))), None
        )
        if function is None or id(binding.node) in self._bodies:
            return
        self._bodies.add(id(binding.node))
        resolver = self.found.resolver
        owner = resolver.owner(module, function)
        if owner is not None and function.args.args[:1] == [binding.node]:
            for definition in (owner, *self.subclasses(owner)):
                self._definition(definition)
            return
        for site_module, call in resolver.call_sites(function):
            given = argument(call, function, binding.name, bound=owner is not None)
            if given is not None:
                self.expression(site_module, given)
        fallback = default(function, binding.name)
        if fallback is not None:
            self.expression(module, fallback)

    def subclasses(self, owner: Definition) -> Iterator[Definition]:
        """The classes of the program that inherit from one."""
        for module in self.found.program.modules.values():
            for stmt in module.tree.body:
                if isinstance(stmt, ast.ClassDef) and stmt.bases and stmt is not owner.node:
                    definition = Definition(module, stmt)
                    if any(base.node is owner.node for base in self.found.resolver.ancestry(definition)[1]):
                        yield definition

    def _attribute(self, module: Module, attribute: ast.Attribute) -> None:
        targets = self.found.resolver.targets(module, attribute)
        for target in targets:
            self._target(target)
        if targets:
            return
        definition = self.found.kinds.instance_of(module, attribute.value)
        values = list(self.tracer.member_values(definition, attribute.attr)) if definition else []
        self.attributes.add(attribute.attr)
        for owner, value in values:
            self.expression(owner, value)
        if not values:
            self.expression(module, attribute.value)

    def _call(self, module: Module, call: ast.Call) -> None:
        self.calls.append((module, call))
        resolver = self.found.resolver
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        called = [target for target in resolver.targets(module, call.func) if isinstance(target, Definition)]
        if not called and isinstance(call.func, ast.Attribute):
            instance = self.found.kinds.instance_of(module, call.func.value)
            method = resolver.method(instance, call.func.attr) if instance else None
            called = [method] if method else []
        for definition in called:
            if isinstance(definition.node, ast.ClassDef):
                self._definition(definition)
                self.lambdas += [(module, arg) for arg in arguments if isinstance(arg, ast.Lambda)]
            else:
                self._body(definition)
        if not called and _derives(self.found, module, call):
            arguments = []  # what a mapped dataset was made with is not in it
        if not called:
            self.expression(module, call.func)
        if not called and self.found.kinds.of(module, call) in ("object", "dataset"):
            self.lambdas += [(module, arg) for arg in arguments if isinstance(arg, ast.Lambda)]
        for arg in arguments:
            self.expression(module, arg)

    def _body(self, definition: Definition) -> None:
        """A function that is called makes the object, or a part of it: all that it names."""
        if id(definition.node) in self._bodies:
            return
        self._bodies.add(id(definition.node))
        self._depth += 1
        for stmt in definition.node.body:
            for node in ast.walk(stmt):
                if isinstance(node, (ast.Call, ast.Return)):
                    self.expression(definition.module, node)
        self._depth -= 1


def _derives(found: Found, module: Module, call: ast.Call) -> bool:
    """A dataset made from another by Hugging Face's methods; a transform that is called later stays with it."""
    func = call.func
    return (
        isinstance(func, ast.Attribute)
        and func.attr in DATASET_METHODS - {"with_transform"}
        and found.kinds.of(module, func.value) == "dataset"
    )


def _filled(module: Module, name: ast.Name) -> Iterator[ast.expr]:
    """What is put into the container that a variable names: rows.append(x), rows[0] = x."""
    for use in loads(module, name):
        parent = module.names.parent_of[use]
        above = module.names.parent_of.get(parent)
        if isinstance(parent, ast.Attribute) and parent.attr in FILLS and isinstance(above, ast.Call) and above.func is parent:
            yield from above.args
        elif isinstance(parent, ast.Subscript) and isinstance(above, ast.Assign) and parent in above.targets:
            yield above.value
