"""What the attributes of a model are that never change, as text that can stand in a loader builder.

    class Net(Module):
        def __init__(self, buckets):
            self.buckets = buckets                                      args.buckets
            self.register_buffer("edges", torch.tensor([18, 25]))       torch.tensor([18, 25])
    model = Net(args.buckets)

Parameters of the constructor are followed to the call that makes the model. What is written anywhere else, or may come from a checkpoint,
is no constant: S423.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace

from splitter.carry import frame_scope
from splitter.changes import changes, passed
from splitter.effects import Effects
from splitter.find import Found
from splitter.ir import Diagnostic, Span
from splitter.kinds import SENDABLE
from splitter.prefix_model import Model
from splitter.read import Module
from splitter.repeat import deep_facts
from splitter.resolve import argument, default
from splitter.scopes import free_names

READERS = ("buffers", "named_buffers", "load_state_dict", "load_from_checkpoint")  # with these, buffers can be written
_DEEP = 8


@dataclass(frozen=True, eq=False)
class Known:
    """The text of a constant, the names in it that must be at hand, and where it is read."""

    text: str
    names: tuple[tuple[Module, ast.Name], ...]
    uses: tuple[ast.Attribute, ...]
    span: Span | None = None  # where the text stands, as it is

    def also(self, use: ast.Attribute) -> Known:
        return replace(self, uses=(*self.uses, use))

    def of(self, inside: Set[int]) -> Known:
        """With the uses alone that are among some nodes."""
        return replace(self, uses=tuple(use for use in self.uses if id(use) in inside))


class _Changing(Exception):
    def __init__(self, module: Module, node: ast.AST, why: str) -> None:
        super().__init__(why)
        self.module, self.node, self.why = module, node, why


def constant(found: Found, effects: Effects, model: Model, use: ast.Attribute) -> Known | Diagnostic:
    """The value of `self.x` in a model's forward; a finding when it isn't known to stay what it is."""
    reader = _Constants(found, effects, model)
    try:
        module, expr = reader.written(use.attr)
        if found.kinds.of(module, expr) not in SENDABLE:
            raise _Changing(module, expr, "not plain data")
        tree = reader.expression(module, expr, 0)
        same = ast.dump(tree) == ast.dump(expr)
        return Known(ast.unparse(tree), tuple(reader.names), (use,), module.span(expr) if same else None)
    except _Changing as changing:
        name = f"`{model.module.text(use)}`"
        return Diagnostic("S423", changing.module.span(changing.node), (("name", name), ("why", changing.why)))


class _Constants:
    def __init__(self, found: Found, effects: Effects, model: Model) -> None:
        self.found, self.effects, self.model = found, effects, model
        self.names: list[tuple[Module, ast.Name]] = []
        owners = found.resolver.ancestry(model.definition)[1]
        self.owners = {id(owner.node): owner for owner in owners}
        init = found.resolver.method(model.definition, "__init__")
        self.init = init.node if init is not None and isinstance(init.node, ast.FunctionDef) else None
        self.frames = {frame_scope(site.module, site.call).node for site in found.sites}  # their names are at hand

    def written(self, name: str) -> tuple[Module, ast.expr]:
        """The one expression that the attribute is given, in the constructor or in the class."""
        module, places = self.model.module, list(self._writes(name))
        if not places:
            raise _Changing(module, self.model.forward, "not given a value in the constructor")
        for other, node, value in places:
            if value is None:
                raise _Changing(other, node, "changed here")
        if len(places) > 1:
            raise _Changing(places[1][0], places[1][1], "given a value in more than one place")
        self._unchanged(name)
        module, node, value = places[0]
        assert value is not None
        if isinstance(node, ast.Call):
            self._buffer(module, node)
        return module, value

    def _writes(self, name: str) -> Iterator[tuple[Module, ast.AST, ast.expr | None]]:
        """Every place that gives the attribute a value; with the value where that is the constructor's or the class's own."""
        for module, node in self.found.program.mentions(name):
            if isinstance(node.ctx, ast.Load):
                continue
            parent = module.names.parent_of[node]
            plain = isinstance(parent, ast.Assign) or (isinstance(parent, ast.AnnAssign) and parent.value is not None)
            value = parent.value if plain and isinstance(parent, (ast.Assign, ast.AnnAssign)) else None
            if isinstance(node, ast.Name):
                if id(module.names.scope_of[node].node) in self.owners:
                    yield module, node, value
            elif self._is_own(module, node.value):
                yield module, node, value if self._in_constructor(module, parent) else None
        for owner in self.owners.values():
            for call in ast.walk(owner.node):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "register_buffer":
                    given = argument_of(call, 0, "name")
                    if isinstance(given, ast.Constant) and given.value == name:
                        inside = self._in_constructor(owner.module, owner.module.names.statement(call))
                        yield owner.module, call, argument_of(call, 1, "tensor") if inside else None
                elif isinstance(call, ast.Call) and self.found.resolver.library(owner.module, call.func) == "builtins.setattr":
                    yield owner.module, call, None

    def _is_own(self, module: Module, base: ast.expr) -> bool:
        """Whether an expression may be the model."""
        instance = self.found.kinds.instance_of(module, base)
        return instance is None or id(instance.node) in self.owners

    def _in_constructor(self, module: Module, statement: ast.AST) -> bool:
        """A statement of the constructor's own block, which always runs, once."""
        return self.init is not None and module.names.parent_of.get(statement) is self.init

    def _unchanged(self, name: str) -> None:
        for module, node in self.found.program.mentions(name):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and self._is_own(module, node.value):
                if changes(module, node) or passed(self.found, module, node):
                    raise _Changing(module, node, "changed here")

    def _buffer(self, module: Module, call: ast.Call) -> None:
        persistent = argument_of(call, 2, "persistent")
        kept = not (isinstance(persistent, ast.Constant) and persistent.value is False)
        for name in READERS:
            for other, node in self.found.program.mentions(name):
                if "buffers" in name:
                    raise _Changing(other, node, "a buffer, which may be changed here")
                if kept:
                    raise _Changing(other, node, "a buffer that a checkpoint holds, and one may be loaded here")

    def expression(self, module: Module, expr: ast.expr, depth: int) -> ast.expr:
        """The expression, with what only the constructor knows put in. Raises _Changing."""
        if depth > _DEEP:
            raise _Changing(module, expr, "can't be followed")
        for fact in deep_facts(self.found, self.effects, module, expr):
            raise _Changing(fact.module, fact.node, f"made by `{fact.module.text(fact.node)}`, which can't be done on the worker")
        swaps: dict[int, object] = {}
        for node in ast.walk(expr):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and self.found.kinds.of(module, node.value) == "self":
                owner = self.found.kinds.instance_of(module, node.value)
                if owner is None or id(owner.node) not in self.owners:
                    raise _Changing(module, node, "of another object")
                swaps[id(node)] = self.expression(*self.written(node.attr), depth + 1)
                swaps[id(node.value)] = node.value
        for name in free_names(expr, module.names):
            if id(name) not in swaps:
                given = self._name(module, name, depth)
                if given is not None:
                    swaps[id(name)] = given
        return copy.deepcopy(expr, swaps)  # the tree of the module stays as it is; what is in the memory is taken from there

    def _name(self, module: Module, name: ast.Name, depth: int) -> ast.expr | None:
        """What a name stands for; None when it is at hand by itself."""
        scope = module.names.scope_of[name].lookup(name.id)
        inner = scope is not None and scope.kind == "function" and scope.node not in self.frames
        if scope is None or not inner:
            self.names.append((module, name))
            return None
        bindings = scope.bindings[name.id]
        if len(bindings) > 1:
            raise _Changing(module, name, "can't be followed")
        binding = bindings[0]
        always = module.names.parent_of.get(binding.node) is scope.node
        if binding.kind == "assign" and binding.value is not None and not binding.path and always:
            return self.expression(module, binding.value, depth + 1)
        made_in, call = self._call_of(module, name, scope.node) if binding.kind == "param" else (module, None)
        if call is None or not isinstance(scope.node, ast.FunctionDef):
            raise _Changing(module, name, "can't be followed")
        given = argument(call, scope.node, name.id, bound=scope.node is self.init)
        if given is not None:
            return self.expression(made_in, given, depth + 1)
        fallback = default(scope.node, name.id)
        if fallback is None or any(isinstance(arg, ast.Starred) for arg in call.args) or any(k.arg is None for k in call.keywords):
            raise _Changing(made_in, call, "can't be followed")
        return self.expression(module, fallback, depth + 1)

    def _call_of(self, module: Module, name: ast.Name, function: ast.AST) -> tuple[Module, ast.Call | None]:
        """The one call that gives a parameter its value: the construction of the model, or that of a function around it."""
        if function is self.init:
            return self.model.made
        if not isinstance(function, ast.FunctionDef) or self.found.resolver.owner(module, function) is not None:
            return module, None
        calls = self.found.resolver.call_sites(function)
        return calls[0] if len(calls) == 1 and not self.found.resolver.escapes(function) else (module, None)


def argument_of(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """An argument of a library call, by its place or its name."""
    given = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    return given if given is not None else call.args[position] if position < len(call.args) else None
