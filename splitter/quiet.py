"""Whether code has no effect beside its result, and a variable stays what it is, as far as the text shows.

lambda x: x / SCALE                    quiet
Noise(0.1)   whose __call__ draws      isn't
normalize.mean[0] = 1                  changes `normalize`
"""

from __future__ import annotations

import ast

from splitter.changes import changes, changes_of, loads
from splitter.effects import Effects
from splitter.find import Found
from splitter.knowledge import MODEL_BASES, row
from splitter.read import Module
from splitter.repeat import deep_facts
from splitter.resolve import Definition, Target, Value

# How a name may be bound that has one value wherever it stands.
SETTLED = frozenset({"import", "def", "class", "assign", "parameter"})
_MADE = (ast.Call, ast.Lambda, ast.Name, ast.Attribute)
_DEEPEST = 8  # variables that hold one another


def is_quiet(found: Found, effects: Effects, module: Module, element: ast.expr, depth: int = 0) -> bool:
    """Whether neither making the transform nor calling it has an effect, as far as the text shows: it draws nothing, keeps nothing."""
    if depth > _DEEPEST or any(True for _ in deep_facts(found, effects, module, element)):
        return False
    if not isinstance(element, ast.Lambda):
        targets = found.resolver.targets(module, element.func if isinstance(element, ast.Call) else element)
        if not targets or not (isinstance(element, ast.Call) or all(_is_seen(target) for target in targets)):
            return False
    names = [node for node in ast.walk(element) if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)]
    return all(is_quiet_target(found, effects, target, depth) for name in names for target in found.resolver.targets(module, name))


def _is_seen(target: Target) -> bool:
    """Whether the text shows what a name stands for that is a transform itself."""
    return isinstance(target, Definition) or (isinstance(target, Value) and isinstance(target.binding.value, _MADE))


def is_quiet_target(found: Found, effects: Effects, target: Target, depth: int = 0) -> bool:
    """Whether what a name stands for has no effect: a class, a function, what a variable holds."""
    if isinstance(target, Definition):
        if isinstance(target.node, ast.ClassDef):
            return _is_quiet_class(found, effects, target)
        return not any(True for _ in deep_facts(found, effects, target.module, target.node))
    if isinstance(target, Value) and isinstance(target.binding.value, _MADE):
        return is_quiet(found, effects, target.module, target.binding.value, depth + 1)
    return True


def _is_quiet_class(found: Found, effects: Effects, definition: Definition) -> bool:
    """Whether its objects write down nothing once they are made, and no method of it, or of what it inherits from, has another effect."""
    names, classes = found.resolver.ancestry(definition)
    if any(name not in MODEL_BASES and row(name).effects != {"pure"} for name in names):
        return False
    for owner in classes:
        if isinstance(owner.node, ast.ClassDef) and len(found.resolver.bases(owner)) < len(owner.node.bases):
            return False  # of something that isn't known
        for stmt in owner.node.body:
            making = isinstance(stmt, ast.FunctionDef) and stmt.name == "__init__"
            facts = deep_facts(found, effects, owner.module, stmt)
            if any(not (making and fact.effect == "writes-self") for fact in facts):
                return False
    return True


def is_changed(found: Found, module: Module, name: ast.Name) -> bool:
    """Whether the object of a variable, or something in it, is changed anywhere: `normalize.mean[0] = 1`."""
    scope = module.names.scope_of[name].lookup(name.id)
    if scope is None or all(binding.kind in ("import", "def", "class") for binding in scope.bindings.get(name.id, [])):
        return False
    if any(True for _ in changes_of(found, module, name)):
        return True
    for use in loads(module, name):
        node: ast.expr = use
        while isinstance(outer := module.names.parent_of[node], (ast.Attribute, ast.Subscript)) and outer.value is node:
            node = outer
            if changes(module, node):
                return True
    return False


def means_the_same(module: Module, name: ast.Name) -> bool:
    """Whether a name has one value from the container's statement to the handle's."""
    scope = module.names.scope_of[name].lookup(name.id)
    bindings = scope.bindings.get(name.id, []) if scope is not None else []
    return len(bindings) <= 1 and all(binding.kind in SETTLED for binding in bindings)
