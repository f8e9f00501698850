"""Step `slice`: the statements, definitions and values that one moved expression needs.

    root = os.path.join(args.data, "train")      body:         this line, since it only computes
    flip = Compose([Flip(args.p)])                             and this one
    data = Photos(root, flip)                    environment:  args.data, args.p
                                                 definitions:  class Photos

A local statement that can be run twice is copied; a plain value that can't be copied is sent; a dataset becomes a reference to its
handle; anything else refuses the slice.
"""

from __future__ import annotations

import ast

from splitter import reading
from splitter.carry import Carried, Carrier, Phase, Refused, frame_scope, late
from splitter.changes import changes_of
from splitter.effects import Effects
from splitter.find import Found
from splitter.flow import bindings_in, blocks, reaching
from splitter.ir import Diagnostic
from splitter.kinds import SENDABLE
from splitter.order import happens_before
from splitter.origins import Origin, Tracer
from splitter.read import Module
from splitter.resolve import Definition
from splitter.scopes import Binding, Scope, free_names, position


class Slicer:
    """Slices for one builder: call `expression` for each moved expression, then read `carried` and `body`."""

    def __init__(self, found: Found, effects: Effects, module: Module, at: ast.expr, handles: frozenset[int]) -> None:
        self.found = found
        self.module = module
        self.at = at
        self.handles = handles
        self.carried = Carried()
        self.carrier = Carrier(found, effects, module, at, self.carried)
        self.effects = effects
        self.body: dict[int, ast.stmt] = {}
        self.references: set[int] = set()
        self.inner: set[int] = set()  # origins of the datasets that it takes as handles

    def expression(self, module: Module, expr: ast.AST, phase: Phase) -> None:
        """Take along what an expression needs. `phase` says when its own code runs."""
        self.carried.inside.update(id(node) for node in ast.walk(expr))
        self.carried.code.append((module, expr))
        for node in ast.walk(expr):
            inner = isinstance(module.names.parent_of.get(node), ast.Lambda) or phase == "batch"
            if isinstance(node, ast.Name) or node is expr:
                continue
            self.carried.facts += [("batch" if inner else "build", fact) for fact in self.effects.at(module, node)]
        if isinstance(expr, ast.Name):
            self.carried.facts += [(phase, fact) for fact in self.effects.at(module, expr)]
        elif isinstance(expr, ast.AST):
            self.carried.facts += [(phase if not isinstance(expr, ast.Lambda) else "batch", fact) for fact in self.effects.at(module, expr)]
        for name in free_names(expr, module.names):
            self.name(module, name, self._phase(module, name, phase))

    def _phase(self, module: Module, name: ast.Name, phase: Phase) -> Phase:
        """A function that is called while building runs then; one that is handed over runs with the batches."""
        parent = module.names.parent_of.get(name)
        called = isinstance(parent, ast.Call) and parent.func is name
        inside_lambda = any(isinstance(up, ast.Lambda) for up in module.names.ancestors(name) if id(up) in self.carried.inside)
        return "build" if called and not inside_lambda and phase == "build" else "batch"

    def name(self, module: Module, name: ast.Name, phase: Phase) -> None:
        """One free name of moved code."""
        scope = module.names.scope_of[name].lookup(name.id)
        if scope is None:
            self.carrier.unbound(module, name)
            return
        if scope.kind == "module" and not self._local_here(module, name, scope):
            self.carrier.module_name(module, name, phase)
            return
        bindings = self._bindings(module, name, scope)
        if all(binding.kind in ("import", "def", "class") for binding in bindings):
            for binding in bindings:
                self._definition(module, binding, phase)
            return
        self._variable(module, name, bindings, scope, phase)

    def _local_here(self, module: Module, name: ast.Name, scope: Scope) -> bool:
        """A module-level variable is treated like a local one when the moved expression itself stands at module level."""
        if module is not self.module or frame_scope(module, self.at).kind != "module":
            return False
        kinds = {b.kind for b in scope.bindings[name.id]}
        return not kinds <= {"import", "def", "class"} and frame_scope(module, name).kind == "module"

    def _bindings(self, module: Module, name: ast.Name, scope: Scope) -> list[Binding]:
        """The bindings that a name may have; names that a closure reads late must not change after the moved expression."""
        if not _closure(module.names.scope_of[name], scope):
            return reaching(name, name.id, module.names, scope)
        everything = [b for b in scope.bindings[name.id] if b.kind != "delete"]
        if len(everything) > 1 and frame_scope(module, self.at) is scope:
            now = reaching(self.at, name.id, module.names, scope)
            changed = [b for b in everything if b not in now and not happens_before(self.found.resolver, module, b.node, module, self.at)]
            if changed:
                raise Refused(late(name.id, module, changed[0].node))
            return now
        return everything

    def _definition(self, module: Module, binding: Binding, phase: Phase) -> None:
        """A function, class or import inside the function where the moved expression stands."""
        node = binding.node
        if not isinstance(node, ast.stmt) or id(node) in self.body:
            return
        self.body[id(node)] = node
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for target in self.found.resolver.of_binding(module, binding):
                owner = getattr(target, "module", None)
                if isinstance(owner, Module):
                    self.carrier.local_module(owner)
                if isinstance(target, Definition):
                    self.carrier.definition(target, phase)
            return
        self.carried.inside.update(id(child) for child in ast.walk(node))
        if isinstance(node, ast.ClassDef):
            for stmt in node.body:
                build = not isinstance(stmt, ast.FunctionDef) or stmt.name == "__init__"
                self.carried.facts += [("build" if build else "batch", fact) for fact in self.effects.of(module, stmt)]
        else:
            self.carried.facts += [(phase, fact) for fact in self.effects.of(module, node)]
        for name in free_names(node, module.names):
            if name.id != binding.name:
                self.name(module, name, "batch" if isinstance(node, ast.ClassDef) else phase)

    def _variable(self, module: Module, name: ast.Name, bindings: list[Binding], scope: Scope, phase: Phase) -> None:
        owner = self.found.resolver.module(scope)
        kinds = {self.found.kinds.of_binding(owner, binding) for binding in bindings}
        statements = self._copyable(module, name, bindings, scope)
        if kinds & {"namespace", "self"} or (
            not statements and self._chain(module, name) and not kinds <= SENDABLE | {"dataset", "model", "parameter"}
        ):
            self._attributes(module, name, kinds, phase)
        elif kinds == {"object"} and statements is None and self._members(module, name):
            self._attributes(module, name, kinds, phase)
        elif kinds == {"dataset"} or id(name) in self.references:
            self._reference(module, name)
        elif isinstance(statements, list):
            new = [stmt for stmt in statements if id(stmt) not in self.body]
            for stmt in new:
                self.body[id(stmt)] = stmt
                self.carried.inside.update(id(child) for child in ast.walk(stmt))
            for stmt in new:
                self.expression(module, stmt, "build")
            self._unchanged_after(module, name, kinds)
        elif kinds <= SENDABLE or (kinds == {"unknown"} and all(binding.kind == "param" for binding in bindings)):
            self._send(module, name)
            self._unchanged_after(module, name, kinds)
        else:
            reason = next(
                (
                    r
                    for b in bindings
                    if isinstance(b.node, ast.stmt) and b.value is not None and (r := self.carrier.forbids(module, b.node, allow=name.id))
                ),
                None,
            )
            if reason is not None and reason.code in ("S305", "S316") and kinds & {"model", "parameter"}:
                reason = None
            raise Refused(reason or self.carrier.not_plain(module, name, kinds))

    def _members(self, module: Module, name: ast.Name) -> bool:
        """A configuration object that the moved constructor only reads plain attributes of."""
        parent = module.names.parent_of.get(name)
        call = module.names.parent_of[parent] if isinstance(parent, ast.keyword) else parent
        used = self._read_by(module, call, name, 0) if isinstance(call, ast.Call) else None
        definition = self.found.kinds.instance_of(module, name)
        if not used or definition is None:
            return False
        return all(self.found.kinds.member_kind(definition, attr) in SENDABLE for attr in used)

    def _chain(self, module: Module, name: ast.Name) -> bool:
        return isinstance(module.names.parent_of.get(name), ast.Attribute)

    def _copyable(self, module: Module, name: ast.Name, bindings: list[Binding], scope: Scope) -> list[ast.stmt] | None:
        """The statements that make a local variable, when all of them may run again in the worker."""
        here = frame_scope(module, self.at)
        if scope is not here or any(binding.kind not in ("assign", "augment") for binding in bindings):
            return None
        enclosing = {id(block_stmt) for up in [self.at, *module.names.ancestors(self.at)] for block in blocks(up) for block_stmt in block}
        wanted: dict[int, ast.stmt] = {}
        nodes = [b.node for b in bindings]
        changed = list(changes_of(self.found, module, name))
        if any(self.found.kinds.of_binding(module, b) == "rng" for b in bindings) and any(
            id(u) not in self.carried.inside for u in changed
        ):
            return None  # one generator can't be in two places
        nodes += [use for use in changed if position(use) < position(self.at)]
        for node in nodes:
            stmt = next((up for up in (node, *module.names.ancestors(node)) if id(up) in enclosing), None)
            if not isinstance(stmt, ast.stmt) or any(child is self.at for child in ast.walk(stmt)):
                return None
            wanted[id(stmt)] = stmt
        copied = {id(node) for stmt in wanted.values() for node in ast.walk(stmt)}
        for other, use in reading.changed(self.found, module, name, self.carried.inside) if scope.kind != "module" or wanted else ():
            after = other is module and frame_scope(module, use) is here and position(use) > position(self.at)
            if id(use) not in copied and not after:
                return None  # something changes it in a way that copying these statements would not repeat
        for stmt in wanted.values():
            if self.carrier.forbids(module, stmt, allow=name.id) is not None or _jumps(stmt):
                return None
            if any(other != name.id and other in self.carried.environment for other in self._stored(module, stmt, scope)):
                return None
        return sorted(wanted.values(), key=lambda s: s.lineno)

    @staticmethod
    def _stored(module: Module, stmt: ast.stmt, scope: Scope) -> set[str]:
        """The names of `scope` that a statement binds."""
        return {name for name in scope.bindings if bindings_in(stmt, name, scope, module.names)}

    def _attributes(self, module: Module, name: ast.Name, kinds: set[str], phase: Phase) -> None:
        """`args.data`: send the attribute, not the whole; `f(args)`: the attributes that f reads."""
        parent = module.names.parent_of.get(name)
        chains: list[str] | None = None
        if isinstance(parent, ast.Attribute):
            chains = [self._longest(module, name)]
            kind = self.found.kinds.of(module, parent)
            if kind == "function" and (model := self._method_model(module, parent)) is not None:
                raise Refused(model)
            if kind in ("model", "parameter", "object", "rng", "dataset", "function", "class"):
                raise Refused(self.carrier.not_plain(module, parent, {kind}))
        elif isinstance(parent, (ast.Call, ast.keyword)):
            call = module.names.parent_of[parent] if isinstance(parent, ast.keyword) else parent
            if isinstance(call, ast.Call):
                used = self._read_by(module, call, name, 0)
                chains = None if used is None else [f"{name.id}.{attr}" for attr in sorted(used)]
        if chains is None:
            raise Refused(self.carrier.not_plain(module, name, kinds))
        for chain in chains:
            attribute = chain.split(".")[1]
            if "namespace" in kinds and phase == "batch":
                self.carrier.settled(chain, list(self.carrier.writers.of_attribute(module, name.id, attribute)))
            if "namespace" in kinds:
                nodes = [node for m, node in self.carrier.writers.of_attribute(module, name.id, attribute) if m is module]
                between = [
                    n
                    for n in nodes
                    if frame_scope(module, n) is frame_scope(module, self.at) and position(name) < position(n) < position(self.at)
                ]
                if between:
                    raise Refused(late(chain, module, between[0]))
            self.carried.environment[chain] = None
        if isinstance(parent, ast.Attribute) and "namespace" not in kinds:
            self._settled(module, reading.changed_at(self.found, module, parent))

    def _method_model(self, module: Module, bound: ast.Attribute) -> Diagnostic | None:
        """S301 when a bound method (collate_fn=self.collate) uses a model that its object holds."""
        definition = self.found.kinds.instance_of(module, bound.value)
        method = self.found.resolver.method(definition, bound.attr) if definition else None
        if method is None:
            return None
        for node in ast.walk(method.node):
            if isinstance(node, ast.Attribute) and self.found.kinds.of(method.module, node) in ("model", "parameter"):
                return Diagnostic("S301", method.module.span(node), (("what", f"`{method.module.text(node)}`"),))
        return None

    def _longest(self, module: Module, name: ast.Name) -> str:
        """`cfg.data.path` of `cfg.data.path.lower()`: the attributes up to a call of a method."""
        parts = [name.id]
        node: ast.AST = name
        while isinstance(up := module.names.parent_of.get(node), ast.Attribute):
            above = module.names.parent_of.get(up)
            if isinstance(above, ast.Call) and above.func is up and len(parts) > 1:
                break
            parts.append(up.attr)
            node = up
            if self.found.kinds.of(module, up) in SENDABLE:
                break
        return ".".join(parts)

    def _read_by(self, module: Module, call: ast.Call, arg: ast.expr, depth: int) -> set[str] | None:
        """The attributes of an argument that the called function reads; None when it does anything else with it."""
        definition = self.found.resolver.definition(module, call.func)
        if definition is None or depth > 5:
            return None
        node = definition.node
        bound = isinstance(node, ast.ClassDef)
        if isinstance(node, ast.ClassDef):
            init = self.found.resolver.method(definition, "__init__")
            if init is None:
                return None
            definition, node = init, init.node
        if isinstance(node, ast.ClassDef):
            return None
        names = [a.arg for a in node.args.args][1 if bound else 0 :]
        keyword = next((k.arg for k in call.keywords if k.value is arg), None)
        parameter = keyword or (names[call.args.index(arg)] if arg in call.args and call.args.index(arg) < len(names) else None)
        inner = definition.module
        scope = inner.names.inner[node]
        found: set[str] = set()
        for use in ast.walk(node):
            if not (isinstance(use, ast.Name) and use.id == parameter and inner.names.scope_of[use].lookup(use.id) is scope):
                continue
            parent = inner.names.parent_of[use]
            if isinstance(parent, ast.Attribute) and isinstance(parent.ctx, ast.Load):
                found.add(parent.attr)
            elif isinstance(parent, (ast.Call, ast.keyword)):
                outer = inner.names.parent_of[parent] if isinstance(parent, ast.keyword) else parent
                deeper = self._read_by(inner, outer, use, depth + 1) if isinstance(outer, ast.Call) else None
                if deeper is None:
                    return None
                found |= deeper
            else:
                return None
        return found

    def _reference(self, module: Module, name: ast.Name) -> None:
        """Another dataset: on the trainer it is a handle (or a replica), which may be sent."""
        tracer = Tracer(self.found.resolver, self.found.kinds, {id(site.call): site for site in self.found.sites})
        origins = list(tracer.trace(module, name, frozenset(), ()))
        if not origins or not all(isinstance(origin, Origin) and id(origin.expr) in self.handles for origin in origins):
            raise Refused(self.carrier.not_plain(module, name, {"dataset"}))
        self.inner |= {id(origin.expr) for origin in origins if isinstance(origin, Origin)}
        self._send(module, name)

    def _send(self, module: Module, name: ast.Name) -> None:
        for binding in reaching(name, name.id, module.names):
            for fact in self.effects.of(self.found.resolver.module(binding.scope), binding.value) if binding.value is not None else ():
                if fact.effect in ("gradient", "model"):
                    raise Refused(Diagnostic("S307", module.span(name), (("what", f"`{name.id}`"),)))
        now = reaching(self.at, name.id, module.names, module.names.scope_of[name].lookup(name.id))
        scope = module.names.scope_of[name].lookup(name.id)
        then = self._bindings(module, name, scope) if scope is not None else now
        if set(map(id, now)) != set(map(id, then)):
            raise Refused(late(name.id, module, (now or then)[-1].node))
        self.carried.environment[name.id] = None

    def _unchanged_after(self, module: Module, name: ast.Name, kinds: set[str]) -> None:
        """The object stays with the dataset: the trainer must not change it any more."""
        if kinds == {"plain"} and not self._container(module, name):
            return
        if "rng" in kinds:
            places: list[tuple[Module, ast.AST]] = [(module, use) for use in changes_of(self.found, module, name)]
        else:
            places = reading.changed(self.found, module, name, self.carried.inside)
        self._settled(module, places)

    def _settled(self, module: Module, places: list[tuple[Module, ast.AST]]) -> None:
        """Refuse changes of what the dataset holds that come after it was made."""
        for other, use in places:
            if id(use) in self.carried.inside or happens_before(self.found.resolver, other, use, module, self.at):
                continue
            statement = other.names.statement(use)
            raise Refused(Diagnostic("S304", other.span(use), (("what", f"`{other.text(statement)}`"),)))

    def _container(self, module: Module, name: ast.Name) -> bool:
        scope = module.names.scope_of[name].lookup(name.id)
        return scope is None or any(not isinstance(b.value, ast.Constant) for b in scope.bindings[name.id])


def _closure(inner: Scope, scope: Scope) -> bool:
    """Whether code in `inner` runs later than the code around it in `scope`: a function or lambda lies between."""
    at: Scope | None = inner
    while at is not None and at is not scope:
        if at.kind in ("function", "lambda"):
            return True
        at = at.parent
    return False


def _jumps(stmt: ast.stmt) -> bool:
    """A statement that may leave the block: it can't be copied on its own."""
    return any(
        isinstance(node, (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await))
        for node in ast.walk(stmt)
        if not isinstance(stmt, (ast.FunctionDef, ast.ClassDef))
    )
