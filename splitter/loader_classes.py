"""Which loader classes an expression may stand for, and what a subclass of torch's loader may do.

Loader = EpochLoader if fast else DataLoader      Loader -> the subclass EpochLoader, and torch's own, each where it is written
make = partial(DataLoader, batch_size=4)          make   -> torch's own, with the arguments of the partial
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from splitter.flow import reaching
from splitter.knowledge import LOADERS
from splitter.options import Reader
from splitter.other_loaders import other_loader
from splitter.places import Place, function_of
from splitter.read import Module
from splitter.resolve import Definition, Library, Resolver, Target, Value, argument, default
from splitter.scopes import Binding, position

_DEPTH = 8
# Names of the runtime's loader.
RUNTIME = frozenset("feed env send inline rebuilt _site _send _known _to_send _hand_over".split())
# What a subclass can't replace: the runtime does, or torch's iterators rely on it.
OWN = RUNTIME | frozenset(
    """
_get_iterator _auto_collation _index_sampler multiprocessing_context check_worker_number_rationality __new__
__setattr__ __getattribute__ __getattr__ __init_subclass__ __reduce__ __reduce_ex__ __getstate__ __setstate__
""".split()
)
# What the runtime reads from the constructor's arguments: an assignment later would not be seen.
GIVEN = frozenset("dataset collate_fn worker_init_fn num_workers multiprocessing_context _dataset_kind".split())
# The inside of torch's iterators.
INSIDE = frozenset(
    """
