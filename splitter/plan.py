"""Step `plan`: write the decisions down as edits, builders and rows of the report.

decided: `Photos(root)` feeds `loader`    ->    Builder("dataset", "train", ...), HandleEdit, LoaderEdit, Feed(status="split")
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import keyword
import re
from collections.abc import Iterator
from dataclasses import replace

from splitter import __version__
from splitter.candidates import Candidate, SitePlan, role
from splitter.checks import stateless, worker_counts
from splitter.decide import Decider
from splitter.draws import drawn
from splitter.effects import Effects
from splitter.find import Found
from splitter.fragments import fragments
from splitter.heads import heads
from splitter.ir import Builder, ClassEdit, Diagnostic, Feed, Fragment, HandleEdit, LoaderEdit, NamesFrom, Note, Plan, Role, WorkerModule
from splitter.ir_cut import Head, Tail
from splitter.landings import landings
from splitter.origins import Origin
from splitter.prefix import with_prefix
from splitter.read import ENTRY
from splitter.send import Sent
from splitter.settings import settings
from splitter.slice import Slicer
from splitter.tails import tails


def plan(found: Found, *, streams: int | None = None, model_prefix: bool = False, on_device: bool = False) -> Plan:
    """Decide for every loader of the program. `streams` is the user's --streams: as if the script had said num_workers=N.

    `model_prefix`: the start of the model's forward is to move as well. `on_device`: batches are to be finished on their device.
    """
    decider = Decider(found, streams)
    sites = decider.decide()
    assembly = _Assembly(found, decider.effects, streams, sites, list(decider.candidates.values()), on_device)
    return with_prefix(found, decider, sites, assembly.plan) if model_prefix else assembly.plan()


class _Assembly:
    def __init__(
        self,
        found: Found,
        effects: Effects,
        streams: int | None,
        sites: list[SitePlan],
        candidates: list[Candidate],
        on_device: bool = False,
    ) -> None:
        self.found = found
        self.effects = effects
        self.streams = streams
        self.sites = sites
        self.candidates = candidates
        self.on_device = on_device

    def plan(self) -> Plan:
        sites = self.sites
        split_sites = [site for site in sites if site.split]
        kept = [c for c in self.candidates if c.refused is None and any(c in s.candidates for s in split_sites)]
        slicers = [c.slicer for c in kept if c.slicer] + [s.loader for s in split_sites if s.loader]
        builders = tuple([self._dataset_builder(c) for c in kept] + [self._loader_builder(s) for s in split_sites if s.loader])
        handles = tuple(
            HandleEdit(
                c.origin.module.name,
                c.origin.module.span(c.origin.expr),
                c.name,
                tuple(c.slicer.carried.environment),
                c.residence,
            )
            for c in kept
            if c.slicer
        )
        loaders = tuple(self._loader_edit(s, split_sites) for s in split_sites)
        written = {ClassEdit(p.module.name, p.module.span(p.expr)) for s in split_sites for p in s.site.classes}
        edited = {edit.module for edits in (handles, loaders, written) for edit in edits} - {ENTRY}
        program = self.found.program
        needed = {name for slicer in slicers for name in slicer.carried.modules}
        feeds = tuple(feed for site in sites for feed in self._feeds(site))
        return Plan(
            script=program.entry.file,
            modules=tuple(program.modules[name].file for name in sorted(edited)),
            digest=self._digest(),
            needs=tuple(sorted({program.modules[name].file.path for name in needed})),
            worker=self._worker(slicers, builders),
            handles=handles,
            loaders=loaders,
            removals=(),
            feeds=feeds,
            notes=tuple(self._notes(kept)),
            diagnostics=self._diagnostics(feeds, sites, slicers),
            classes=tuple(sorted(written)),
            roots=program.elsewhere(needed | edited),
            package=program.roots.package,
            tails=tuple(tail for c in kept for tail in self._tails(c)),
            heads=tuple(self._heads()),
            landings=tuple(landings(self.found, self.sites)) if self.on_device else (),
            finish_on="device" if self.on_device else "cpu",
        )

    def _digest(self) -> str:
        content = hashlib.sha256(f"splitter {__version__} streams {self.streams}\n".encode())
        for name, module in sorted(self.found.program.modules.items()):
            content.update(f"{name}\0{module.file.text}\0".encode("utf-8", "surrogatepass"))
        return f"sha256:{content.hexdigest()[:16]}"

    def _dataset_builder(self, candidate: Candidate) -> Builder:
        slicer, origin = candidate.slicer, candidate.origin
        assert slicer is not None
        return Builder(
            "dataset",
            candidate.name,
            self._function(candidate.name, slicer),
            tuple(slicer.carried.environment),
            tuple(sorted(slicer.carried.globals)),
            fragments(origin.module, slicer.body.values()),
            result=origin.module.span(origin.expr),
            stateless=self._stateless(slicer, origin),
            draws=self._drawn(slicer, origin),
        )

    def _loader_builder(self, site: SitePlan) -> Builder:
        slicer = site.loader
        assert slicer is not None
        spans = {
            option: site.site.where(expr).span(expr)
            for option in ("collate_fn", "worker_init_fn")
            if (expr := site.site.option(option)) is not None
            and not (isinstance(expr, ast.Constant) and expr.value is None)
            and not (site.sent and option in site.sent.parts)
        }
        return Builder(
            "loader",
            site.name,
            f"{self._function(site.name, slicer)}_loader",
            tuple(slicer.carried.environment),
            tuple(sorted(slicer.carried.globals)),
            fragments(site.site.module, slicer.body.values()),
            collate_fn=spans.get("collate_fn"),
            worker_init_fn=spans.get("worker_init_fn"),
            stateless=site.sent.stateless if site.sent else self._stateless(slicer, None),
            draws=None if site.sent or "worker_init_fn" in spans else self._drawn(slicer, None),
            accepts=site.sent.accepts if site.sent else (),
        )

    def _inner(self, slicer: Slicer) -> list[Candidate]:
        """The datasets that moved code takes as handles."""
        return [candidate for candidate in self.candidates if id(candidate.origin.expr) in slicer.inner]

    def _stateless(self, slicer: Slicer, origin: Origin | None) -> bool | None:
        same = stateless(self.found, slicer, origin)
        for inner in self._inner(slicer):
            same = _both(same, self._stateless(inner.slicer, inner.origin) if inner.slicer else None)
        return same

    def _drawn(self, slicer: Slicer, origin: Origin | None) -> tuple[str, ...] | None:
        """What making batches draws, when that is known, with what the datasets do that it takes as handles."""
        own = drawn(self.found, slicer, stateless(self.found, slicer, origin))
        every = [own, *(self._drawn(inner.slicer, inner.origin) if inner.slicer else None for inner in self._inner(slicer))]
        known = [names for names in every if names is not None]
        return tuple(sorted({name for names in known for name in names})) if len(known) == len(every) else None

    def _tails(self, candidate: Candidate) -> Iterator[Tail]:
        if candidate.slicer is not None and self._stateless(candidate.slicer, candidate.origin):
            yield from tails(self.found, self.effects, candidate, self.sites)

    def _heads(self) -> Iterator[Head]:
        made = {site.name: site.candidates[0].slicer for site in self.sites if site.candidates}
        for head in heads(self.found, self.effects, self.sites):
            slicer = made.get(head.feed)
            yield head if slicer is None else replace(head, function=f"{self._function(head.feed, slicer)}_loader")

    def _function(self, name: str, slicer: Slicer) -> str:
        """A function name that nothing else in the worker program has."""
        top = self.found.program.entry.names.top.bindings
        carried = {id(stmt) for other in self._slicers() for _, stmt in other.carried.statements.values()}
        taken = {
            bound for bound, bindings in top.items() for binding in bindings if id(binding.node) in carried or binding.kind == "import"
        }
        taken |= {root.split(".")[0] for root in slicer.carried.environment} | set(keyword.kwlist) | set(dir(builtins))
        safe = re.sub(r"\W", "_", name)
        return f"build_{safe}" if safe in taken or not safe.isidentifier() else safe

    def _slicers(self) -> list[Slicer]:
        datasets = [candidate.slicer for candidate in self.candidates if candidate.slicer and candidate.refused is None]
        return datasets + [site.loader for site in self.sites if site.loader]

    def _loader_edit(self, site: SitePlan, split_sites: list[SitePlan]) -> LoaderEdit:
        builders = {s.name for s in split_sites if s.loader}
        handles = {c.name for c in site.candidates if c.refused is None}
        wanted = site.name if site.loader else None
        implied = handles == {site.name} if site.loader else not handles & builders
        counts = worker_counts(site.site, None)
        module, call = site.site.module, site.site.call
        workers = next((expr for expr in site.site.options.get("num_workers", ()) if _direct(call, expr)), None)
        return LoaderEdit(
            module.name,
            module.span(call),
            module.span(site.site.callee) if site.site.callee else None,
            feed=wanted,
            explicit=not implied or site.sent is not None,
            environment=tuple(site.loader.carried.environment) if site.loader else (),
            streams=self.streams if counts == {0} else None,
            send=site.sent.parts if site.sent else (),
            inline=site.sent is not None and site.sent.inline,
            workers=module.span(workers) if workers is not None else None,
        )

    def _worker(self, slicers: list[Slicer], builders: tuple[Builder, ...]) -> WorkerModule:
        entry = self.found.program.entry
        statements = {key: stmt for slicer in slicers for key, (_, stmt) in slicer.carried.statements.items()}
        switches, _ = settings(self.found, self.effects, slicers)
        statements.update((id(stmt), stmt) for stmt in switches)
        imports = [s for s in statements.values() if isinstance(s, (ast.Import, ast.ImportFrom)) or _import_block(s)]
        definitions = [s for s in statements.values() if s not in imports]
        local: dict[str, set[str]] = {}
        for slicer in slicers:
            for module, name in slicer.carried.local_names:
                local.setdefault(module, set()).add(name)
        future = tuple(
            sorted({alias.name for s in entry.tree.body if isinstance(s, ast.ImportFrom) and s.module == "__future__" for alias in s.names})
        )
        return WorkerModule(
            future,
            fragments(entry, imports),
            tuple(NamesFrom(module, tuple(sorted(names))) for module, names in sorted(local.items())),
            fragments(entry, definitions),
            builders,
        )

    def _feeds(self, site: SitePlan) -> list[Feed]:
        loader = site.site.module.span(site.site.call)
        use = role(site.name)
        if site.sent is not None:
            return [self._sent_feed(site, site.sent, use)]
        if not site.candidates:
            assert site.refused is not None
            return [Feed(site.name, loader, None, use, "left", site.refused.code, (site.refused.code,))]
        feeds = []
        for candidate in site.candidates:
            refused = site.refused or candidate.refused
            slicer = candidate.slicer
            origin = candidate.origin.module.span(candidate.origin.expr)
            name = candidate.name if len(site.candidates) > 1 or site.name == candidate.name else site.name
            if refused is not None or slicer is None:
                feeds.append(Feed(name, loader, origin, use, "left", refused.code if refused else "S201", ()))
                continue
            draws = tuple(dict.fromkeys((*_draws(slicer), *(_draws(site.loader) if site.loader else ()))))
            environment = tuple(dict.fromkeys((*slicer.carried.environment, *(site.loader.carried.environment if site.loader else ()))))
            streams = str(self.streams) if self.streams and worker_counts(site.site, None) == {0} else site.site.streams()
            moved: list[Fragment] = [*fragments(candidate.origin.module, slicer.body.values())]
            moved.append(Fragment(origin.path, origin.line, origin.end_line))
            feeds.append(
                Feed(
                    name,
                    loader,
                    origin,
                    use,
                    "split",
                    None,
                    (),
                    candidate.residence,
                    _both(self._stateless(slicer, candidate.origin), self._stateless(site.loader, None) if site.loader else True),
                    draws,
                    environment,
                    streams,
                    tuple(sorted(moved)),
                )
            )
        return feeds

    def _sent_feed(self, site: SitePlan, how: Sent, use: Role) -> Feed:
        module = site.site.module
        return Feed(
            site.name,
            module.span(site.site.call),
            how.origin.module.span(how.origin.expr) if how.origin else None,
            use,
            "split",
            None,
            (),
            "sent",
            how.stateless,
            _draws(how.slicer),
            tuple(how.slicer.carried.environment),
            str(self.streams) if self.streams and worker_counts(site.site, None) == {0} else site.site.streams(),
            tuple(sorted(fragments(module, how.slicer.body.values()))),
        )

    def _notes(self, kept: list[Candidate]) -> list[Note]:
        words = {
            "read": "read through the handle",
            "length": "asked of the worker",
            "call": "sent to the worker, in order",
            "write": "sent to the worker, in order",
            "index": "one sample, asked of the worker",
            "iterate": "sample by sample, asked of the worker",
            "sampler": "samplers stay with the trainer",
            "object": "needs the object itself, so the dataset is built on both sides",
        }
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
            if site.sent is not None:
                continue
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


def _direct(call: ast.Call, expr: ast.expr) -> bool:
    """Whether a call gives an argument itself, not through a dict of keywords."""
    return any(expr is given for given in (*call.args, *(k.value for k in call.keywords if k.arg is not None)))


def _draws(slicer: Slicer) -> tuple[str, ...]:
    drawn = {fact.what for phase, fact in slicer.carried.facts if fact.effect == "draws" and (phase == "batch" or fact.makes)}
    return tuple(name for name in ("torch", "numpy", "random") if name in drawn)


def _import_block(stmt: ast.stmt) -> bool:
    return isinstance(stmt, (ast.Try, ast.If)) and any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(stmt))
