"""Where a program may change an object, or a part of it.

    n = len(rows)                           reads
    print(x.mean(), rows[0])                reads
    first = rows[0]; first += 1             changes a part of it, in place
    y = torch.from_numpy(x); y.add_(1)      changes it: y is x's memory
    trim(rows)                              changes it, when the program's own trim does

Values are followed: through variables, containers, parameters, results, and everything that may be a view of the same memory. Functions
of libraries are taken to read what they are given, but for those known to do otherwise and for `out=` and names like `add_`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from splitter.changes import HELD, loads
from splitter.find import Found
from splitter.flow import reaching
from splitter.knowledge import MUTATING_FUNCTIONS, MUTATORS, PLAIN_METHODS, row
from splitter.read import Module
from splitter.resolve import Definition, Library, argument
from splitter.scopes import Binding

# Functions and methods whose result holds nothing of their arguments.
FRESH = frozenset(
    """
len int float str bool bytes abs round sum range ord chr repr format divmod pow isinstance issubclass callable hasattr any all print hash id
stack cat concat concatenate tensor mean std var median norm prod numel dim size item tolist clone argmax argmin argsort nonzero unique
equal allclose isclose count_nonzero bincount histogram quantile matmul dot einsum exp log sqrt sin cos tanh square sign floor ceil
zeros_like ones_like empty_like full_like randn_like rand_like array fromkeys join dumps dump save savez default_collate pad_sequence
deepcopy make_grid save_image shape dtype ndim device
""".split()
)
# Functions whose result is a view of an argument, or holds it.
VIEWS = frozenset(
    """
