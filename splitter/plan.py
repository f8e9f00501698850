"""Step `plan`: which loaders are split, and what each edit is.

    loader <- dataset <- origin       the origin's slice is clean, the trainer's uses of the dataset can be sent: split
                                      anything else: left, with the code

A dataset that feeds one loader that is left can't be moved for another, so refusals spread until nothing changes any more.
"""
from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import dataclass, replace

from splitter import __version__
from splitter.carry import Refused
from splitter.checks import check_facts, check_uses, residence, stateless, worker_counts
from splitter.effects import Effects
from splitter.find import Found, Origin, Site
from splitter.fragments import fragments, shared_line
from splitter.ir import Builder, Diagnostic, Feed, Fragment, HandleEdit, LoaderEdit, NamesFrom, Note, Plan, Role, WorkerModule
from splitter.read import ENTRY, Module
from splitter.settings import settings
from splitter.slice import Slicer
from splitter.uses import Use, uses


@dataclass(eq=False)
class Candidate:
    """An origin on its way to a builder, or to a refusal."""

    origin: Origin
    name: str
    slicer: Slicer | None = None
    uses: tuple[Use, ...] = ()
    refused: Diagnostic | None = None
    residence: str = "moved"


@dataclass(eq=False)
class SitePlan:
    """A loader site on its way to an edit, or to a refusal."""

    site: Site
    name: str
    candidates: tuple[Candidate, ...] = ()
    loader: Slicer | None = None
    refused: Diagnostic | None = None


def plan(found: Found, *, streams: int | None = None) -> Plan:
    """Decide for every loader of the program. `streams` is the user's --streams: as if the script had said num_workers=N."""
    return _Planner(found, streams).plan()


