"""Who changes a module's global, and when.

REGISTRY = {}                        made here
def register(f): REGISTRY[f] = f     changed by this function ...
@register                            ... which this top-level statement runs
def crop(x): ...
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from splitter.effects import Effects
from splitter.find import Found
from splitter.read import Module
from splitter.resolve import LocalModule, Value


class Writers:
    """Finds the places that change a global, and the top-level statements that run them."""

    def __init__(self, found: Found, effects: Effects) -> None:
        self.found = found
        self.effects = effects

    def of(self, module: Module, name: str) -> Iterator[tuple[Module, ast.AST]]:
        """Every place that changes a global other than by binding it at the top level."""
        for other, mention in self.found.program.mentions(name):
            if isinstance(mention, ast.Attribute):
                if isinstance(mention.ctx, ast.Store) and any(
                    isinstance(t, LocalModule) and t.module is module for t in self.found.resolver.targets(other, mention.value)
                ):
                    yield other, mention
                continue
            for up in (mention, *other.names.ancestors(mention)):
                for fact in self.effects.at(other, up):
                    if (
                        fact.effect == "writes-global"
                        and fact.what == mention.id
                        and self._means(other, fact.node, fact.what, module, name)
                        and not self.dead(other, fact.node)
                    ):
                        yield other, fact.node
                if isinstance(up, ast.stmt):
                    break

    def dead(self, module: Module, node: ast.AST, depth: int = 0) -> bool:
        """Code of a top-level function that nothing in the program names, but for others like it."""
        function = next((up for up in module.names.ancestors(node) if module.names.parent_of.get(up) is module.tree), None)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or function.decorator_list or self._spoken(function.name):
            return False
        callers = [*self.found.resolver.call_sites(function), *self.found.resolver.escapes(function)]
        return depth < 5 and all(
            any(up is function for up in other.names.ancestors(call)) or self.dead(other, call, depth + 1) for other, call in callers
        )

    def _spoken(self, name: str) -> bool:
        """Whether a string of the program is the name of a function: it may be looked up by that, unless `__all__` lists it."""
        for module in self.found.program.containing(name):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Constant) and node.value == name:
                    statement = module.names.statement(node)
                    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
                    if not (isinstance(target, ast.Name) and target.id == "__all__"):
                        return True
        return False

    def _means(self, other: Module, node: ast.AST, what: str, module: Module, name: str) -> bool:
        if other is module:
            scope = other.names.scope_of[node].lookup(what)
            return what == name and (scope is None or scope.kind == "module")
        for binding in other.names.top.bindings.get(what, []):
            for target in self.found.resolver.of_binding(other, binding) if binding.kind == "import" else []:
                if isinstance(target, Value) and target.module is module and target.binding.name == name:
                    return True
        return False

    def of_attribute(self, module: Module, root: str, attribute: str) -> Iterator[tuple[Module, ast.AST]]:
        """Stores to `.attribute` of anything that is parsed arguments."""
        for other, node in self.found.program.mentions(attribute):
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                if isinstance(node.value, ast.Name) and (node.value.id == root or self.found.kinds.of(other, node.value) == "namespace"):
                    yield other, node

    def registrations(self, module: Module, node: ast.AST) -> list[ast.stmt] | None:
        """The top-level statements that run `node`: its own, or (for code in a function) those that call that function."""
        chain = [node, *module.names.ancestors(node)]
        function = next((up for up in chain if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))), None)
        top = next((up for up, above in itertools.pairwise(chain) if isinstance(above, ast.Module)), None)
        if function is None:
            guarded = isinstance(top, ast.If) and any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(top.test))
            return [top] if isinstance(top, ast.stmt) and not guarded else None
        outer = function
        for up in module.names.ancestors(function):
            if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef)):
                outer = up
        callers: list[tuple[Module, ast.AST]] = [*self.found.resolver.call_sites(outer)]
        for escape_module, escape in self.found.resolver.escapes(outer):
            if escape in getattr(escape_module.names.parent_of[escape], "decorator_list", []):  # @register is a call, too
                callers.append((escape_module, escape))
        if isinstance(outer, ast.Lambda) or not callers:
            return None
        found: list[ast.stmt] = []
        for caller_module, call in callers:
            if caller_module is not module or module.names.scope_of[call].function().kind != "module":
                return None
            above = [call, *module.names.ancestors(call)]
            found += [up for up, nxt in itertools.pairwise(above) if isinstance(nxt, ast.Module) and isinstance(up, ast.stmt)]
        return found
