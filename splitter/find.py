"""Step `find`: loader sites, and the expressions that create their datasets.

data = Photos(args.dir)                        origin: `Photos(args.dir)`
loader = DataLoader(Subset(data, half))        site, its dataset comes from that origin
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from splitter.kinds import Kinds
from splitter.origins import Lost, Origin, Tracer
from splitter.read import Program
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
    sites = tuple(site for module, node in program.walk() if isinstance(node, ast.Call) for site in loader_site(module, node, resolver))
    sites = tuple(
        sorted(sites, key=lambda site: (site.module.name != "__main__", site.module.name, site.call.lineno, site.call.col_offset))
    )
    tracer = Tracer(resolver, kinds, {id(site.call): site for site in sites})
    origins = {id(site.call): tuple(tracer.origins(site)) for site in sites}
    return Found(program, resolver, kinds, sites, origins)
