"""What sort of value an expression gives, as far as the text tells.

plain      numbers, strings, None, and containers of them       sent as they are
tensor     tensors and arrays                                    sent as they are
namespace  parsed arguments: its attributes are plain            sent attribute by attribute
model      a torch.nn.Module that is not a transform; parameter  never sent
dataset loader sampler rng parser object function class          live objects
unknown    the text doesn't tell
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from splitter.flow import reaching
from splitter.knowledge import DATASET_BASES, DATASET_METHODS, LOADERS, MODEL_BASES, PLAIN_METHODS, TENSOR_METHODS, row
from splitter.read import Module
from splitter.resolve import Definition, Library, LocalModule, Resolver, Value, argument, default
from splitter.scopes import Binding

SENDABLE = frozenset({"plain", "tensor"})
_WORST = "parameter model dataset object rng loader driver function class parser sampler unknown".split()
_DEPTH = 25


class Kinds:
    """Answers `of(module, expr)`, with a memory."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self._memory: dict[int, str] = {}

    def of(self, module: Module, expr: ast.expr, depth: int = 0) -> str:
        """The kind of an expression's value."""
        if depth > _DEPTH:
            return "unknown"
        if id(expr) not in self._memory:
            self._memory[id(expr)] = "unknown"
            self._memory[id(expr)] = self._of(module, expr, depth + 1)
        return self._memory[id(expr)]

    def _of(self, module: Module, expr: ast.expr, depth: int) -> str:
        match expr:
            case ast.Constant() | ast.JoinedStr() | ast.Compare(ops=[ast.In() | ast.NotIn() | ast.Is() | ast.IsNot()]):
                return "plain"
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return self._join((self.of(module, part, depth) for part in parts), empty="plain")
            case ast.Dict(values=parts):
                return self._join((self.of(module, part, depth) for part in parts), empty="plain")
            case ast.ListComp(elt=part) | ast.SetComp(elt=part) | ast.GeneratorExp(elt=part) | ast.DictComp(value=part):
                return self.of(module, part, depth)
            case ast.BinOp(left=left, right=right):
                return self._join([self.of(module, left, depth), self.of(module, right, depth)])
            case ast.BoolOp(values=parts):
                return self._join(self.of(module, part, depth) for part in parts)
            case ast.Compare(left=left, comparators=rest):
                return self._join(self.of(module, part, depth) for part in [left, *rest])
            case ast.UnaryOp(operand=part) | ast.Starred(value=part) | ast.NamedExpr(value=part) | ast.Await(value=part):
                return self.of(module, part, depth)
            case ast.IfExp(body=body, orelse=orelse):
                return self._join([self.of(module, body, depth), self.of(module, orelse, depth)])
            case ast.Lambda():
                return "function"
            case ast.Subscript(value=base):
                return self._element(self.of(module, base, depth))
            case ast.Name():
                return self._name(module, expr, depth)
            case ast.Attribute():
                return self._attribute(module, expr, depth)
            case ast.Call():
                return self._call(module, expr, depth)
        return "unknown"

    @staticmethod
    def _element(kind: str) -> str:
        return "plain" if kind == "namespace" else kind

    @staticmethod
    def _join(kinds: Iterable[str], empty: str = "unknown") -> str:
        """The kind of a mixture: sendable kinds join to `tensor`, anything else to the least welcome of them."""
        found = set(kinds)
        if not found:
            return empty
        if len(found) == 1:
            return found.pop()
        if found <= SENDABLE:
            return "tensor"
        return next((kind for kind in _WORST if kind in found), "unknown")

    def _name(self, module: Module, expr: ast.Name, depth: int) -> str:
        kinds = []
        scope = module.names.scope_of[expr].lookup(expr.id)
        if scope is None:
            target = self.resolver.target(module, expr)
            return self.of_target(target, depth) if target else "unknown"
        owner = self.resolver.module(scope)
        for binding in reaching(expr, expr.id, module.names, scope):
            kinds.append(self.of_binding(owner, binding, depth))
        return self._join(kinds)

    def of_target(self, target: object, depth: int) -> str:
        match target:
            case Library(name=name):
                return row(name).gives or "unknown"
            case Definition(node=ast.ClassDef()):
                return "class"
            case Definition():
                return "function"
            case Value(module=module, binding=binding):
                return self.of_binding(module, binding, depth)
            case LocalModule():
                return "module"
        return "unknown"

    def of_binding(self, module: Module, binding: Binding, depth: int = 0) -> str:
        """The kind of what a binding gives its name."""
        if depth > _DEPTH:
            return "unknown"
        if binding.kind in ("assign", "walrus", "for", "comp", "with") and binding.value is not None:
            value = binding.value
            if binding.path and isinstance(value, (ast.Tuple, ast.List)) and len(binding.path) == 1 and binding.path[0] < len(value.elts):
                return self.of(module, value.elts[binding.path[0]], depth + 1)
            kind = self._unpacked(module, value, binding, depth)
            return self._element(kind) if binding.kind in ("for", "comp") else kind
        if binding.kind == "augment":
            node = binding.node
            return self.of(module, node.value, depth + 1) if isinstance(node, ast.AugAssign) else "unknown"
        if binding.kind == "param":
            return self._parameter(module, binding, depth)
        if binding.kind in ("def", "class", "import"):
            return self.of_target(next(iter(self.resolver.of_binding(module, binding)), None), depth)
        return "unknown"

    def _unpacked(self, module: Module, value: ast.expr, binding: Binding, depth: int) -> str:
        if binding.path and isinstance(value, ast.Call):
            definition = self.resolver.definition(module, value.func)
            if definition is not None and not isinstance(definition.node, ast.ClassDef):
                kinds = []
                for result in returned(definition.node):
                    if isinstance(result, ast.Tuple) and binding.path[0] < len(result.elts):
                        kinds.append(self.of(definition.module, result.elts[binding.path[0]], depth + 1))
                    else:
                        kinds.append("unknown")
                return self._join(kinds)
        return self.of(module, value, depth + 1)

    def _parameter(self, module: Module, binding: Binding, depth: int) -> str:
        arg = binding.node
        function = next(
            (up for up in module.names.ancestors(arg) if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))), None
        )
        if function is None:
            return "unknown"
        owner = self.resolver.owner(module, function)
        if owner is not None and function.args.args and function.args.args[0] is arg:
            return "self"
        if arg in (function.args.vararg, function.args.kwarg):
            return "unknown"
        kinds = []
        sites = self.resolver.call_sites(function)
        for site_module, call in sites:
            given = argument(call, function, binding.name, bound=owner is not None)
            if given is not None:
                kinds.append(self.of(site_module, given, depth + 1))
            elif (fallback := default(function, binding.name)) is not None:
                kinds.append(self.of(module, fallback, depth + 1))
            else:
                kinds.append("unknown")
        for site_module, escaped in self.resolver.escapes(function):
            kinds.append(self._handed_over(site_module, escaped, binding.name, function, depth))
        return self._join(kinds)

    def _handed_over(self, module: Module, escaped: ast.expr, name: str, function: ast.AST, depth: int) -> str:
        """The kind of an argument of a function that is started by another: mp.spawn(main_worker, args=(a, b))."""
        call = module.names.parent_of.get(escaped)
        if not isinstance(call, ast.Call) or isinstance(function, ast.Lambda):
            return "unknown"
        names = [arg.arg for arg in function.args.args]  # type: ignore[attr-defined]
        for keyword in call.keywords:
            if keyword.arg == "args" and isinstance(keyword.value, (ast.Tuple, ast.List)):
                offset = 1 if (self.resolver.library(module, call.func) or "").endswith("spawn") else 0
                index = names.index(name) - offset if name in names else -1
                if index == -1 and offset:
                    return "plain"
                if 0 <= index < len(keyword.value.elts):
                    return self.of(module, keyword.value.elts[index], depth + 1)
        return "unknown"

    def _attribute(self, module: Module, expr: ast.Attribute, depth: int) -> str:
        target = self.resolver.target(module, expr)
        if target is not None:
            return self.of_target(target, depth)
        base = self.of(module, expr.value, depth)
        if base == "namespace":
            return self._stored(module, expr, depth)
        if base in SENDABLE:
            return "plain" if expr.attr in ("shape", "ndim", "dtype", "name", "stem", "suffix") else base
        definition = self.instance_of(module, expr.value, depth)
        return self.member_kind(definition, expr.attr, depth) if definition else "unknown"

    def _stored(self, module: Module, expr: ast.Attribute, depth: int) -> str:
        """An attribute of parsed arguments is plain, unless the script stores something else there (args.model = Net())."""
        kinds = {"plain"}
        for other, store in self.resolver.program.mentions(expr.attr) if depth < 8 else ():
            node = other.names.parent_of.get(store)
            if isinstance(store, ast.Attribute) and isinstance(node, ast.Assign) and store in node.targets:
                if self.of(other, store.value, depth + 1) == "namespace":
                    kinds.add(self.of(other, node.value, depth + 1))
        kinds.discard("unknown")
        return self._join(kinds)

    def member_kind(self, definition: Definition, name: str, depth: int = 0) -> str:
        """The kind of `self.name` of a local class, from the assignments in its body and methods."""
        kinds = []
        for owner in self.resolver.ancestry(definition)[1]:
            for node in ast.walk(owner.node):
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    for target in targets:
                        kinds += self._member_in(owner, target, node.value, name, depth)
                elif isinstance(node, ast.FunctionDef) and node.name == name and self.resolver.owner(owner.module, node):
                    kinds.append(
                        self._join(self.of(owner.module, r, depth + 1) for r in returned(node))
                        if any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)
                        else "function"
                    )
        return self._join(kinds)

    def _member_in(self, owner: Definition, target: ast.expr, value: ast.expr, name: str, depth: int) -> list[str]:
        if isinstance(target, ast.Attribute) and target.attr == name and isinstance(target.value, ast.Name):
            return [self.of(owner.module, value, depth + 1)]
        if isinstance(target, ast.Name) and target.id == name and owner.module.names.scope_of[target].node is owner.node:
            return [self.of(owner.module, value, depth + 1)]
        if isinstance(target, ast.Tuple):
            values = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else [value] * len(target.elts)
            return [
                kind for part, given in zip(target.elts, values, strict=True) for kind in self._member_in(owner, part, given, name, depth)
            ]
        return []

    def instance_of(self, module: Module, expr: ast.expr, depth: int = 0) -> Definition | None:
        """The local class of which `expr` is an instance, when the text tells."""
        if depth > _DEPTH:
            return None
        if isinstance(expr, ast.Call):
            definition = self.resolver.definition(module, expr.func)
            if definition is None:
                return None
            if isinstance(definition.node, ast.ClassDef):
                return definition
            results = returned(definition.node)
            return self.instance_of(definition.module, results[0], depth + 1) if len(results) == 1 else None
        if isinstance(expr, ast.Name):
            scope = module.names.scope_of[expr].lookup(expr.id)
            if scope is None:
                return None
            found = reaching(expr, expr.id, module.names, scope)
            if len(found) == 1 and found[0].kind == "param":
                function = module.names.parent_of.get(module.names.parent_of[found[0].node])
                if function is not None and function.args.args[:1] == [found[0].node]:  # type: ignore[attr-defined]
                    return self.resolver.owner(module, function)
                return None
            if len(found) == 1 and found[0].value is not None and not found[0].path and found[0].kind == "assign":
                return self.instance_of(self.resolver.module(scope), found[0].value, depth + 1)
        return None

    def _call(self, module: Module, call: ast.Call, depth: int) -> str:
        for target in self.resolver.targets(module, call.func):
            if isinstance(target, Library):
                return self._library_call(module, call, target.name, depth)
            if isinstance(target, Definition):
                if isinstance(target.node, ast.ClassDef):
                    return self.class_kind(target)
                return self._join(self.of(target.module, r, depth + 1) for r in returned(target.node)) if returned(target.node) else "plain"
        if not isinstance(call.func, ast.Attribute):
            return "unknown"
        return self._method_call(module, call.func, depth)

    def _library_call(self, module: Module, call: ast.Call, name: str, depth: int) -> str:
        gives = row(name).gives
        if gives == "argument":
            return self._join((self.of(module, arg, depth) for arg in call.args), empty="plain")
        if name == "builtins.getattr" and call.args:
            return "plain" if self.of(module, call.args[0], depth) == "namespace" else "unknown"
        return gives or "unknown"

    def _method_call(self, module: Module, func: ast.Attribute, depth: int) -> str:
        base = self.of(module, func.value, depth)
        if base == "parser":
            return {"parse_args": "namespace", "parse_known_args": "namespace"}.get(func.attr, "object")
        if base == "namespace":
            return "plain"
        if base in SENDABLE:
            if func.attr in ("item", "tolist", "size", "numel", "dim"):
                return "plain"
            return base
        if base == "rng":
            return "rng" if func.attr == "manual_seed" else "tensor"
        if base in ("model", "parameter"):
            return "model" if func.attr in ("to", "cuda", "cpu", "eval", "train", "half") else "unknown"
        if func.attr in PLAIN_METHODS and base == "unknown":
            return "plain" if func.attr not in ("get", "copy", "values", "items") else "unknown"
        if func.attr in TENSOR_METHODS and base == "unknown":
            return "unknown"
        definition = self.instance_of(module, func.value, depth)
        if base == "dataset" and definition is None and func.attr in DATASET_METHODS:
            return "dataset"
        method = self.resolver.method(definition, func.attr) if definition else None
        if method is not None:
            results = returned(method.node)
            return self._join((self.of(method.module, r, depth + 1) for r in results), empty="plain")
        return "unknown"

    def class_kind(self, definition: Definition) -> str:
        """dataset, loader, model or object: the kind of a local class's instances."""
        libraries, _ = self.resolver.ancestry(definition)
        if libraries & LOADERS:
            return "loader"
        if libraries & DATASET_BASES or any(name.startswith("torchvision.datasets") for name in libraries):
            return "dataset"
        if libraries & MODEL_BASES or any(row(name).gives == "model" for name in libraries):
            return "model" if _has_parameters(definition, self.resolver) else "object"
        if self.resolver.method(definition, "__getitem__") and self.resolver.method(definition, "__len__"):
            return "dataset"
        return "object"


def _has_parameters(definition: Definition, resolver: Resolver) -> bool:
    """A Module whose text makes no layer and no parameter is a function in disguise (a transform)."""
    for owner in resolver.ancestry(definition)[1]:
        for node in ast.walk(owner.node):
            if isinstance(node, ast.Call):
                name = resolver.library(owner.module, node.func) or ""
                if row(name).gives in ("model", "parameter"):
                    return True
                inner = resolver.definition(owner.module, node.func)
                if inner is not None and isinstance(inner.node, ast.ClassDef) and inner.node is not owner.node:
                    if resolver.ancestry(inner)[0] & MODEL_BASES and _has_parameters(inner, resolver):
                        return True
    return False


def returned(function: ast.AST) -> list[ast.expr]:
    """The expressions that a function returns, those of functions inside it left out."""
    if isinstance(function, ast.Lambda):
        return [function.body]
    found: list[ast.expr] = []
    stack: list[ast.AST] = list(getattr(function, "body", []))
    while stack:
        node = stack.pop(0)
        if isinstance(node, ast.Return):
            found += [node.value] if node.value is not None else []
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            stack = [*ast.iter_child_nodes(node), *stack]
    return found
