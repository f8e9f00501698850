"""Which statements at the head of a loop a worker could run as well, as far as the text shows.

    for images, labels in loader:
        optimizer.zero_grad()                       stays, and ends nothing: it reads nothing of the batch
        images = images.float() / 255               could move
        labels = one_hot(labels, classes).float()   could move; `classes` is sent
        images = images.to(device)                  ends the head

A statement that could move gives new values to names of the batch, from them, from constants and from what a slice can take along;
nothing in it draws, prints, keeps state or touches a device.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from splitter.effects import Effects
from splitter.find import Found
from splitter.head_loops import Loop
from splitter.head_needs import Needs
from splitter.scopes import Scope, free_names
from splitter.sites import Site
from splitter.slice import Slicer

Keys = tuple[int | str, ...]
# Facts of a statement that end the head, whatever it reads: nothing may move past them.
ENDING = {
    "device": "moves to a device",
    "draws": "draws random numbers",
    "reseeds": "sets a generator",
    "prints": "prints",
    "setting": "changes a switch of a library",
    "writes-file": "writes a file",
    "gradient": "asks for gradients",
}
SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Pass, ast.Assert, ast.Import, ast.ImportFrom)
UNWANTED = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


@dataclass(frozen=True, eq=False)
class Movable:
    """A statement that could move. `slicers` has, for each site, what it needs there."""

    node: ast.stmt
    reads: frozenset[str]
    writes: frozenset[str]
    mutates: bool
    locals: frozenset[str]
    slicers: tuple[Slicer, ...]


@dataclass(eq=False)
class Scanned:
    """The head of one loop: see ir.Head. `more`: nothing moves, but something would if the end weren't where it is."""

    parts: dict[str, Keys] = field(default_factory=dict)
    unpacking: list[ast.stmt] = field(default_factory=list)
    movables: list[Movable] = field(default_factory=list)
    groups: list[tuple[int, ...]] = field(default_factory=list)
    end: tuple[ast.stmt, str] | None = None
    more: bool = False


def scan(found: Found, effects: Effects, loop: Loop, sites: Sequence[Site]) -> Scanned | None:
    """The head of a loop over the loaders of `sites`; None when the batch is taken in a way that isn't understood."""
    forbidden: set[int] = set()
    while True:
        scanner = _Scanner(found, effects, loop, sites, forbidden)
        if not scanner.take_apart():
            return None
        scanner.run()
        loose = scanner.loose()
        if not loose:
            scanner.out.groups = scanner.groups()
            if scanner.out.end is not None and not scanner.out.movables:
                scanner.out.more = scanner.hides(scanner.out.end[0])
            return scanner.out
        forbidden |= loose


