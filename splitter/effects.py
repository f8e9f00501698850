"""Step `effects`: what a piece of code reads, writes and draws.

    def __getitem__(self, i):
        self.calls += 1                     writes self
        return self.x[i] + torch.rand(3)    draws torch

Facts are found in the text, call by call, from the table in `knowledge`. What isn't known is a fact too: `unknown`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from splitter.flow import reaching
from splitter.kinds import Kinds
from splitter.knowledge import DRAWING_METHODS, MUTATORS, row
from splitter.read import Module
from splitter.resolve import Definition, Library, Resolver, Value, member_values


@dataclass(frozen=True, eq=False)
class Fact:
    """One effect at one place.

    `effect` is one of draws, reseeds, unstable, device, setting, opens, prints, lists, unknown, model, gradient, writes-self,
    writes-global, writes-file, in-place. `what` names the generator, the function, the attribute or the global.
    `makes`: the object made here has the effect later, when it is called.
    """

    effect: str
    what: str
    module: Module
    node: ast.AST
    makes: bool = False


class Effects:
    """Finds the facts of expressions, statements and definitions."""

    def __init__(self, resolver: Resolver, kinds: Kinds) -> None:
        self.resolver = resolver
        self.kinds = kinds
        self.imports: dict[str, ast.stmt | None] = {}  # of each module: what it does when it is imported (see import_effects)

    def of(self, module: Module, root: ast.AST) -> list[Fact]:
        """Every fact in `root`, in the order of the text."""
        return [fact for node in ast.walk(root) for fact in self.at(module, node)]

    def at(self, module: Module, node: ast.AST) -> Iterator[Fact]:
        """The facts of one node alone, not of what is below it."""
        if isinstance(node, ast.Call):
            yield from self._call(module, node)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            yield from self._reference(module, node)
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)):
            targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
            for target in targets:
                yield from self._store(module, target, augmented=isinstance(node, ast.AugAssign))
        elif isinstance(node, (ast.For, ast.comprehension)) and self._unordered(module, node.iter):
            parent = module.names.parent_of.get(node)
            used = module.names.parent_of.get(parent) if parent is not None else None
            if not (isinstance(node, ast.comprehension) and (isinstance(parent, ast.SetComp) or self._order_free(module, used))):
                yield Fact("unstable", "the order of a set", module, node.iter)

    def _call(self, module: Module, call: ast.Call) -> Iterator[Fact]:
        targets = self.resolver.targets(module, call.func)
        for target in targets:
            if isinstance(target, Library):
                yield from self._library(module, call, target.name)
        if isinstance(call.func, ast.Attribute) and not any(isinstance(target, (Library, Definition)) for target in targets):
            yield from self._method(module, call, call.func)
        for keyword in call.keywords:
            if keyword.arg == "requires_grad" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True:
                yield Fact("gradient", module.text(call), module, call)
            if keyword.arg == "device" and is_device(keyword.value):
                yield Fact("device", module.text(call), module, call)

    def _library(self, module: Module, call: ast.Call, name: str) -> Iterator[Fact]:
        own_generator = next(
            (k.value for k in call.keywords if k.arg == "generator" and not (isinstance(k.value, ast.Constant) and k.value.value is None)),
            None,
        )
        known = row(name)
        for effect in sorted(known.effects):
            kind, _, what = effect.partition(":")
            if kind in ("draws", "makes"):
                if own_generator is None:
                    yield Fact("draws", what, module, call, makes=kind == "makes")
                else:
                    yield from self._mutated(module, own_generator, call)
            elif kind == "unstable":
                yield Fact(
                    "unstable", what.replace("_", " ") if what.startswith("the_") or what.startswith("a_") else f"`{what}`", module, call
                )
            elif kind in ("reseeds", "device", "setting", "opens", "prints", "unknown"):
                yield Fact(kind, f"`{name.removeprefix('builtins.')}`", module, call)
            elif kind == "lists" and not self._sorted(module, call):
                yield Fact("lists", module.text(call), module, call)
        if known.gives in ("rng", "parameter", "model") and not known.effects & {"draws:torch"} and known.gives != "rng":
            yield Fact("model", module.text(call), module, call)
        if known.gives == "rng" and not call.args and not call.keywords and name != "torch.Generator":
            yield Fact("unstable", f"`{module.text(call)}`, which is seeded from the system's entropy", module, call)
        if name == "builtins.open" and any(
            isinstance(mode, ast.Constant) and isinstance(mode.value, str) and set(mode.value) & set("wax+")
            for mode in (*call.args[1:2], *(k.value for k in call.keywords if k.arg == "mode"))
        ):
            yield Fact("writes-file", module.text(call), module, call)
        if (
            name
            in ("builtins.list", "builtins.tuple", "builtins.enumerate", "builtins.iter", "builtins.next", "builtins.zip", "builtins.map")
            and any(self._unordered(module, arg) for arg in call.args)
            and not self._order_free(module, module.names.parent_of.get(call))
        ):
            yield Fact("unstable", "the order of a set", module, call)

    def _method(self, module: Module, call: ast.Call, func: ast.Attribute) -> Iterator[Fact]:
        name = func.attr
        if name in ("cuda", "xpu", "mps") or (name == "to" and any(is_device(arg) for arg in call.args)):
            yield Fact("device", module.text(call), module, call)
        if name == "requires_grad_":
            yield Fact("gradient", module.text(call), module, call)
        if name in DRAWING_METHODS:
            generator = next((k.value for k in call.keywords if k.arg == "generator"), None)
            if generator is None:
                yield Fact("draws", "torch", module, call)
            else:
                yield from self._mutated(module, generator, call)
        if name in ("iterdir", "rglob", "glob") and not self._sorted(module, call):
            yield Fact("lists", module.text(call), module, call)
        if name in ("write_text", "write_bytes", "touch", "mkdir", "unlink", "savefig", "save", "dump", "to_csv"):
            yield Fact("writes-file", module.text(call), module, call)
        if name in ("join",) and any(self._unordered(module, arg) for arg in call.args):
            yield Fact("unstable", "the order of a set", module, call)
        mutates = name in MUTATORS or (name.endswith("_") and not name.endswith("__"))
        if mutates or self.kinds.of(module, func.value) == "rng":
            yield from self._mutated(module, func.value, call)

    def _reference(self, module: Module, node: ast.Name | ast.Attribute) -> Iterator[Fact]:
        parent = module.names.parent_of.get(node)
        if isinstance(parent, ast.Call) and parent.func is node:
            return
        target = self.resolver.target(module, node)
        if isinstance(target, Library):
            if isinstance(parent, ast.Attribute) and row(target.name) != row(f"{target.name}.{parent.attr}"):
                return
            for effect in sorted(row(target.name).effects):
                kind, _, what = effect.partition(":")
                if kind == "unstable":
                    yield Fact("unstable", what.replace("_", " ") if what.startswith(("the_", "a_")) else f"`{what}`", module, node)
                elif (
                    kind == "draws"
                    and not isinstance(parent, ast.Attribute)
                    and row(target.name).gives not in ("model", "dataset")
                    and target.name.count(".")
                ):
                    yield Fact("draws", what, module, node)
        elif (
            isinstance(target, Value)
            and target.binding.kind != "param"  # who passes the model names it
            and self.kinds.of_binding(target.module, target.binding) in ("model", "parameter")
        ):
            yield Fact("model", f"`{module.text(node)}`", module, node)

    def _store(self, module: Module, target: ast.expr, *, augmented: bool) -> Iterator[Fact]:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                yield from self._store(module, part, augmented=augmented)
        elif isinstance(target, (ast.Attribute, ast.Subscript)):
            if isinstance(target, ast.Attribute) and isinstance(self.resolver.target(module, target.value), Library):
                yield Fact("setting", f"`{module.text(target)}`", module, target)
            else:
                yield from self._mutated(module, target.value, target)
        elif isinstance(target, ast.Name):
            scope = module.names.scope_of[target]
            if target.id in scope.globals or target.id in scope.nonlocals:
                yield Fact("writes-global", target.id, module, target)
            elif augmented and self.kinds.of(module, target) != "plain":
                yield Fact("in-place", target.id, module, target)

    def _mutated(self, module: Module, base: ast.expr, at: ast.AST) -> Iterator[Fact]:
        """A change of the object that `base` names: of self, of a module global, or of a local."""
        root = base
        while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
            if isinstance(root, ast.Call) and any(isinstance(t, (Library, Definition)) for t in self.resolver.targets(module, root.func)):
                return  # a new object, which nobody else holds
            root = root.func if isinstance(root, ast.Call) else root.value
        if not isinstance(root, ast.Name):
            return
        scope = module.names.scope_of[root].lookup(root.id)
        if scope is None:
            return
        found = reaching(root, root.id, module.names, scope)
        if any(binding.kind == "param" and self.kinds.of_binding(module, binding) == "self" for binding in found):
            yield Fact("writes-self", module.text(base), module, at)
        elif scope.kind == "module" or (scope.kind == "function" and module.names.scope_of[root].function() is not scope):
            if any(binding.kind in ("assign", "import", "augment", "class", "def") for binding in found):
                yield Fact("writes-global", root.id, module, at)
        elif not all(_fresh(binding.value) for binding in found):
            yield Fact("in-place", root.id, module, at)

    def _unordered(self, module: Module, expr: ast.expr) -> bool:
        """A set whose order can differ between processes (strings hash differently; sets of small numbers are left alone)."""
        if isinstance(expr, (ast.Set, ast.SetComp)):
            return not (
                isinstance(expr, ast.Set) and all(isinstance(e, ast.Constant) and isinstance(e.value, (int, bool)) for e in expr.elts)
            )
        if isinstance(expr, ast.Call):
            return self.resolver.library(module, expr.func) in ("builtins.set", "builtins.frozenset") and bool(expr.args)
        if isinstance(expr, ast.BinOp) and isinstance(expr.op, (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)):
            return self._unordered(module, expr.left) or self._unordered(module, expr.right)
        if isinstance(expr, ast.Attribute):
            definition = self.kinds.instance_of(module, expr.value)
            return definition is not None and any(
                self._unordered(owner, value) for owner, value in member_values(self.resolver, definition, expr.attr)
            )
        if isinstance(expr, ast.Name):
            scope = module.names.scope_of[expr].lookup(expr.id)
            if scope is not None:
                return any(
                    b.value is not None
                    and b.kind == "assign"
                    and not b.path
                    and not isinstance(b.value, ast.Name)
                    and self._unordered(self.resolver.module(scope), b.value)
                    for b in reaching(expr, expr.id, module.names, scope)
                )
        return False

    def _order_free(self, module: Module, parent: ast.AST | None) -> bool:
        """A consumer that does not see the order: sorted, len, set, min, max, sum of ints, any, all."""
        return isinstance(parent, ast.Call) and self.resolver.library(module, parent.func) in {
            f"builtins.{name}" for name in ("sorted", "len", "set", "frozenset", "min", "max", "any", "all")
        }

    def _sorted(self, module: Module, call: ast.Call) -> bool:
        node: ast.AST = call
        for _ in range(4):
            parent = module.names.parent_of.get(node)
            if self._order_free(module, parent):
                return True
            if not isinstance(parent, (ast.comprehension, ast.ListComp, ast.GeneratorExp, ast.Call, ast.Attribute, ast.SetComp)):
                break
            node = parent
        statement = module.names.statement(call)
        if (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and isinstance(statement.targets[0], (ast.Name, ast.Attribute))
        ):
            name = module.text(statement.targets[0])
            return any(
                isinstance(n, ast.Call) and module.text(n.func) == f"{name}.sort" for n in ast.walk(module.names.scope_of[statement].node)
            )
        return False


def _fresh(value: ast.expr | None) -> bool:
    """A value that nobody else holds: a literal, or what a call has just made."""
    return isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.Constant, ast.BinOp)) or (
        isinstance(value, ast.Call) and not (isinstance(value.func, ast.Name) and value.func.id in ("next", "getattr", "iter"))
    )


def is_device(expr: ast.expr) -> bool:
    """`"cuda"`, `device`, `self.device`, `args.device` - but not a literal "cpu" and no dtype."""
    if isinstance(expr, ast.Constant):
        return isinstance(expr.value, str) and not expr.value.startswith("cpu")
    if isinstance(expr, ast.JoinedStr):
        return True
    name = expr.attr if isinstance(expr, ast.Attribute) else expr.id if isinstance(expr, ast.Name) else ""
    return name.lower().endswith("device") or name == "dev"
