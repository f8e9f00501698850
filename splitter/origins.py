"""Where a dataset comes from: from the loader's argument back to the expressions that create it.

    data = Photos(args.dir)                        Photos(args.dir)   <- this one
    loader = DataLoader(Subset(data, half))        through Subset and the variable

Followed: variables, unpacking, parameters back to their call sites, results of the program's own functions, attributes of self,
torch's wrappers, elements of lists, tuples and dicts, both sides of a condition.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from splitter.flow import blocks, reaching
from splitter.kinds import SENDABLE, Kinds, returned
from splitter.knowledge import DATASET_METHODS, WRAPPERS, row
from splitter.read import Module
from splitter.resolve import Definition, Library, LocalModule, Resolver, Value, argument, default, member_values
from splitter.scopes import Binding
from splitter.sites import Site

Calls = tuple[tuple[Module, ast.Call], ...]


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


class Tracer:
    """Follows a dataset expression back to the expressions that create it."""

    def __init__(self, resolver: Resolver, kinds: Kinds, sites: dict[int, Site]) -> None:
        self.resolver = resolver
        self.kinds = kinds
        self.sites = sites

    def origins(self, site: Site) -> list[Origin | Lost]:
        """The origins of a site's dataset, each once."""
        found: dict[int, Origin | Lost] = {}
        for dataset in site.options.get("dataset", ()) if site.problem is None else ():
            module = site.where(dataset)
            for item in self.trace(module, dataset, frozenset(), ()):
                if isinstance(item, Origin) and self.kinds.of(item.module, item.expr) in SENDABLE:
                    item = Origin(module, dataset)
                elif isinstance(item, Lost) and self.kinds.of(module, dataset) in SENDABLE:
                    item = Origin(module, dataset)
                found.setdefault(id(item.expr), item)
        return list(found.values())

    def trace(self, module: Module, expr: ast.expr, seen: frozenset[int], calls: Calls) -> Iterator[Origin | Lost]:
        if id(expr) in seen or len(seen) > 60:
            return
        seen = seen | {id(expr)}
        if isinstance(expr, (ast.Subscript, ast.Call)) and tabular(self.resolver, module, expr):
            yield Origin(module, expr, calls)
            return
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

    def _name(self, module: Module, expr: ast.Name, seen: frozenset[int], calls: Calls) -> Iterator[Origin | Lost]:
        scope = module.names.scope_of[expr].lookup(expr.id)
        if scope is None:
            yield Lost(module, expr, f"`{expr.id}`")
            return
        owner = self.resolver.module(scope)
        for binding in reaching(expr, expr.id, module.names, scope):
            yield from self.of_binding(owner, binding, seen, calls, expr)

    def of_binding(self, module: Module, binding: Binding, seen: frozenset[int], calls: Calls, use: ast.AST) -> Iterator[Origin | Lost]:
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

    def _parameter(self, module: Module, binding: Binding, seen: frozenset[int], calls: Calls) -> Iterator[Origin | Lost]:
        function = next(
            (up for up in module.names.ancestors(binding.node) if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))), None
        )
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

    def _attribute(self, module: Module, expr: ast.Attribute, seen: frozenset[int], calls: Calls) -> Iterator[Origin | Lost]:
        target = self.resolver.target(module, expr)
        if isinstance(target, Value):
            yield from self.of_binding(target.module, target.binding, seen, calls, expr)
            return
        if expr.attr == "dataset":
            sites = list(self.loader_sites(module, expr.value, seen))
            if sites:
                for site in sites:
                    for dataset in site.options.get("dataset", ()):
                        yield from self.trace(site.where(dataset), dataset, seen, ())
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
            elif isinstance(item, Origin):
                yield from (site for site in self.sites.values() if any(place.expr is item.expr for place in site.also))

    def member_values(self, definition: Definition, name: str) -> Iterator[tuple[Module, ast.expr]]:
        """The values that a class's own code gives to `self.name`."""
        return member_values(self.resolver, definition, name)

    def _call(self, module: Module, call: ast.Call, seen: frozenset[int], calls: Calls) -> Iterator[Origin | Lost]:
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
                for result in reached(target, call):
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
        if self.kinds.of(module, call) in SENDABLE or self._known_maker(module, call.func):
            yield Origin(module, call, calls)
        else:
            yield Lost(module, call, f"`{module.text(call)}`")

    def _known_maker(self, module: Module, func: ast.expr) -> bool:
        """A class held in a variable, or looked up in a module or a dict of classes, all of the program's own or of known libraries."""
        if isinstance(func, ast.Call) and self.resolver.library(module, func.func) == "builtins.getattr" and func.args:
            target = self.resolver.target(module, func.args[0])
            return isinstance(target, LocalModule) or (isinstance(target, Library) and "unknown" not in row(target.name).effects)
        return self.kinds.of(module, func) == "class"

    def elements(
        self,
        module: Module,
        expr: ast.expr,
        seen: frozenset[int],
        calls: Calls,
        *,
        path: tuple[int, ...] = (),
        key: ast.expr | None = None,
        loop: bool = False,
    ) -> Iterator[Origin | Lost]:
        """The datasets inside a container: one element by its key or place, all of them for a loop."""
        if id(expr) in seen and not loop and key is None:
            return
        seen = seen | {id(expr)}
        constant = key.value if isinstance(key, ast.Constant) else path[0] if path else None
        if isinstance(expr, (ast.List, ast.Tuple)):
            index = constant if isinstance(constant, int) and not loop else None
            for item in [expr.elts[index]] if index is not None and -len(expr.elts) <= index < len(expr.elts) else expr.elts:
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

    def _call_elements(
        self,
        module: Module,
        call: ast.Call,
        seen: frozenset[int],
        calls: Calls,
        path: tuple[int, ...],
        key: ast.expr | None,
        loop: bool,
    ) -> Iterator[Origin | Lost]:
        target = self.resolver.target(module, call.func)
        if isinstance(target, Library) and target.name in WRAPPERS and call.args:
            yield from self.trace(module, call.args[0], seen, calls)
        elif (
            isinstance(target, Library)
            and target.name in ("builtins.list", "builtins.tuple", "builtins.enumerate", "builtins.reversed", "tqdm.tqdm")
            and call.args
        ):
            yield from self.elements(
                module, call.args[0], seen, calls, path=() if target.name.endswith("enumerate") else path, key=key, loop=loop
            )
        elif isinstance(call.func, ast.Attribute) and call.func.attr in ("items", "values"):
            yield from self.elements(module, call.func.value, seen, calls, loop=True)
        elif isinstance(target, Definition) and not isinstance(target.node, ast.ClassDef):
            for result in reached(target, call):
                yield from self.elements(target.module, result, seen, (), path=path, key=key, loop=loop)
        else:
            yield Lost(module, call, f"an element of `{module.text(call)}`")


