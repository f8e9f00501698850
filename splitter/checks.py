"""The rules that leave a loader alone: each looks at facts and uses, and gives a diagnostic or nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from splitter import reading
from splitter.effects import Fact
from splitter.find import Found
from splitter.ir import Diagnostic, Residence
from splitter.kinds import SENDABLE
from splitter.knowledge import row
from splitter.loader_classes import is_super
from splitter.origins import Origin, Tracer
from splitter.places import Place, Places
from splitter.read import Module
from splitter.resolve import Definition, Library
from splitter.sites import Site
from splitter.slice import Slicer
from splitter.uses import Use

# Read a file to its end and keep nothing of it.
WHOLE = frozenset("pickle.load json.load torch.load yaml.load yaml.safe_load marshal.load dill.load joblib.load tomllib.load".split())
# What sets or reads the state of torch's generator on the CPU, and no other.
CPU_ONLY = tuple(f"torch.{name}" for name in "set_rng_state get_rng_state initial_seed random.set_rng_state random.get_rng_state".split())
DYNAMIC = frozenset(f"`{name}`" for name in ("eval", "exec", "globals", "locals", "vars", "compile", "__import__"))
FRESH = frozenset(
    """stack cat tensor as_tensor pad_sequence default_collate concatenate array zeros ones empty full clone FloatTensor LongTensor
from_numpy Tensor""".split()
)


def worker_counts(site: Site, streams: int | None) -> set[int | None]:
    """The possible values of num_workers: numbers that the text gives, None for one that it doesn't."""
    found: set[int | None] = set()
    for expr in site.options.get("num_workers", ()):
        found.add(expr.value if isinstance(expr, ast.Constant) and isinstance(expr.value, int) else None)
    if not found:
        found = {0}
    elif "num_workers" not in site.certain:
        found.add(None)  # given through a dict of keywords, so perhaps not given
    return {streams} if found == {0} and streams else found


def check_facts(found: Found, slicer: Slicer, site: Site, counts: set[int | None], inside: set[int]) -> Diagnostic | None:
    """The first reason in the moved code itself why it can't move."""
    codes = {"unstable": "S306", "device": "S302", "model": "S301", "gradient": "S307"}
    facts = sorted(slicer.carried.facts, key=lambda item: (item[1].module.name, getattr(item[1].node, "lineno", 0)))
    for _, fact in facts:
        span = fact.module.span(fact.node)
        if fact.effect in codes:
            return Diagnostic(codes[fact.effect], span, (("what", fact.what),))
        if fact.effect == "unknown" and fact.what in DYNAMIC:
            return Diagnostic("S305", span, (("name", fact.what), ("what", "code that the script makes while it runs")))
        if fact.effect == "opens" and counts != {0} and _kept(found, fact):
            return Diagnostic("S313", span, (("what", fact.module.text(fact.node)),))
        if fact.effect == "writes-global" and (line := _read_outside(found, slicer, fact, inside)):
            return Diagnostic("S314", span, (("name", f"`{fact.what}`"), ("line", str(line))))
    seeds = sorted({fact.what for phase, fact in slicer.carried.facts if phase == "batch" and _seeds_accelerators(fact)})
    if seeds and counts == {0}:
        return Diagnostic("S303", site.module.span(site.call), (("what", ", ".join(seeds)),))
    return _own_memory(found, slicer, site)


def _seeds_accelerators(fact: Fact) -> bool:
    """torch.manual_seed, and what calls it: the states of generators on the CPU travel, those of accelerators are the trainer's own."""
    return fact.effect == "reseeds" and not fact.what.strip("`").startswith(("random.", "numpy.", *CPU_ONLY))


def _kept(found: Found, fact: Fact) -> bool:
    """An open file that is stored in an attribute: not one that a `with` closes, nor one whose content is read at once."""
    module, node = fact.module, fact.node
    statement = module.names.statement(node)
    if not isinstance(statement, ast.Assign) or not any(isinstance(target, ast.Attribute) for target in statement.targets):
        return False
    value = statement.value
    if not isinstance(value, ast.Call) or node not in value.args:
        return value is node
    reader = found.resolver.library(module, value.func)
    return reader == "csv.reader" or (reader not in WHOLE and found.kinds.of(module, value) not in SENDABLE)


def closed(found: Found, fact: Fact) -> bool:
    """An open file that a `with` closes, or that is read to its end and dropped: json.load(open(path))."""
    parent = fact.module.names.parent_of.get(fact.node)
    if isinstance(parent, ast.withitem):
        return True
    return isinstance(parent, ast.Call) and fact.node in parent.args and found.resolver.library(fact.module, parent.func) in WHOLE


def _read_outside(found: Found, slicer: Slicer, fact: Fact, inside: set[int]) -> int | None:
    """The line where the trainer reads a global that moved code changes while it builds the dataset or makes batches."""
    if slicer.carrier.writers.registrations(fact.module, fact.node):
        return None
    for module, node in found.program.mentions(fact.what):
        if isinstance(node, ast.Name) and node.id == fact.what and id(node) not in inside and module is fact.module:
            scope = module.names.scope_of[node].lookup(node.id)
            if scope is not None and scope.kind == "module" and isinstance(node.ctx, ast.Load):
                return node.lineno
    return None


