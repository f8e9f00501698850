"""Step `find`: loader sites, and the expressions that create their datasets.

    data = Photos(args.dir)                        origin: `Photos(args.dir)`
    loader = DataLoader(Subset(data, half))        site, its dataset comes from that origin through Subset and the variable
"""
from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from splitter.flow import reaching
from splitter.ir import Diagnostic
from splitter.kinds import SENDABLE, Kinds, returned
from splitter.knowledge import LOADERS, OTHER_LOADERS, WRAPPERS, row
from splitter.read import Module, Program
from splitter.resolve import Definition, Library, Resolver, Value, argument, default
from splitter.scopes import Binding

LOADER_PARAMETERS = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory", "drop_last", "timeout",
    "worker_init_fn", "multiprocessing_context", "generator",
)


@dataclass(frozen=True, eq=False)
class Site:
    """One construction of a loader. `options` holds each keyword's possible expressions (several when a dict of keywords is built up)."""

    module: Module
    call: ast.Call
    options: dict[str, tuple[ast.expr, ...]]
    problem: Diagnostic | None = None

    def option(self, name: str) -> ast.expr | None:
        found = self.options.get(name, ())
        return found[0] if found else None


@dataclass(frozen=True, eq=False)
class Origin:
    """The expression that creates a dataset; `calls` are the helper calls that lead to it, innermost first."""

    module: Module
    expr: ast.expr
    calls: tuple[tuple[Module, ast.Call], ...] = ()


@dataclass(frozen=True, eq=False)
class Lost:
    """A dataset that could not be followed any further than `expr`."""

    module: Module
    expr: ast.AST
    what: str


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
    sites = tuple(site for module, node in program.walk() if isinstance(node, ast.Call) for site in _site(module, node, resolver))
    sites = tuple(sorted(sites, key=lambda site: (site.module.name != "__main__", site.module.name, site.call.lineno, site.call.col_offset)))
    tracer = Tracer(resolver, kinds, {id(site.call): site for site in sites})
    origins = {id(site.call): tuple(tracer.origins(site)) for site in sites}
    return Found(program, resolver, kinds, sites, origins)


def _site(module: Module, call: ast.Call, resolver: Resolver) -> Iterator[Site]:
    name = resolver.library(module, call.func)
    if name in LOADERS:
        options, unread = _options(module, call)
        problem = Diagnostic("S203", module.span(unread), (("what", f"`{module.text(unread)}`"),)) if unread is not None else None
        if problem is None and "dataset" not in options:
            problem = Diagnostic("S203", module.span(call), (("what", "dataset"),))
        yield Site(module, call, options, problem)
        return
    other = next((what for known, what in OTHER_LOADERS.items() if name and (name == known or name.startswith(known + "."))), None)
    if other is None:
        definition = resolver.definition(module, call.func)
        if definition is not None and isinstance(definition.node, ast.ClassDef) and resolver.ancestry(definition)[0] & LOADERS:
            other = f"{definition.node.name}, a subclass of DataLoader,"
    if other is not None and name not in LOADERS and (name is None or name.rpartition(".")[2][:1].isupper()):
        yield Site(module, call, {}, Diagnostic("S202", module.span(call), (("what", other),)))


def _options(module: Module, call: ast.Call) -> tuple[dict[str, tuple[ast.expr, ...]], ast.expr | None]:
    """Every keyword of a loader call, and the first argument that can't be read."""
    options: dict[str, tuple[ast.expr, ...]] = {}
    for index, arg in enumerate(call.args):
        if isinstance(arg, ast.Starred) or index >= len(LOADER_PARAMETERS):
            return options, arg
        options[LOADER_PARAMETERS[index]] = (arg,)
    for keyword in call.keywords:
        if keyword.arg is not None:
            options[keyword.arg] = (keyword.value,)
            continue
        found = _dict_items(module, keyword.value)
        if found is None:
            return options, keyword.value
        for key, value in found:
            options[key] = (*options.get(key, ()), value)
    return options, None


