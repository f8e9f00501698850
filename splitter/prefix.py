"""Step `prefix`: the start of a model's forward that the worker can run, when the user asks for it.

    class Net(Module):                                              Prefix(owner="Net", statements 0 to 1,
        def forward(self, features, prices):                               results: `rows` in the place of `features`,
            rows = mix(features) % self.buckets        ->                  feeds: train, place 0; test, place 0)
            return self.top(self.table(rows), prices)
    for features, prices, clicked in loader:
        loss = loss_fn(model(features, prices), clicked)

Every call of the model must get values of batches of split loaders, and the loops must do nothing else with those. Otherwise nothing
moves, and a note says why. Whether the bits stay the same is seen when samples run (see `trace_prefix`).
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from splitter.candidates import SitePlan
from splitter.carry import Refused, frame_scope
from splitter.decide import Decider
from splitter.find import Found
from splitter.flow import reaching
from splitter.fragments import fragments, shared_line
from splitter.ir import Diagnostic, Fragment, Plan, Removal
from splitter.kinds import SENDABLE
from splitter.origins import Lost, Origin, Tracer
from splitter.prefix_forward import Start, starts
from splitter.prefix_head import head
from splitter.prefix_loop import Key, Loop, NotFollowed, loops
from splitter.prefix_model import ITSELF, Model, models
from splitter.prefix_types import WHOLE, Prefix, PrefixFeed, PrefixHead, Rename
from splitter.read import ENTRY, Module
from splitter.resolve import Library
from splitter.scopes import free_names, position
from splitter.settings import settings
from splitter.slice import Slicer


class _Not(Exception):
    """The prefix stays; carries the finding that says why."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.code)
        self.diagnostic = diagnostic


@dataclass(frozen=True, eq=False)
class _Fed:
    """A loader whose batches the model gets: where its inputs are in them."""

    site: SitePlan
    loops: tuple[Loop, ...]
    places: dict[str, Key]
    device: bool


def with_prefix(found: Found, decider: Decider, sites: list[SitePlan], assemble: Callable[[], Plan]) -> Plan:
    """The plan with the start of a model's forward on the worker; without it, and with a note, where that can't be."""
    plain = replace(assemble(), model_prefix=True)
    if not plain.split:
        return plain
    first: Diagnostic | None = None
    for model in sorted(models(found), key=lambda model: not model.calls):
        try:
            return _Offer(found, decider, sites, model).plans(plain, assemble)
        except _Not as reason:
            first = first or reason.diagnostic
    if first is None:
        first = Diagnostic("S424", None, (("what", "the model"), ("why", "isn't made and called where splitter can follow it")))
    return replace(plain, diagnostics=(*plain.diagnostics, first))


