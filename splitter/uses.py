"""What the trainer does with a dataset after it was made.

    data = Photos(dir)            the dataset flows into `data`
    n = len(data)                 length           can be asked of a worker
    data.set_epoch(3)             call             can be sent
    show(data.transform)          object           the trainer needs the object itself
    data.samples.append(x)        change           can't be sent: S304

The flow goes forward: through variables, containers, attributes, parameters and results of the program's own functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from splitter.changes import loads
from splitter.drivers import drives, handed_back
from splitter.find import Found
from splitter.flow import reaching
from splitter.kinds import SENDABLE
from splitter.knowledge import ITERATES, WRAPPERS, row
from splitter.loader_classes import is_super
from splitter.origins import Tracer
from splitter.read import Module
from splitter.resolve import Definition, Value
from splitter.scopes import Scope
from splitter.sites import Site
from splitter.touches import BUILTINS, UseKind, attribute, builtin, sample

LOOKING = frozenset(
    f"builtins.{name}" for name in ("len", "iter", "enumerate", "zip", "list", "tuple", "reversed", "next", "bool", "map")
) | {"tqdm.tqdm", "tqdm.auto.tqdm"}
PROCESSES = ("multiprocessing.", "torch.multiprocessing.", "concurrent.futures.", "joblib.", "ray.")
STARTS = frozenset({"Process", "apply_async", "starmap", "submit"})
INERT = frozenset({"builtins.id"})


@dataclass(frozen=True, eq=False)
class Use:
    """One thing that the program does with a dataset. `site` is set for loaders."""

    kind: UseKind
    module: Module
    node: ast.AST
    what: str
    site: Site | None = None


@dataclass(eq=False)
class Walk:
    """One forward walk from an expression; `done` stops loops."""

    found: Found
    skip: frozenset[int]
    uses: list[Use] = field(default_factory=list)
    done: set[tuple[int, str]] = field(default_factory=set)
    loaders: list[tuple[Module, ast.expr]] = field(default_factory=list)
    containers: list[tuple[Module, ast.expr]] = field(default_factory=list)  # of loaders
    origin_class: Definition | None = None

    def add(self, kind: UseKind, module: Module, node: ast.AST, site: Site | None = None) -> None:
        self.uses.append(Use(kind, module, node, f"`{module.text(module.names.statement(node) if kind == 'change' else node)}`", site))

    def dataset(self, module: Module, expr: ast.expr, what: str = "dataset") -> None:
        """Follow the value of `expr`: the dataset, or ("wrapped") torch's own Subset or ConcatDataset around it."""
        if (id(expr), what) in self.done:
            return
        self.done.add((id(expr), what))
        parent = module.names.parent_of[expr]
        match parent:
            case ast.Attribute() if what == "wrapped":
                if parent.attr in ("dataset", "datasets"):
                    self._follow(module, parent, "dataset" if parent.attr == "dataset" else "container of dataset", ())
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
                targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
                for target in targets:
                    self._target(module, target, what)
                if isinstance(parent, ast.NamedExpr):
                    self.dataset(module, parent, what)
            case ast.IfExp() | ast.BoolOp() if not (isinstance(parent, ast.IfExp) and parent.test is expr):
                self.dataset(module, parent, what)
            case ast.BinOp(op=ast.Add()):
                self.add("wrap", module, parent)
                self.dataset(module, parent, "wrapped")
            case ast.keyword() | ast.Call():
                call = module.names.parent_of[parent] if isinstance(parent, ast.keyword) else parent
                self._argument(module, call, expr, what)
            case ast.Attribute():
                kind, node = attribute(self.found, module, parent, self.origin_class)
                self.add(kind, module, node)
            case ast.Subscript() if parent.value is expr:
                self.add(sample(self.found, module, parent), module, parent)
            case ast.For() | ast.AsyncFor() | ast.comprehension() if parent.iter is expr:
                self.add("iterate", module, expr)
            case ast.Return():
                self._returned(module, parent, what, ())
            case ast.Lambda():
                for site_module, call in self.found.resolver.call_sites(parent):
                    self.dataset(site_module, call, what)
            case ast.Tuple() | ast.List() | ast.Dict() | ast.ListComp() | ast.GeneratorExp() | ast.DictComp() | ast.Set():
                path = (parent.elts.index(expr),) if isinstance(parent, (ast.Tuple, ast.List)) else ()
                self.container(module, parent, path, what)
            case ast.Compare() | ast.If() | ast.While() | ast.Assert() | ast.UnaryOp() | ast.Expr() | ast.IfExp() | ast.Delete():
                pass
            case _ if what == "dataset":
                self.add("object", module, expr)

    def container(self, module: Module, expr: ast.expr, path: tuple[int, ...], inner: str) -> None:
        """Follow a list, tuple or dict that holds the dataset or loader (at place `path[0]`, when that is known)."""
        if (id(expr), f"{inner} in {path}") in self.done:
            return
        self.done.add((id(expr), f"{inner} in {path}"))
        self.containers += [(module, expr)] if inner == "loader" else []
        parent = module.names.parent_of[expr]
        match parent:
            case ast.Assign(targets=targets):
                for target in targets:
                    if isinstance(target, (ast.Tuple, ast.List)):
                        for part in target.elts[path[0] : path[0] + 1] if path else target.elts:
                            self._target(module, part, inner)
                    else:
                        self._target(module, target, f"container of {inner}", path)
            case ast.Subscript(slice=key) if parent.value is expr:
                if not path or not isinstance(key, ast.Constant) or not isinstance(key.value, int) or key.value == path[0]:
                    self._follow(module, parent, inner, ())
            case ast.Attribute(attr="items" | "values" | "get"):
                call = module.names.parent_of[parent]
                if isinstance(call, ast.Call):
                    self.container(module, call, (), inner)
            case ast.For() | ast.AsyncFor() | ast.comprehension() if parent.iter is expr:
                for name in ast.walk(parent.target):
                    if isinstance(name, ast.Name):
                        self._loads(module, name, inner, ())
            case ast.Return():
                self._returned(module, parent, f"container of {inner}", path)
            case ast.Call() | ast.keyword():
                call = module.names.parent_of[parent] if isinstance(parent, ast.keyword) else parent
                if not isinstance(call, ast.Call):
                    return
                called = self.found.resolver.library(module, call.func)
                site = next((site for site in self.found.sites if site.call is call), None)
                if site is not None and inner in ("dataset", "wrapped"):  # DataLoader(**options)
                    self._site(module, call, site)
                elif called in WRAPPERS:
                    self.add("wrap", module, call)
                    self.dataset(module, call, "wrapped")
                elif called is not None and row(called).gives == "argument":
                    self.container(module, call, (), inner)
                elif (called or "").startswith(PROCESSES) or (isinstance(call.func, ast.Attribute) and call.func.attr in STARTS):
                    self.add("handed" if inner == "loader" else "change", module, call)  # a handle is of no use in another process
                else:
                    self._parameters(module, call, expr, f"container of {inner}", path)
            case ast.Tuple() | ast.List() | ast.Dict() | ast.DictComp() | ast.ListComp() | ast.IfExp():
                self.container(module, parent, (), inner)

    def loader(self, module: Module, expr: ast.expr) -> None:
        """Follow a loader, for what is done to `loader.dataset` and its other attributes."""
        if (id(expr), "loader") in self.done:
            return
        self.done.add((id(expr), "loader"))
        self.loaders.append((module, expr))
        parent = module.names.parent_of[expr]
        match parent:
            case ast.Assign(targets=targets):
                for target in targets:
                    self._target(module, target, "loader")
            case ast.Attribute(attr="dataset"):
                if isinstance(parent.ctx, ast.Load):
                    self.dataset(module, parent)
                else:
                    self.add("change", module, parent)
            case ast.Attribute(attr="collate_fn" | "worker_init_fn" | "num_workers") if not isinstance(parent.ctx, ast.Load):
                self.add("change", module, parent)
            case ast.Return():
                self._returned(module, parent, "loader", ())
            case ast.Tuple() | ast.List() | ast.Dict() | ast.DictComp() | ast.ListComp():
                path = (parent.elts.index(expr),) if isinstance(parent, (ast.Tuple, ast.List)) else ()
                self.container(module, parent, path, "loader")
            case ast.Call() | ast.keyword():
                call = module.names.parent_of[parent] if isinstance(parent, ast.keyword) else parent
                if isinstance(call, ast.Call) and drives(self.found.kinds, module, call):
                    self._handed_back(module, call, expr)
                elif (
                    isinstance(call, ast.Call)
                    and not (isinstance(call.func, ast.Attribute) and call.func.attr == "__init__")
                    and not self._iterates(module, call)
                    and not self._parameters(module, call, expr, "loader", ())
                ):
                    self.add("handed", module, call)
            case ast.IfExp():
                self.loader(module, parent)

    def _handed_back(self, module: Module, call: ast.Call, expr: ast.expr) -> None:
        """Follow a loader through a call of the library that drives the training."""
        place = handed_back(call, expr)
        if place == ():
            self.loader(module, call)
        elif place is not None:
            self.container(module, call, place, "loader")

    def _iterates(self, module: Module, call: ast.Call) -> bool:
        """A library call that iterates over a loader, or asks its length, and no more."""
        name = self.found.resolver.library(module, call.func) or ""
        return name.startswith(ITERATES) or name.startswith("torch.") or row(name).gives == "argument"

    def _follow(self, module: Module, expr: ast.expr, what: str, path: tuple[int, ...]) -> None:
        if what == "loader":
            self.loader(module, expr)
        elif what.startswith("container of "):
            self.container(module, expr, path, what.removeprefix("container of "))
        else:
            self.dataset(module, expr, what)

    def _target(self, module: Module, target: ast.expr, what: str, path: tuple[int, ...] = ()) -> None:
        if isinstance(target, ast.Name):
            self._loads(module, target, what, path)
        elif isinstance(target, ast.Attribute):
            self._members(module, target, what, path)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, (ast.Name, ast.Attribute)):
            for use in self._same(module, target.value):
                self._follow(module, use, what if what.startswith("container") else f"container of {what}", ())
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._target(module, part, what)

    def _same(self, module: Module, expr: ast.expr) -> Iterator[ast.expr]:
        """Other loads of a variable or attribute, for containers that are filled item by item."""
        if isinstance(expr, ast.Name):
            yield from loads(module, expr)
        else:
            text = ast.unparse(expr)
            yield from (
                node for node in ast.walk(module.tree) if isinstance(node, ast.Attribute) and node is not expr and ast.unparse(node) == text
            )

    def _loads(self, module: Module, target: ast.Name, what: str, path: tuple[int, ...]) -> None:
        for use_module, use in reads(self.found, module, target):
            if id(use) not in self.skip:
                self._follow(use_module, use, what, path)

    def _members(self, module: Module, target: ast.Attribute, what: str, path: tuple[int, ...]) -> None:
        for other, node in self.found.program.mentions(target.attr):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in self.skip:
                owner, user = self.found.kinds.instance_of(module, target.value), self.found.kinds.instance_of(other, node.value)
                if (
                    owner is None
                    or user is None
                    or owner.node is user.node
                    or owner.node in [a.node for a in self.found.resolver.ancestry(user)[1]]
                ):
                    self._follow(other, node, what, path)

    def _returned(self, module: Module, node: ast.AST, what: str, path: tuple[int, ...]) -> None:
        function = next(
            (up for up in module.names.ancestors(node) if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))), None
        )
        if function is None:
            return
        for site_module, call in self.found.resolver.call_sites(function):
            self._follow(site_module, call, what, path)

    def _argument(self, module: Module, call: ast.AST, expr: ast.expr, what: str) -> None:
        if not isinstance(call, ast.Call):
            self.add("object", module, expr)
            return
        site = next((site for site in self.found.sites if site.call is call), None)
        if site is not None and expr in site.options.get("dataset", ()):
            self._site(module, call, site)
            if site.passes:
                self._parameters(module, call, expr, what, ())
            return
        if any(id(call) in site.passes for site in self.found.sites):
            return
        name = self.found.resolver.library(module, call.func)
        if name is not None and row(name).gives == "sampler":
            self.add("sampler", module, call)
        elif name in WRAPPERS:
            self.add("wrap", module, call)
            if name.endswith("random_split"):
                self.container(module, call, (), "wrapped")
            else:
                self.dataset(module, call, "wrapped")
        elif name == "builtins.len":
            self.add("length", module, call)
        elif name in BUILTINS:
            self.add(builtin(self.found, module, call, name), module, call)
        elif name in LOOKING:
            self.add("iterate", module, call)
        elif name in INERT or (name == "builtins.hasattr"):
            self.add("read", module, call)
        elif site is not None or not self._parameters(module, call, expr, what, ()):
            if what == "dataset":
                self.add("object", module, call)
            elif name == "copy.deepcopy":
                self.add("change", module, call)

    def _site(self, module: Module, call: ast.Call, site: Site) -> None:
        self.add("loader", module, call, site)
        self.loader(module, call)
        for place in site.also:
            self.loader(place.module, place.expr)

    def _parameters(self, module: Module, call: ast.Call, expr: ast.expr, what: str, path: tuple[int, ...]) -> bool:
        """Follow an argument into the functions that the call may run; False when none of them is the program's own."""
        functions = []
        for target in self.found.resolver.targets(module, call.func):
            if isinstance(target, Definition) and isinstance(target.node, ast.ClassDef):
                init = self.found.resolver.method(target, "__init__")
                functions += [(init, True)] if init else []
            elif isinstance(target, Definition):
                functions.append((target, self.found.resolver.owner(target.module, target.node) is not None))
        if isinstance(call.func, ast.Attribute) and is_super(self.found.resolver, module, call.func.value):
            functions += [(method, True) for method in self.found.resolver.inherited(module, call, call.func.attr)]
        elif not functions and isinstance(call.func, ast.Attribute):
            instance = self.found.kinds.instance_of(module, call.func.value)
            method = self.found.resolver.method(instance, call.func.attr) if instance else None
            methods = [method] if method else [] if instance else self.found.resolver.methods_named(call.func.attr)
            functions += [(method, True) for method in methods]
        for function, bound in functions:
            if isinstance(function.node, ast.ClassDef):
                continue
            names = [arg.arg for arg in function.node.args.args][1 if bound else 0 :]
            keyword = next((k.arg for k in call.keywords if k.value is expr), None)
            name = keyword or (names[call.args.index(expr)] if expr in call.args and call.args.index(expr) < len(names) else None)
            if name is None or function.node not in function.module.names.inner:
                return False
            scope = function.module.names.inner[function.node]
            for node in ast.walk(function.node):
                if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and id(node) not in self.skip:
                    if function.module.names.scope_of[node].lookup(name) is scope:
                        self._follow(function.module, node, what, path)
        return bool(functions)


