"""Where the parts of a batch have come to their device, in every loop over a loader, as far as the text shows.

    for step, (images, target) in enumerate(loader):
        clock.update(time.time() - end)                     doesn't name the images
        if args.gpu is not None:
            images = images.cuda(args.gpu)                  moves them
                                                    <-      here; `images` has the part 0 of the batch
        loss = loss_fn(model(images), target)               the first that does something else with them

A line put in there sees each batch before anything else does. Where none can be, the note says which statement was in the way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from splitter.candidates import SitePlan
from splitter.changes import loads
from splitter.find import Found
from splitter.flow import reaching
from splitter.head_loops import Loop, reading
from splitter.ir import Note
from splitter.ir_cut import ANY, Insertion, Keys, Landing
from splitter.moves import Moves
from splitter.read import ENTRY, Module

LATE = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)  # code that may run later, when a name has another batch


def landings(found: Found, sites: list[SitePlan]) -> Iterator[Landing]:
    """For each loader that is split, each loop that takes its batches, and each part that the loop names: where it lands."""
    for plan in sites:
        if not plan.split or plan.sent is not None or plan.loader is not None:
            continue
        span = plan.site.module.span(plan.site.call)
        read = reading(found, plan.site, around=False)
        if read.other is not None:
            yield Landing(span, read.other.span, None, None, read.other)
        for loop in read.loops:
            where = loop.module.span(loop.node)
            why = _unnamed(loop)
            if why is not None:
                yield Landing(span, where, None, None, why)
                continue
            for keys in sorted(_named_parts(loop), key=str):
                insertion, note = _Scan(found, loop, keys).run()
                yield Landing(span, where, keys, insertion, note)


def _note(module: Module, node: ast.AST, why: str) -> Note:
    return Note(module.span(node), module.text(node).split("\n")[0], why)


def _unnamed(loop: Loop) -> Note | None:
    """Why a line in the loop couldn't name the loader that the batches come from; None when it could."""
    module, source = loop.module, loop.source
    if module.name != ENTRY:
        return _note(module, loop.node.iter, "the loop is in another file than the script")
    if not isinstance(source, ast.Name):
        return _note(module, source, "the loop doesn't iterate over a variable of its own")
    scope, here = module.names.scope_of[source].lookup(source.id), module.names.scope_of[loop.node].function()
    bindings = scope.bindings.get(source.id, []) if scope is not None else []
    inside = {id(node) for node in ast.walk(loop.node)}
    begun = any(node is source for node in ast.walk(loop.node.iter))
    settled = len(bindings) == 1 or (
        begun and scope is here and all(module.names.scope_of[b.node].function() is here or b.kind == "param" for b in bindings)
    )
    if scope is None or not settled or any(id(binding.node) in inside for binding in bindings):
        return _note(module, source, "the variable of the loader may get another value while the loop runs")
    return None


def _named_parts(loop: Loop) -> set[Keys]:
    """The keys of all parts that the text of a loop may name, the whole batch among them; with ANY for those that it doesn't name."""
    known: dict[str, set[Keys]] = {}
    found: set[Keys] = {()}

    def add(target: ast.expr, keys: Keys) -> None:
        found.add(keys)
        if isinstance(target, ast.Name):
            known.setdefault(target.id, set()).add(keys)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for number, part in enumerate(target.elts):
                add(part, (*keys, number))

    add(loop.target, ())
    for stmt in loop.node.body:
        for node in ast.walk(stmt):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                given = [node.value, *(part.iter for part in ast.walk(node.value) if isinstance(part, ast.comprehension))]
                for keys in [keys for part in given if isinstance(part, ast.Name) for keys in known.get(part.id, ())]:
                    add(node.targets[0], keys)
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant):
                found |= {(*keys, node.slice.value) for keys in known.get(node.value.id, ()) if isinstance(node.slice.value, (int, str))}
    return found | {(*keys, ANY) for each in known.values() for keys in each}


@dataclass(eq=False)
class _Landed:
    """A part has been moved: the expression that has it then, its keys, and the statement of the loop's body that has moved it."""

    target: ast.expr
    keys: Keys
    after: ast.stmt


