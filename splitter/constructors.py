"""Constructors of the program's own subclasses of torch's loader: what they hand on to torch's.

class Endless(DataLoader):
    def __init__(self, *args, steps, **kwargs):
        super().__init__(*args, **kwargs)          transparent: `Endless(data, 4, steps=9)` gives torch (data, 4)

class Photos(DataLoader):
    def __init__(self, folder, size):
        super().__init__(Folder(folder), size)     not transparent: this call is where the loader gets its dataset
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from splitter.flow import reaching
from splitter.knowledge import LOADERS
from splitter.loader_classes import RUNTIME, LoaderClasses, initialising, is_super
from splitter.options import Arguments, Reader, Unread
from splitter.places import FUNCTIONS, Place
from splitter.resolve import Definition, Resolver, default


@dataclass(frozen=True, eq=False)
class Constructor:
    """One call of the next class's constructor inside of a constructor.

    `above` is the program's own class whose constructor is called, None for torch's. `explicit` is the class as written in
    `DataLoader.__init__(self, ...)`; there the first argument is skipped.
    """

    owner: Definition
    function: ast.FunctionDef
    call: ast.Call
    above: Definition | None
    explicit: ast.expr | None
    skip: int
    transparent: bool


class Constructors:
    """Answers for subclasses of torch's loader, with a memory."""

    def __init__(self, resolver: Resolver, reader: Reader, classes: LoaderClasses) -> None:
        self.resolver = resolver
        self.reader = reader
        self.classes = classes
        self._own: dict[int, list[Constructor]] = {}

    def own(self, owner: Definition) -> list[Constructor]:
        """The calls in the class's own constructor that lead to torch's without another one of the program that isn't transparent."""
        return [made for made in self._all(owner) if made.above is None or self.transparent(made.above)]

    def _all(self, owner: Definition) -> list[Constructor]:
        key = id(owner.node)
        if key not in self._own:
            self._own[key] = []
            self._own[key] = list(self._read(owner))
        return self._own[key]

    def _read(self, owner: Definition) -> Iterator[Constructor]:
        for function in owner.node.body:
            calls = initialising(self.resolver, owner.module, function)
            lineage = self.classes.lineage(owner)
            above = lineage[1] if len(lineage) > 1 else None
            for call in calls:
                assert isinstance(function, ast.FunctionDef) and isinstance(call.func, ast.Attribute)
                base = call.func.value
                if is_super(self.resolver, owner.module, base):
                    yield self._made(owner, function, call, above, None, len(calls))
                elif self.resolver.library(owner.module, base) in LOADERS:
                    yield self._made(owner, function, call, None, base, len(calls))
                else:
                    named = self.resolver.definition(owner.module, base)
                    if named is not None and self.classes.is_loader(named):
                        yield self._made(owner, function, call, named, base, len(calls))

    def _made(
        self, owner: Definition, function: ast.FunctionDef, call: ast.Call, above: Definition | None, base: ast.expr | None, count: int
    ) -> Constructor:
        skip = 1 if base is not None else 0
        open_above = above is None or self.transparent(above)
        handed = count == 1 and open_above and self._hands_on(owner, function, call, skip)
        return Constructor(owner, function, call, above, base if above is None else None, skip, handed)

    def _hands_on(self, owner: Definition, function: ast.FunctionDef, call: ast.Call, skip: int) -> bool:
        """Whether a constructor leaves dataset and functions to its caller, and hands keywords on that it doesn't know."""
        rest = function.args.kwarg
        splats = [k.value for k in call.keywords if k.arg is None]
        if rest is None or not any(self._parameter(owner, function, value) == rest.arg for value in splats):
            return False
        own = {arg.arg for arg in (*function.args.args[1:], *function.args.kwonlyargs)}
        if own & RUNTIME:
            return False
        first = call.args[skip] if len(call.args) > skip else None
        given = [k.value for k in call.keywords if k.arg == "dataset" or k.arg in FUNCTIONS]
        if first is not None and not isinstance(first, ast.Starred):
            given.append(first)
        if len(call.args) > skip + 6 or not all(self._parameter(owner, function, value) in own for value in given):
            return False
        try:
            added = {name for name, _ in self._added(owner, function)}
        except Unread:
            return False
        return not added & {"dataset", *FUNCTIONS}

    def _added(self, owner: Definition, function: ast.FunctionDef) -> list[tuple[str | None, Place]]:
        """What a constructor puts into its own `**kwargs`."""
        rest = function.args.kwarg
        scope = owner.module.names.inner[function]
        return list(self.reader.changes(owner.module, function, rest.arg, scope)) if rest is not None else []

    def _parameter(self, owner: Definition, function: ast.FunctionDef, expr: ast.expr) -> str | None:
        """The parameter that an expression is, when nothing else was assigned to it."""
        if not isinstance(expr, ast.Name):
            return None
        names = owner.module.names
        scope = names.scope_of[expr].lookup(expr.id)
        bindings = reaching(expr, expr.id, names, scope) if scope is names.inner[function] else []
        return expr.id if [binding.kind for binding in bindings] == ["param"] else None

    def _nearest(self, definition: Definition) -> Definition | None:
        """The class with a constructor of its own, from this one upwards."""
        for owner in self.classes.lineage(definition):
            if any(isinstance(stmt, ast.FunctionDef) and stmt.name == "__init__" for stmt in owner.node.body):
                return owner
        return None

    def transparent(self, definition: Definition) -> bool:
        """Whether a call of the class takes torch's keywords and hands them on."""
        owner = self._nearest(definition)
        made = self._all(owner) if owner is not None else []
        return owner is None or (bool(made) and all(one.transparent for one in made))

    def reaches(self, definition: Definition) -> bool:
        """Whether the class's constructor calls torch's at all."""
        owner = self._nearest(definition)
        made = self._all(owner) if owner is not None else []
        return owner is None or (bool(made) and all(one.above is None or self.reaches(one.above) for one in made))

    def passing(self, definition: Definition) -> Iterator[ast.Call]:
        """The calls by which transparent constructors hand their arguments on."""
        owner: Definition | None = self._nearest(definition)
        while owner is not None:
            made = next((one for one in self._all(owner) if one.transparent), None)
            if made is None:
                return
            yield made.call
            owner = self._nearest(made.above) if made.above is not None else None

    def problem(self, definition: Definition) -> str | None:
        """Why the class can't stand on splitter's loader; None when it can."""
        found = self.classes.problem(definition)
        if found is None and not self.reaches(definition):
            return f"`{definition.node.name}`, a subclass of DataLoader whose constructor doesn't call DataLoader's,"
        for owner in self.classes.lineage(definition) if found is None else ():
            for made in self._all(owner):
                value = made.call.func.value if isinstance(made.call.func, ast.Attribute) else None
                if isinstance(value, ast.Call) and value.args:
                    named = self.resolver.definition(owner.module, value.args[0])
                    if named is None or named.node is not owner.node:
                        return f"`{definition.node.name}`, a subclass of DataLoader with `{owner.module.text(value)}`,"
        return found

    def handed_on(self, definition: Definition, given: Arguments) -> Arguments:
        """What torch's constructor gets when a transparent class is called with `given`.

        Raises:
            Unread: an argument can't be followed.
        """
        owner = self._nearest(definition)
        while owner is not None:
            made = self._all(owner)[0]
            given = self._through(made, given)
            owner = self._nearest(made.above) if made.above is not None else None
        return given

    def _through(self, made: Constructor, given: Arguments) -> Arguments:
        function, module = made.function, made.owner.module
        names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)][1:]
        known = {*names, *(arg.arg for arg in function.args.kwonlyargs)}
        bound = dict(zip(names, given.positional, strict=False))
        for name, values in given.keywords.items():
            if name in known:
                bound[name] = (*bound.get(name, ()), *values)
        for name in known - given.certain - set(names[: len(given.positional)]):
            fallback = default(function, name)
            bound[name] = (*bound.get(name, ()), *((Place(module, fallback),) if fallback is not None else ()))

        def meant(place: Place) -> tuple[Place, ...]:
            parameter = self._parameter(made.owner, function, place.expr) if place.module is module else None
            return bound.get(parameter, (place,)) if parameter else (place,)

        result = Arguments(open=given.open)
        for arg in made.call.args[made.skip :]:
            if not isinstance(arg, ast.Starred):
                result.positional.append(meant(Place(module, arg)))
            elif function.args.vararg and self._parameter(made.owner, function, arg.value) == function.args.vararg.arg:
                result.positional += given.positional[len(names) :]
            else:
                raise Unread(Place(module, arg))
        for keyword in made.call.keywords:
            if keyword.arg is not None:
                result.keywords[keyword.arg] = meant(Place(module, keyword.value))
                result.certain.add(keyword.arg)
            elif function.args.kwarg and self._parameter(made.owner, function, keyword.value) == function.args.kwarg.arg:
                rest = {name: values for name, values in given.keywords.items() if name not in known}
                result.keywords |= {name: (*result.keywords.get(name, ()), *values) for name, values in rest.items()}
                result.certain |= given.certain & set(rest)
                for added, place in self._added(made.owner, function):
                    result.add(added, place)
            else:
                for added, place in self.reader.items(module, keyword.value):
                    for value in meant(place):
                        result.add(added, value)
        return result
