"""Loader sites: the calls that construct a loader, with every keyword that they may be given.

loader = DataLoader(data, **options)               a site
make = partial(DataLoader, batch_size=4)
loader = make(data)                                a site, with the partial's keywords
class Loader(DataLoader):
    def __init__(self, data, size):
        super().__init__(data, size)               a site: `Loader(...)` is not, it only leads here
class Endless(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)          passes on what it is given, so the sites are the calls `Endless(...)`
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from splitter.constructors import Constructor, Constructors
from splitter.ir import Diagnostic
from splitter.kinds import Kinds
from splitter.loader_classes import Leaf, LoaderClasses
from splitter.options import Arguments, Reader, Unread
from splitter.other_loaders import way_out
from splitter.places import FUNCTIONS, Place
from splitter.read import Module
from splitter.resolve import Definition, Library, Resolver
from splitter.scopes import free_names

LOADER_PARAMETERS = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
)


@dataclass(frozen=True, eq=False)
class Site:
    """One construction of a loader. `options` holds each keyword's possible expressions (several when a dict of keywords is built up).

    callee     the class in the call, when it is replaced there
    classes    where the class is written elsewhere: in a partial, a variable, a subclass's bases
    elsewhere  the module of each option's expression that stands in another module than the call
    certain    options that are surely given
    open       a dict of plain data that may give any other option
    also       other expressions whose value is the loader: `self` in its class, the calls that construct that class
    classdefs  ids of the program's own classes that the loader may be of
    passes     calls that hand the arguments on to torch's constructor
    """

    module: Module
    call: ast.Call
    options: dict[str, tuple[ast.expr, ...]]
    problem: Diagnostic | None = None
    callee: ast.expr | None = None
    classes: tuple[Place, ...] = ()
    elsewhere: Mapping[int, Module] = field(default_factory=dict)
    certain: frozenset[str] = frozenset()
    open: Place | None = None
    also: tuple[Place, ...] = ()
    passes: frozenset[int] = frozenset()
    classdefs: frozenset[int] = frozenset()

    def option(self, name: str) -> ast.expr | None:
        found = self.options.get(name, ())
        return found[0] if found else None

    def where(self, expr: ast.expr) -> Module:
        """The module in which an option's expression stands."""
        return self.elsewhere.get(id(expr), self.module)

    def streams(self) -> str:
        """The number of worker processes, as written."""
        expr = self.option("num_workers")
        if expr is None:
            return "0"
        text = ast.unparse(expr)
        return f'{text}["num_workers"]' if self.open is not None and expr is self.open.expr else text

    def may_be_none(self, name: str) -> bool:
        """Whether an option may be given as None."""
        given = any(isinstance(expr, ast.Constant) and expr.value is None for expr in self.options.get(name, ()))
        return given or (self.open is not None and name not in self.certain)