from_numpy as_tensor asarray asanyarray ascontiguousarray frombuffer memoryview reshape view squeeze unsqueeze transpose permute swapaxes
moveaxis flatten ravel narrow chunk split unbind detach atleast_1d atleast_2d atleast_3d broadcast_to expand expand_dims diagonal real imag
iter next enumerate zip list tuple set dict sorted reversed map filter min max getattr copy cast cycle islice chain tee partial Variable
default_convert pin_memory
""".split()
)
PLAIN_RESULTS = PLAIN_METHODS - {"get", "values", "items", "copy", "pop"}
TEXT_METHODS = frozenset("strip lstrip rstrip lower upper startswith endswith splitlines isdigit".split())
MOST = 400
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


Place = tuple[Module, ast.AST]


@dataclass(eq=False)
class _Follower:
    """Follows an object through the program, as far as MOST uses; going on beyond that counts as a change."""

    found: Found
    inside: frozenset[int]  # moved code, which is looked at elsewhere
    changes: list[Place] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    seen_attributes: set[str] = field(default_factory=set)
    seen_names: set[tuple[int, str]] = field(default_factory=set)

    def use(self, module: Module, use: ast.expr) -> None:
        """One expression that gives the object, or something of it."""
        if id(use) in self.seen or id(use) in self.inside:
            return
        self.seen.add(id(use))
        parent = module.names.parent_of[use]
        if len(self.seen) > MOST:
            self.changes.append((module, use))
            return
        match parent:
            case ast.keyword(arg=name):
                self._argument(module, module.names.parent_of[parent], use, name)
            case ast.Call(func=func) if func is not use:
                self._argument(module, parent, use, None)
            case ast.Attribute():
                self._attribute(module, parent)
            case ast.Subscript(value=base) if base is use:
                self._load(module, parent)
            case ast.NamedExpr(target=target):
                self.target(module, target)
                self.use(module, parent)
            case ast.IfExp(test=test) if test is use:
                pass
            case ast.Tuple(elts=parts) if (pair := _paired(module, parent, parts.index(use))) is not None:
                self.target(module, pair)
            case ast.IfExp() | ast.BoolOp() | ast.Starred() | ast.Tuple() | ast.List() | ast.Dict() | ast.Set() | ast.Await():
                self.use(module, parent)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self.use(module, parent)
            case ast.Assign(targets=targets):
                for target in targets:
                    self.target(module, target)
            case ast.AnnAssign(target=target) | ast.For(target=target) | ast.AsyncFor(target=target):
                self.target(module, target)
            case ast.comprehension(target=target, iter=source) if source is use:
                self.target(module, target)
            case ast.AugAssign(target=target) if target is use:
                self.changes.append((module, use))
            case ast.Return() | ast.Yield() | ast.YieldFrom():
                self._returned(module, parent)
            case ast.Lambda():
                for other, call in self.found.resolver.call_sites(parent):
                    self.use(other, call)

    def _load(self, module: Module, part: ast.Attribute | ast.Subscript) -> None:
        if isinstance(part.ctx, ast.Load):
            self.use(module, part)
        else:
            self.changes.append((module, part))

    def name(self, module: Module, name: ast.Name) -> None:
        """All that is done with a variable."""
        scope = module.names.scope_of[name].lookup(name.id)
        if scope is None or (id(scope), name.id) in self.seen_names:
            return
        self.seen_names.add((id(scope), name.id))
        owner = self.found.resolver.module(scope)
        for binding in scope.bindings[name.id]:
            if binding.kind == "augment" and id(binding.node) not in self.inside:
                self.changes.append((owner, binding.node))
            if binding.kind == "param":
                self._given(owner, binding)
            elif binding.kind in ("assign", "walrus") and binding.value is not None and not binding.path:
                self._same(owner, binding.value)
        for use in loads(module, name):
            self.use(module, use)

    def _bound(self, module: Module, target: ast.Name) -> None:
        """The uses that this binding of a variable reaches."""
        scope = module.names.scope_of[target].lookup(target.id)
        binders = (ast.stmt, ast.comprehension, ast.NamedExpr)
        statement = next((up for up in module.names.ancestors(target) if isinstance(up, binders)), None)
        for binding in scope.bindings[target.id] if scope is not None else ():
            if binding.kind == "augment" and id(binding.node) not in self.inside:
                self.changes.append((module, binding.node))
        for use in loads(module, target):
            if any(binding.node is statement for binding in reaching(use, use.id, module.names, scope)):
                self.use(module, use)

    def _same(self, module: Module, value: ast.expr) -> None:
        """Another name of the object: what is done under that one counts, too."""
        if isinstance(value, ast.Name):
            self.name(module, value)
        elif isinstance(value, ast.Attribute):
            self.target(module, value)
        elif isinstance(value, ast.Subscript):
            self._container(module, value.value)
        elif isinstance(value, ast.IfExp):
            self._same(module, value.body)
            self._same(module, value.orelse)

    def _given(self, module: Module, binding: Binding) -> None:
        """The arguments that a parameter may be."""
        function = next((up for up in module.names.ancestors(binding.node) if isinstance(up, FUNCTIONS)), None)
        if function is None:
            return
        bound = self.found.resolver.owner(module, function) is not None
        if bound and function.args.args[:1] == [binding.node]:
            return
        for other, call in self.found.resolver.call_sites(function):
            given = argument(call, function, binding.name, bound=bound)
            if given is not None:
                self._same(other, given)

    def target(self, module: Module, target: ast.expr) -> None:
        """What the object is given to."""
        match target:
            case ast.Name():
                self._bound(module, target)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self.target(module, part)
            case ast.Starred(value=part):
                self.target(module, part)
            case ast.Subscript(value=container):
                self._container(module, container)
            case ast.Attribute(value=ast.Name() as holder) if isinstance(target.ctx, ast.Store) and holder.id not in ("self", "cls"):
                self._container(module, holder)
            case ast.Attribute(attr=name) if name not in self.seen_attributes:
                self.seen_attributes.add(name)
                for other, node in self.found.program.mentions(name):
                    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and self._may_be(module, target, other, node):
                        self.use(other, node)

    def _may_be(self, module: Module, stored: ast.Attribute, other: Module, node: ast.Attribute) -> bool:
        """Whether two attributes of one name may be the same object's."""
        kinds, resolver = self.found.kinds, self.found.resolver
        owner, user = kinds.instance_of(module, stored.value), kinds.instance_of(other, node.value)
        if owner is not None and user is not None:
            return any(one.node is user.node for one in resolver.ancestry(owner)[1]) or any(
                one.node is owner.node for one in resolver.ancestry(user)[1]
            )
        return user is None and kinds.of(other, node.value) in ("unknown", "object", "dataset", "loader")

    def _attribute(self, module: Module, attribute: ast.Attribute) -> None:
        above = module.names.parent_of[attribute]
        if not (isinstance(above, ast.Call) and above.func is attribute):
            if attribute.attr not in FRESH or not isinstance(attribute.ctx, ast.Load):
                self._load(module, attribute)
            return
        name = attribute.attr
        own = self._method(module, attribute)
        if own is not None:
            self._parameter(own, 0)
            self.use(module, above)
        elif name in MUTATORS or name.endswith("_") or name.startswith("__") or _told(above) or self._for_effect(module, above, attribute):
            self.changes.append((module, attribute.value))
        elif name == "copy" and isinstance(copy := module.names.parent_of[above], ast.Assign):
            for target in copy.targets:
                self._container(module, target)  # what is put into the copy is not put into the original
        elif name not in FRESH and name not in PLAIN_RESULTS and not name.startswith("new_"):
            self.use(module, above)

    def _for_effect(self, module: Module, call: ast.Call, method: ast.Attribute) -> bool:
        """A call whose result nobody takes is made for what it changes: scaler.fit(x)."""
        held = self.found.kinds.of(module, method.value) in HELD
        return held and isinstance(module.names.parent_of[call], ast.Expr)

    def _method(self, module: Module, attribute: ast.Attribute) -> Definition | None:
        definition = self.found.kinds.instance_of(module, attribute.value)
        return self.found.resolver.method(definition, attribute.attr) if definition else None

    def _argument(self, module: Module, call: ast.AST, use: ast.expr, keyword: str | None) -> None:
        if not isinstance(call, ast.Call):
            return
        own = [target for target in self.found.resolver.targets(module, call.func) if isinstance(target, Definition)]
        if not own and isinstance(call.func, ast.Attribute):
            method = self._method(module, call.func)
            own = [method] if method else []
        for target in own:
            self._own(call, use, keyword, target)
        name = next((t.name for t in self.found.resolver.targets(module, call.func) if isinstance(t, Library)), None)
        if name is not None:
            self._library(module, call, use, keyword, name)
        elif not own and isinstance(call.func, ast.Attribute) and call.func.attr in MUTATORS:
            self._container(module, call.func.value)

    def _container(self, module: Module, container: ast.expr) -> None:
        """`parts.append(x)`: what is done with the parts, then; the container itself may be changed."""
        for use in loads(module, container) if isinstance(container, ast.Name) else ():
            parent = module.names.parent_of[use]
            filled = isinstance(parent, ast.Attribute) and parent.attr in MUTATORS
            if not filled and isinstance(getattr(parent, "ctx", None) or ast.Load(), ast.Load):
                self.use(module, use)

    def _library(self, module: Module, call: ast.Call, use: ast.expr, keyword: str | None, name: str) -> None:
        last = name.rpartition(".")[2]
        first = call.args[:1] == [use]
        unbound = name.startswith(("builtins.list.", "builtins.dict.", "builtins.set.", "torch.Tensor.")) and last in MUTATORS
        if keyword == "out" or _told(call) or (first and (name in MUTATING_FUNCTIONS or last.endswith("_") or unbound)):
            self.changes.append((module, use))
        elif last in VIEWS or row(name).gives == "argument":
            self.use(module, call)

    def _own(self, call: ast.Call, use: ast.expr, keyword: str | None, target: Definition) -> None:
        """A function or class of the program: what it does with the parameter."""
        bound = self.found.resolver.owner(target.module, target.node) is not None
        if isinstance(target.node, ast.ClassDef):
            if self.found.kinds.class_kind(target) in ("dataset", "model"):
                return  # what a dataset's code does is looked at where it runs
            init, bound = self.found.resolver.method(target, "__init__"), True
            if init is None:
                return
            target = init
        position = call.args.index(use) + bound if use in call.args else None
        self._parameter(target, keyword if keyword is not None else position)

    def _parameter(self, function: Definition, which: str | int | None) -> None:
        """A parameter of a function, by its name or place."""
        if isinstance(function.node, ast.ClassDef):
            return
        names = [arg.arg for arg in (*function.node.args.posonlyargs, *function.node.args.args, *function.node.args.kwonlyargs)]
        name = names[which] if isinstance(which, int) and which < len(names) else which
        if name not in names:
            rest = function.node.args.vararg or function.node.args.kwarg
            name = rest.arg if rest else None
        scope = function.module.names.inner[function.node]
        for node in ast.walk(function.node) if name is not None else ():
            if isinstance(node, ast.Name) and node.id == name and function.module.names.scope_of[node].lookup(name) is scope:
                if isinstance(node.ctx, ast.Load):
                    self.use(function.module, node)
                elif isinstance(function.module.names.parent_of[node], ast.AugAssign):
                    self.changes.append((function.module, node))

    def _returned(self, module: Module, statement: ast.AST) -> None:
        function = next((up for up in module.names.ancestors(statement) if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef))), None)
        if function is not None:
            for other, call in self.found.resolver.call_sites(function):
                self.use(other, call)


