"""What a statement of a loop needs on the worker besides the batch, if it can run there.

labels = F.one_hot(labels, classes) * args.on      imports F; `classes` and `args.on` are sent, as they are where the loader is made
labels = labels * epoch                            `epoch` belongs to the trainer
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from splitter.carry import Phase, Refused, frame_scope
from splitter.checks import stateless
from splitter.draws import drawn
from splitter.effects import Effects
from splitter.find import Found
from splitter.flow import precedes
from splitter.kinds import SENDABLE
from splitter.read import Module
from splitter.resolve import Library, argument
from splitter.scopes import Scope, free_names
from splitter.sites import Site
from splitter.slice import Slicer

STEADY = frozenset({"param", "assign", "import", "def", "class"})


class _HeadSlicer(Slicer):
    """A slicer for a statement of a loop.

    `given` are the names that the batch brings, `passed` those of parameters, with the variable that every caller gives for them.
    """

    def __init__(self, found: Found, effects: Effects, site: Site, given: frozenset[int], passed: Mapping[int, ast.Name]) -> None:
        super().__init__(found, effects, site.module, site.call, frozenset())
        self.given, self.passed = given, passed
        self.read = ""  # the name of the statement that is looked at

    def name(self, module: Module, name: ast.Name, phase: Phase) -> None:
        if id(name) in self.given:
            return
        self.read = self.read if self.body else name.id
        parent = module.names.parent_of.get(name)
        if id(name) not in self.passed:
            super().name(module, name, phase)
        elif self.found.kinds.of(module, name) != "namespace":
            super().name(module, self.passed[id(name)], phase)
        elif isinstance(parent, ast.Attribute) and self.found.kinds.of(module, parent) in SENDABLE:
            self.carrier.settled(f"{name.id}.{parent.attr}", list(self.carrier.writers.of_attribute(module, name.id, parent.attr)))
            self.carried.environment[f"{name.id}.{parent.attr}"] = None
        else:
            raise Refused(self.carrier.not_plain(module, name, {"namespace"}))


class Needs:
    """Answers for the statements of one loop, over the loaders of `sites`."""

    def __init__(self, found: Found, effects: Effects, module: Module, loop: ast.For, sites: Sequence[Site]) -> None:
        self.found, self.effects, self.module, self.sites = found, effects, module, sites
        self.scope = module.names.scope_of[loop].function()

    def _lookup(self, name: ast.Name) -> Scope | None:
        return self.module.names.scope_of[name].lookup(name.id)

    def of(self, stmt: ast.stmt, given: frozenset[int], ours: set[str]) -> tuple[tuple[Slicer, ...], frozenset[str], bool] | str:
        """What a statement needs on the worker of each site, the local names in it, whether it changes memory; or why it must stay."""
        place = self._elsewhere(stmt)
        if place is not None:
            return place
        local: set[str] = set()
        passed: dict[int, ast.Name] = {}
        for name in free_names(stmt, self.module.names):
            if id(name) in given:
                continue
            scope = self._lookup(name)
            variable = self._passed(name) if scope is not None else None
            if variable is not None:
                passed[id(name)] = variable
            steady = scope is None or variable is not None or all(self._steady(name, scope, site) for site in self.sites)
            if not steady:
                return f"uses `{name.id}`, which belongs to the trainer"
            if scope is not None and scope is self.scope:
                local.add(name.id)
        slicers: list[Slicer] = []
        mutates = False
        for site in self.sites:
            slicer = _HeadSlicer(self.found, self.effects, site, given, passed)
            try:
                slicer.expression(self.module, stmt, "batch")
            except Refused:
                return f"uses `{slicer.read}`, which belongs to the trainer"
            hidden = self._hidden(slicer, site)
            if hidden is not None:
                return f"uses `{hidden}`, which isn't at hand where the loader is made"
            facts = slicer.carried.facts
            own = [item for item in facts if item[1].effect in ("in-place", "writes-global") and item[1].what in ours]
            mutates = mutates or bool(own)
            slicer.carried.facts = [item for item in facts if item not in own]
            if slicer.inner or any(fact.effect == "device" for _, fact in facts):
                return "uses a device, or another dataset"
            if stateless(self.found, slicer, None) is not True or drawn(self.found, slicer, True) != ():
                return "calls something of which it isn't known that it always gives the same"
            slicers.append(slicer)
        return tuple(slicers), frozenset(local), mutates

    def _hidden(self, slicer: Slicer, site: Site) -> str | None:
        """A name that is sent, and means something else in the call that makes the loader."""
        at = site.module.names.scope_of[site.call]
        for name in slicer.carried.environment:
            root = name.split(".")[0]
            home = site.module.names.top if root in slicer.carried.globals else frame_scope(site.module, site.call)
            if site.module is not self.module or at.lookup(root) is not home:
                return name
        return str(ast.unparse(next(iter(slicer.body.values())))) if slicer.body and site.module is not self.module else None

    def _passed(self, name: ast.Name) -> ast.Name | None:
        """The variable that every caller of the loop's function gives for a parameter, under its own name, where the loaders are made."""
        here = self.scope
        bindings = here.bindings.get(name.id, [])
        function = here.node
        if self._lookup(name) is not here or [b.kind for b in bindings] != ["param"] or not isinstance(function, ast.FunctionDef):
            return None
        resolver = self.found.resolver
        calls = resolver.call_sites(function)
        bound = resolver.owner(self.module, function) is not None
        given = [argument(call, function, name.id, bound=bound) for _, call in calls]
        if resolver.escapes(function) or not given or any(module is not self.module for module, _ in calls):
            return None
        for expr in given:
            scope = self._lookup(expr) if isinstance(expr, ast.Name) and expr.id == name.id else None
            for site in self.sites:
                if scope is None or site.module is not self.module or frame_scope(self.module, site.call) is not scope:
                    return None
                if not self._settled(name.id, scope, site):
                    return None
        return given[0] if isinstance(given[0], ast.Name) else None

    def _settled(self, name: str, scope: Scope, site: Site) -> bool:
        """Whether a variable has its value before the loader is made, and keeps it."""
        bindings = [b for b in scope.bindings[name] if b.kind != "delete"]
        return all(b.kind in STEADY and (b.kind == "param" or precedes(b.node, site.call, self.module.names, scope)) for b in bindings)

    def _steady(self, name: ast.Name, scope: Scope, site: Site) -> bool:
        """Whether a name means in the loop what it means where the loader is made, or can be settled by the slice."""
        here = self.scope
        local = scope is here and (here.kind != "module" or not {b.kind for b in scope.bindings[name.id]} <= {"import", "def", "class"})
        if scope.kind != "module" or local:
            if site.module is not self.module or frame_scope(site.module, site.call) is not here or scope is not here:
                return scope.kind == "module" and not self._written_here(name, scope)
            return self._settled(name.id, scope, site)
        return True  # of a module: the slice sees who writes it

    def _written_here(self, name: ast.Name, scope: Scope) -> bool:
        return any(b.kind not in STEADY for b in scope.bindings[name.id])

    def _elsewhere(self, stmt: ast.stmt) -> str | None:
        """`x.to(other)`: where to isn't said by a dtype."""
        for node in ast.walk(stmt):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "type", "copy_"):
                for given in (*node.args, *(k.value for k in node.keywords if k.arg not in ("non_blocking", "copy"))):
                    target = self.found.resolver.target(self.module, given)
                    cpu = isinstance(given, ast.Constant) and (given.value == "cpu" or isinstance(given.value, bool))
                    if not cpu and not (isinstance(target, Library) and target.name.startswith("torch.")):
                        return "may move to a device"
            if any(k.arg == "device" and not (isinstance(k.value, ast.Constant) and k.value.value == "cpu") for k in node.keywords):
                return "may move to a device"
        return None
