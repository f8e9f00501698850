"""Step `find`: loader sites, and the expressions that create their datasets.

data = Photos(args.dir)                        origin: `Photos(args.dir)`
loader = DataLoader(Subset(data, half))        site, its dataset comes from that origin
"""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass, field

from splitter.kinds import Kinds
from splitter.origins import Lost, Origin, Tracer
from splitter.read import ENTRY, Module, Program
from splitter.resolve import Resolver
from splitter.sites import Site, SiteFinder


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
    unsorted = SiteFinder(resolver, kinds).sites(_with_loaders(program))
    running = [site for site in unsorted if not _only_as_script(site)]
    sites = tuple(
        sorted(running, key=lambda site: (site.module.name != "__main__", site.module.name, site.call.lineno, site.call.col_offset))
    )
    tracer = Tracer(resolver, kinds, {id(site.call): site for site in sites})
    origins = {id(site.call): tuple(tracer.origins(site)) for site in sites}
    return Found(program, resolver, kinds, sites, origins)


def _only_as_script(site: Site) -> bool:
    """A loader under `if __name__ == "__main__":` of a module that is imported here."""
    module = site.module
    chain = [site.call, *module.names.ancestors(site.call)]
    return module.name != ENTRY and any(
        isinstance(up, ast.If) and below in up.body and module.names.parent_of.get(up) is module.tree and _is_guard(up.test)
        for below, up in itertools.pairwise(chain)
    )


def _is_guard(test: ast.expr) -> bool:
    """`__name__ == "__main__"`, whichever way round."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = {ast.unparse(test.left), ast.unparse(test.comparators[0])}
    return sides == {"__name__", "'__main__'"}


def _with_loaders(program: Program) -> list[Module]:
    """The modules that may construct a loader: those that name a loader class, or a class or variable of a module that does."""
    naming = list(program.containing("Loader"))
    made = {name for module in naming for stmt in module.tree.body for name in _makers(stmt)}
    others = [m for m in program.modules.values() if m not in naming and any(name in m.file.text for name in made)]
    return [*naming, *others]


def _makers(stmt: ast.stmt) -> list[str]:
    """The names of a subclass, and of a variable that is given a class (or a partial of one)."""
    if isinstance(stmt, ast.ClassDef):
        return [stmt.name] if stmt.bases else []
    if isinstance(stmt, ast.Assign) and any("Loader" in getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(stmt.value)):
        return [target.id for target in stmt.targets if isinstance(target, ast.Name)]
    return []
