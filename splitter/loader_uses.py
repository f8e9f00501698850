"""Where a loader gets to in the program, and what of that its worker would not know.

loader = DataLoader(data)     ->  the expressions that are this loader, those that hold it, and calls of strangers that are given it
trainer.fit(model, loader)
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from splitter.find import Found
from splitter.places import Place
from splitter.read import Module
from splitter.sites import Site
from splitter.uses import Use, Walk


def _followed(found: Found, site: Site) -> Walk:
    """The walk from a loader."""
    walk = Walk(found, frozenset())
    for place in (Place(site.module, site.call), *site.also):
        walk.loader(place.module, place.expr)
    return walk


def loader_uses(found: Found, site: Site) -> list[Use]:
    """What the program does with a loader that its worker would not know of: handing it to a library, changing its parts."""
    walk = _followed(found, site)
    parts = ("dataset", "collate_fn", "worker_init_fn", "num_workers")
    return [
        use
        for use in walk.uses
        if use.kind == "handed" or (use.kind == "change" and isinstance(use.node, ast.Attribute) and use.node.attr in parts)
    ]


@dataclass(frozen=True)
class Flow:
    """Where a loader gets to: the expressions that are it, those that hold it, and calls of strangers that are given it."""

    loaders: tuple[tuple[Module, ast.expr], ...]
    containers: tuple[tuple[Module, ast.expr], ...]
    handed: frozenset[int]


def loader_flow(found: Found, site: Site) -> Flow:
    """Every expression of the program that may be this loader, as far as it can be followed."""
    walk = _followed(found, site)
    handed = frozenset(id(use.node) for use in walk.uses if use.kind in ("handed", "change"))
    return Flow(tuple(walk.loaders), tuple(walk.containers), handed)
