"""Step `find`: loader sites, and the expressions that create their datasets.

data = Photos(args.dir)                        origin: `Photos(args.dir)`
loader = DataLoader(Subset(data, half))        site, its dataset comes from that origin
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from splitter.kinds import Kinds
from splitter.origins import Lost, Origin, Tracer
from splitter.read import Module, Program
from splitter.resolve import Resolver
from splitter.sites import Site, loader_site


@dataclass(frozen=True, eq=False)
class Found:
    """What `find` knows: every loader site, and where its dataset comes from."""

    program: Program
    resolver: Resolver
    kinds: Kinds
    sites: tuple[Site, ...] = ()
    origins: dict[int, tuple[Origin | Lost, ...]] = field(default_factory=dict)


def find(program: Program) -> Found:
    """Find the loader sites of a program and the origins of their datasets."""
    resolver = Resolver(program)
    kinds = Kinds(resolver)
    sites = tuple(
        site
        for module in _with_loaders(program)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        for site in loader_site(module, node, resolver)
    )
    sites = tuple(
        sorted(sites, key=lambda site: (site.module.name != "__main__", site.module.name, site.call.lineno, site.call.col_offset))
    )
    tracer = Tracer(resolver, kinds, {id(site.call): site for site in sites})
    origins = {id(site.call): tuple(tracer.origins(site)) for site in sites}
    return Found(program, resolver, kinds, sites, origins)


def _with_loaders(program: Program) -> list[Module]:
    """The modules that may construct a loader: those that name a loader class, or a class of a module that does."""
    naming = list(program.containing("Loader"))
    classes = {stmt.name for module in naming for stmt in module.tree.body if isinstance(stmt, ast.ClassDef) and stmt.bases}
    others = [m for m in program.modules.values() if m not in naming and any(name in m.file.text for name in classes)]
    return [*naming, *others]