def _own_memory(found: Found, slicer: Slicer, site: Site) -> Diagnostic | None:
    """S310: a batch that was not collated anew is the dataset's own memory, and the loop writes into it.

    So it is with worker processes, too: torch moves the storage of what a worker sends into memory that both share.
    """
    collate = site.option("collate_fn")
    bare = site.may_be_none("batch_size")
    custom = (
        collate is not None
        and not (isinstance(collate, ast.Constant) and collate.value is None)
        and not _makes_new(found, site.where(collate), collate)
    )
    if not bare and not custom:
        return None
    for module, node in batch_changes(found, site):
        return Diagnostic("S310", module.span(node), (("what", f"`{module.text(module.names.statement(node))}`"),))
    return None


def _makes_new(found: Found, module: Module, collate: ast.expr, depth: int = 0) -> bool:
    """Whether a collate function gives tensors of its own, whatever it may be: torch's default, or one that stacks, copies, fills."""
    if isinstance(collate, ast.IfExp):
        return all(_makes_new(found, module, side, depth + 1) for side in (collate.body, collate.orelse))
    if isinstance(collate, ast.Call) and (found.resolver.library(module, collate.func) or "").endswith("partial") and collate.args:
        return _makes_new(found, module, collate.args[0], depth + 1)
    if isinstance(collate, ast.Constant):
        return collate.value is None
    if (found.resolver.library(module, collate) or "").endswith("default_collate"):
        return True
    instance = found.kinds.instance_of(module, collate)
    known = found.resolver.definition(module, collate) or (found.resolver.method(instance, "__call__") if instance else None)
    if known is not None or isinstance(collate, ast.Lambda):
        return _calls_fresh(known.node if known is not None else collate)
    given = Places(found.resolver, found.kinds).alternatives(Place(module, collate)) if depth < 8 else []
    return bool(given) and all(_makes_new(found, place.module, place.expr, depth + 1) for place in given)


def _calls_fresh(body: ast.AST) -> bool:
    return any(
        isinstance(n, ast.Call) and (n.func.attr if isinstance(n.func, ast.Attribute) else getattr(n.func, "id", "")) in FRESH
        for n in ast.walk(body)
    )


def batch_changes(found: Found, site: Site) -> Iterator[tuple[Module, ast.AST]]:
    """Places where a loop over this loader changes its batch in place."""
    tracer = Tracer(found.resolver, found.kinds, {id(s.call): s for s in found.sites})
    own = {id(place.expr) for place in site.also}
    for module in found.program.containing("for "):
        for node in ast.walk(module.tree):
            if not isinstance(node, (ast.For, ast.AsyncFor)):
                continue
            names = [target for target in ast.walk(node.target) if isinstance(target, ast.Name)]
            within = {id(part) for part in ast.walk(node)}
            here = module.names.scope_of[node].function()
            changed = [
                (place, use)
                for name in names
                for place, use in reading.changed(found, module, name)
                if id(use) in within or place is not module or module.names.scope_of[use].function() is not here
            ]
            sources = [part for part in ast.walk(node.iter) if isinstance(part, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))]
            if not changed:
                continue
            inside = any(id(up) in site.classdefs for up in module.names.ancestors(node))  # `for x in super().__iter__()` of a subclass
            itself = any(id(s) in own or (inside and is_super(found.resolver, module, s)) for s in sources)
            if itself or any(s is site for source in sources for s in tracer.loader_sites(module, source, frozenset())):
                yield from changed


def check_uses(uses: tuple[Use, ...], slicer: Slicer, zero: bool) -> Diagnostic | None:
    """What the trainer does with the dataset, and can't do with a handle or a replica."""
    for use in uses:
        if use.kind in ("change", "handed"):
            return Diagnostic("S304" if use.kind == "change" else "S318", use.module.span(use.node), (("what", use.what),))
    needs = [use for use in uses if use.kind == "object"]
    if not needs:
        return None
    changing = [use for use in uses if use.kind in ("call", "write")]
    state = any(fact.effect in ("writes-self", "writes-global", "in-place") and phase == "batch" for phase, fact in slicer.carried.facts)
    if changing or state:
        use = changing[0] if changing else needs[0]
        return Diagnostic("S304", use.module.span(use.node), (("what", use.what),))
    return None


def residence(uses: tuple[Use, ...]) -> Residence:
    """moved, unless the trainer needs the object itself."""
    return "replicated" if any(use.kind == "object" for use in uses) else "moved"


def stateless(found: Found, slicer: Slicer | None, origin: Origin | None) -> bool | None:
    """Whether batches depend on their indices alone: True when shown, False when the code keeps state, None when it can't be told."""
    if slicer is None:
        return True
    facts = [fact for phase, fact in slicer.carried.facts if phase == "batch"]
    if any(fact.effect in ("writes-self", "writes-global") for fact in facts):
        return False
    if any(fact.effect in ("in-place", "unknown", "reseeds") for fact in facts):
        return None
    if any(fact.effect == "opens" and not closed(found, fact) for _, fact in slicer.carried.facts):
        return None
    if origin is not None:
        for target in found.resolver.targets(origin.module, origin.expr.func) if isinstance(origin.expr, ast.Call) else ():
            if isinstance(target, Library) and "unknown" in row(target.name).effects:
                return None
            if isinstance(target, Definition) and any(name.endswith("IterableDataset") for name in found.resolver.ancestry(target)[0]):
                return None
    return True
