"""Which models a script makes, and every place where it calls them.

    model = Net(args.width).to(device)      made
    model.eval()                            no call
    loss = loss_fn(model(x), y)             a call
    train(model, loader)                    followed into train
    model = DataParallel(model)             a problem: S424, calls can't be followed any more

Calls of a model that is a part of another one are of no use here, so such models are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from splitter.find import Found
from splitter.flow import reaching
from splitter.ir import Diagnostic
from splitter.kinds import returned
from splitter.knowledge import MODEL_BASES
from splitter.loader_classes import is_super
from splitter.read import Module
from splitter.resolve import Definition, Value, argument
from splitter.scopes import Binding
from splitter.uses import reads

ITSELF = frozenset({"to", "cuda", "cpu", "train", "eval", "requires_grad_"})  # methods that give the model back
# Attributes with which the model is run, or something gets between a call and forward.
WAYS_AROUND = frozenset("forward __call__ compile register_forward_hook register_forward_pre_hook".split())
GLOBAL_HOOKS = ("register_module_forward_hook", "register_module_forward_pre_hook")
LOOKING = frozenset(f"builtins.{name}" for name in ("print", "isinstance", "type", "id", "repr", "str"))


@dataclass(frozen=True, eq=False)
class Model:
    """A class of the script, the one construction of it, and all calls of what that makes."""

    definition: Definition
    forward: ast.FunctionDef
    made: tuple[Module, ast.Call]
    calls: tuple[tuple[Module, ast.Call], ...]
    problem: Diagnostic | None = None

    @property
    def module(self) -> Module:
        return self.definition.module

    def given(self, call: ast.Call, parameter: str) -> ast.expr | None:
        """What a call of the model gives for a parameter of forward."""
        return argument(call, self.forward, parameter, bound=True)

    def parameter(self, call: ast.Call, expr: ast.expr) -> str | None:
        """The parameter of forward for which a call of the model gives `expr`."""
        names = [arg.arg for arg in (*self.forward.args.posonlyargs, *self.forward.args.args, *self.forward.args.kwonlyargs)]
        return next((name for name in names[1:] if self.given(call, name) is expr), None)


def models(found: Found) -> Iterator[Model]:
    """The models that a script makes and calls itself, in the order of the text."""
    for module in found.program.modules.values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and "forward" in module.mentioned | _functions(node):
                definition = Definition(module, node)
                forward = next((s for s in node.body if isinstance(s, ast.FunctionDef) and s.name == "forward"), None)
                if forward is not None and forward.args.args and found.resolver.ancestry(definition)[0] & MODEL_BASES:
                    model = _model(found, definition, forward)
                    if model is not None:
                        yield model


def _functions(node: ast.ClassDef) -> dict[str, list[ast.Name | ast.Attribute]]:
    return {stmt.name: [] for stmt in node.body if isinstance(stmt, ast.FunctionDef)}


def _model(found: Found, definition: Definition, forward: ast.FunctionDef) -> Model | None:
    walk = _Walk(found)
    made = list(_constructions(walk, definition))
    if not made:
        return None
    for module, call in made:
        walk.value(module, call)
    if not walk.calls and (walk.problem is None or any(_in_class(module, call) for module, call in made)):
        return None
    for module, call in walk.calls:
        if not _Surely(found, frozenset(id(one) for _, one in made)).is_model(module, call.func):
            walk.problem_at(module, call, "may call another model")
    if len(made) > 1:
        walk.problem_at(made[1][0], made[1][1], "makes a second model")
    for name in GLOBAL_HOOKS:
        for module, node in found.program.mentions(name):
            walk.problem_at(module, node, "is a hook of all modules")
    for decorated in (definition.node, forward):
        for decorator in decorated.decorator_list:
            walk.problem_at(definition.module, decorator, "decorates the model or its forward")
    for module, run in _own_runs(found, definition):
        walk.problem_at(module, run, "runs forward in another method")
    return Model(definition, forward, made[0], tuple(walk.calls), walk.problem)


def _in_class(module: Module, node: ast.AST) -> bool:
    """Whether something stands in a class: a model made there is a part of another, as a rule."""
    return any(isinstance(up, ast.ClassDef) for up in module.names.ancestors(node))


@dataclass(eq=False)
class _Surely:
    """Whether an expression is the model made at one of some calls, and nothing else: backwards."""

    found: Found
    made: frozenset[int]
    seen: set[int] = field(default_factory=set)

    def is_model(self, module: Module, expr: ast.expr) -> bool:
        if id(expr) in self.seen:
            return True
        self.seen.add(id(expr))
        match expr:
            case ast.Call() if id(expr) in self.made:
                return True
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in ITSELF:
                return self.is_model(module, value)
            case ast.Call():
                function = self.found.resolver.definition(module, expr.func)
                if function is None or isinstance(function.node, ast.ClassDef):
                    return False
                results = returned(function.node)
                return bool(results) and all(self.is_model(function.module, result) for result in results)
            case ast.IfExp():
                return self.is_model(module, expr.body) and self.is_model(module, expr.orelse)
            case ast.Name():
                scope = module.names.scope_of[expr].lookup(expr.id)
                bindings = reaching(expr, expr.id, module.names, scope) if scope is not None else []
                return bool(bindings) and all(self._binds(binding) for binding in bindings)
        return False

    def _binds(self, binding: Binding) -> bool:
        module = self.found.resolver.module(binding.scope)
        if binding.kind in ("assign", "walrus") and binding.value is not None and not binding.path:
            return self.is_model(module, binding.value)
        if binding.kind == "import":
            targets = self.found.resolver.of_binding(module, binding)
            return bool(targets) and all(isinstance(target, Value) and self._binds(target.binding) for target in targets)
        function = binding.scope.node
        if binding.kind != "param" or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if self.found.resolver.escapes(function) or self.found.resolver.owner(module, function) is not None:
            return False
        calls = [(other, call) for other, call in self.found.resolver.call_sites(function) if not _switches(other, call)]
        given = [(other, argument(call, function, binding.name, bound=False)) for other, call in calls]
        return bool(given) and all(expr is not None and self.is_model(other, expr) for other, expr in given)


def _switches(module: Module, call: ast.Call) -> bool:
    """`model.train()`, which is no call of a function `train`."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in ITSELF and len(call.args) <= 1 and not call.keywords