_workers _index_queues _worker_result_queue _data_queue _worker_queue_idx_cycle _workers_status _shutdown_workers _try_get_data _get_data
_next_data _next_index _try_put_index _process_data _dataset_fetcher _sampler_iter _task_info _send_idx _rcvd_idx _tasks_outstanding
_base_seed _pin_memory_thread _mark_worker_as_unavailable _reset _DataLoader__multiprocessing_context
""".split()
)


@dataclass(frozen=True, eq=False)
class Leaf:
    """One class that an expression may stand for, and where it is written; `definition` is set for the program's own subclasses.

    `other` says what it is when it is no loader that splitter edits. `partials` are the calls of functools.partial around it, the
    innermost first.
    """

    place: Place
    definition: Definition | None = None
    other: str | None = None
    partials: tuple[tuple[Module, ast.Call], ...] = ()

    @property
    def loader(self) -> bool:
        return self.other is None


class LoaderClasses:
    """Looks classes up; `leaves` gives [] for what is no loader at all."""

    def __init__(self, resolver: Resolver, reader: Reader) -> None:
        self.resolver = resolver
        self.reader = reader

    def leaves(self, module: Module, expr: ast.expr, depth: int = 0) -> list[Leaf]:
        """Every class that `expr` may be; with what else it may be when at least one of them is a loader."""
        found = list(self._leaves(module, expr, depth))
        return found if any(leaf.loader or leaf.other != _ELSE for leaf in found) else []

    def _leaves(self, module: Module, expr: ast.expr, depth: int) -> Iterator[Leaf]:
        if depth > _DEPTH:
            yield Leaf(Place(module, expr), other=_ELSE)
            return
        match expr:
            case ast.IfExp(body=left, orelse=right):
                yield from self._leaves(module, left, depth + 1)
                yield from self._leaves(module, right, depth + 1)
            case ast.BoolOp(values=parts):
                for part in parts:
                    yield from self._leaves(module, part, depth + 1)
            case ast.NamedExpr(value=value):
                yield from self._leaves(module, value, depth + 1)
            case ast.Constant(value=None):
                return
            case ast.Subscript(value=base) if self.resolver.library(module, base) in LOADERS:
                yield Leaf(Place(module, expr))
            case ast.Call() if self.resolver.library(module, expr.func) == "functools.partial" and expr.args:
                for leaf in self._leaves(module, expr.args[0], depth + 1):
                    yield Leaf(leaf.place, leaf.definition, leaf.other, (*leaf.partials, (module, expr)))
            case ast.Name():
                yield from self._name(module, expr, depth)
            case ast.Attribute():
                yield from self._attribute(module, expr, depth)
            case _:
                yield Leaf(Place(module, expr), other=_ELSE)

    def _name(self, module: Module, expr: ast.Name, depth: int) -> Iterator[Leaf]:
        scope = module.names.scope_of[expr].lookup(expr.id)
        if scope is None:
            for target in self.resolver.targets(module, expr) or (None,):
                yield from self._target(module, expr, target, depth)
            return
        owner = self.resolver.module(scope)
        for binding in reaching(expr, expr.id, module.names, scope):
            yield from self._binding(owner, binding, module, expr, depth)

    def _binding(self, owner: Module, binding: Binding, module: Module, expr: ast.expr, depth: int) -> Iterator[Leaf]:
        if binding.kind in ("import", "def", "class"):
            for target in self.resolver.of_binding(owner, binding):
                yield from self._target(module, expr, target, depth)
        elif binding.kind in ("assign", "walrus") and binding.value is not None and not binding.path:
            if _compared(self.resolver, owner, binding):
                yield Leaf(Place(module, expr), other=_ELSE)
            yield from self._leaves(owner, binding.value, depth + 1)
        elif binding.kind == "param" and _telling(binding.name):
            yield from self._parameter(owner, binding, depth)
        else:
            yield Leaf(Place(module, expr), other=_ELSE)

    def _parameter(self, module: Module, binding: Binding, depth: int) -> Iterator[Leaf]:
        function = function_of(module, binding.node)
        if function is None or binding.node in (function.args.vararg, function.args.kwarg) or self.reader.places.escapes(module, function):
            yield Leaf(Place(module, ast.Name(binding.name)), other=_ELSE)
            return
        bound, fallback = self.resolver.owner(module, function) is not None, default(function, binding.name)
        if fallback is not None:
            yield from self._leaves(module, fallback, depth + 1)
        for caller, call in self.resolver.call_sites(function):
            given = argument(call, function, binding.name, bound=bound)
            if given is not None:
                yield from self._leaves(caller, given, depth + 1)
            elif any(k.arg is None for k in call.keywords) or any(isinstance(arg, ast.Starred) for arg in call.args):
                yield Leaf(Place(caller, call), other=_ELSE)

    def _attribute(self, module: Module, expr: ast.Attribute, depth: int) -> Iterator[Leaf]:
        targets = self.resolver.targets(module, expr)
        for target in targets:
            yield from self._target(module, expr, target, depth)
        values = list(self.reader.places.stored(module, expr)) if not targets and _telling(expr.attr) else []
        for value in values:
            yield from self._leaves(value.module, value.expr, depth + 1)
        if not targets and not values:
            yield Leaf(Place(module, expr), other=_ELSE)

    def _target(self, module: Module, expr: ast.expr, target: Target | None, depth: int) -> Iterator[Leaf]:
        place = Place(module, expr)
        if isinstance(target, Library) and target.name in LOADERS:
            yield Leaf(place)
        elif isinstance(target, Library):
            yield Leaf(place, other=other_loader(target.name) or _ELSE)
        elif isinstance(target, Definition) and isinstance(target.node, ast.ClassDef):
            libraries = self.resolver.ancestry(target)[0]
            others = [what for name in sorted(libraries) if (what := other_loader(name))]
            loader = bool(libraries & LOADERS)
            yield Leaf(place, target if loader else None, None if loader else f"{target.node.name}, {others[0]}," if others else _ELSE)
        elif isinstance(target, Value):
            yield from self._binding(target.module, target.binding, module, expr, depth + 1)
        else:
            yield Leaf(place, other=_ELSE)

    # -- subclasses ----------------------------------------------------------------------------------------------------

    def lineage(self, definition: Definition) -> list[Definition]:
        """The program's own classes from a subclass of torch's loader up to the one that names it as its base."""
        chain: list[Definition] = []
        current = definition
        while not any(current.node is seen.node for seen in chain):
            chain.append(current)
            above = [base for base in self.resolver.bases(current) if isinstance(base, Definition) and self.is_loader(base)]
            if not above:
                break
            current = above[0]
        return chain

    def is_loader(self, definition: Definition) -> bool:
        return isinstance(definition.node, ast.ClassDef) and bool(self.resolver.ancestry(definition)[0] & LOADERS)

    def bases(self, definition: Definition) -> list[Place]:
        """Where a subclass names torch's loader as its base."""
        top = self.lineage(definition)[-1]
        assert isinstance(top.node, ast.ClassDef)
        return [Place(top.module, base) for base in top.node.bases if self._torch_base(top.module, base)]

    def _torch_base(self, module: Module, base: ast.expr) -> bool:
        return self.resolver.library(module, base.value if isinstance(base, ast.Subscript) else base) in LOADERS

    def problem(self, definition: Definition) -> str | None:
        """What a subclass does that torch's loader is not asked to bear; None when its batches can come from elsewhere."""
        for owner in self.lineage(definition):
            node = owner.node
            assert isinstance(node, ast.ClassDef)
            name = f"`{node.name}`, a subclass of DataLoader"
            if not self._plain_bases(owner):
                return f"{name} with other bases or a metaclass,"
            defined = sorted(_members(node) & OWN)
            if defined:
                return f"{name} with its own `{defined[0]}`,"
            if (inside := _touches(owner)) is not None:
                return f"{name} that does `{owner.module.text(inside)}`,"
            late = next(self._late(owner), None)
            if late is not None:
                return f"{name} that sets `{owner.module.text(late)}`,"
        return None

    def _plain_bases(self, owner: Definition) -> bool:
        """One base that is a loader, written once; the others have no constructor."""
        node = owner.node
        assert isinstance(node, ast.ClassDef)
        loaders = 0
        for base in node.bases:
            plain = base.value if isinstance(base, ast.Subscript) else base
            targets = self.resolver.targets(owner.module, plain)
            if all(isinstance(t, Library) and t.name in LOADERS for t in targets) and targets:
                loaders += 1
                if isinstance(base, ast.Subscript) and self._subscripted(node.name):
                    return False
            elif len(targets) == 1 and isinstance(targets[0], Definition):
                if self.is_loader(targets[0]):
                    loaders += 1
                elif self.resolver.ancestry(targets[0])[0] - _BARE or self.resolver.method(targets[0], "__init__"):
                    return False
            elif not (targets and all(isinstance(t, Library) and t.name in _BARE for t in targets)):
                return False
        return loaders == 1 and not node.keywords

    def _subscripted(self, name: str) -> bool:
        return any(isinstance(module.names.parent_of.get(node), ast.Subscript) for module, node in self.resolver.program.mentions(name))

    def _late(self, owner: Definition) -> Iterator[ast.Attribute]:
        """Assignments to `self.dataset` and the like that come after torch's constructor."""
        for method in owner.node.body:
            starts = [position(call) for call in initialising(self.resolver, owner.module, method)]
            for node in ast.walk(method):
                if isinstance(node, ast.Attribute) and node.attr in GIVEN and not isinstance(node.ctx, ast.Load):
                    if not starts or position(node) > min(starts):
                        yield node


