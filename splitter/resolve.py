"""What an expression refers to: a library name, a definition or value of the program, a local module.

import torch.utils.data as D     D.DataLoader      -> Library("torch.utils.data.DataLoader")
from data import Photos          Photos            -> Definition(class Photos in data)
Loader = D.DataLoader            Loader            -> Library("torch.utils.data.DataLoader")
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from splitter.flow import reaching
from splitter.read import Module, Program, absolute, statements
from splitter.scopes import BUILTINS, Binding, FunctionNode, Scope

DefinitionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Library:
    """A name outside the program, by the dotted name under which it was imported; builtins are `builtins.x`."""

    name: str


@dataclass(frozen=True, eq=False)
class Definition:
    """A function or class of the program."""

    module: Module
    node: DefinitionNode


@dataclass(frozen=True, eq=False)
class Value:
    """A variable of the program."""

    module: Module
    binding: Binding


@dataclass(frozen=True, eq=False)
class LocalModule:
    """A module of the program itself."""

    module: Module


Target = Library | Definition | Value | LocalModule


class Resolver:
    """Looks names up through imports, simple aliases and local modules. Finds who calls a function."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._module_of_tree = {id(module.tree): module for module in program.modules.values()}
        self._cache: dict[int, tuple[Target, ...]] = {}
        self._uses: dict[int, tuple[list[tuple[Module, ast.Call]], list[tuple[Module, ast.expr]]]] = {}

    def module(self, scope: Scope) -> Module:
        return self._module_of_tree[id(scope.root.node)]

    def targets(self, module: Module, expr: ast.expr, depth: int = 0) -> tuple[Target, ...]:
        """Everything that `expr` may refer to (several when imports are conditional)."""
        key = id(expr)
        if key not in self._cache:
            self._cache[key] = ()
            self._cache[key] = tuple(self._targets(module, expr, depth))
        return self._cache[key]

    def target(self, module: Module, expr: ast.expr) -> Target | None:
        """The first of `targets`."""
        return next(iter(self.targets(module, expr)), None)

    def library(self, module: Module, expr: ast.expr) -> str | None:
        """The dotted library name that `expr` refers to, if it does."""
        return next((target.name for target in self.targets(module, expr) if isinstance(target, Library)), None)

    def definition(self, module: Module, expr: ast.expr) -> Definition | None:
        return next((target for target in self.targets(module, expr) if isinstance(target, Definition)), None)

    def _targets(self, module: Module, expr: ast.expr, depth: int) -> list[Target]:
        if depth > 20:
            return []
        if isinstance(expr, ast.Name):
            scope = module.names.scope_of[expr].lookup(expr.id)
            if scope is None:
                return self._starred(module, expr.id, depth) or ([Library(f"builtins.{expr.id}")] if expr.id in BUILTINS else [])
            return [t for b in reaching(expr, expr.id, module.names, scope) for t in self.of_binding(self.module(scope), b, depth + 1)]
        if isinstance(expr, ast.Attribute):
            found: list[Target] = []
            for base in self.targets(module, expr.value, depth + 1):
                if isinstance(base, Library):
                    found.append(Library(f"{base.name}.{expr.attr}"))
                elif isinstance(base, LocalModule):
                    found += self.member(base.module, expr.attr, depth + 1)
            return found
        return []

    def of_binding(self, module: Module, binding: Binding, depth: int = 0) -> list[Target]:
        """What a binding stands for."""
        if binding.kind == "import" and binding.origin is not None:
            return self._imported(module, binding.origin, depth)
        if binding.kind in ("def", "class") and isinstance(binding.node, DefinitionNode):
            return [Definition(module, binding.node)]
        if binding.kind == "assign" and not binding.path and isinstance(binding.value, (ast.Name, ast.Attribute)):
            aliased = list(self.targets(module, binding.value, depth + 1))
            if aliased and not any(isinstance(target, Value) for target in aliased):
                return aliased
        return [Value(module, binding)]

    def _imported(self, module: Module, origin: str, depth: int) -> list[Target]:
        base, _, member = origin.partition(":")
        base = absolute(base, module.package)
        if not member:
            local = self.program.modules.get(base)
            return [LocalModule(local)] if local else [Library(base)]
        local = self.program.modules.get(base)
        submodule = self.program.modules.get(f"{base}.{member}")
        if local is not None:
            found = self.member(local, member, depth + 1)
            if found:
                return found
        if submodule is not None:
            return [LocalModule(submodule)]
        return [Library(f"{base}.{member}")]

    def member(self, module: Module, name: str, depth: int = 0) -> list[Target]:
        """`name` at the top of a local module."""
        if depth > 20:
            return []
        bindings = module.names.top.bindings.get(name, [])
        found = [t for b in bindings if b.kind != "delete" for t in self.of_binding(module, b, depth + 1)]
        submodule = self.program.modules.get(f"{module.name}.{name}")
        return found or self._starred(module, name, depth) or ([LocalModule(submodule)] if submodule else [])

    def _starred(self, module: Module, name: str, depth: int) -> list[Target]:
        outside: list[Target] = []
        for binding in module.names.top.bindings.get("*", []):
            base = absolute(binding.origin or "", module.package)
            local = self.program.modules.get(base)
            if local is not None and not name.startswith("_"):
                found = self.member(local, name, depth + 1)
                if found:
                    return found
            elif local is None and name not in BUILTINS:
                outside.append(Library(f"{base}.{name}"))
        return outside[:1]

    def bases(self, definition: Definition) -> list[Target]:
        """The base classes of a class, each resolved."""
        if not isinstance(definition.node, ast.ClassDef):
            return []
        return [t for base in definition.node.bases for t in self.targets(definition.module, _unsubscripted(base))]

    def ancestry(self, definition: Definition) -> tuple[set[str], list[Definition]]:
        """All library base names and all local base classes of a class, itself included."""
        libraries: set[str] = set()
        local: list[Definition] = []
        pending = [definition]
        while pending:
            current = pending.pop(0)
            if any(current.node is seen.node for seen in local):
                continue
            local.append(current)
            for base in self.bases(current):
                if isinstance(base, Library):
                    libraries.add(base.name)
                elif isinstance(base, Definition):
                    pending.append(base)
        return libraries, local

    def method(self, definition: Definition, name: str) -> Definition | None:
        """The function that a class (or a local base of it) has under `name`."""
        for owner in self.ancestry(definition)[1]:
            for stmt in owner.node.body:
                if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)) and stmt.name == name:
                    return Definition(owner.module, stmt)
        return None

    def methods_named(self, name: str) -> list[Definition]:
        """The methods of that name of all classes of the program, for calls on objects that can't be told."""
        return [
            Definition(module, stmt)
            for module in self.program.containing(f"def {name}")
            for node in statements(module.tree)
            if isinstance(node, ast.ClassDef)
            for stmt in node.body
            if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)) and stmt.name == name
        ]

    def owner(self, module: Module, function: ast.AST) -> Definition | None:
        """The class whose body holds `function`."""
        parent = module.names.parent_of.get(function)
        return Definition(module, parent) if isinstance(parent, ast.ClassDef) else None

    def call_sites(self, function: FunctionNode) -> list[tuple[Module, ast.Call]]:
        """Every call of a function of the program (of a method: through self or any object's attribute of that name)."""
        return self._uses_of(function)[0]

    def escapes(self, function: FunctionNode) -> list[tuple[Module, ast.expr]]:
        """Places where a function is used as a value, so that it may be called from anywhere."""
        return self._uses_of(function)[1]

    def _uses_of(self, function: FunctionNode) -> tuple[list[tuple[Module, ast.Call]], list[tuple[Module, ast.expr]]]:
        if id(function) not in self._uses:
            calls: list[tuple[Module, ast.Call]] = []
            escapes: list[tuple[Module, ast.expr]] = []
            self._uses[id(function)] = (calls, escapes)
            pending = self._spellings(function)
            seen: set[str] = set()
            while pending:
                spelled = pending.pop()
                if spelled in seen:
                    continue
                seen.add(spelled)
                for module, node in self.program.mentions(spelled):
                    parent = module.names.parent_of.get(node)
                    if isinstance(parent, ast.Call) and parent.func is node:
                        if any(called is function for called in self._called(module, parent, function)):
                            calls.append((module, parent))
                    elif isinstance(node.ctx, ast.Load) and not isinstance(parent, ast.Attribute):
                        definition = self.definition(module, node)
                        if definition is not None and definition.node is function:
                            escapes.append((module, node))
                            if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
                                pending.append(parent.targets[0].id)
        return self._uses[id(function)]

    def _spellings(self, function: FunctionNode) -> list[str]:
        """The identifiers under which a function can be called: its name; for a constructor the names of its class and subclasses."""
        module = next(m for m in self.program.modules.values() if "names" in m.__dict__ and function in m.names.parent_of)
        if isinstance(function, ast.Lambda):
            parent = module.names.parent_of[function]
            return [t.id for t in parent.targets if isinstance(t, ast.Name)] if isinstance(parent, ast.Assign) else []
        owner = self.owner(module, function)
        if owner is None or function.name != "__init__":
            return [function.name]
        names = [owner.node.name]
        for name in names:
            for other, node in self.program.mentions(name):
                above = other.names.parent_of.get(node)
                if isinstance(above, ast.ClassDef) and node in above.bases and above.name not in names:
                    names.append(above.name)
        return [*names, "__init__"]

    def _called(self, module: Module, call: ast.Call, function: FunctionNode) -> list[ast.AST]:
        found: list[ast.AST] = []
        for target in self.targets(module, call.func):
            if isinstance(target, Definition):
                if isinstance(target.node, ast.ClassDef):
                    init = self.method(target, "__init__")
                    found += [init.node] if init else []
                else:
                    found.append(target.node)
            elif isinstance(target, Value) and isinstance(target.binding.value, ast.Lambda):
                found.append(target.binding.value)
        if not found and isinstance(call.func, ast.Attribute):
            if isinstance(call.func.value, ast.Call) and self.library(module, call.func.value.func) == "builtins.super":
                return [method.node for method in self.inherited(module, call, call.func.attr)]
            if not call.func.attr.startswith("__") and not isinstance(function, ast.Lambda) and call.func.attr == function.name:
                found.append(function)  # a method of that name, of an object that can't be told
        return found

    def inherited(self, module: Module, call: ast.Call, name: str) -> list[Definition]:
        """`super().name(...)`: the method of the nearest local base."""
        owner = next((up for up in module.names.ancestors(call) if isinstance(up, ast.ClassDef)), None)
        bases = [base for base in self.bases(Definition(module, owner)) if isinstance(base, Definition)] if owner else []
        return [method for base in bases if (method := self.method(base, name))]