class _Planner:
    def __init__(self, found: Found, streams: int | None) -> None:
        self.found = found
        self.effects = Effects(found.resolver, found.kinds)
        self.streams = streams
        self.candidates: dict[int, Candidate] = {}
        self.names: set[str] = set()
        self.warnings: list[Diagnostic] = []

    def plan(self) -> Plan:
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
            pending = self._refusals(sites) != before
        return self._result(sites)

    @staticmethod
    def _split(site: SitePlan) -> bool:
        return site.refused is None and any(c.refused is None for c in site.candidates)

    def _refusals(self, sites: list[SitePlan]) -> tuple[int, int]:
        return sum(c.refused is not None for c in self.candidates.values()), sum(s.refused is not None for s in sites)

    # -- candidates ----------------------------------------------------------------------------------------------------

    def _site(self, site: Site) -> SitePlan:
        made = SitePlan(site, "", refused=site.problem)
        if site.problem is not None:
            made.name = self._name(site.module, site.call)
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
        key = id(origin.expr)
        if key not in self.candidates:
            self.candidates[key] = Candidate(origin, self._name(origin.module, origin.expr, fallback=_variable(site.module, site.call)))
        return self.candidates[key]

    def _name(self, module: Module, expr: ast.expr, fallback: str = "") -> str:
        base = _stem(_variable(module, expr) or fallback or "data")
        name, number = base, 2
        while name in self.names:
            name, number = f"{base}_{number}", number + 1
        self.names.add(name)
        return name

    def _site_name(self, site: Site, candidates: tuple[Candidate, ...]) -> str:
        taken = {c.name for c in candidates}
        stem = _stem(_variable(site.module, site.call) or "loader")
        if len(taken) == 1:
            only = next(iter(taken))
            if stem == only or not _variable(site.module, site.call) or stem not in self.names:
                shared = [s for s in self.found.sites if s is not site and any(o.expr is candidates[0].origin.expr for o in self.found.origins[id(s.call)])]
                if not shared:
                    return only
        return self._name(site.module, site.call, fallback="loader")

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
        if not self._split(site):
            return
        slicer = Slicer(self.found, self.effects, site.site.module, site.site.call, self._handles())
        moved = False
        try:
            for option in ("collate_fn", "worker_init_fn"):
                expr = site.site.option(option)
                if expr is None or (isinstance(expr, ast.Constant) and expr.value is None):
                    continue
                moved = True
                slicer.expression(site.site.module, expr, "batch")
            shared_line(site.site.module, slicer.body.values())
        except Refused as refusal:
            site.refused = refusal.diagnostic
            return
        site.loader = slicer if moved else None

    # -- checks --------------------------------------------------------------------------------------------------------

    def _check(self, site: SitePlan) -> None:
        if not self._split(site):
            return
        counts = worker_counts(site.site, self.streams)
        for candidate in site.candidates:
            if candidate.refused is None and candidate.slicer is not None:
                problem = check_facts(self.found, candidate.slicer, site.site, counts, candidate.slicer.carried.inside)
                candidate.refused = problem
        if site.loader is not None:
            site.refused = check_facts(self.found, site.loader, site.site, counts, site.loader.carried.inside)

    def _check_uses(self, candidate: Candidate, sites: list[SitePlan]) -> None:
        if candidate.refused is not None or candidate.slicer is None:
            return
        moved = set(candidate.slicer.carried.inside)
        for other in self.candidates.values():
            moved |= other.slicer.carried.inside if other.slicer and other.refused is None else set()
        for site in sites:
            moved |= site.loader.carried.inside if site.loader else set()
        moved -= {id(candidate.origin.expr)}
        candidate.uses = tuple(uses(self.found, candidate.origin.module, candidate.origin.expr, frozenset(moved)))
        own = [s for s in sites if candidate in s.candidates]
        left = next((s for s in own if s.refused is not None), None)
        if left is not None:
            candidate.refused = left.refused
            return
        zero = any(0 in worker_counts(s.site, self.streams) or None in worker_counts(s.site, self.streams) for s in own)
        candidate.refused = check_uses(candidate.uses, candidate.slicer, zero)
        candidate.residence = residence(candidate.uses)

    # -- result --------------------------------------------------------------------------------------------------------

    def _result(self, sites: list[SitePlan]) -> Plan:
        split_sites = [site for site in sites if self._split(site)]
        kept = [c for c in self.candidates.values() if c.refused is None and any(c in s.candidates for s in split_sites)]
        slicers = [c.slicer for c in kept if c.slicer] + [s.loader for s in split_sites if s.loader]
        builders = tuple([self._dataset_builder(c) for c in kept] + [self._loader_builder(s) for s in split_sites if s.loader])
        handles = tuple(HandleEdit(c.origin.module.name, c.origin.module.span(c.origin.expr), c.name, tuple(c.slicer.carried.environment),
                                   "replicated" if c.residence == "replicated" else "moved") for c in kept if c.slicer)
        loaders = tuple(self._loader_edit(s, split_sites) for s in split_sites)
        edited = {edit.module for edit in (*handles, *loaders)} - {ENTRY}
        program = self.found.program
        needs = sorted({program.modules[name].file.path for slicer in slicers for name in slicer.carried.modules})
        feeds = tuple(feed for site in sites for feed in self._feeds(site))
        return Plan(
            script=program.entry.file, modules=tuple(program.modules[name].file for name in sorted(edited)), digest=self._digest(),
            needs=tuple(needs), worker=self._worker(slicers, builders), handles=handles, loaders=loaders, removals=(), feeds=feeds,
            notes=tuple(self._notes(kept)), diagnostics=self._diagnostics(feeds, sites, slicers))

    def _digest(self) -> str:
        content = hashlib.sha256(f"splitter {__version__} streams {self.streams}\n".encode())
        for name, module in sorted(self.found.program.modules.items()):
            content.update(f"{name}\0{module.file.text}\0".encode("utf-8", "surrogatepass"))
        return f"sha256:{content.hexdigest()[:16]}"

    def _dataset_builder(self, candidate: Candidate) -> Builder:
        slicer, origin = candidate.slicer, candidate.origin
        assert slicer is not None
        return Builder(
            "dataset", candidate.name, self._function(candidate.name, slicer), tuple(slicer.carried.environment), tuple(sorted(slicer.carried.globals)),
            fragments(origin.module, slicer.body.values()), result=origin.module.span(origin.expr),
            stateless=stateless(self.found, slicer, origin), draws=_draws(slicer))

    def _loader_builder(self, site: SitePlan) -> Builder:
        slicer = site.loader
        assert slicer is not None
        spans = {option: site.site.module.span(expr) for option in ("collate_fn", "worker_init_fn")
                 if (expr := site.site.option(option)) is not None and not (isinstance(expr, ast.Constant) and expr.value is None)}
        return Builder(
            "loader", site.name, f"{self._function(site.name, slicer)}_loader", tuple(slicer.carried.environment), tuple(sorted(slicer.carried.globals)),
            fragments(site.site.module, slicer.body.values()), collate_fn=spans.get("collate_fn"), worker_init_fn=spans.get("worker_init_fn"),
            stateless=stateless(self.found, slicer, None), draws=_draws(slicer))

    def _function(self, name: str, slicer: Slicer) -> str:
        taken = set(self.found.program.entry.names.top.bindings) | {n.split(".")[0] for n in slicer.carried.environment}
        safe = re.sub(r"\W", "_", name)
        return f"build_{safe}" if safe in taken or not safe.isidentifier() else safe

    def _loader_edit(self, site: SitePlan, split_sites: list[SitePlan]) -> LoaderEdit:
        builders = {s.name for s in split_sites if s.loader}
        handles = {c.name for c in site.candidates if c.refused is None}
        wanted = site.name if site.loader else None
        implied = handles == {site.name} if site.loader else not handles & builders
        counts = worker_counts(site.site, None)
        return LoaderEdit(
            site.site.module.name, site.site.module.span(site.site.call), site.site.module.span(site.site.call.func), feed=wanted,
            explicit=not implied, environment=tuple(site.loader.carried.environment) if site.loader else (),
            streams=self.streams if counts == {0} else None)

    def _worker(self, slicers: list[Slicer], builders: tuple[Builder, ...]) -> WorkerModule:
        entry = self.found.program.entry
        statements = {key: stmt for slicer in slicers for key, (_, stmt) in slicer.carried.statements.items()}
        for stmt in settings(self.found, self.effects, [c for s in slicers for c in s.carried.statements.values()], slicers):
            statements[id(stmt)] = stmt
        imports = [s for s in statements.values() if isinstance(s, (ast.Import, ast.ImportFrom)) or _import_block(s)]
        for local in {t for s in imports for t in _locals_of(s)}:
            del local
        definitions = [s for s in statements.values() if s not in imports]
        local: dict[str, set[str]] = {}
        for slicer in slicers:
            for module, name in slicer.carried.local_names:
                local.setdefault(module, set()).add(name)
        future = tuple(sorted({alias.name for s in entry.tree.body if isinstance(s, ast.ImportFrom) and s.module == "__future__" for alias in s.names}))
        return WorkerModule(
            future, fragments(entry, imports), tuple(NamesFrom(module, tuple(sorted(names))) for module, names in sorted(local.items())),
            fragments(entry, definitions), builders)

    def _feeds(self, site: SitePlan) -> list[Feed]:
        loader = site.site.module.span(site.site.call)
        role = _role(site.name)
        if not site.candidates:
            assert site.refused is not None
            return [Feed(site.name, loader, None, role, "left", site.refused.code, (site.refused.code,))]
        feeds = []
        for candidate in site.candidates:
            refused = site.refused or candidate.refused
            slicer = candidate.slicer
            origin = candidate.origin.module.span(candidate.origin.expr)
            name = candidate.name if len(site.candidates) > 1 or site.name == candidate.name else site.name
            if refused is not None or slicer is None:
                feeds.append(Feed(name, loader, origin, role, "left", refused.code if refused else "S201", ()))
                continue
            draws = tuple(dict.fromkeys((*_draws(slicer), *(_draws(site.loader) if site.loader else ()))))
            environment = tuple(dict.fromkeys((*slicer.carried.environment, *(site.loader.carried.environment if site.loader else ()))))
            workers = site.site.option("num_workers")
            streams = str(self.streams) if self.streams and worker_counts(site.site, None) == {0} else ast.unparse(workers) if workers is not None else "0"
            moved: list[Fragment] = [*fragments(candidate.origin.module, slicer.body.values())]
            moved.append(Fragment(origin.path, origin.line, origin.end_line))
            feeds.append(Feed(
                name, loader, origin, role, "split", None, (), "replicated" if candidate.residence == "replicated" else "moved",
                _both(stateless(self.found, slicer, candidate.origin), stateless(self.found, site.loader, None) if site.loader else True),
                draws, environment, streams, tuple(sorted(moved))))
        return feeds

    def _notes(self, kept: list[Candidate]) -> list[Note]:
        words = {"read": "read through the handle", "length": "asked of the worker", "call": "sent to the worker, in order",
                 "write": "sent to the worker, in order", "index": "one sample, asked of the worker", "iterate": "sample by sample, asked of the worker",
                 "sampler": "samplers stay with the trainer", "object": "needs the object itself, so the dataset is built on both sides"}
        notes: dict[str, Note] = {}
        for candidate in kept:
            for use in candidate.uses:
                if use.kind in words:
                    note = Note(use.module.span(use.node), use.what.strip("`"), words[use.kind])
                    notes.setdefault(str(note.span), note)
        return sorted(notes.values(), key=lambda note: note.span)

    def _diagnostics(self, feeds: tuple[Feed, ...], sites: list[SitePlan], slicers: list[Slicer]) -> tuple[Diagnostic, ...]:
        found: dict[tuple[str, str], Diagnostic] = {}
        for site in sites:
            refusals = [site.refused] if site.refused else [c.refused for c in site.candidates if c.refused]
            for refusal in refusals:
                if refusal is not None:
                    found.setdefault((refusal.code, str(refusal.span)), refusal)
        for slicer in slicers:
            for _, fact in slicer.carried.facts:
                if fact.effect == "lists":
                    warning = Diagnostic("S401", fact.module.span(fact.node), (("what", fact.what),))
                    found.setdefault((warning.code, str(warning.span)), warning)
        if not self.found.sites:
            script = self.found.program.entry.file.path
            return (Diagnostic("S104", None, (("path", script),)),)
        return tuple(found.values())