def reads(found: Found, module: Module, target: ast.Name) -> Iterator[tuple[Module, ast.expr]]:
    """Loads that this binding of the name can reach, in other modules too when the name is a module's."""
    scope: Scope | None = module.names.scope_of[target].lookup(target.id)
    statement = next(
        (up for up in [target, *module.names.ancestors(target)] if isinstance(up, (ast.stmt, ast.comprehension, ast.NamedExpr))), target
    )
    for use in loads(module, target):
        if any(binding.node is statement for binding in reaching(use, use.id, module.names, scope)):
            yield module, use
    if scope is not None and scope.kind == "module":
        for other, node in found.program.mentions(target.id):
            if other is not module and isinstance(node.ctx, ast.Load):
                for value in found.resolver.targets(other, node):
                    if isinstance(value, Value) and value.binding.node is statement and value.binding.name == target.id:
                        yield other, node


def uses(found: Found, module: Module, expr: ast.expr, skip: frozenset[int]) -> list[Use]:
    """Everything that the program does with the dataset that `expr` creates; nodes whose id is in `skip` are moved code."""
    walk = Walk(found, skip)
    walk.origin_class = found.kinds.instance_of(module, expr)
    walk.dataset(module, expr)
    for other, node in found.program.mentions("dataset"):
        # `x.dataset` where x can't be followed may be a loader's dataset: better one use too many
        if isinstance(node, ast.Attribute) and id(node) not in skip and isinstance(node.ctx, ast.Load):
            if (
                found.kinds.of(other, node.value) in ("unknown", "loader")
                and not any(key[0] == id(node) for key in walk.done)
                and _strange(found, other, node)
            ):
                walk.dataset(other, node)
    return walk.uses


def _strange(found: Found, module: Module, node: ast.Attribute) -> bool:
    """Whether `x.dataset` belongs to no loader, wrapper or attribute that the program shows."""
    tracer = Tracer(found.resolver, found.kinds, {id(site.call): site for site in found.sites})
    return (
        not list(tracer.loader_sites(module, node.value, frozenset()))
        and found.kinds.of(module, node) not in SENDABLE
        and isinstance(node.value, ast.Name)
    )
