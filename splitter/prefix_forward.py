"""Which statements at the start of a model's forward depend on its inputs only.

    def forward(self, features, prices):
        ids = features[:, :4]                       yes
        rows = mix(ids) % self.buckets              yes, when `buckets` is a number that never changes
        pooled = self.table(rows)                   no: `self.table`, a part of the model
        return self.top(pooled, prices)

Then: after which of them is there a result for each input that is not read any more, so that one can take the other's place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from splitter.effects import Effects, Fact
from splitter.find import Found
from splitter.ir import Diagnostic
from splitter.prefix_constants import Known, constant
from splitter.prefix_model import Model
from splitter.repeat import deep_facts
from splitter.resolve import Definition, Library, Value

# Attributes of a tensor that are about its device, or its gradient.
ELSEWHERE = frozenset("device is_cuda cuda cpu xpu numpy grad requires_grad requires_grad_ backward data data_ptr grad_fn".split())
# Functions of torch about modes and settings of the process, but for those about a tensor.
ASKING = ("torch.is_", "torch.get_", "torch.are_")
PLAIN = frozenset({"torch.is_tensor", "torch.is_floating_point", "torch.is_nonzero", "torch.is_complex"})
# What code does that keeps it in the trainer, in words.
WORDS = {
    "draws": "draws random numbers",
    "reseeds": "reads the state of a random generator",
    "unstable": "is not the same in another process",
    "device": "uses a device",
    "model": "depends on parameters",
    "gradient": "needs a gradient",
    "unknown": "may do anything",
    "writes-self": "changes the model",
    "writes-global": "changes a global",
    "writes-file": "writes a file",
    "in-place": "changes its input in place",
    "prints": "prints",
    "opens": "opens a file",
    "setting": "changes a setting",
    "lists": "lists files",
}


@dataclass(frozen=True, eq=False)
class Start:
    """The statements that may move. `inputs`: the parameters that they read; `results`: a name, and the parameter whose place it takes."""

    statements: tuple[ast.stmt, ...]
    first: int
    inputs: tuple[str, ...]
    results: tuple[tuple[str, str], ...]
    constants: dict[str, Known] = field(default_factory=dict)

    @property
    def attributes(self) -> Iterator[ast.Attribute]:
        """Where they read the model's constants."""
        own = {id(node) for known in self.constants.values() for node in known.uses}
        for statement in self.statements:
            yield from (node for node in ast.walk(statement) if isinstance(node, ast.Attribute) and id(node) in own)


