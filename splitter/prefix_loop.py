"""What becomes of every batch of a loader, place by place.

    for features, prices, clicked in loader:             places 0, 1 and 2
        features = features.to(device)                   0 moves to a device
        loss = loss_fn(model(features, prices), clicked) 0 is the argument `features` of the model, 1 is `prices`, 2 is read

A place may be taken by another value when all that is done with it is to give it to the model.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from splitter.changes import loads
from splitter.effects import is_device
from splitter.find import Found
from splitter.flow import enclosing_loops, reaching
from splitter.loader_uses import loader_flow
from splitter.prefix_model import Model
from splitter.prefix_types import WHOLE
from splitter.read import Module
from splitter.scopes import Binding, Scope, position
from splitter.sites import Site

Key = int | str
MOVES = frozenset({"to", "cuda", "xpu", "pin_memory"})
BARS = frozenset({"tqdm.tqdm", "tqdm.auto.tqdm", "itertools.islice"})
LATE = (ast.Lambda, ast.GeneratorExp, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)  # code that may run later, with other values
NOT_SENT = "__iter__ __getitem__ _get_iterator".split()


@dataclass(frozen=True, eq=False)
class Event:
    """What is done with the value at one place of a batch. `parameter`: it is given to the model as that."""

    key: Key
    module: Module
    node: ast.expr
    device: bool
    parameter: str | None = None


@dataclass(eq=False)
class Loop:
    """One loop over a loader. `names`: those of the places of a batch, when the loop unpacks it."""

    module: Module
    node: ast.For
    iterated: ast.expr
    target: ast.expr
    names: tuple[str, ...] | None = None
    events: list[Event] = field(default_factory=list)


class NotFollowed(Exception):
    """A use of a loader, or of its batches, that can't be followed; carries the place."""

    def __init__(self, module: Module, node: ast.AST) -> None:
        super().__init__(module.text(node))
        self.module, self.node = module, node


def loops(found: Found, site: Site, model: Model) -> list[Loop]:
    """All loops over the loader of a site. Raises NotFollowed when the loader is iterated otherwise."""
    places = {id(expr) for _, expr in loader_flow(found, site).loaders}
    result = []
    for module in found.program.modules.values():
        for node in ast.walk(module.tree) if "names" in module.__dict__ else ():
            if id(node) in places and isinstance(node, ast.expr):
                loop = _loop(found, module, node)
                if loop is not None:
                    _Batch(found, model, loop).follow()
                    result.append(loop)
    return result


def _loop(found: Found, module: Module, loader: ast.expr) -> Loop | None:
    """The loop that a use of a loader is the iterable of; None when the use does not iterate."""
    used, depth = loader, 0
    while True:
        parent = module.names.parent_of[used]
        match parent:
            case ast.For() if parent.iter is used:
                target = parent.target
                for _ in range(depth):
                    if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
                        raise NotFollowed(module, parent.iter)
                    target = target.elts[1]
                if not isinstance(target, ast.Name) and not _flat(target):
                    raise NotFollowed(module, target)
                return Loop(module, parent, loader, target)
            case ast.Call() if parent.args[:1] == [used]:
                name = found.resolver.library(module, parent.func)
                if name == "builtins.enumerate" or name in BARS:
                    depth += name == "builtins.enumerate"
                    used = parent
                    continue
                if name is not None and name != "builtins.len":
                    raise NotFollowed(module, parent)
                return None
            case ast.Attribute():
                if parent.attr in NOT_SENT:
                    raise NotFollowed(module, parent)
                return None
            case ast.Assign() | ast.AnnAssign() | ast.Return() | ast.IfExp() | ast.Expr() | ast.If() | ast.Compare():
                return None
            case ast.keyword() | ast.Call() if found.resolver.library(module, _called(module, parent)) is None:
                return None  # followed into the function that is called
            case ast.Tuple() | ast.List() | ast.Dict() if isinstance(module.names.parent_of[parent], (ast.Return, ast.Assign)):
                return None  # followed into what it is given to
            case _:
                raise NotFollowed(module, parent if isinstance(parent, ast.expr) else used)


def _called(module: Module, node: ast.AST) -> ast.expr:
    call = module.names.parent_of[node] if isinstance(node, ast.keyword) else node
    return call.func if isinstance(call, ast.Call) else ast.Constant(None)