@dataclass(eq=False)
class _Scan:
    """Follows the part of a batch at `keys` through the body of a loop. `holders`: the variables that have it, or something that has it."""

    found: Found
    loop: Loop
    keys: Keys
    holders: dict[str, Keys] = field(default_factory=dict)
    unfinished: set[int] = field(default_factory=set)  # statements that have bound such a variable
    passed: set[int] = field(default_factory=set)  # nodes of statements that are understood

    def __post_init__(self) -> None:
        self.module = self.loop.module
        self.moves = Moves(self.found, self.loop, self.keys, self.holders)

    def run(self) -> tuple[Insertion | None, Note | None]:
        """The line that is to be put in, or why there is none; neither when nothing reads the part."""
        if not self.moves.unpacked(self.loop.target, (), self.holders):
            return None, _note(self.module, self.loop.target, "the loop takes the part itself apart")
        self.unfinished.add(id(self.loop.node))
        landed, ended = self._walk()
        if landed is None:
            if ended is not None:
                return None, _note(self.module, ended, "uses the batch, which no statement of its own has moved to a device before")
            return None, self._read_elsewhere(None)
        why = self._read_elsewhere(landed) or self._shared_line(landed.after)
        if why is not None:
            return None, why
        assert isinstance(self.loop.source, ast.Name)
        line = _last_line(self.module, landed.after)
        column = self.module.span(landed.after).column
        return Insertion(self.module.name, line, column, self.module.text(landed.target), self.loop.source.id, landed.keys), None

    def _walk(self) -> tuple[_Landed | None, ast.stmt | None]:
        """Where the part lands, and the first statement that does something else with it."""
        landed: _Landed | None = None
        for stmt in self.loop.node.body:
            if self.moves.mentions(stmt):
                moved = self.moves.moved(stmt)
                if moved is not None and (landed is None or moved[1] == landed.keys):
                    landed = _Landed(*moved, stmt)
                    if isinstance(moved[0], ast.Name):
                        self.holders[moved[0].id] = moved[1]
                elif landed is not None or not self.moves.renamed(stmt):
                    return landed, stmt
                self.unfinished |= {id(node) for node in ast.walk(stmt) if isinstance(node, ast.Assign)}
            self.passed |= {id(node) for node in ast.walk(stmt)}
        return landed, None

    def _read_elsewhere(self, landed: _Landed | None) -> Note | None:
        """A place that may read one of the variables while it has the part as it came."""
        names = self.module.names
        home = names.scope_of[self.loop.node].function()
        name = None if landed is None else _root(landed.target).id
        inside = {id(node) for stmt in self.loop.node.body for node in ast.walk(stmt)}
        if any(names.scope_of[self.loop.node].lookup(held) is not home for held in self.holders):
            return _note(self.module, self.loop.target, "the loop gives a variable of another function its value")
        every = {node.id: node for node in ast.walk(self.loop.node) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        always = landed is not None and self._is_always_reached()
        for use in [use for held in self.holders for use in loads(self.module, every[held]) if id(use) not in self.passed]:
            late = any(isinstance(up, LATE) for up in _up_to(self.module, use, home.node))
            if not self.moves.mentions(use) or (use.id == name and (always or id(use) in inside) and not late):
                continue
            if late or any(id(binding.node) in self.unfinished for binding in reaching(use, use.id, names, home)):
                return _note(self.module, names.statement(use), f"may read `{use.id}` as the loader has given it")
        return None

    def _is_always_reached(self) -> bool:
        """Whether no run of the loop's body ends before the part has landed, so that behind the loop it is finished."""
        outer = _up_to(self.module, self.loop.node, self.module.names.scope_of[self.loop.node].function().node)
        if any(isinstance(up, ast.Try) for up in outer):
            return False
        body = [node for stmt in self.loop.node.body for node in ast.walk(stmt) if id(node) in self.passed]
        return not any(isinstance(node, (ast.Break, ast.Continue)) for node in body)

    def _shared_line(self, stmt: ast.stmt) -> Note | None:
        """Nothing can be put in where two statements share a line."""
        body = self.loop.node.body
        place = body.index(stmt)
        starts = body[place - 1].end_lineno if place else self.loop.node.iter.end_lineno
        if starts == stmt.lineno or (place + 1 < len(body) and body[place + 1].lineno == stmt.end_lineno):
            return _note(self.module, stmt, "shares its line with another statement")
        return None


def _root(target: ast.expr) -> ast.Name:
    while isinstance(target, ast.Subscript):
        target = target.value
    assert isinstance(target, ast.Name)
    return target


def _up_to(module: Module, node: ast.AST, end: ast.AST) -> Iterator[ast.AST]:
    for up in module.names.ancestors(node):
        if up is end:
            return
        yield up


def _last_line(module: Module, stmt: ast.stmt) -> int:
    """The line behind which the next statement of a block begins: comments further in belong to the one before."""
    lines, last = module.file.lines, stmt.end_lineno or stmt.lineno
    column, number = module.span(stmt).column, last
    while number < len(lines):
        text = lines[number].strip()
        if text and (not text.startswith("#") or len(lines[number]) - len(lines[number].lstrip()) <= column):
            break
        number += 1
        last = number if text else last
    return last