def _constructions(walk: _Walk, definition: Definition) -> Iterator[tuple[Module, ast.Call]]:
    """The constructions of a class. Other uses of its name are problems, but for those that only look."""
    found = walk.found
    for module, node in found.program.mentions(definition.node.name):
        if not any(isinstance(t, Definition) and t.node is definition.node for t in found.resolver.targets(module, node)):
            continue
        parent = module.names.parent_of.get(node)
        if isinstance(parent, ast.Call) and parent.func is node:
            yield module, parent
        elif isinstance(parent, ast.ClassDef):
            walk.problem_at(module, node, "has a subclass")
        elif isinstance(parent, ast.Call) and (found.resolver.library(module, parent.func) or "") in (*LOOKING, "builtins.super"):
            continue
        elif not isinstance(parent, (ast.arg, ast.AnnAssign, ast.FunctionDef, ast.BinOp)):
            walk.problem_at(module, node, "is a class that the script hands on")


def _own_runs(found: Found, definition: Definition) -> Iterator[tuple[Module, ast.AST]]:
    """`self(x)`, `self.forward(x)` and `super().forward(x)` in the class itself."""
    for owner in found.resolver.ancestry(definition)[1]:
        for node in ast.walk(owner.node):
            if isinstance(node, ast.Attribute) and node.attr == "forward":
                if is_super(found.resolver, owner.module, node.value) or found.kinds.of(owner.module, node.value) == "self":
                    yield owner.module, node
            elif isinstance(node, ast.Call) and found.kinds.of(owner.module, node.func) == "self":
                yield owner.module, node


@dataclass(eq=False)
class _Walk:
    """Follows the model from where it is made. The first problem counts."""

    found: Found
    calls: list[tuple[Module, ast.Call]] = field(default_factory=list)
    problem: Diagnostic | None = None
    done: set[int] = field(default_factory=set)

    def problem_at(self, module: Module, node: ast.AST, why: str) -> None:
        self.problem = self.problem or Diagnostic("S424", module.span(node), (("what", f"`{module.text(node)}`"), ("why", why)))

    def value(self, module: Module, expr: ast.expr) -> None:
        """Everything that is done with an expression whose value is the model."""
        if id(expr) in self.done:
            return
        self.done.add(id(expr))
        parent = module.names.parent_of[expr]
        match parent:
            case ast.Call(func=func) if func is expr:
                self.calls.append((module, parent))
            case ast.Attribute():
                self._attribute(module, parent)
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
                for target in parent.targets if isinstance(parent, ast.Assign) else [parent.target]:
                    self._target(module, target)
            case ast.Call() | ast.keyword():
                call = module.names.parent_of[parent] if isinstance(parent, ast.keyword) else parent
                if isinstance(call, ast.Call):
                    self._argument(module, call, expr)
            case ast.Return():
                function = next(up for up in module.names.ancestors(parent) if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef)))
                for other, call in self.found.resolver.call_sites(function):
                    self.value(other, call)
            case ast.IfExp():
                self.value(module, parent)
            case ast.Expr() | ast.Compare() | ast.If() | ast.Delete() | ast.FormattedValue():
                pass
            case _:
                self.problem_at(module, parent if isinstance(parent, ast.expr) else expr, "goes where its calls can't be followed")

    def _attribute(self, module: Module, attribute: ast.Attribute) -> None:
        above = module.names.parent_of.get(attribute)
        if attribute.attr in WAYS_AROUND:
            self.problem_at(module, attribute, "is run, or changed, by something other than a call of it")
        elif attribute.attr in ITSELF and isinstance(above, ast.Call) and above.func is attribute:
            self.value(module, above)

    def _target(self, module: Module, target: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            self.problem_at(module, target, "goes where its calls can't be followed")
            return
        for other, use in reads(self.found, module, target):
            self.value(other, use)

    def _argument(self, module: Module, call: ast.Call, expr: ast.expr) -> None:
        """Into the script's own functions; a library that gets the model may call it."""
        if self.found.resolver.library(module, call.func) in LOOKING:
            return
        function = self.found.resolver.definition(module, call.func)
        if function is None or isinstance(function.node, ast.ClassDef):
            self.problem_at(module, call, "is given to code that may call it")
            return
        arguments = function.node.args
        names = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        name = next((name for name in names if argument(call, function.node, name, bound=False) is expr), None)
        scope = function.module.names.inner.get(function.node)
        if name is None or scope is None:
            self.problem_at(module, call, "is given to code that may call it")
            return
        for node in ast.walk(function.node):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                if function.module.names.scope_of[node].lookup(name) is scope:
                    self.value(function.module, node)
