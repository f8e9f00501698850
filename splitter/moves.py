"""Statements that move a part of a batch to a device, and do nothing else with it.

    images = images.to(device, non_blocking=True)                     images, target = images.cuda(), target.cuda()
    if args.gpu is not None: images = images.cuda(args.gpu)           image = batch["image"].to(device)
    batch = {name: value.to(device) for name, value in batch.items()}     batch = [part.to(device) for part in batch]

`x.to(other)` moves when `other` is a device: a string, a number, torch.device(...), or a variable that is named like one and isn't seen to
be anything else. The runtime compares the types of the batch before and after, so a mistake here is an error there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from splitter.effects import is_device
from splitter.find import Found
from splitter.head_loops import Loop
from splitter.ir_cut import Keys
from splitter.resolve import Library, Value, argument, default

NAMES = frozenset({"gpu", "rank", "local_rank", "device_id", "gpu_id"})
DEVICES = ("torch.device", "torch.cuda.current_device", "torch.accelerator.current_accelerator")
CONDITIONS = frozenset({"torch.is_tensor", "builtins.isinstance", "builtins.hasattr"})
EVERYTHING = frozenset({"locals", "globals", "vars", "eval", "exec"})  # may have any variable
_DEEPEST = 6  # variables that hold one another

Moved = tuple[ast.expr, Keys]  # what has the part then, and its keys


class Moves:
    """Looks at statements of a loop for the part at `keys`; `holders` are the variables that have it, or something that has it."""

    def __init__(self, found: Found, loop: Loop, keys: Keys, holders: dict[str, Keys]) -> None:
        self.found, self.module, self.keys, self.holders = found, loop.module, keys, holders
        self.scope = loop.module.names.scope_of[loop.node].function()

    # --- parts

    def part(self, expr: ast.expr) -> Keys | None:
        """The keys of what an expression is, when that has the part, or is in it: `batch["image"]`."""
        if isinstance(expr, ast.Name):
            held = self.holders.get(expr.id)
            return held if held is not None and self._is_here(expr) else None
        if isinstance(expr, ast.Subscript) and (inner := self.part(expr.value)) is not None:
            key = expr.slice.value if isinstance(expr.slice, ast.Constant) else None
            if len(inner) < len(self.keys) and type(key) in (int, str):
                assert isinstance(key, (int, str))
                return (*inner, key)
        return None

    def _is_here(self, name: ast.Name) -> bool:
        return self.module.names.scope_of[name].lookup(name.id) is self.scope

    def mentions(self, node: ast.AST) -> bool:
        """Whether a statement or an expression does more with the part than to ask for the number of samples."""
        return any(True for _ in self._mentioned(node)) or any(
            isinstance(name, ast.Name) and name.id in EVERYTHING and self.module.names.scope_of[name].lookup(name.id) is None
            for name in ast.walk(node)
        )

    def _mentioned(self, node: ast.AST) -> Iterator[ast.expr]:
        for name in ast.walk(node):
            if not isinstance(name, ast.Name) or name.id not in self.holders or not self._is_here(name):
                continue
            whole: ast.expr = name
            parent = self.module.names.parent_of[whole]
            while isinstance(parent, ast.Subscript) and parent.value is whole and self.part(parent) is not None:
                whole, parent = parent, self.module.names.parent_of[parent]
            keys = self.part(whole)
            if keys is None or keys == self.keys[: len(keys)]:
                if not (isinstance(name.ctx, ast.Load) and keys is not None and self._counts(whole)):
                    yield whole

    def _counts(self, part: ast.expr) -> bool:
        """`images.size(0)`, `images.shape[0]`, `len(images)`, `len(batch)`."""
        parent = self.module.names.parent_of[part]
        above = self.module.names.parent_of.get(parent)
        whole = self.part(part) == self.keys
        match parent, above:
            case ast.Call(args=[_], keywords=[]), _ if parent.func is not part:
                return self.found.resolver.library(self.module, parent.func) == "builtins.len"
            case ast.Attribute(attr="size"), ast.Call(args=[ast.Constant(value=0)], keywords=[]):
                return whole and above.func is parent
            case ast.Attribute(attr="shape"), ast.Subscript(slice=ast.Constant(value=0)):
                return whole and isinstance(above.ctx, ast.Load)
        return False

    def unpacked(self, target: ast.expr, keys: Keys, into: dict[str, Keys]) -> bool:
        """Note the variables of a target that have the part; False when it takes the part apart, or has something else in it."""
        if isinstance(target, ast.Name):
            if keys == self.keys[: len(keys)]:
                into[target.id] = keys
            return True
        if isinstance(target, (ast.Tuple, ast.List)) and (len(keys) < len(self.keys) or keys != self.keys[: len(keys)]):
            return all(self.unpacked(part, (*keys, number), into) for number, part in enumerate(target.elts))
        return False

    # --- statements

    def renamed(self, stmt: ast.stmt) -> bool:
        """Take `images, labels = batch`, `image = batch["image"]`: the same under another name."""
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            return False
        fresh: dict[str, Keys] = {}
        for target, value in _pairs(stmt.targets[0], stmt.value):
            keys = self.part(value)
            if keys is None:
                if self.mentions(target) or self.mentions(value):
                    return False
            elif not self.unpacked(target, keys, fresh):
                return False
        if any(name in self.holders for name in fresh):
            return False
        self.holders.update(fresh)
        return True

    def moved(self, stmt: ast.stmt) -> Moved | None:
        """What has the part once a statement has moved it; None for a statement that does anything else with it."""
        if isinstance(stmt, ast.If):
            return self._moved_in(stmt)
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            return None
        found: list[Moved] = []
        for target, value in _pairs(stmt.targets[0], stmt.value):
            keys = self._moved_value(value) if isinstance(target, ast.Tuple) or not isinstance(value, ast.GeneratorExp) else None
            taken = None if keys is None else self._target(target, keys)
            if taken is not None:
                found.append(taken)
            elif keys is not None or self.mentions(target) or self.mentions(value):
                return None
        return found[0] if len(found) == 1 else None

    def _moved_in(self, stmt: ast.If) -> Moved | None:
        """`if cuda: images = images.cuda()`: the same variable has the part, moved or not."""
        if self.mentions(stmt.test):
            return None
        found: dict[str, Moved] = {}
        for inner in (*stmt.body, *stmt.orelse):
            if not self.mentions(inner):
                continue
            moved = self.moved(inner)
            if moved is None or (isinstance(inner, ast.Assign) and self.part(moved[0]) != moved[1]):
                return None
            found[self.module.text(moved[0])] = moved
        return next(iter(found.values())) if len(found) == 1 else None

    def _target(self, target: ast.expr, keys: Keys) -> Moved | None:
        """The variable, or the place in the batch, that is given what was moved."""
        if isinstance(target, ast.Name):
            return (target, keys) if self._is_here(target) else None
        if isinstance(target, ast.Subscript):
            return (target, keys) if self.part(target) == keys else None
        if isinstance(target, (ast.Tuple, ast.List)) and len(keys) < len(self.keys):
            place = self.keys[len(keys)]
            plain = all(isinstance(part, ast.Name) for part in target.elts)
            if plain and isinstance(place, int) and place < len(target.elts):
                return self._target(target.elts[place], (*keys, place))
        return None

    # --- expressions

    def _moved_value(self, value: ast.expr) -> Keys | None:
        """The keys of what an expression has moved."""
        match value:
            case ast.Call(func=ast.Attribute(value=inner)) if self._is_move(value):
                keys = self.part(inner)
                keys = self._moved_value(inner) if keys is None else keys
                return keys if keys == self.keys else None
            case ast.Call(func=func, args=[ast.GeneratorExp() as each], keywords=[]):
                names = ("builtins.tuple", "builtins.list")
                return self._each(each) if self.found.resolver.library(self.module, func) in names else None
            case ast.ListComp() | ast.GeneratorExp():
                return self._each(value)
            case ast.DictComp():
                return self._items(value)
        return None

    def _each(self, made: ast.ListComp | ast.GeneratorExp) -> Keys | None:
        """`[part.to(device) for part in batch]`"""
        match made.generators:
            case [ast.comprehension(target=ast.Name(id=name), iter=batch, ifs=[], is_async=0)]:
                return self._holder(batch) if self._moves_name(made.elt, name) else None
        return None

    def _items(self, made: ast.DictComp) -> Keys | None:
        """`{name: value.to(device) for name, value in batch.items()}`"""
        match made.key, made.generators:
            case (
                ast.Name(id=key),
                [
                    ast.comprehension(
                        target=ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)]),
                        iter=ast.Call(func=ast.Attribute(value=batch, attr="items"), args=[], keywords=[]),
                        ifs=[],
                        is_async=0,
                    )
                ],
            ) if key == first != second:
                return self._holder(batch) if self._moves_name(made.value, second) else None
        return None

    def _holder(self, batch: ast.expr) -> Keys | None:
        keys = self.part(batch)
        return keys if keys is not None and len(keys) + 1 == len(self.keys) else None

    def _moves_name(self, expr: ast.expr, name: str) -> bool:
        """`value.to(device)`, and the same for tensors alone: `value.to(device) if torch.is_tensor(value) else value`."""
        match expr:
            case ast.IfExp(test=ast.Call(func=test), body=moved, orelse=ast.Name(id=other)) if other == name:
                return self.found.resolver.library(self.module, test) in CONDITIONS and self._moves_name(moved, name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=inner))) if inner == name:
                return self._is_move(expr)
        return False

    def _is_move(self, call: ast.Call) -> bool:
        """`x.to(device)`, `x.cuda(non_blocking=True)`: a move, and no change of the type."""
        assert isinstance(call.func, ast.Attribute)
        if any(k.arg not in ("device", "non_blocking") for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
            return False
        where = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "device")]
        if any(self.mentions(part) for part in (*call.args, *(k.value for k in call.keywords))):
            return False
        if call.func.attr in ("cuda", "xpu"):
            return len(call.args) <= 2
        return call.func.attr == "to" and len(call.args) <= 1 and len(where) == 1 and self._is_device(where[0])

    def _is_device(self, expr: ast.expr, depth: int = 0) -> bool:
        """Whether an expression is a device, and neither a type nor a tensor."""
        if depth > _DEEPEST:
            return False
        match expr:
            case ast.Constant(value=value):
                return type(value) in (str, int)
            case ast.JoinedStr():
                return True
            case ast.IfExp(body=one, orelse=other):
                return self._is_device(one, depth + 1) and self._is_device(other, depth + 1)
            case ast.Call(func=func):
                return (self.found.resolver.library(self.module, func) or "") in DEVICES
        if not isinstance(expr, (ast.Name, ast.Attribute)):
            return False
        name = expr.attr if isinstance(expr, ast.Attribute) else expr.id
        seen = [self._is_value(target, depth) for target in self.found.resolver.targets(self.module, expr)]
        return all(found is not False for found in seen) and (is_device(expr) or name in NAMES or (bool(seen) and all(seen)))

    def _is_value(self, target: object, depth: int) -> bool | None:
        """Whether a variable is seen to be a device; None when that isn't seen."""
        if isinstance(target, Library):
            return target.name in DEVICES
        if not isinstance(target, Value) or target.module is not self.module:
            return None
        binding = target.binding
        if binding.kind == "assign" and binding.value is not None and not binding.path:
            return self._is_given(binding.value, depth)
        function = self.module.names.parent_of.get(self.module.names.parent_of.get(binding.node, binding.node))
        if binding.kind == "param" and isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            bound = self.found.resolver.owner(self.module, function) is not None
            calls = self.found.resolver.call_sites(function)
            given = [(m, argument(c, function, binding.name, bound=bound) or default(function, binding.name)) for m, c in calls]
            seen = [None if expr is None or module is not self.module else self._is_given(expr, depth) for module, expr in given]
            return False if False in seen else True if seen and all(seen) else None
        return None

    def _is_given(self, expr: ast.expr, depth: int) -> bool | None:
        """As `_is_value`, of what a variable is given: only what says otherwise is a reason against it."""
        if self._is_device(expr, depth + 1):
            return True
        known = isinstance(expr, ast.Constant) and expr.value is not None
        return False if known or self.found.resolver.library(self.module, expr) is not None else None


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """What is given to what: `a, b = c, d` is two assignments."""
    sides = [side for side in (target, value) if isinstance(side, (ast.Tuple, ast.List))]
    if len(sides) == 2 and len(sides[0].elts) == len(sides[1].elts):
        return list(zip(sides[0].elts, sides[1].elts, strict=True))
    return [(target, value)]