class _Batch:
    """Follows the batch of one loop."""

    def __init__(self, found: Found, model: Model, loop: Loop) -> None:
        self.found, self.model, self.loop = found, model, loop
        self.module = loop.module
        self.calls = {id(call) for _, call in model.calls}
        self.names = loop.module.names

    def follow(self) -> None:
        if isinstance(self.loop.target, ast.Name):
            self.batch(self.loop.target, self.loop.node, device=False)
        else:
            self.unpacked(self.loop.target, self.loop.node, device=False)

    def unpacked(self, target: ast.expr, binder: ast.AST, *, device: bool) -> None:
        """The reads of the names of the places of a batch."""
        names = [part for part in ast.walk(target) if isinstance(part, ast.Name)]
        self.loop.names = tuple(name.id for name in names)
        for key, part in enumerate(names):
            for use in self.uses(part, binder):
                self.value(key, use, device=device)

    def uses(self, target: ast.Name, binder: ast.AST) -> Iterator[ast.Name]:
        """The reads that a binding of a name alone can reach; one that others reach too is not followed."""
        scope: Scope | None = self.names.scope_of[target].lookup(target.id)
        home = self.names.scope_of[target].function().node
        for use in loads(self.module, target):
            found = self.arriving(use, scope) if scope is not None else []
            if any(binding.node is binder for binding in found):
                late = any(isinstance(up, LATE) for up in itertools.takewhile(lambda up: up is not home, self.names.ancestors(use)))
                if len(found) > 1 or late:
                    raise NotFollowed(self.module, use)
                yield use

    def arriving(self, use: ast.Name, scope: Scope) -> list[Binding]:
        """`reaching`, without what comes after the use in the same loop, whose header binds the name anew."""
        found = reaching(use, use.id, self.names, scope)
        header = next((b.node for b in found if isinstance(b.node, ast.For) and b.node in enclosing_loops(use, self.names, scope)), None)
        if header is None:
            return found
        within = enclosing_loops(use, self.names, scope)
        inner = within[: within.index(header)]
        begins = position(self.names.statement(use))
        return [
            binding
            for binding in found
            if binding.node is header
            or header not in enclosing_loops(binding.node, self.names, scope)
            or position(binding.node) < begins
            or any(loop in enclosing_loops(binding.node, self.names, scope) for loop in inner)
        ]

    def batch(self, target: ast.Name, binder: ast.AST, *, device: bool) -> None:
        """The reads of a name that is the whole batch."""
        for use in self.uses(target, binder):
            parent = self.names.parent_of[use]
            match parent:
                case ast.Subscript(value=value, slice=ast.Constant(value=int() | str() as key)) if value is use:
                    if not isinstance(parent.ctx, ast.Load) or (isinstance(key, int) and key < 0):
                        raise NotFollowed(self.module, parent)
                    self.value(key, parent, device=device)
                case ast.Assign(targets=[ast.Tuple() as names]) if self.loop.names is None and _flat(names):
                    self.unpacked(names, parent, device=device)
                case ast.Attribute(attr="items") if (moved := self.moved(parent)) is not None:
                    self.batch(*moved, device=True)
                case _:
                    self.value(WHOLE, use, device=device)

    def moved(self, items: ast.Attribute) -> tuple[ast.Name, ast.AST] | None:
        """`batch = {name: value.to(device) for name, value in batch.items()}`: the name that has the batch then, and its statement."""
        call = self.names.parent_of.get(items)
        generator = self.names.parent_of.get(call) if isinstance(call, ast.Call) else None
        made = self.names.parent_of.get(generator) if isinstance(generator, ast.comprehension) else None
        assign = self.names.parent_of.get(made) if isinstance(made, ast.DictComp) else None
        match made, assign:
            case (
                ast.DictComp(
                    key=ast.Name(id=key),
                    value=ast.Call(func=ast.Attribute(value=ast.Name(id=value), attr=attr)) as move,
                    generators=[ast.comprehension(target=ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)]), ifs=[])],
                ),
                ast.Assign(targets=[ast.Name() as target]),
            ) if (key, value) == (first, second) and attr in MOVES and _is_move(move):
                return target, assign
        return None

    def value(self, key: Key, expr: ast.expr, *, device: bool) -> None:
        """One read of a value of the batch."""
        parent = self.names.parent_of[expr]
        above = self.names.parent_of.get(parent)
        match parent:
            case ast.Attribute(attr=attr) if attr in MOVES and isinstance(above, ast.Call) and above.func is parent and _is_move(above):
                self.value(key, above, device=device or attr != "pin_memory")
                return
            case ast.Assign(targets=[ast.Name() as target]):
                for use in self.uses(target, parent):
                    self.value(key, use, device=device)
                return
            case ast.Tuple() if isinstance(above, ast.Assign) and len(above.targets) == 1 and _flat(above.targets[0], len(parent.elts)):
                names = above.targets[0]
                target = names.elts[parent.elts.index(expr)]  # type: ignore[attr-defined]
                for use in self.uses(target, above):
                    self.value(key, use, device=device)
                return
            case ast.Call() | ast.keyword():
                call = above if isinstance(parent, ast.keyword) else parent
                if isinstance(call, ast.Call) and id(call) in self.calls:
                    self.loop.events.append(Event(key, self.module, expr, device, self.model.parameter(call, expr)))
                    return
        self.loop.events.append(Event(key, self.module, expr, device))


def _flat(target: ast.expr, count: int | None = None) -> bool:
    """A tuple of names."""
    flat = isinstance(target, (ast.Tuple, ast.List)) and all(isinstance(part, ast.Name) for part in target.elts)
    return flat and (count is None or len(target.elts) == count)  # type: ignore[attr-defined]


def _is_move(call: ast.Call) -> bool:
    """`x.to(device)`, `x.cuda(non_blocking=True)`: a move, and no change of the type."""
    options = all(k.arg == "non_blocking" or (k.arg == "device") for k in call.keywords)
    return options and all(is_device(arg) or (isinstance(arg, ast.Constant) and arg.value == "cpu") for arg in call.args)