class _Offer:
    """One model, and the loaders that feed it."""

    def __init__(self, found: Found, decider: Decider, sites: list[SitePlan], model: Model) -> None:
        self.found, self.decider, self.sites, self.model = found, decider, sites, model

    def plans(self, plain: Plan, assemble: Callable[[], Plan]) -> Plan:
        """The plan with the longest start, and in its `without` those with shorter ones. Raises _Not when there is none."""
        if self.model.problem is not None:
            raise _Not(self.model.problem)
        begins = starts(self.found, self.decider.effects, self.model)
        if isinstance(begins, Diagnostic):
            raise _Not(begins)
        reason: _Not | None = None
        possible: list[tuple[Start, list[_Fed]]] = []
        for begin in begins:
            try:
                possible.append((begin, self.fed(begin)))
            except _Not as other:
                reason = reason or other
        plan = plain
        for rank, (begin, fed) in reversed(list(enumerate(possible))):
            try:
                plan = self.plan(plain, plan, assemble, begin, fed, rank)
            except _Not as other:
                reason = reason or other
        if plan is plain and reason is not None:
            raise reason
        return plan

    def plan(self, plain: Plan, shorter: Plan, assemble: Callable[[], Plan], begin: Start, fed: list[_Fed], rank: int) -> Plan:
        """Raises _Not."""
        try:
            shared_line(self.model.module, begin.statements)
            slicers = [self.slicer(each.site, begin) for each in fed]
        except Refused as refusal:
            why = f"can't be made on the worker ({refusal.diagnostic.code})"
            raise _Not(Diagnostic("S423", refusal.diagnostic.span, (("name", self._named(refusal.diagnostic)), ("why", why)))) from None
        problem = settings(self.found, self.decider.effects, slicers)[1]
        if problem is not None:
            why = f"used under a setting of a library that can't be made on the worker ({problem.code})"
            raise _Not(Diagnostic("S423", problem.span, (("name", self._named(problem)), ("why", why))))
        before = [each.site.loader for each in fed]
        for each, slicer in zip(fed, slicers, strict=True):
            each.site.loader = slicer
        made = assemble()
        for each, old in zip(fed, before, strict=True):
            each.site.loader = old
        return self.applied(plain, shorter, made, begin, fed, rank)

    @staticmethod
    def _named(reason: Diagnostic) -> str:
        return next((value for name, value in reason.arguments if name in ("name", "what")), "a name")

    # --- the loops

    def fed(self, begin: Start) -> list[_Fed]:
        """The loaders that the model's inputs come from."""
        every: dict[int, list[Loop]] = {}
        lost: list[NotFollowed] = []
        for site in self.sites:
            if site.split:
                try:
                    every[id(site)] = loops(self.found, site.site, self.model)
                except NotFollowed as found:
                    lost.append(found)
        self._all_fed(begin, [loop for found in every.values() for loop in found], lost)
        result = []
        for site in self.sites:
            own = every.get(id(site), [])
            if any(event.parameter in begin.inputs for loop in own for event in loop.events if event.parameter):
                result.append(self._site(site, own, begin))
        return result

    def _all_fed(self, begin: Start, every: Iterable[Loop], lost: Iterable[NotFollowed]) -> None:
        """Every call of the model gets every input from a batch."""
        fed = {id(event.node) for loop in every for event in loop.events if event.parameter is not None}
        for module, call in self.model.calls:
            for name in begin.inputs:
                given = self.model.given(call, name)
                if given is None or id(given) not in fed:
                    here = module.names.scope_of[call].function()
                    for other in lost:
                        if other.module is module and module.names.scope_of[other.node].function() is here:
                            raise self._loop_reason(module, other.node, "can't be followed to the model alone")
                    text = f"`{module.text(call)}` calls the model with something that isn't the batch of a split loader"
                    way = "call the model in a loop over a loader, with the values of the batch"
                    raise _Not(Diagnostic("S421", module.span(call), (("what", text), ("way", way))))
            caught = next((up for up in module.names.ancestors(call) if isinstance(up, (ast.Try, ast.FunctionDef))), None)
            if isinstance(caught, ast.Try) and caught.handlers:
                raise self._loop_reason(module, call, "is in a try, which errors of the start of forward would pass by")

    def _site(self, site: SitePlan, own: list[Loop], begin: Start) -> _Fed:
        whole = site.sent is None and all(candidate.refused is None for candidate in site.candidates)
        if not whole or site.site.call is None:
            raise self._loop_reason(site.site.module, site.site.call, "makes a loader whose dataset isn't on the worker alone")
        for loop in own:
            self._only_split(loop)
        places: dict[str, Key] = {}
        for loop in own:
            for event in loop.events:
                if event.parameter in begin.inputs and event.parameter is not None:
                    if places.setdefault(event.parameter, event.key) != event.key:
                        raise self._loop_reason(loop.module, event.node, "gives the model another part of the batch than another call")
        taken = {places[parameter] for parameter in begin.inputs if parameter in places}
        if len(places) != len(begin.inputs) or len(taken) != len(places):
            raise self._loop_reason(
                site.site.module, site.site.call, "makes a loader of which not every input comes, each from its own place"
            )
        for loop in own:
            for event in loop.events:
                other = (event.key == WHOLE) != (WHOLE in taken)
                if other or (event.key in taken and event.parameter not in begin.inputs):
                    raise self._loop_reason(loop.module, event.node, "reads what the start of forward would take the place of")
        if len({type(key) for loop in own for key in (event.key for event in loop.events)}) > 1:
            raise self._loop_reason(site.site.module, site.site.call, "makes a loader whose batches are read by number and by name")
        counts = {len(loop.names) for loop in own if loop.names is not None}
        if len(counts) > 1:
            raise self._loop_reason(site.site.module, site.site.call, "makes a loader whose batches are taken apart in two ways")
        device = any(event.device for loop in own for event in loop.events if event.key in taken)
        return _Fed(site, tuple(own), places, device)

    def _only_split(self, loop: Loop) -> None:
        """A loop runs over split loaders, whichever it gets."""
        known = {id(site.site.call): site.site for site in self.sites}
        split = {id(site.site.call) for site in self.sites if site.split}
        also = {id(place.expr) for site in self.sites if site.split for place in site.site.also}
        tracer = Tracer(self.found.resolver, self.found.kinds, known)
        for item in tracer.trace(loop.module, loop.iterated, frozenset(), ()):
            if isinstance(item, Lost) and self._is_mode(item):
                continue
            if not isinstance(item, Origin) or id(item.expr) not in split | also:
                raise self._loop_reason(loop.module, loop.iterated, "may be a loader that isn't split")

    def _is_mode(self, lost: Lost) -> bool:
        """`model.train()`, which is no call of the script's own function `train`."""
        func = lost.expr.func if isinstance(lost.expr, ast.Call) else None
        return isinstance(func, ast.Attribute) and func.attr in ITSELF and self.found.kinds.of(lost.module, func.value) == "model"

    @staticmethod
    def _loop_reason(module: Module, node: ast.AST, why: str) -> _Not:
        way = "give these values of the batch to the model, and do nothing else with them"
        return _Not(Diagnostic("S421", module.span(node), (("what", f"`{module.text(node)}` {why}"), ("way", way))))

    # --- what the worker needs

    def slicer(self, site: SitePlan, begin: Start) -> Slicer:
        """The slice of a loader's functions, with the names that the start of forward reads. Raises Refused, _Not."""
        slicer, _ = self.decider.loader_slicer(site)
        module = self.model.module
        for statement in begin.statements:
            slicer.carried.code.append((module, statement))
            slicer.carried.inside.update(id(node) for node in ast.walk(statement))
            for name in free_names(statement, module.names):
                scope = module.names.scope_of[name].lookup(name.id)
                if scope is None or scope.kind == "module":
                    self._one_meaning(module, name)
                    slicer.carrier.name(module, name, "batch")
        for known in begin.constants.values():
            for other, name in known.names:
                self._one_meaning(other, name)
                self._constant_name(slicer, other, name, known.text)
        sent = {chain.partition(".")[0] for chain in slicer.carried.environment} - slicer.carried.globals
        for statement in begin.statements:
            for name in free_names(statement, module.names):
                scope = module.names.scope_of[name].lookup(name.id)
                if name.id in sent and scope is not None and scope.kind == "module":
                    raise _Not(Diagnostic("S423", module.span(name), (("name", f"`{name.id}`"), ("why", "something else at the loader"))))
        return slicer

    def _constant_name(self, slicer: Slicer, module: Module, name: ast.Name, text: str) -> None:
        """A name in a constant's text: of a module, or of the function that makes the loader, from before that."""
        scope = module.names.scope_of[name].lookup(name.id)
        if scope is None or (scope.kind == "module" and (module is not slicer.module or frame_scope(module, slicer.at) is not scope)):
            slicer.carrier.name(module, name, "batch")
            return
        here = module is slicer.module and scope is frame_scope(module, slicer.at)
        bindings = reaching(name, name.id, module.names, scope) if here else []
        if not bindings or any(position(binding.node) > position(slicer.at) for binding in bindings):
            raise Refused(slicer.carrier.not_plain(module, name, {"unknown"}))
        kind = self.found.kinds.of(module, name)
        if all(binding.kind in ("import", "def", "class") for binding in bindings):
            kind = "plain"  # what it is called with is looked at by itself
        if kind not in SENDABLE | {"namespace"}:
            raise Refused(slicer.carrier.not_plain(module, name, {kind}))
        handed_on = not isinstance(module.names.parent_of[name], ast.Attribute)
        if handed_on and kind == "namespace":  # its attributes are read where the model is made
            self._attributes(slicer, module, name, text)
        else:
            slicer.name(module, name, "batch")

    def _attributes(self, slicer: Slicer, module: Module, name: ast.Name, text: str) -> None:
        """Send the attributes of parsed arguments that a constant's text reads."""
        nodes = (node for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Attribute))
        read = dict.fromkeys(node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == name.id)
        for attribute in read:
            chain = f"{name.id}.{attribute}"
            slicer.carrier.settled(chain, list(slicer.carrier.writers.of_attribute(module, name.id, attribute)))
            slicer.carried.environment[chain] = None
        if not read:
            raise Refused(slicer.carrier.not_plain(module, name, {"namespace"}))

    def _one_meaning(self, module: Module, name: ast.Name) -> None:
        """Names of several modules meet in the worker program."""
        scope = module.names.scope_of[name].lookup(name.id)
        top = self.found.program.entry.names.top.bindings.get(name.id)
        if module.name == ENTRY or scope is None or top is None:
            return
        own = self.found.resolver.target(module, name)
        others = [target for binding in top for target in self.found.resolver.of_binding(self.found.program.entry, binding)]
        same = all(isinstance(own, Library) and isinstance(other, Library) and own.name == other.name for other in others)
        if not same and not all(getattr(own, "node", 0) is getattr(other, "node", 1) for other in others):
            raise _Not(Diagnostic("S423", module.span(name), (("name", f"`{name.id}`"), ("why", "something else in the script"))))

    # --- the plan

    def applied(self, plain: Plan, shorter: Plan, made: Plan, begin: Start, fed: list[_Fed], rank: int) -> Plan:
        module = self.model.module
        stretch = fragments(module, begin.statements)
        body = Fragment(module.file.path, stretch[0].first, stretch[-1].last)
        heads: dict[str, PrefixHead] = {}
        for each in fed:
            builder = next(b for b in made.worker.builders if b.kind == "loader" and b.name == each.site.name)
            heads[each.site.name] = head(module, begin, body, each.places, each.loops, builder.parameters)
        builders = tuple(
            replace(builder, prefix=heads.get(builder.name)) if builder.kind == "loader" else builder for builder in made.worker.builders
        )
        feeds = tuple(
            PrefixFeed(each.site.name, tuple(sorted(each.places.items())), each.device, heads[each.site.name].constants) for each in fed
        )
        prefix = Prefix(
            rank,
            module.name,
            self.model.definition.node.name,
            body,
            (begin.first, begin.first + len(begin.statements)),
            begin.results,
            feeds,
        )
        files = {file.module: file for file in made.modules}
        if module.name != ENTRY:
            files[module.name] = module.file
        for other, _ in self.model.calls:
            if other.name != ENTRY and any(rename.module == other.name for rename in self.renames(begin)):
                files[other.name] = other.file
        digest = hashlib.sha256(f"{plain.digest} prefix {prefix.statements}".encode()).hexdigest()[:16]
        return replace(
            made,
            digest=f"sha256:{digest}",
            modules=tuple(files[name] for name in sorted(files)),
            worker=replace(made.worker, builders=builders),
            removals=(*made.removals, Removal(module.name, body, self.comment(begin))),
            renames=tuple(self.renames(begin)),
            prefix=prefix,
            without=shorter,
            model_prefix=True,
            roots=self.found.program.elsewhere({*self.found.program.modules} & {*files, *self._needed(made)}),
        )

    @staticmethod
    def comment(begin: Start) -> str:
        """What stands in forward for the statements that have moved."""
        made = ", ".join(f"`{result}`" if result == of else f"`{result}` of `{of}`" for result, of in begin.results)
        return f"splitter: the worker makes {made}, in the head of its loaders"

    def _needed(self, made: Plan) -> set[str]:
        """The modules that the worker imports."""
        return {name for name, module in self.found.program.modules.items() if module.file.path in made.needs}

    def renames(self, begin: Start) -> Iterator[Rename]:
        """Parameters of forward that get the name of what takes their place, and keywords of calls with them."""
        module, forward = self.model.module, self.model.forward
        for result, parameter in begin.results:
            if result == parameter:
                continue
            arg = next(a for a in (*forward.args.posonlyargs, *forward.args.args, *forward.args.kwonlyargs) if a.arg == parameter)
            span = module.span(arg)
            yield Rename(module.name, replace(span, end_line=span.line, end_column=span.column + len(parameter)), result)
            for other, call in self.model.calls:
                for keyword in call.keywords:
                    if keyword.arg == parameter:
                        span = other.span(keyword)
                        yield Rename(other.name, replace(span, end_line=span.line, end_column=span.column + len(parameter)), result)