class _Scanner:
    def __init__(self, found: Found, effects: Effects, loop: Loop, sites: Sequence[Site], forbidden: set[int]) -> None:
        self.found, self.effects, self.loop, self.sites, self.forbidden = found, effects, loop, sites, forbidden
        self.module = loop.module
        self.scope = self.module.names.scope_of[loop.node]
        self.needs = Needs(found, effects, loop.module, loop.node, sites)
        self.out = Scanned()
        self.root: str | None = None  # the loop's variable, when it has one name for the whole batch
        self.temporaries: set[str] = set()
        self.kept_reads: set[str] = set()  # of statements between those that move
        self.kept_writes: set[str] = set()

    # --- the batch

    def take_apart(self) -> bool:
        """Find the names of the batch's parts."""
        target = self.loop.target
        if isinstance(target, ast.Name):
            self.root = target.id
            self.out.parts[target.id] = ()
        elif not _unpack(target, (), self.out.parts):
            return False
        body = list(self.loop.node.body)
        while self.root is not None and body and self._takes_part(body[0]):
            self.out.unpacking.append(body.pop(0))
        self.body = body
        if self.out.unpacking and self.root is not None:
            del self.out.parts[self.root]
            within = {id(node) for stmt in self.out.unpacking for node in ast.walk(stmt)}
            if len(set(self.out.parts.values())) < len(self.out.parts) or any(id(n) not in within for n in self._loads(self.root)):
                return False
        others = [other for other in ast.walk(self.loop.node.target) if isinstance(other, ast.Name)]
        plain = all(self._lookup(name) is self.scope.function() for name in others)
        return plain and not any(self._shared(name) for name in self.out.parts)

    def _takes_part(self, stmt: ast.stmt) -> bool:
        """`images, labels = batch` or `image = batch["image"]`, with a new name."""
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not self._whole_lines(stmt):
            return False
        target, value = stmt.targets[0], stmt.value
        found: dict[str, Keys] = {}
        if isinstance(value, ast.Name) and value.id == self.root and isinstance(target, (ast.Tuple, ast.List)):
            if self.out.unpacking or not _unpack(target, (), found):
                return False
        elif isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name) and value.value.id == self.root:
            key = value.slice.value if isinstance(value.slice, ast.Constant) else None
            if not isinstance(target, ast.Name) or type(key) not in (int, str) or (isinstance(key, int) and key < 0):
                return False
            assert isinstance(key, (int, str))
            found[target.id] = (key,)
        else:
            return False
        if any(name in self.out.parts for name in found):
            return False
        self.out.parts.update(found)
        return True

    def _lookup(self, name: ast.Name) -> Scope | None:
        return self.module.names.scope_of[name].lookup(name.id)

    def _loads(self, name: str) -> Iterator[ast.Name]:
        for node in ast.walk(self.scope.function().node):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                if self._lookup(node) is self.scope.function():
                    yield node

    def _shared(self, name: str) -> bool:
        """Whether another function reads the variable, at whatever time."""
        return any(self.module.names.scope_of[node].function() is not self.scope.function() for node in self._loads(name))

    # --- statements

    def run(self) -> None:
        for stmt in self.body:
            if isinstance(stmt, ast.Pass):
                continue
            why = self.take(stmt)
            if why is not None:
                self.out.end = (stmt, why)
                return

    def hides(self, end: ast.stmt) -> bool:
        """Whether something behind the end of the head would move without it."""
        probe = _Scanner(self.found, self.effects, self.loop, self.sites, self.forbidden)
        probe.take_apart()
        behind = probe.body[next(number for number, stmt in enumerate(probe.body) if stmt is end) + 1 :]
        return any(isinstance(stmt, SIMPLE) and probe.movable(stmt, *probe._names(stmt)) is None for stmt in behind)

    def take(self, stmt: ast.stmt) -> str | None:
        """Move a statement, or pass it; why it ends the head when neither is possible."""
        reads, writes = self._names(stmt)
        ours = set(self.out.parts) | self.temporaries
        facts = self.effects.of(self.module, stmt)
        ending = next((ENDING[fact.effect] for fact in facts if fact.effect in ENDING and not fact.makes), None)
        if ending is not None:
            return ending
        if not isinstance(stmt, SIMPLE):
            return "branches, or runs something else"
        touches = bool((reads | writes) & ours)
        why = self.movable(stmt, reads, writes)
        if why is None:
            return None
        if touches:
            return why
        self.kept_reads |= reads
        self.kept_writes |= writes
        return None

    def movable(self, stmt: ast.stmt, reads: set[str], writes: set[str]) -> str | None:
        """Take a statement into the head; why that isn't possible."""
        if id(stmt) in self.forbidden:
            return "reads the batch for a name that is read behind the head"
        targets = self._targets(stmt)
        if targets is None or not self._whole_lines(stmt) or any(isinstance(node, UNWANTED) for node in ast.walk(stmt)):
            return "reads the batch and doesn't only give names of it new values"
        ours = set(self.out.parts) | self.temporaries
        fresh = targets - ours
        kept = (reads & self.kept_writes) | (targets & (self.kept_reads | self.kept_writes))
        if kept:
            return f"depends on `{min(kept)}`, which stays with the trainer"
        if isinstance(stmt, ast.AugAssign) and fresh:
            return "changes what isn't of the batch"
        if any(not self._temporary(name) for name in fresh):
            return f"gives `{min(fresh)}` a value, which isn't a name of the batch"
        if self.root is not None and self.out.unpacking and self.root in reads | writes:
            return "reads the whole batch"
        given = frozenset(id(n) for n in free_names(stmt, self.module.names) if n.id in ours and self._lookup(n) is self.scope.function())
        taken = self.needs.of(stmt, given, ours | fresh)
        if isinstance(taken, str):
            return taken
        slicers, local, mutates = taken
        mutates = mutates or isinstance(stmt, ast.AugAssign) or any(isinstance(t, ast.Subscript) for t in getattr(stmt, "targets", ()))
        reading = frozenset(reads & ours) | (frozenset(targets) if mutates else frozenset())
        self.out.movables.append(Movable(stmt, reading, frozenset(targets), mutates, local, slicers))
        self.temporaries |= fresh
        return None

    # --- the text

    def _names(self, stmt: ast.stmt) -> tuple[set[str], set[str]]:
        """The variables of the loop's scope that a statement reads, and those that it gives or changes."""
        reads: set[str] = set()
        writes: set[str] = set()
        for node in ast.walk(stmt):
            if isinstance(node, ast.Name) and self._lookup(node) is self.scope.function():
                (reads if isinstance(node.ctx, ast.Load) else writes).add(node.id)
            if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
                base: ast.AST = node
                while isinstance(base, (ast.Subscript, ast.Attribute)):
                    base = base.value
                writes |= {base.id} if isinstance(base, ast.Name) else set()
        if isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name):
            reads.add(stmt.target.id)
        return reads, writes

    def _targets(self, stmt: ast.stmt) -> set[str] | None:
        """The names that an assignment gives values, with those of dicts that it gives items; None for any other statement."""
        if isinstance(stmt, ast.Assign):
            targets = stmt.targets
        elif isinstance(stmt, (ast.AugAssign, ast.AnnAssign)) and stmt.value is not None:
            targets = [stmt.target]
        else:
            return None
        found: set[str] = set()
        for target in targets:
            for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                if isinstance(part, ast.Name) and self._lookup(part) is self.scope.function():
                    found.add(part.id)
                elif self._is_item(part):
                    found.add(str(self.root))
                else:
                    return None
        return found

    def _is_item(self, target: ast.expr) -> bool:
        """`batch["image"]`, of a batch that is a dict."""
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name) or target.value.id != self.root:
            return False
        return isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str) and not self.out.unpacking

    def _temporary(self, name: str) -> bool:
        """Whether a variable has no value from outside of the loop's body."""
        inside = {id(node) for stmt in self.body for node in ast.walk(stmt)}
        bindings = self.scope.function().bindings.get(name, [])
        return all(id(b.node) in inside and b.kind in ("assign", "augment") for b in bindings) and not self._shared(name)

    def _whole_lines(self, stmt: ast.stmt) -> bool:
        """Whether no other statement is on the lines of this one."""
        body = self.loop.node.body
        head = max(self.loop.node.iter.end_lineno or 0, self.loop.node.target.end_lineno or 0)
        place = next(number for number, other in enumerate(body) if other is stmt)
        before = body[place - 1].end_lineno or 0 if place else head
        after = body[place + 1].lineno if place + 1 < len(body) else (stmt.end_lineno or 0) + 1
        return before < stmt.lineno and (stmt.end_lineno or 0) < after

    # --- temporaries

    def loose(self) -> set[int]:
        """Statements that give a temporary which something reads that doesn't move, or nothing."""
        moving = {id(node) for movable in self.out.movables for node in ast.walk(movable.node)}
        found = set()
        for name in self.temporaries:
            read = any(name in movable.reads for movable in self.out.movables)
            stored = [b for b in self.scope.function().bindings.get(name, []) if id(b.node) not in moving]
            if not read or stored or any(id(load) not in moving for load in self._loads(name)):
                found |= {id(movable.node) for movable in self.out.movables if name in movable.writes}
        return found

    def groups(self) -> list[tuple[int, ...]]:
        """Statements that share a temporary move together."""
        groups: list[set[int]] = []
        for name in sorted(self.temporaries):
            group = {n for n, movable in enumerate(self.out.movables) if name in movable.reads | movable.writes}
            joined = [other for other in groups if other & group]
            groups = [other for other in groups if other not in joined] + [group.union(*joined)]
        return [tuple(sorted(group)) for group in groups if len(group) > 1]


def _unpack(target: ast.expr, path: tuple[int, ...], into: dict[str, Keys]) -> bool:
    """The names of a target with their places; False when it has something else in it, or a name twice."""
    if isinstance(target, ast.Name):
        if target.id in into:
            return False
        into[target.id] = path
        return True
    if isinstance(target, (ast.Tuple, ast.List)):
        return all(_unpack(part, (*path, number), into) for number, part in enumerate(target.elts))
    return False