class SiteFinder:
    """Finds the sites of some modules."""

    def __init__(self, resolver: Resolver, kinds: Kinds) -> None:
        self.resolver = resolver
        self.reader = Reader(resolver, kinds)
        self.classes = LoaderClasses(resolver, self.reader)
        self.constructors = Constructors(resolver, self.reader, self.classes)

    def sites(self, modules: Iterable[Module]) -> list[Site]:
        found: list[Site] = []
        constructions: list[tuple[Place, Definition]] = []
        definitions: list[Definition] = []
        for module in modules:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef) and self.classes.is_loader(Definition(module, node)):
                    definitions.append(Definition(module, node))
                elif isinstance(node, ast.Call):
                    leaves = self.classes.leaves(module, node.func)
                    constructions += [(Place(module, node), leaf.definition) for leaf in leaves if leaf.definition]
                    site = self._construction(module, node, leaves) if leaves else None
                    found += [site] if site else []
        for definition in definitions:
            for made in self.constructors.own(definition):
                if made.transparent:
                    continue
                found.append(self._inside(made, definitions, constructions))
        return found

    # -- calls of a class ----------------------------------------------------------------------------------------------

    def _construction(self, module: Module, call: ast.Call, leaves: list[Leaf]) -> Site | None:
        """The site of a call of a loader class; None when the subclass's own constructor holds the site."""
        other = next((leaf for leaf in leaves if not leaf.loader), None)
        if other is not None:
            what = next((leaf.other for leaf in leaves if leaf.other and leaf.other != "something else"), None)
            return self._refused(module, call, what or f"`{module.text(call.func)}`, which may be something else,")
        closed = [leaf for leaf in leaves if leaf.definition and not self.constructors.transparent(leaf.definition)]
        problems = [self.constructors.problem(leaf.definition) for leaf in leaves if leaf.definition]
        problem = next((text for text in problems if text), None)
        if closed and len(closed) == len(leaves) and all(self.constructors.reaches(leaf.definition) for leaf in closed if leaf.definition):
            return None
        if closed and problem is None:
            problem = f"`{module.text(call.func)}`, which may be a subclass with other arguments,"
        if problem is not None:
            return self._refused(module, call, problem)
        own = all(leaf.definition is None and not leaf.partials for leaf in leaves)
        in_call = own and isinstance(call.func, (ast.Name, ast.Attribute, ast.Subscript)) and not _parameter(module, call.func)
        site = Site(
            module,
            call,
            {},
            callee=call.func if in_call else None,
            classes=() if in_call else tuple(place for leaf in leaves for place in self._written(leaf)),
            also=tuple(place for leaf in leaves if leaf.definition for place in self._selves([leaf.definition])),
            passes=frozenset(id(c) for leaf in leaves if leaf.definition for c in self.constructors.passing(leaf.definition)),
            classdefs=self._classdefs(leaf.definition for leaf in leaves if leaf.definition),
        )
        try:
            given = [self._given(module, call, leaf) for leaf in leaves]
        except Unread as unread:
            return self._unread(site, unread)
        return self._with_options(site, given)

    def _given(self, module: Module, call: ast.Call, leaf: Leaf) -> Arguments:
        """The arguments that reach torch's constructor."""
        result = self.reader.arguments(module, call)
        for other, partial in reversed(leaf.partials):
            result = result.after(self.reader.arguments(other, partial, skip=1))
        return self.constructors.handed_on(leaf.definition, result) if leaf.definition else result

    def _written(self, leaf: Leaf) -> list[Place]:
        return [leaf.place] if leaf.definition is None else self.classes.bases(leaf.definition)

    @staticmethod
    def _refused(module: Module, call: ast.Call, what: str) -> Site:
        return Site(module, call, {}, Diagnostic("S202", module.span(call), (("what", what), ("way", way_out(what)))))

    @staticmethod
    def _unread(site: Site, unread: Unread) -> Site:
        place = unread.place
        return replace(site, problem=Diagnostic("S203", place.module.span(place.expr), (("what", f"`{unread}`"),)))

    # -- calls inside of a subclass's constructor ----------------------------------------------------------------------

    def _inside(self, made: Constructor, definitions: list[Definition], constructions: list[tuple[Place, Definition]]) -> Site:
        owner, call = made.owner, made.call
        family = [d for d in definitions if any(up.node is owner.node for up in self.classes.lineage(d))]
        classes = self.classes.bases(owner)
        if made.explicit is not None:
            classes.append(Place(owner.module, made.explicit))
        nodes = [definition.node for definition in family]
        site = Site(
            owner.module,
            call,
            {},
            classes=tuple(classes),
            also=(*(place for place, made_of in constructions if made_of.node in nodes), *self._selves(family)),
            classdefs=self._classdefs(family),
            passes=frozenset(id(c) for c in self.constructors.passing(made.above)) if made.above else frozenset(),
        )
        problem = next((text for definition in family if (text := self.constructors.problem(definition))), None)
        if problem is not None:
            span = owner.module.span(call)
            return replace(site, problem=Diagnostic("S202", span, (("what", problem), ("way", way_out(problem)))))
        try:
            given = self.reader.arguments(owner.module, call, skip=made.skip)
            given = self.constructors.handed_on(made.above, given) if made.above else given
        except Unread as unread:
            return self._unread(site, unread)
        return self._with_options(site, [given])

    def _classdefs(self, definitions: Iterable[Definition]) -> frozenset[int]:
        return frozenset(id(up.node) for definition in definitions for up in self.classes.lineage(definition))

    def _selves(self, definitions: Iterable[Definition]) -> list[Place]:
        """Every use of `self` in the methods of some loader classes and of the classes above them."""
        owners = {id(up.node): up for definition in definitions for up in self.classes.lineage(definition)}
        return [
            Place(owner.module, node)
            for owner in owners.values()
            for method in owner.node.body
            if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) and method.args.args
            for node in ast.walk(method)
            if isinstance(node, ast.Name) and node.id == method.args.args[0].arg and not _stores(owner.module, node)
        ]

    # -- options -------------------------------------------------------------------------------------------------------

    def _with_options(self, site: Site, given: list[Arguments]) -> Site:
        places: dict[str, tuple[Place, ...]] = {}
        certain: list[set[str]] = []
        for arguments in given:
            if len(arguments.positional) > len(LOADER_PARAMETERS):
                return self._unread(site, Unread(arguments.positional[len(LOADER_PARAMETERS)][0]))
            named = dict(zip(LOADER_PARAMETERS, arguments.positional, strict=False))
            certain.append(set(named) | arguments.certain)
            for name, values in (*named.items(), *arguments.keywords.items()):
                places[name] = (*places.get(name, ()), *(v for v in values if all(v.expr is not p.expr for p in places.get(name, ()))))
        problem = None
        for name in FUNCTIONS & set(places):
            places[name] = tuple(self._function(site, place) for place in places[name])
            meant = {self._meaning(place) for place in places[name]}
            if len(meant) > 1 or not all(self._at_hand(site, place) for place in places[name]):
                problem = Diagnostic("S203", site.module.span(site.call), (("what", name),))
            own = next((place for place in places[name] if self._own_method(place)), None)
            if own is not None:
                text = f"`{own.module.text(own.expr)}`"
                problem = Diagnostic("S305", own.module.span(own.expr), (("name", text), ("what", "a method of the loader itself")))
        rest = next((arguments.open for arguments in given if arguments.open), None)
        sure = frozenset(set.intersection(*certain))
        if rest is not None and "num_workers" not in sure:
            places["num_workers"] = (*places.get("num_workers", ()), rest)
        if "dataset" not in places:
            problem = Diagnostic("S203", site.module.span(site.call), (("what", "dataset"),))
        elif any(isinstance(p.expr, ast.Constant) and p.expr.value is False for p in places.get("in_order", ())):
            problem = Diagnostic("S308", site.module.span(site.call))
        return replace(
            site,
            options={name: tuple(place.expr for place in values) for name, values in places.items()},
            problem=problem,
            elsewhere={id(p.expr): p.module for values in places.values() for p in values if p.module is not site.module},
            certain=sure,
            open=rest,
        )

    def _function(self, site: Site, place: Place) -> Place:
        """What a parameter stands for, when it is the same function of some module wherever that is given."""
        values = self.reader.places.values(place)
        same = len({self._meaning(value) for value in values}) == 1
        return values[0] if same and values[0] is not place and self._at_hand(site, values[0]) else place

    def _own_method(self, place: Place) -> bool:
        """`self.pad` in a loader's class: a method that is bound to the loader."""
        if not isinstance(place.expr, ast.Attribute) or self.resolver.targets(place.module, place.expr):
            return False
        owner = self.reader.kinds.instance_of(place.module, place.expr.value)
        return owner is not None and self.classes.is_loader(owner)

    def _meaning(self, place: Place) -> object:
        target = self.resolver.target(place.module, place.expr)
        if isinstance(target, Definition):
            return target.node
        return target.name if isinstance(target, Library) else ast.unparse(place.expr)

    def _at_hand(self, site: Site, place: Place) -> bool:
        """Whether a function can be named where the loader is made: it stands there, or needs only definitions of its module."""
        module, names = place.module, place.module.names
        if isinstance(place.expr, ast.Constant):
            return True
        if module is site.module and names.scope_of[place.expr].function() is names.scope_of[site.call].function():
            return True
        for name in free_names(place.expr, names):
            scope = names.scope_of[name].lookup(name.id)
            if scope is not None and (scope.kind != "module" or {b.kind for b in scope.bindings[name.id]} - {"def", "class", "import"}):
                return False
        return not isinstance(place.expr, ast.Lambda)


def _parameter(module: Module, expr: ast.expr) -> bool:
    scope = module.names.scope_of[expr].lookup(expr.id) if isinstance(expr, ast.Name) else None
    return scope is not None and isinstance(expr, ast.Name) and any(b.kind == "param" for b in scope.bindings[expr.id])


def _stores(module: Module, node: ast.Name) -> bool:
    parent = module.names.parent_of.get(node)
    return isinstance(parent, ast.Attribute) and not isinstance(parent.ctx, ast.Load)