def _dict_items(module: Module, expr: ast.expr, depth: int = 0) -> list[tuple[str, ast.expr]] | None:
    """The items that a dict of keywords may have: literals, dict(...), and what is added to it by update, `|=` and item assignment."""
    if depth > 6:
        return None
    if isinstance(expr, ast.Dict):
        items: list[tuple[str, ast.expr]] = []
        for key, value in zip(expr.keys, expr.values, strict=True):
            inner = _dict_items(module, value, depth + 1) if key is None else None
            if key is None and inner is not None:
                items += inner
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                items.append((key.value, value))
            else:
                return None
        return items
    if isinstance(expr, ast.IfExp):
        sides = [_dict_items(module, side, depth + 1) for side in (expr.body, expr.orelse)]
        return None if None in sides else [item for side in sides if side for item in side]
    if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name) and expr.func.id == "dict":
        items = [(k.arg, k.value) for k in expr.keywords if k.arg]
        for part in (*expr.args, *(k.value for k in expr.keywords if k.arg is None)):
            inner = _dict_items(module, part, depth + 1)
            if inner is None:
                return None
            items += inner
        return items
    if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr == "copy":
        return _dict_items(module, expr.func.value, depth + 1)
    if isinstance(expr, ast.Name):
        return _dict_variable(module, expr, depth)
    return None


def _dict_variable(module: Module, expr: ast.Name, depth: int) -> list[tuple[str, ast.expr]] | None:
    scope = module.names.scope_of[expr].lookup(expr.id)
    if scope is None or scope.root is not module.names.top:
        return None
    items: list[tuple[str, ast.expr]] = []
    for binding in reaching(expr, expr.id, module.names, scope):
        if binding.kind != "assign" or binding.path or binding.value is None:
            return None
        inner = _dict_items(module, binding.value, depth + 1)
        if inner is None:
            return None
        items += inner
    for node in ast.walk(scope.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) \
                and node.func.value.id == expr.id and node.func.attr in ("update", "setdefault"):
            for part in node.args:
                inner = _dict_items(module, part, depth + 1)
                if inner is None:
                    return None
                items += inner
            items += [(k.arg, k.value) for k in node.keywords if k.arg]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
            if isinstance(target.value, ast.Name) and target.value.id == expr.id:
                if not (isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str)):
                    return None
                items.append((target.slice.value, node.value))
    return items


