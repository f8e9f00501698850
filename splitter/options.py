"""What a call passes on: every expression that each of its keywords may have.

options = {"batch_size": 64}
if cuda: options.update(num_workers=1)
DataLoader(data, **options)               dataset: data, batch_size: 64, num_workers: 1 (perhaps)

Dicts of keywords are followed through variables, parameters, attributes, results of the program's own functions and what is added to
them. A dict of plain data whose keys the text doesn't tell (`**cfg.loader`, read from a file) is open: it may hold any keyword but no
function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from splitter.flow import reaching
from splitter.kinds import Kinds, returned
from splitter.places import Place, Places, function_of
from splitter.read import Module
from splitter.resolve import Definition, Library, Resolver, Value, argument, default
from splitter.scopes import Binding, FunctionNode, Scope

_DEPTH = 12


Item = tuple[str | None, Place]  # no name: a dict of plain data with keys that the text doesn't tell


class Unread(Exception):
    """An argument that can't be read, and where it stands."""

    def __init__(self, place: Place) -> None:
        super().__init__(place.module.text(place.expr))
        self.place = place


@dataclass(eq=False)
class Arguments:
    """The arguments of a call: for each the expressions that it may have; `certain` ones are surely given, `open` is an unknown rest."""

    positional: list[tuple[Place, ...]] = field(default_factory=list)
    keywords: dict[str, tuple[Place, ...]] = field(default_factory=dict)
    certain: set[str] = field(default_factory=set)
    open: Place | None = None

    def add(self, name: str | None, place: Place) -> None:
        if name is None:
            self.open = place
        else:
            self.keywords[name] = (*self.keywords.get(name, ()), place)

    def after(self, first: Arguments) -> Arguments:
        """These arguments of a call of `functools.partial(f, <first>)`."""
        keywords = {
            name: values if name in self.certain else (*first.keywords.get(name, ()), *values)
            for name, values in {**{name: () for name in first.keywords}, **self.keywords}.items()
        }
        return Arguments([*first.positional, *self.positional], keywords, first.certain | self.certain, self.open or first.open)


