"""Which loaders are split.

    loader <- dataset <- origin       the origin's slice is clean, the trainer's uses of the dataset can be sent: split
                                      anything else: left, with the code

A dataset that feeds one loader that is left can't be moved for another, so refusals spread until nothing changes any more.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from splitter.candidates import GENERIC, Candidate, SitePlan, best, stem, unused, variable
from splitter.carry import Refused
from splitter.checks import check_facts, check_uses, residence, worker_counts
from splitter.effects import Effects
from splitter.find import Found
from splitter.fragments import shared_line
from splitter.ir import Diagnostic
from splitter.origins import Origin
from splitter.resolve import Definition
from splitter.send import OPEN, Sent, sent
from splitter.settings import settings
from splitter.shared import shared_state
from splitter.sites import Site
from splitter.slice import Slicer
from splitter.uses import Use, uses


class Decider:
    """Decides until nothing changes any more."""

    def __init__(self, found: Found, streams: int | None) -> None:
        self.found = found
        self.effects = Effects(found.resolver, found.kinds)
        self.streams = streams
        self.candidates: dict[int, Candidate] = {}
        self.names: set[str] = set()
        self.site_names: set[str] = set()

    def decide(self) -> list[SitePlan]:
        """Every loader site, with its candidates split or refused."""
        sites = [self._site(site) for site in self.found.sites]
        pending = True
        while pending:
            before = self._refusals(sites)
            for candidate in self.candidates.values():
                self._slice(candidate)
            for site in sites:
                self._slice_loader(site)
            for site in sites:
                self._check(site)
            for candidate in self.candidates.values():
                self._check_uses(candidate, sites)
            for site in sites:
                self._check_parts(site)
            self._check_settings(sites)
            pending = self._refusals(sites) != before
        for site in sites:
            self._send(site, sites)
        return sites

    def _refusals(self, sites: list[SitePlan]) -> tuple[int, int]:
        return sum(c.refused is not None for c in self.candidates.values()), sum(s.refused is not None for s in sites)

    # -- candidates ----------------------------------------------------------------------------------------------------

    def _site(self, site: Site) -> SitePlan:
        made = SitePlan(site, "", refused=site.problem)
        if site.problem is not None:
            made.name = self._site_name(site, ())
            return made
        in_order = site.option("in_order")
        if isinstance(in_order, ast.Constant) and in_order.value is False:
            made.refused = Diagnostic("S308", site.module.span(site.call))
        for option in ("collate_fn", "worker_init_fn"):
            if len({ast.unparse(expr) for expr in site.options.get(option, ())}) > 1:
                made.refused = Diagnostic("S203", site.module.span(site.call), (("what", option),))
        found = self.found.origins[id(site.call)]
        lost = next((item for item in found if not isinstance(item, Origin)), None)
        if lost is not None and made.refused is None:
            made.refused = Diagnostic("S201", site.module.span(site.call), (("what", lost.what),))
        if not found and made.refused is None:
            made.refused = Diagnostic("S201", site.module.span(site.call), (("what", "nowhere that the script shows"),))
        made.candidates = tuple(self._candidate(item, site) for item in found if isinstance(item, Origin))
        made.name = self._site_name(site, made.candidates)
        return made

    def _candidate(self, origin: Origin, site: Site) -> Candidate:
        origin = self._outermost(origin)
        key = id(origin.expr)
        if key not in self.candidates:
            names = [variable(origin.module, origin.expr), *(variable(m, c) for m, c in origin.calls[:1]), variable(site.module, site.call)]
            self.candidates[key] = Candidate(origin, unused(best(names) or "data", self.names))
        return self.candidates[key]

    def _outermost(self, origin: Origin) -> Origin:
        """The constructor itself, or the helper call around it when only there everything that it needs is at hand."""
        everything = frozenset(id(o.expr) for found in self.found.origins.values() for o in found)
        for outer in (origin, *(Origin(module, call) for module, call in origin.calls)):
            slicer = Slicer(self.found, self.effects, outer.module, outer.expr, everything)
            try:
                slicer.expression(outer.module, outer.expr, "build")
            except Refused as refusal:
                if refusal.diagnostic.code != "S305":
                    break
            else:
                return outer
        return origin

    def _site_name(self, site: Site, candidates: tuple[Candidate, ...]) -> str:
        own = candidates[0].name if len(candidates) == 1 else ""
        made = [(site.module, site.call), *((p.module, p.expr) for p in site.also if isinstance(p.expr, ast.Call))]
        given = stem(next((name for module, expr in made if (name := variable(module, expr))), ""))
        return unused(own if own and given in GENERIC else given or own or "loader", self.site_names)

    # -- slices --------------------------------------------------------------------------------------------------------

    def _handles(self) -> frozenset[int]:
        return frozenset(key for key, candidate in self.candidates.items() if candidate.refused is None)

    def _slice(self, candidate: Candidate) -> None:
        if candidate.refused is not None:
            return
        origin = candidate.origin
        slicer = Slicer(self.found, self.effects, origin.module, origin.expr, self._handles())
        try:
            slicer.expression(origin.module, origin.expr, "build")
            shared_line(origin.module, slicer.body.values())
        except Refused as refusal:
            candidate.refused = refusal.diagnostic
            return
        candidate.slicer = slicer

    def _slice_loader(self, site: SitePlan) -> None:
        if not site.split:
            return
        try:
            slicer, moved = self.loader_slicer(site)
        except Refused as refusal:
            site.refused = refusal.diagnostic
            return
        site.loader = slicer if moved else None

    def loader_slicer(self, site: SitePlan) -> tuple[Slicer, bool]:
        """The slice of a loader's functions, and whether it has any. Raises Refused."""
        slicer = Slicer(self.found, self.effects, site.site.module, site.site.call, self._handles())
        moved = False
        for option in ("collate_fn", "worker_init_fn"):
            expr = site.site.option(option)
            if expr is None or (isinstance(expr, ast.Constant) and expr.value is None):
                continue
            moved = True
            slicer.expression(site.site.where(expr), expr, "batch")
        shared_line(site.site.module, slicer.body.values())
        return slicer, moved

    def _send(self, site: SitePlan, sites: list[SitePlan]) -> None:
        """The last resort: the trainer builds the dataset, and sends it; also when only a part of what it may be can move."""
        reasons = [site.refused] if site.refused else [candidate.refused for candidate in site.candidates if candidate.refused]
        if not reasons or site.site.problem is not None or not all(reason.code in OPEN for reason in reasons):
            return
        own = {id(c.origin.expr) for c in site.candidates if not any(c in s.candidates for s in sites if s is not site)}
        if site.site.option("in_order") is not None:
            return
        how = sent(self.found, self.effects, site.site, self._handles() - own, worker_counts(site.site, self.streams))
        if isinstance(how, Diagnostic) and how.arguments and {reason.code for reason in reasons} == {"S201"}:
            site.refused = how  # what is wrong with the dataset that it seems to be says more
        elif isinstance(how, Sent) and settings(self.found, self.effects, [how.slicer])[1] is None:
            site.sent, site.loader, site.candidates, site.refused = how, how.slicer, (), None

    # -- checks --------------------------------------------------------------------------------------------------------

    def _check(self, site: SitePlan) -> None:
        if not site.split:
            return
        counts = worker_counts(site.site, self.streams)
        for candidate in site.candidates:
            if candidate.refused is None and candidate.slicer is not None:
                problem = check_facts(self.found, candidate.slicer, site.site, counts, candidate.slicer.carried.inside)
                candidate.refused = problem or self._shared(candidate.slicer, [candidate.origin.expr], counts)
        if site.loader is not None:
            moved = [expr for option in ("collate_fn", "worker_init_fn") if (expr := site.site.option(option)) is not None]
            problem = check_facts(self.found, site.loader, site.site, counts, site.loader.carried.inside)
            site.refused = problem or self._shared(site.loader, moved, counts)

    def _shared(self, slicer: Slicer, roots: Sequence[ast.AST], counts: set[int | None]) -> Diagnostic | None:
        return shared_state(self.found, self.effects, slicer, list(roots), main_process=bool(counts & {0, None}))

    def _check_uses(self, candidate: Candidate, sites: list[SitePlan]) -> None:
        if candidate.refused is not None or candidate.slicer is None:
            return
        moved = set(candidate.slicer.carried.inside)
        for other in self.candidates.values():
            moved |= other.slicer.carried.inside if other.slicer and other.refused is None else set()
        for site in sites:
            moved |= site.loader.carried.inside if site.loader else set()
        moved -= {id(candidate.origin.expr)}
        found = uses(self.found, candidate.origin.module, candidate.origin.expr, frozenset(moved))
        candidate.uses = tuple(replace(use, kind="object") if self._in_dataset(use) else use for use in found)
        own = [s for s in sites if candidate in s.candidates]
        left = next((s for s in own if s.refused is not None), None)
        if left is not None:
            candidate.refused = left.refused
            return
        for use in candidate.uses:
            plan = next((s for s in sites if s.site is use.site and s.site.problem is not None), None)
            if plan is not None:  # the dataset stays for a loader that was not understood
                candidate.refused = plan.refused
                return
        candidate.refused = self._torn(candidate)
        if candidate.refused is not None:
            return
        zero = any(0 in worker_counts(s.site, self.streams) or None in worker_counts(s.site, self.streams) for s in own)
        candidate.refused = check_uses(candidate.uses, candidate.slicer, zero)
        candidate.residence = residence(candidate.uses)

    def _torn(self, candidate: Candidate) -> Diagnostic | None:
        """S314 when another dataset of the same class stays, and their code changes a global of both."""
        assert candidate.slicer is not None
        carried = candidate.slicer.carried
        written = [fact for phase, fact in carried.facts if phase == "batch" and fact.effect == "writes-global"]
        for other in self.candidates.values() if written else ():
            made = self.found.kinds.instance_of(other.origin.module, other.origin.expr) if other.refused is not None else None
            if made is not None and any(definition.node is made.node for definition in carried.definitions):
                span, line = written[0].module.span(written[0].node), str(other.origin.expr.lineno)
                return Diagnostic("S314", span, (("name", f"`{written[0].what}`"), ("line", line)))
        return None

    def _in_dataset(self, use: Use) -> bool:
        """Code of a dataset that stays: torch may run it in processes of its own, where a handle is of no use."""
        owner = next((up for up in use.module.names.ancestors(use.node) if isinstance(up, ast.ClassDef)), None)
        return owner is not None and self.found.kinds.class_kind(Definition(use.module, owner)) == "dataset"

    def _check_parts(self, site: SitePlan) -> None:
        """A ConcatDataset is on the worker with all of its parts, or not at all."""
        refused = next((candidate.refused for candidate in site.candidates if candidate.refused is not None), None)
        if refused is not None and any(self._joined(use) for candidate in site.candidates for use in candidate.uses):
            for candidate in site.candidates:
                candidate.refused = candidate.refused or refused

    def _joined(self, use: Use) -> bool:
        called = self.found.resolver.library(use.module, use.node.func) if isinstance(use.node, ast.Call) else None
        return use.kind == "wrap" and (called is None or not called.endswith(("Subset", "random_split")))

    def _check_settings(self, sites: list[SitePlan]) -> None:
        """Library switches are the whole worker's: when one can't be carried, every loader stays."""
        made = [(candidate, candidate.slicer) for candidate in self.candidates.values() if candidate.refused is None and candidate.slicer]
        slicers = [slicer for _, slicer in made] + [site.loader for site in sites if site.split and site.loader]
        _, problem = settings(self.found, self.effects, slicers)
        for candidate, _ in made:
            candidate.refused = problem