def tabular(resolver: Resolver, module: Module, expr: ast.expr, depth: int = 0) -> bool:
    """Whether an expression gives one of Hugging Face's datasets, or a dict of them: load_dataset(...).map(f)["train"]."""
    if depth > 20:
        return False
    if isinstance(expr, ast.Call):
        if isinstance(expr.func, ast.Attribute) and expr.func.attr in DATASET_METHODS:
            return tabular(resolver, module, expr.func.value, depth + 1)
        name = resolver.library(module, expr.func) or ""
        return name.startswith("datasets.") and row(name).gives == "dataset"
    if isinstance(expr, ast.Subscript):
        return isinstance(expr.slice, (ast.Constant, ast.IfExp, ast.Name)) and tabular(resolver, module, expr.value, depth + 1)
    if isinstance(expr, ast.Name):
        scope = module.names.scope_of[expr].lookup(expr.id)
        found = reaching(expr, expr.id, module.names, scope) if scope else []
        return bool(found) and all(
            binding.kind == "assign"
            and binding.value is not None
            and not binding.path
            and binding.value is not expr
            and tabular(resolver, resolver.module(binding.scope), binding.value, depth + 1)
            for binding in found
        )
    return False


def reached(function: Definition, call: ast.Call) -> list[ast.expr]:
    """What a call can return, without the branches that its constant arguments rule out (`if split == "train": return ...`)."""
    node = function.node
    if isinstance(node, ast.ClassDef):
        return returned(node)
    constants: dict[str, object] = {}
    scope = function.module.names.inner[node]
    for name, bindings in scope.bindings.items():
        given = argument(call, node, name, bound=False)
        if given is None and not any(keyword.arg is None for keyword in call.keywords):
            given = default(node, name)
        if [binding.kind for binding in bindings] == ["param"] and isinstance(given, ast.Constant):
            constants[name] = given.value
    return [result for result in returned(node) if _reachable(function.module, node, result, constants)]


def _reachable(module: Module, function: ast.AST, result: ast.expr, constants: dict[str, object]) -> bool:
    child: ast.AST = result
    for parent in module.names.ancestors(result):
        if isinstance(parent, ast.If) and child is not parent.test:
            holds = _holds(parent.test, constants)
            if holds is not None and holds != (child in parent.body):
                return False
        for block in blocks(parent):
            if child in block:
                before = block[: block.index(child)]
                if any(
                    isinstance(s, ast.If) and _holds(s.test, constants) and isinstance(s.body[-1], (ast.Return, ast.Raise)) for s in before
                ):
                    return False
        if parent is function:
            break
        child = parent
    return True


def _holds(test: ast.expr, constants: dict[str, object]) -> bool | None:
    """Whether a test on constant arguments holds; None when it says more than that."""
    match test:
        case ast.Name(id=name) if name in constants:
            return bool(constants[name])
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            holds = _holds(inner, constants)
            return None if holds is None else not holds
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq() | ast.NotEq() as op], comparators=[ast.Constant(value=value)]) if (
            name in constants
        ):
            return (constants[name] == value) == isinstance(op, ast.Eq)
    return None