def _paired(module: Module, values: ast.Tuple, place: int) -> ast.expr | None:
    """The target of `a, b = x, y` that a value is given to."""
    above = module.names.parent_of[values]
    target = above.targets[0] if isinstance(above, ast.Assign) and len(above.targets) == 1 else None
    if isinstance(target, ast.Tuple) and len(target.elts) == len(values.elts):
        return target.elts[place]
    return None


def _told(call: ast.Call) -> bool:
    """`inplace=True`, `out=x`: the call itself says that it changes something."""
    return any(
        keyword.arg == "inplace" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True for keyword in call.keywords
    )


def _text(found: Found, module: Module, name: ast.Name) -> bool:
    """Whether a variable is used as a path or another text somewhere: then nothing can change it."""
    for use in loads(module, name):
        parent = module.names.parent_of[use]
        if isinstance(parent, ast.Call) and use in parent.args:
            if (found.resolver.library(module, parent.func) or "").startswith(("os.path.", "pathlib.", "builtins.open")):
                return True
        if isinstance(parent, ast.Attribute) and parent.attr in TEXT_METHODS and isinstance(module.names.parent_of[parent], ast.Call):
            return True
    return False


def changed(found: Found, module: Module, name: ast.Name, inside: Iterable[int] = ()) -> list[Place]:
    """The places that may change the object that a variable names; `inside` is code that is moved."""
    if _text(found, module, name):
        return []
    follower = _Follower(found, frozenset(inside))
    follower.name(module, name)
    return follower.changes


def changed_at(found: Found, module: Module, attribute: ast.Attribute) -> list[Place]:
    """The places that may change the object that an attribute names, anywhere in the program."""
    follower = _Follower(found, frozenset())
    follower.target(module, attribute)
    return follower.changes


def changed_from(found: Found, module: Module, expr: ast.expr) -> list[Place]:
    """The places that may change the object that an expression gives."""
    follower = _Follower(found, frozenset())
    follower.use(module, expr)
    return follower.changes