def _unsubscripted(expr: ast.expr) -> ast.expr:
    """`Dataset[int]` is `Dataset`."""
    return expr.value if isinstance(expr, ast.Subscript) else expr


def argument(call: ast.Call, function: FunctionNode, name: str, *, bound: bool) -> ast.expr | None:
    """The expression that a call gives for the parameter `name`; None when it is left out or hidden in * or **."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    positional = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)][1 if bound else 0 :]
    if name in positional:
        index = positional.index(name)
        if index < len(call.args) and not any(isinstance(arg, ast.Starred) for arg in call.args[: index + 1]):
            return call.args[index]
    return None


def default(function: FunctionNode, name: str) -> ast.expr | None:
    """The default value of a parameter."""
    args = [*function.args.posonlyargs, *function.args.args]
    for arg, value in zip(reversed(args), reversed(function.args.defaults), strict=False):
        if arg.arg == name:
            return value
    for arg, given in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if arg.arg == name:
            return given
    return None


def member_values(resolver: Resolver, definition: Definition, name: str) -> Iterator[tuple[Module, ast.expr]]:
    """The values that a class's own code gives to `self.name`."""
    for owner in resolver.ancestry(definition)[1]:
        for node in ast.walk(owner.node):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if (
                        isinstance(target, ast.Attribute)
                        and target.attr == name
                        and isinstance(target.value, ast.Name)
                        and target.value.id == "self"
                    ):
                        yield owner.module, node.value
                    elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                        for part, value in zip(target.elts, node.value.elts, strict=False):
                            if isinstance(part, ast.Attribute) and part.attr == name:
                                yield owner.module, value