class Tracer:
    """Follows a dataset expression back to the expressions that create it."""

    def __init__(self, resolver: Resolver, kinds: Kinds, sites: dict[int, Site]) -> None:
        self.resolver = resolver
        self.kinds = kinds
        self.sites = sites

    def origins(self, site: Site) -> list[Origin | Lost]:
        """The origins of a site's dataset, each once."""
        dataset = site.option("dataset")
        if site.problem is not None or dataset is None:
            return []
        found: dict[int, Origin | Lost] = {}
        for item in self.trace(site.module, dataset, frozenset(), ()):
            if isinstance(item, Origin) and self.kinds.of(item.module, item.expr) in SENDABLE:
                item = Origin(site.module, dataset)
            elif isinstance(item, Lost) and self.kinds.of(site.module, dataset) in SENDABLE:
                item = Origin(site.module, dataset)
            found.setdefault(id(item.expr), item)
        return list(found.values())

    def trace(self, module: Module, expr: ast.expr, seen: frozenset[int], calls: tuple[tuple[Module, ast.Call], ...]) -> Iterator[Origin | Lost]:
        if id(expr) in seen or len(seen) > 60:
            return
        seen = seen | {id(expr)}
        match expr:
            case ast.IfExp(body=body, orelse=orelse):
                yield from self.trace(module, body, seen, calls)
                yield from self.trace(module, orelse, seen, calls)
            case ast.BoolOp(values=parts):
                for part in parts:
                    yield from self.trace(module, part, seen, calls)
            case ast.NamedExpr(value=value) | ast.Starred(value=value):
                yield from self.trace(module, value, seen, calls)
            case ast.Constant(value=None):
                return
            case ast.Name():
                yield from self._name(module, expr, seen, calls)
            case ast.Attribute():
                yield from self._attribute(module, expr, seen, calls)
            case ast.Subscript():
                yield from self.elements(module, expr.value, seen, calls, key=expr.slice)
            case ast.BinOp(left=left, op=ast.Add(), right=right) if self.kinds.of(module, expr) not in SENDABLE:
                yield from self.trace(module, left, seen, calls)
                yield from self.trace(module, right, seen, calls)
            case ast.Call():
                yield from self._call(module, expr, seen, calls)
            case _:
                yield Origin(module, expr, calls)

    def _name(self, module: Module, expr: ast.Name, seen: frozenset[int], calls: tuple[tuple[Module, ast.Call], ...]) -> Iterator[Origin | Lost]:
        scope = module.names.scope_of[expr].lookup(expr.id)
        if scope is None:
            yield Lost(module, expr, f"`{expr.id}`")
            return
        owner = self.resolver.module(scope)
        for binding in reaching(expr, expr.id, module.names, scope):
            yield from self.of_binding(owner, binding, seen, calls, expr)

    def of_binding(self, module: Module, binding: Binding, seen: frozenset[int], calls: tuple[tuple[Module, ast.Call], ...],
                   use: ast.AST) -> Iterator[Origin | Lost]:
        if binding.kind == "import":
            for target in self.resolver.of_binding(module, binding):
                if isinstance(target, Value):
                    yield from self.of_binding(target.module, target.binding, seen, calls, use)
                else:
                    yield Lost(module, use, f"`{binding.name}`, an import")
        elif binding.kind == "param":
            yield from self._parameter(module, binding, seen, calls)
        elif binding.value is not None and binding.kind in ("assign", "walrus", "with"):
            if binding.path:
                yield from self.elements(module, binding.value, seen, calls, path=binding.path)
            else:
                yield from self.trace(module, binding.value, seen, calls)
        elif binding.value is not None and binding.kind in ("for", "comp"):
            yield from self.elements(module, binding.value, seen, calls, path=binding.path, loop=True)
        elif binding.kind != "delete":
            yield Lost(module, binding.node, f"`{binding.name}`")

    def _parameter(self, module: Module, binding: Binding, seen: frozenset[int],
                   calls: tuple[tuple[Module, ast.Call], ...]) -> Iterator[Origin | Lost]:
        function = next((up for up in module.names.ancestors(binding.node) if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))), None)
        if function is None:
            return
        sites = self.resolver.call_sites(function)
        bound = self.resolver.owner(module, function) is not None
        if not sites:
            yield Lost(module, binding.node, f"the parameter `{binding.name}` of a function that the script never calls by name")
        for site_module, call in sites:
            given = argument(call, function, binding.name, bound=bound)
            fallback = default(function, binding.name)
            if given is not None:
                yield from self.trace(site_module, given, seen, ())
            elif fallback is not None:
                yield from self.trace(module, fallback, seen, ())
            else:
                yield Lost(site_module, call, f"the parameter `{binding.name}`")

    def _attribute(self, module: Module, expr: ast.Attribute, seen: frozenset[int],
                   calls: tuple[tuple[Module, ast.Call], ...]) -> Iterator[Origin | Lost]:
        target = self.resolver.target(module, expr)
        if isinstance(target, Value):
            yield from self.of_binding(target.module, target.binding, seen, calls, expr)
            return
        if expr.attr == "dataset":
            sites = list(self.loader_sites(module, expr.value, seen))
            if sites:
                for site in sites:
                    dataset = site.option("dataset")
                    if dataset is not None:
                        yield from self.trace(site.module, dataset, seen, ())
                return
        definition = self.kinds.instance_of(module, expr.value)
        values = list(self.member_values(definition, expr.attr)) if definition else []
        if not values:
            yield Lost(module, expr, f"`{module.text(expr)}`")
        for owner, value in values:
            yield from self.trace(owner, value, seen, ())

    def loader_sites(self, module: Module, expr: ast.expr, seen: frozenset[int]) -> Iterator[Site]:
        """The sites that may have made the loader `expr`."""
        for item in self.trace(module, expr, seen, ()):
            if isinstance(item, Origin) and id(item.expr) in self.sites:
                yield self.sites[id(item.expr)]

    def member_values(self, definition: Definition, name: str) -> Iterator[tuple[Module, ast.expr]]:
        """The values that a class's own code gives to `self.name`."""
        for owner in self.resolver.ancestry(definition)[1]:
            for node in ast.walk(owner.node):
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        if isinstance(target, ast.Attribute) and target.attr == name and isinstance(target.value, ast.Name) and target.value.id == "self":
                            yield owner.module, node.value
                        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                            for part, value in zip(target.elts, node.value.elts, strict=False):
                                if isinstance(part, ast.Attribute) and part.attr == name:
                                    yield owner.module, value

    def _call(self, module: Module, call: ast.Call, seen: frozenset[int], calls: tuple[tuple[Module, ast.Call], ...]) -> Iterator[Origin | Lost]:
        if id(call) in self.sites:
            yield Origin(module, call, calls)
            return
        for target in self.resolver.targets(module, call.func):
            if isinstance(target, Library) and target.name in WRAPPERS and call.args:
                if target.name.endswith(("Subset", "random_split")):
                    yield from self.trace(module, call.args[0], seen, calls)
                else:
                    yield from self.elements(module, call.args[0], seen, calls, loop=True)
                return
            if isinstance(target, Library) and target.name in ("copy.copy", "copy.deepcopy") and call.args:
                yield from self.trace(module, call.args[0], seen, calls)
                return
            if isinstance(target, Library):
                if "unknown" in row(target.name).effects:
                    yield Lost(module, call, f"`{module.text(call.func)}(...)`, which splitter knows nothing about")
                else:
                    yield Origin(module, call, calls)
                return
            if isinstance(target, Definition):
                if isinstance(target.node, ast.ClassDef):
                    yield Origin(module, call, calls)
                    return
                for result in returned(target.node):
                    yield from self.trace(target.module, result, seen, (*calls, (module, call)))
                return
        if isinstance(call.func, ast.Attribute):
            owner = self.resolver.definition(module, call.func.value)
            if owner is not None and isinstance(owner.node, ast.ClassDef):  # a class method used as a constructor
                yield Origin(module, call, calls)
                return
        definition = self.kinds.instance_of(module, call.func.value) if isinstance(call.func, ast.Attribute) else None
        method = self.resolver.method(definition, call.func.attr) if definition and isinstance(call.func, ast.Attribute) else None
        if method is not None:
            for result in returned(method.node):
                yield from self.trace(method.module, result, seen, (*calls, (module, call)))
            return
        if self.kinds.of(module, call) in SENDABLE:
            yield Origin(module, call, calls)
        else:
            yield Lost(module, call, f"`{module.text(call)}`")

    def elements(self, module: Module, expr: ast.expr, seen: frozenset[int], calls: tuple[tuple[Module, ast.Call], ...], *,
                 path: tuple[int, ...] = (), key: ast.expr | None = None, loop: bool = False) -> Iterator[Origin | Lost]:
        """The datasets inside a container: one element by its key or place, all of them for a loop."""
        if id(expr) in seen and not loop and key is None:
            return
        seen = seen | {id(expr)}
        constant = key.value if isinstance(key, ast.Constant) else path[0] if path else None
        if isinstance(expr, (ast.List, ast.Tuple)):
            index = constant if isinstance(constant, int) and not loop else None
            for item in ([expr.elts[index]] if index is not None and -len(expr.elts) <= index < len(expr.elts) else expr.elts):
                if path and loop and isinstance(item, (ast.Tuple, ast.List)) and path[0] < len(item.elts):
                    item = item.elts[path[0]]
                yield from self.trace(module, item, seen, calls)
        elif isinstance(expr, ast.Dict):
            for name, value in zip(expr.keys, expr.values, strict=True):
                if constant is None or loop or not isinstance(name, ast.Constant) or name.value == constant:
                    yield from self.trace(module, value, seen, calls)
        elif isinstance(expr, (ast.ListComp, ast.GeneratorExp)):
            yield from self.trace(module, expr.elt, seen, calls)
        elif isinstance(expr, ast.DictComp):
            yield from self.trace(module, expr.value, seen, calls)
        elif isinstance(expr, ast.Call):
            yield from self._call_elements(module, expr, seen, calls, path, key, loop)
        elif isinstance(expr, ast.Name):
            scope = module.names.scope_of[expr].lookup(expr.id)
            owner = self.resolver.module(scope) if scope else module
            for binding in reaching(expr, expr.id, module.names, scope) if scope else []:
                if binding.kind == "assign" and binding.value is not None and not binding.path:
                    yield from self.elements(owner, binding.value, seen, calls, path=path, key=key, loop=loop)
                else:
                    yield Lost(module, expr, f"an element of `{expr.id}`")
        else:
            yield Lost(module, expr, f"an element of `{module.text(expr)}`")

    def _call_elements(self, module: Module, call: ast.Call, seen: frozenset[int], calls: tuple[tuple[Module, ast.Call], ...],
                       path: tuple[int, ...], key: ast.expr | None, loop: bool) -> Iterator[Origin | Lost]:
        target = self.resolver.target(module, call.func)
        if isinstance(target, Library) and target.name in WRAPPERS and call.args:
            yield from self.trace(module, call.args[0], seen, calls)
        elif isinstance(target, Library) and target.name in ("builtins.list", "builtins.tuple", "builtins.enumerate", "builtins.reversed", "tqdm.tqdm") and call.args:
            yield from self.elements(module, call.args[0], seen, calls, path=() if target.name.endswith("enumerate") else path, key=key, loop=loop)
        elif isinstance(call.func, ast.Attribute) and call.func.attr in ("items", "values"):
            yield from self.elements(module, call.func.value, seen, calls, loop=True)
        elif isinstance(target, Definition) and not isinstance(target.node, ast.ClassDef):
            for result in returned(target.node):
                yield from self.elements(target.module, result, seen, (), path=path, key=key, loop=loop)
        else:
            yield Lost(module, call, f"an element of `{module.text(call)}`")