def _both(first: bool | None, second: bool | None) -> bool | None:
    return False if False in (first, second) else None if None in (first, second) else True


def _draws(slicer: Slicer) -> tuple[str, ...]:
    drawn = {fact.what for phase, fact in slicer.carried.facts if fact.effect == "draws" and (phase == "batch" or fact.makes)}
    return tuple(name for name in ("torch", "numpy", "random") if name in drawn)


def _variable(module: Module, expr: ast.expr) -> str:
    """The variable (or key, or attribute) that an expression's value is given to."""
    child: ast.AST = expr
    for parent in module.names.ancestors(expr):
        if isinstance(parent, (ast.Assign, ast.AnnAssign)):
            target = parent.targets[0] if isinstance(parent, ast.Assign) else parent.target
            if isinstance(target, ast.Tuple) and isinstance(parent.value, ast.Tuple) and child in parent.value.elts:
                target = target.elts[parent.value.elts.index(child)]
            return target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
        if isinstance(parent, ast.Return):
            function = next((up for up in module.names.ancestors(parent) if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef))), None)
            return function.name if function else ""
        if isinstance(parent, (ast.Call, ast.keyword)) and isinstance(child, ast.expr):
            return ""
        if isinstance(parent, ast.stmt):
            return ""
        child = parent
    return ""


def _stem(name: str) -> str:
    """`train_dataset`, `trainloader`, `train_loader` are all about `train`."""
    bare = re.sub(r"^(build|make|get|create|load)_", "", name.strip("_"))
    short = re.sub(r"_?(data_?loaders?|data_?sets?|loaders?|sets?|_ds|_dl|_data|_iter)$", "", bare)
    return short.strip("_") or bare or "data"


def _role(name: str) -> Role:
    if re.search(r"val|test|eval|dev", name):
        return "eval"
    return "train" if "train" in name else "either"


def _import_block(stmt: ast.stmt) -> bool:
    return isinstance(stmt, (ast.Try, ast.If)) and any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(stmt))


def _locals_of(stmt: ast.stmt) -> list[str]:
    return []


__all__ = ["plan", "replace"]
