"""Names and what they are bound to.

    def f(a):            Scope(function f): a -> parameter
        b = a + 1                           b -> assign, value `a + 1`
        return b         reaching(b) -> the one binding in the line above

A scope holds every binding of its names; `reaching` picks those that can be the value of one use.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

ScopeKind = Literal["module", "class", "function", "lambda", "comprehension"]
BindingKind = Literal[
    "import", "star", "def", "class", "param", "assign", "augment", "for", "with", "except", "walrus", "comp", "delete", "match"
]
ScopeNode = (
    ast.Module
    | ast.ClassDef
    | ast.FunctionDef
    | ast.AsyncFunctionDef
    | ast.Lambda
    | ast.ListComp
    | ast.SetComp
    | ast.DictComp
    | ast.GeneratorExp
)
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__"}


@dataclass(frozen=True, eq=False)
class Binding:
    """One place that gives a name a value. `path` leads from `value` to the name through unpacking: (1,) in `a, b = value` for b."""

    name: str
    kind: BindingKind
    node: ast.AST
    scope: Scope
    value: ast.expr | None = None
    path: tuple[int, ...] = ()
    origin: str | None = None


@dataclass(eq=False)
class Scope:
    """One namespace. Filled once while the module is read, read-only afterwards."""

    kind: ScopeKind
    node: ScopeNode
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)

    @property
    def root(self) -> Scope:
        return self if self.parent is None else self.parent.root

    def lookup(self, name: str) -> Scope | None:
        """The scope that holds `name` for code in this scope, or None for a builtin or an unknown name."""
        scope: Scope | None = self
        first = True
        while scope is not None:
            if name in scope.globals:
                return scope.root if name in scope.root.bindings else None
            if name in scope.bindings and name not in scope.nonlocals and (first or scope.kind != "class"):
                return scope
            first = first and scope.kind == "comprehension" and scope.parent is not None and scope.parent.kind == "class"
            scope = scope.parent
        return None

    def function(self) -> Scope:
        """The nearest scope that is a function, a class or the module (comprehensions and lambdas belong to it)."""
        scope = self
        while scope.kind in ("comprehension", "lambda") and scope.parent is not None:
            scope = scope.parent
        return scope


@dataclass(eq=False)
class Names:
    """What one module's names mean: its scopes, and for every node its parent and its scope."""

    top: Scope
    scope_of: dict[ast.AST, Scope]
    inner: dict[ast.AST, Scope]
    parent_of: dict[ast.AST, ast.AST]

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds `node`."""
        while not isinstance(node, ast.stmt):
            node = self.parent_of[node]
        return node

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parent_of:
            node = self.parent_of[node]
            yield node


class _Builder(ast.NodeVisitor):
    """Fills scopes in two moves: every node gets its scope, every binding form adds a binding."""

    def __init__(self, tree: ast.Module) -> None:
        self.scope = Scope("module", tree, None)
        self.names = Names(self.scope, {tree: self.scope}, {tree: self.scope}, {})

    def visit(self, node: ast.AST) -> None:
        self.names.scope_of.setdefault(node, self.scope)
        for child in ast.iter_child_nodes(node):
            self.names.parent_of[child] = node
        super().visit(node)

    def bind(
        self,
        name: str,
        kind: BindingKind,
        node: ast.AST,
        value: ast.expr | None = None,
        path: tuple[int, ...] = (),
        origin: str | None = None,
    ) -> None:
        scope = self.scope
        if kind == "walrus":
            while scope.kind == "comprehension" and scope.parent is not None:
                scope = scope.parent
        if name in scope.globals:
            scope = scope.root
        while name in scope.nonlocals and scope.parent is not None:
            scope = scope.parent
            if scope.kind == "function" and name in scope.bindings and name not in scope.nonlocals:
                break
        scope.bindings.setdefault(name, []).append(Binding(name, kind, node, scope, value, path, origin))

    def bind_target(self, target: ast.expr, kind: BindingKind, node: ast.AST, value: ast.expr | None, path: tuple[int, ...] = ()) -> None:
        if isinstance(target, ast.Name):
            self.bind(target.id, kind, node, value, path)
        elif isinstance(target, (ast.Tuple, ast.List)):
            starred = next((i for i, item in enumerate(target.elts) if isinstance(item, ast.Starred)), len(target.elts))
            for index, item in enumerate(target.elts):
                known = index < starred
                self.bind_target(
                    item.value if isinstance(item, ast.Starred) else item, kind, node, value if known else None, (*path, index)
                )

    def inside(self, kind: ScopeKind, node: ScopeNode, body: list[ast.AST]) -> None:
        outer, self.scope = self.scope, Scope(kind, node, self.scope)
        self.names.inner[node] = self.scope
        if kind in ("function", "lambda"):
            arguments: ast.arguments = node.args  # type: ignore[union-attr]
            _declare(node, self.scope)
            for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                self.bind(arg.arg, "param", arg)
            for rest in (arguments.vararg, arguments.kwarg):
                if rest is not None:
                    self.bind(rest.arg, "param", rest)
        for child in body:
            self.visit(child)
        self.scope = outer

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.bind(node.name, "def", node)
        for child in (*node.decorator_list, node.args, *([node.returns] if node.returns else [])):
            self.visit(child)
        self.inside("function", node, list(node.body))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bind(node.name, "class", node)
        for child in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(child)
        self.inside("class", node, list(node.body))

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        self.inside("lambda", node, [node.body])

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        self.visit(node.generators[0].iter)
        outer, self.scope = self.scope, Scope("comprehension", node, self.scope)
        self.names.inner[node] = self.scope
        for index, generator in enumerate(node.generators):
            self.names.scope_of[generator] = self.scope
            for child in ast.iter_child_nodes(generator):
                self.names.parent_of[child] = generator
            self.bind_target(generator.target, "comp", generator, generator.iter)
            self.visit(generator.target)
            if index:
                self.visit(generator.iter)
            for test in generator.ifs:
                self.visit(test)
        for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self.visit(part)
        self.scope = outer

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = comprehension

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.bind(
                alias.asname or alias.name.split(".")[0], "import", node, origin=alias.name if alias.asname else alias.name.split(".")[0]
            )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.bind("*", "star", node, origin=module)
            else:
                self.bind(alias.asname or alias.name, "import", node, origin=f"{module}:{alias.name}")

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self.bind_target(target, "assign", node, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.bind_target(node.target, "assign", node, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.bind_target(node.target, "augment", node, None)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.bind(node.target.id, "walrus", node, node.value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.bind_target(node.target, "for", node, node.iter)
        self.generic_visit(node)

    visit_AsyncFor = visit_For

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self.bind_target(item.optional_vars, "with", node, item.context_expr)
        self.generic_visit(node)

    visit_AsyncWith = visit_With

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.bind(node.name, "except", node)
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.bind(target.id, "delete", node)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name:
            self.bind(node.name, "match", node)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self.bind(node.name, "match", node)
        self.generic_visit(node)


def _declare(node: ast.AST, scope: Scope) -> None:
    """`global` and `nonlocal` hold for the whole function, so they are collected before its body is read."""
    stack = list(ast.iter_child_nodes(node))
    while stack:
        child = stack.pop()
        if isinstance(child, ast.Global):
            scope.globals.update(child.names)
        elif isinstance(child, ast.Nonlocal):
            scope.nonlocals.update(child.names)
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            stack.extend(ast.iter_child_nodes(child))


def resolve_names(tree: ast.Module) -> Names:
    """Read every scope of a module."""
    builder = _Builder(tree)
    for statement in tree.body:
        builder.names.parent_of[statement] = tree
        builder.visit(statement)
    return builder.names


def free_names(node: ast.AST, names: Names) -> Iterator[ast.Name]:
    """The names that `node` reads and does not bind in a scope of its own."""
    inside = {names.inner[child] for child in ast.walk(node) if child in names.inner}
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load) and child in names.scope_of:
            if names.scope_of[child].lookup(child.id) not in inside:
                yield child


def position(node: ast.AST) -> tuple[int, int]:
    """Line and column of a node that has a place in the text, for comparing."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