def _telling(name: str) -> bool:
    """Whether a parameter or attribute may hold a class: following each would take long in large programs."""
    return any(word in name.lower() for word in ("loader", "cls", "class", "make", "factory", "builder"))


_ELSE = "something else"
_BARE = frozenset({"builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol"})


def _members(node: ast.ClassDef) -> set[str]:
    found: set[str] = set()
    for stmt in node.body:
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(stmt.name)
            if stmt.name in GIVEN and stmt.decorator_list and not _static(stmt):
                found.add("_get_iterator")  # a property in the place of an argument
        elif isinstance(stmt, (ast.Assign, ast.AnnAssign)):
            for target in stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]:
                found |= {name.id for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found


def _static(stmt: ast.AST) -> bool:
    decorators = getattr(stmt, "decorator_list", [])
    return all(isinstance(d, ast.Name) and d.id in ("staticmethod", "classmethod") for d in decorators)


def _touches(owner: Definition) -> ast.expr | None:
    """Where a class reaches into torch's iterators, or sets attributes whose names the text doesn't tell."""
    for node in ast.walk(owner.node):
        if isinstance(node, ast.Attribute) and (node.attr in INSIDE or node.attr == "__dict__"):
            return node
        if isinstance(node, ast.Attribute) and node.attr in RUNTIME and not isinstance(node.ctx, ast.Load):
            return node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr", "vars", "exec"):
            return node
    return None


def _compared(resolver: Resolver, module: Module, binding: Binding) -> bool:
    """A class in a variable that is also asked about: isinstance(loader, loader_class)."""
    for node in module.mentioned.get(binding.name, ()):
        parent = module.names.parent_of.get(node)
        asked = isinstance(parent, ast.Compare) and not all(isinstance(c, ast.Constant) and c.value is None for c in parent.comparators)
        if asked or (
            isinstance(parent, ast.Call)
            and parent.func is not node
            and resolver.library(module, parent.func) in ("builtins.isinstance", "builtins.issubclass")
        ):
            return True
    return False


def initialising(resolver: Resolver, module: Module, function: ast.AST) -> list[ast.Call]:
    """The calls in a constructor that run the next class's: `super().__init__(...)`, `DataLoader.__init__(self, ...)`."""
    found = []
    if isinstance(function, ast.FunctionDef) and function.name == "__init__":
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
                if is_super(resolver, module, node.func.value) or resolver.targets(module, node.func.value):
                    found.append(node)
    return found


def is_super(resolver: Resolver, module: Module, expr: ast.expr) -> bool:
    return isinstance(expr, ast.Call) and resolver.library(module, expr.func) == "builtins.super"