class Stays(Exception):
    """A statement stays; carries the finding that says why."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.code)
        self.diagnostic = diagnostic


def starts(found: Found, effects: Effects, model: Model) -> tuple[Start, ...] | Diagnostic:
    """The starts of forward that may move, the longest first; a finding when there is none."""
    body = model.forward.body
    first = 1 if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) else 0
    reader = _Reader(found, effects, model)
    count, reason = first, None
    for statement in body[first:]:
        try:
            reader.check(statement)
        except Stays as stays:
            reason = stays.diagnostic
            break
        count += 1
    counts, made = None, []
    for end in range(count, first, -1):
        results, wanted = _results(model.forward, body[first:end], body[end:])
        counts = counts or (len(wanted), len(results))
        if results and len(results) == len(wanted):
            moved = tuple(body[first:end])
            inside = {id(node) for stmt in moved for node in ast.walk(stmt)}
            constants = {
                name: known.of(inside) for name, known in reader.constants.items() if any(id(node) in inside for node in known.uses)
            }
            made.append(Start(moved, first, _read(model.forward, moved), results, constants))
    if made:
        return tuple(made)
    if counts is not None and counts[0]:
        why = f"begins with statements that make {counts[0]} values of {_inputs_read(model.forward, body[first:count])}"
        hint = "make one of each input that is not read any more"
        return Diagnostic("S422", model.module.span(body[first]), (("what", why), ("way", hint)))
    if reason is None:
        why, hint = "has no statement whose result is read by the others", "do what depends on the inputs only in its first statements"
        reason = Diagnostic("S422", model.module.span(body[first]), (("what", why), ("way", hint)))
    return reason


def _inputs_read(forward: ast.FunctionDef, statements: Sequence[ast.stmt]) -> str:
    count = len(_read(forward, statements))
    return "1 input" if count == 1 else f"{count} inputs"


class _Reader:
    """Checks the statements of forward in turn."""

    def __init__(self, found: Found, effects: Effects, model: Model) -> None:
        self.found, self.effects, self.model = found, effects, model
        self.module = model.module
        self.this = model.forward.args.args[0].arg
        self.scope = model.module.names.inner[model.forward]
        self.constants: dict[str, Known] = {}
        self.made: set[str] = {arg.arg for arg in _parameters(model.forward)}

    def check(self, statement: ast.stmt) -> None:
        """Raises Stays."""
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            self.names(statement)  # what it reads says more
            raise self.stays(statement, "is no assignment")
        self.names(value)
        stored = [part for target in targets for part in ast.walk(target)]
        for part in stored:
            if isinstance(part, (ast.Attribute, ast.Subscript)):
                raise self.stays(part, "is changed")
        for fact in deep_facts(self.found, self.effects, self.module, statement):
            raise self.fact(fact)
        self.made |= {part.id for part in stored if isinstance(part, ast.Name)}

    def names(self, root: ast.AST) -> None:
        for node in ast.walk(root):
            if isinstance(node, (ast.Lambda, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
                raise self.stays(node, "can't be followed")
            if isinstance(node, ast.Attribute):
                self.attribute(node)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.name(node)
            elif isinstance(node, ast.Call):
                self.call(node)

    def attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.value.id == self.this:
            self.own(node)
        elif node.attr in ELSEWHERE and not isinstance(self.found.resolver.target(self.module, node), Library):
            raise self.stays(node, "is about a device or a gradient")

    def own(self, node: ast.Attribute) -> None:
        """`self.x`: only what never changes and can be made on the worker."""
        if node.attr == "training":
            raise self.stays(node, "is the training flag")
        kind = self.found.kinds.member_kind(self.model.definition, node.attr)
        if kind in ("model", "parameter"):
            raise self.stays(node, "depends on parameters")
        if self.found.resolver.method(self.model.definition, node.attr) is not None:
            raise self.stays(node, "is a method of the model")
        above = self.module.names.parent_of[node]
        if isinstance(above, ast.Call) and above.func is node:
            raise self.stays(above, "is a part of the model")
        known = constant(self.found, self.effects, self.model, node)
        if isinstance(known, Diagnostic):
            raise Stays(known)
        before = self.constants.get(node.attr)
        self.constants[node.attr] = known if before is None else before.also(node)

    def name(self, node: ast.Name) -> None:
        parent = self.module.names.parent_of[node]
        if node.id == self.this:
            if not isinstance(parent, ast.Attribute):
                raise self.stays(node, "is the whole model")
            return
        scope = self.module.names.scope_of[node].lookup(node.id)
        if scope is self.scope and node.id not in self.made:
            raise self.stays(node, "can't be followed")
        if scope is None and not isinstance(self.found.resolver.target(self.module, node), Library):
            raise self.stays(node, "can't be followed")
        if scope is not None and scope.kind not in ("module", "comprehension") and scope is not self.scope:
            raise self.stays(node, "can't be followed")

    def call(self, node: ast.Call) -> None:
        targets = self.found.resolver.targets(self.module, node.func)
        if any(isinstance(target, Value) for target in targets):
            raise self.stays(node, "can't be followed")
        for target in targets:
            if isinstance(target, Library) and target.name.startswith(ASKING) and target.name not in PLAIN:
                raise self.stays(node, "asks for the state of the process")
            if isinstance(target, Definition) and isinstance(target.node, ast.ClassDef):
                raise self.stays(node, "makes an object")
            if isinstance(target, Definition):
                if target.node.decorator_list:
                    raise self.stays(node, "calls a decorated function")
                for fact in deep_facts(self.found, self.effects, target.module, target.node):
                    raise self.fact(fact)

    def stays(self, node: ast.AST, why: str) -> Stays:
        what = f"begins with `{self.module.text(node)}`, which {why}"
        way = "do what depends on the inputs only before that, in its first statements"
        return Stays(Diagnostic("S422", self.module.span(node), (("what", what), ("way", way))))

    def fact(self, fact: Fact) -> Stays:
        what = f"begins with `{fact.module.text(fact.node)}`, which {WORDS.get(fact.effect, 'has an effect')}"
        way = "do what depends on the inputs only before that, in its first statements"
        return Stays(Diagnostic("S422", fact.module.span(fact.node), (("what", what), ("way", way))))


def _parameters(forward: ast.FunctionDef) -> list[ast.arg]:
    return [*forward.args.posonlyargs, *forward.args.args, *forward.args.kwonlyargs][1:]


def _read(forward: ast.FunctionDef, statements: Sequence[ast.stmt]) -> tuple[str, ...]:
    """The parameters that some statements read."""
    names = {node.id for stmt in statements for node in ast.walk(stmt) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return tuple(arg.arg for arg in _parameters(forward) if arg.arg in names)


def _stored(statements: Sequence[ast.stmt]) -> dict[str, ast.stmt]:
    """The names that some statements give a value, with the last of these."""
    return {
        node.id: stmt
        for stmt in statements
        for node in ast.walk(stmt)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and not _inner(stmt, node)
    }


def _inner(stmt: ast.stmt, name: ast.Name) -> bool:
    """Whether a name is bound by a comprehension."""
    return any(name is part for node in ast.walk(stmt) if isinstance(node, ast.comprehension) for part in ast.walk(node.target))


def _results(
    forward: ast.FunctionDef, moved: Sequence[ast.stmt], rest: Sequence[ast.stmt]
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Each result with the parameter whose place it takes, as far as there are any; and all results."""
    after = {node.id for stmt in rest for node in ast.walk(stmt) if isinstance(node, ast.Name)}
    stored = _stored(moved)
    wanted = tuple(name for name in stored if name in after)
    parameters = [arg.arg for arg in _parameters(forward)]
    free = [name for name in _read(forward, moved) if name not in after or name in stored]
    pairs = {name: name for name in wanted if name in free}
    left = [name for name in free if name not in pairs]
    for name in wanted:
        if name in pairs or name in parameters or not left:
            continue
        depends = _depends(moved, name)
        place = next((parameter for parameter in left if parameter in depends), left[0])
        pairs[name] = place
        left.remove(place)
    return tuple(pairs.items()), wanted


def _depends(statements: Sequence[ast.stmt], name: str) -> set[str]:
    """All names that the value of a name may depend on."""
    found = {name}
    for stmt in reversed(statements):
        if found & set(_stored([stmt])):
            found |= {node.id for node in ast.walk(stmt) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return found