class Reader:
    """Reads arguments of calls and dicts of keywords."""

    def __init__(self, resolver: Resolver, kinds: Kinds) -> None:
        self.resolver = resolver
        self.program = resolver.program
        self.kinds = kinds
        self.places = Places(resolver, kinds)

    def arguments(self, module: Module, call: ast.Call, skip: int = 0) -> Arguments:
        """The arguments of a call after the first `skip` ones.

        Raises:
            Unread: `*args` or `**kwargs` of something that can't be followed.
        """
        result = Arguments()
        for arg in call.args[skip:]:
            if isinstance(arg, ast.Starred):
                result.positional += self._elements(module, arg)
            else:
                result.positional.append((Place(module, arg),))
        for keyword in call.keywords:
            if keyword.arg is not None:
                result.add(keyword.arg, Place(module, keyword.value))
                result.certain.add(keyword.arg)
                continue
            for name, place in self.items(module, keyword.value):
                result.add(name, place)
        return result

    def _elements(self, module: Module, starred: ast.Starred) -> list[tuple[Place, ...]]:
        """The arguments behind a star: a tuple's, or those that the callers of a function give for its `*args`."""
        value, unread = starred.value, Unread(Place(module, starred))
        if isinstance(value, (ast.Tuple, ast.List)) and not any(isinstance(part, ast.Starred) for part in value.elts):
            return [(Place(module, part),) for part in value.elts]
        scope = module.names.scope_of[value].lookup(value.id) if isinstance(value, ast.Name) else None
        bindings = reaching(value, value.id, module.names, scope) if isinstance(value, ast.Name) and scope else []
        function = function_of(module, bindings[0].node) if len(bindings) == 1 and bindings[0].kind == "param" else None
        if function is None or bindings[0].node is not function.args.vararg or self.places.escapes(module, function):
            raise unread
        found: list[tuple[Place, ...]] = []
        first = len(function.args.args) - (1 if self.resolver.owner(module, function) else 0)
        for caller, call in self.resolver.call_sites(function):
            if any(isinstance(arg, ast.Starred) for arg in call.args):
                raise unread
            for index, arg in enumerate(call.args[first:]):
                found[index : index + 1] = [(*(found[index] if index < len(found) else ()), Place(caller, arg))]
        return found

    def items(self, module: Module, expr: ast.expr, depth: int = 0) -> Iterator[Item]:
        """The items that a dict of keywords may have.

        Raises:
            Unread: it may hold anything.
        """
        if depth > _DEPTH:
            raise Unread(Place(module, expr))
        match expr:
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if key is None:
                        yield from self.items(module, value, depth + 1)
                    elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield key.value, Place(module, value)
                    else:
                        raise Unread(Place(module, expr))
            case ast.IfExp(body=left, orelse=right) | ast.BinOp(left=left, op=ast.BitOr(), right=right):
                yield from self.items(module, left, depth + 1)
                yield from self.items(module, right, depth + 1)
            case ast.BoolOp(values=parts):
                for part in parts:
                    yield from self.items(module, part, depth + 1)
            case ast.NamedExpr(value=value):
                yield from self.items(module, value, depth + 1)
            case ast.Constant(value=None):
                return
            case ast.Call():
                yield from self._call(module, expr, depth)
            case ast.Name():
                yield from self._name(module, expr, depth)
            case ast.Attribute():
                yield from self._attribute(module, expr, depth)
            case ast.Subscript(value=base, slice=key):
                yield from self._element(module, expr, base, key, depth)
            case _:
                yield from self._plain(module, expr)

    def _plain(self, module: Module, expr: ast.expr) -> Iterator[Item]:
        if self.kinds.of(module, expr) not in ("plain", "namespace") or self.places.loose:
            raise Unread(Place(module, expr))
        yield None, Place(module, expr)

    def _call(self, module: Module, call: ast.Call, depth: int) -> Iterator[Item]:
        target = self.resolver.target(module, call.func)
        name = target.name if isinstance(target, Library) else ""
        if name in ("builtins.dict", "collections.OrderedDict") or self._own_dict(target):
            for part in call.args:
                yield from self.items(module, part, depth + 1)
            for keyword in call.keywords:
                if keyword.arg is not None:
                    yield keyword.arg, Place(module, keyword.value)
                else:
                    yield from self.items(module, keyword.value, depth + 1)
        elif name in ("copy.copy", "copy.deepcopy") and call.args:
            yield from self.items(module, call.args[0], depth + 1)
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "copy" and not call.args and target is None:
            yield from self.items(module, call.func.value, depth + 1)
        elif isinstance(target, Definition) and not isinstance(target.node, ast.ClassDef) and returned(target.node):
            for result in returned(target.node):
                yield from self.items(target.module, result, depth + 1)
        else:
            yield from self._plain(module, call)

    def _own_dict(self, target: object) -> bool:
        """A class of the program's that is a dict with other manners (attributes for keys), not with a constructor of its own."""
        if not isinstance(target, Definition) or not isinstance(target.node, ast.ClassDef):
            return False
        return "builtins.dict" in self.resolver.ancestry(target)[0] and self.resolver.method(target, "__init__") is None

    # -- variables -----------------------------------------------------------------------------------------------------

    def _name(self, module: Module, expr: ast.Name, depth: int) -> Iterator[Item]:
        scope = module.names.scope_of[expr].lookup(expr.id)
        if scope is None:
            targets = [target for target in self.resolver.targets(module, expr) if isinstance(target, Value)]
            if not targets:
                raise Unread(Place(module, expr))
            for target in targets:
                yield from self._variable(target.module, [target.binding], target.binding.scope, expr, module, depth)
            return
        yield from self._variable(self.resolver.module(scope), reaching(expr, expr.id, module.names, scope), scope, expr, module, depth)

    def _variable(self, owner: Module, bindings: list[Binding], scope: Scope, expr: ast.expr, module: Module, depth: int) -> Iterator[Item]:
        if any(binding.kind == "augment" for binding in bindings):  # `|=` adds to what was there
            bindings = [binding for binding in scope.bindings[bindings[0].name] if binding.kind != "delete"]
        for binding in bindings:
            if binding.kind == "import":
                for target in self.resolver.of_binding(owner, binding):
                    if not isinstance(target, Value):
                        raise Unread(Place(module, expr))
                    yield from self._variable(target.module, [target.binding], target.binding.scope, expr, module, depth + 1)
            elif binding.kind == "param":
                yield from self._parameter(owner, binding, expr, module, depth)
            elif binding.kind == "augment" and isinstance(binding.node, ast.AugAssign) and isinstance(binding.node.op, ast.BitOr):
                yield from self.items(owner, binding.node.value, depth + 1)
            elif binding.kind in ("assign", "walrus") and binding.value is not None:
                value = self._unpacked(owner, binding)
                if value is None:
                    raise Unread(Place(module, expr))
                yield from self.items(value.module, value.expr, depth + 1)
            else:
                yield from self._plain(module, expr)
        if bindings:
            yield from self.changes(owner, scope.node, bindings[0].name, scope, depth)

    def _unpacked(self, module: Module, binding: Binding) -> Place | None:
        value = binding.value
        assert value is not None
        if not binding.path:
            return Place(module, value)
        definition = self.resolver.definition(module, value.func) if isinstance(value, ast.Call) else None
        results = returned(definition.node) if definition and not isinstance(definition.node, ast.ClassDef) else [value]
        inner = definition.module if definition else module
        if len(results) == 1 and len(binding.path) == 1 and isinstance(results[0], (ast.Tuple, ast.List)):
            parts = results[0].elts
            return Place(inner, parts[binding.path[0]]) if binding.path[0] < len(parts) else None
        return None

    def changes(self, module: Module, root: ast.AST, name: str, scope: Scope, depth: int = 0) -> Iterator[Item]:
        """What the code below `root` adds to a dict that is held in a variable."""
        if depth > _DEPTH:
            return
        for use in module.mentioned.get(name, ()) if isinstance(root, ast.Module) else ast.walk(root):
            if isinstance(use, ast.Name) and use.id == name and module.names.scope_of[use].lookup(name) is scope:
                yield from self._added(module, use, depth)
        for other, node in self.program.mentions(name) if isinstance(root, ast.Module) else ():
            if other is not module:
                yield from self._added(other, node, depth)

    def _added(self, module: Module, use: ast.expr, depth: int) -> Iterator[Item]:
        """What one use of a dict adds to it."""
        parent = module.names.parent_of[use]
        above = module.names.parent_of.get(parent)
        if isinstance(parent, ast.Subscript) and parent.value is use and isinstance(parent.ctx, ast.Store):
            if not (isinstance(parent.slice, ast.Constant) and isinstance(parent.slice.value, str)):
                raise Unread(Place(module, parent))
            value = getattr(above, "value", None)
            if not isinstance(above, (ast.Assign, ast.AnnAssign)) or value is None:
                raise Unread(Place(module, parent))
            yield parent.slice.value, Place(module, value)
        elif isinstance(parent, ast.Attribute) and isinstance(above, ast.Call) and above.func is parent:
            if parent.attr == "update":
                for part in above.args:
                    yield from self.items(module, part, depth + 1)
                for keyword in above.keywords:
                    if keyword.arg is None:
                        yield from self.items(module, keyword.value, depth + 1)
                    else:
                        yield keyword.arg, Place(module, keyword.value)
            elif parent.attr in ("setdefault", "__setitem__"):
                if len(above.args) != 2 or not (isinstance(above.args[0], ast.Constant) and isinstance(above.args[0].value, str)):
                    raise Unread(Place(module, above))
                yield above.args[0].value, Place(module, above.args[1])
        elif isinstance(parent, (ast.Call, ast.keyword)):
            yield from self._added_by(module, use, parent, depth)
        elif isinstance(parent, ast.Assign) and parent.value is use:  # another name for the same dict
            for target in parent.targets:
                scope = module.names.scope_of[target].lookup(target.id) if isinstance(target, ast.Name) else None
                if isinstance(target, ast.Name) and scope is not None:
                    yield from self.changes(module, scope.node, target.id, scope, depth + 1)

    def _added_by(self, module: Module, use: ast.expr, parent: ast.AST, depth: int) -> Iterator[Item]:
        """What a function of the program adds to a dict that it is given."""
        call = module.names.parent_of[parent] if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, ast.Call) or (isinstance(parent, ast.keyword) and parent.arg is None):
            return
        definition = self.resolver.definition(module, call.func)
        if definition is None or isinstance(definition.node, ast.ClassDef):
            return
        inner = definition.module.names.inner[definition.node]
        bound = self.resolver.owner(definition.module, definition.node) is not None
        for arg in (*definition.node.args.args, *definition.node.args.kwonlyargs):
            if argument(call, definition.node, arg.arg, bound=bound) is use:
                yield from self.changes(definition.module, definition.node, arg.arg, inner, depth + 1)

    # -- parameters ----------------------------------------------------------------------------------------------------

    def _parameter(self, module: Module, binding: Binding, expr: ast.expr, site: Module, depth: int) -> Iterator[Item]:
        function = function_of(module, binding.node)
        unread = Unread(Place(site, expr))
        if function is None or binding.node is function.args.vararg or self.places.escapes(module, function):
            raise unread
        calls = self.resolver.call_sites(function)
        if not calls:
            raise unread
        bound = self.resolver.owner(module, function) is not None
        for caller, call in calls:
            if binding.node is function.args.kwarg:
                yield from self._rest(caller, call, function, depth)
                continue
            given, fallback = argument(call, function, binding.name, bound=bound), default(function, binding.name)
            if given is not None:
                yield from self.items(caller, given, depth + 1)
            elif any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
                yield from self._hidden(binding.name, unread, depth)
                if fallback is not None:
                    yield from self.items(module, fallback, depth + 1)
            elif fallback is not None:
                yield from self.items(module, fallback, depth + 1)
            else:
                raise unread

    def _rest(self, module: Module, call: ast.Call, function: FunctionNode, depth: int) -> Iterator[Item]:
        """The keywords of a call that end up in the function's own `**kwargs`."""
        named = {arg.arg for arg in (*function.args.args, *function.args.kwonlyargs)}
        for keyword in call.keywords:
            if keyword.arg is None:
                yield from ((name, place) for name, place in self.items(module, keyword.value, depth + 1) if name not in named)
            elif keyword.arg not in named:
                yield keyword.arg, Place(module, keyword.value)

    def _hidden(self, name: str, unread: Unread, depth: int) -> Iterator[Item]:
        """The dicts that the program stores under the name of a parameter, for calls that give it in a `**` of their own."""
        if self.places.loose:
            raise unread
        for module in self.program.containing(name):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        key: object = target.attr if isinstance(target, ast.Attribute) else None
                        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                            key = target.slice.value
                        if key == name:
                            yield from self.items(module, node.value, depth + 1)
                elif isinstance(node, ast.Dict):
                    for part, value in zip(node.keys, node.values, strict=True):
                        if isinstance(part, ast.Constant) and part.value == name:
                            yield from self.items(module, value, depth + 1)
        yield None, unread.place

    # -- attributes and elements ---------------------------------------------------------------------------------------

    def _attribute(self, module: Module, expr: ast.Attribute, depth: int) -> Iterator[Item]:
        targets = [target for target in self.resolver.targets(module, expr) if isinstance(target, Value)]
        for target in targets:
            yield from self._variable(target.module, [target.binding], target.binding.scope, expr, module, depth)
        if targets:
            return
        plain = self.kinds.of(module, expr.value) in ("namespace", "plain")
        if plain:
            if self.places.loose:
                raise Unread(Place(module, expr))
            yield None, Place(module, expr)
        values = list(self.places.stored(module, expr))
        if not values and not plain:
            raise Unread(Place(module, expr))
        for place in values:
            yield from self.items(place.module, place.expr, depth + 1)
        for other, node in self.program.mentions(expr.attr):
            if isinstance(node, ast.Attribute) and node.attr == expr.attr and self.places.related(module, expr.value, other, node.value):
                yield from self._added(other, node, depth)

    def _element(self, module: Module, expr: ast.expr, base: ast.expr, key: ast.expr, depth: int) -> Iterator[Item]:
        """`options["train"]` of a dict of dicts."""
        try:
            found = list(self.items(module, base, depth + 1))
        except Unread:
            yield from self._plain(module, expr)
            return
        wanted = key.value if isinstance(key, ast.Constant) else None
        for name, place in found:
            if name is None:
                yield None, place
            elif wanted is None or name == wanted:
                yield from self.items(place.module, place.expr, depth + 1)
