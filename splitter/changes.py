"""Places that change the object that a variable names.

rows.append(x)      rows[0] = x      rows += [x]      random.shuffle(rows)      fill(rows), when fill changes its parameter
table.dropna(inplace=True)           scaler.fit(x): a call whose result nobody takes is made for what it changes
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from splitter.find import Found
from splitter.knowledge import MUTATING_FUNCTIONS, MUTATORS
from splitter.read import Module
from splitter.resolve import Definition

HELD = frozenset({"object", "unknown", "function"})


def changes(module: Module, use: ast.expr) -> bool:
    """A use of a variable that changes the object it names."""
    parent = module.names.parent_of[use]
    return any(changed is use for changed in _changed_by(parent, module.names.parent_of.get(parent)))


def _changed_by(node: ast.AST, above: ast.AST | None) -> list[ast.expr]:
    """The expression whose object `node` changes: x in `x[0] = 1`, `x.a = 1`, `x.append(1)`, `x.add_(1)`, `x += 1`."""
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return [node.value]
    if isinstance(node, ast.Attribute):
        name = node.attr
        called = isinstance(above, ast.Call) and above.func is node
        changing = not isinstance(node.ctx, ast.Load) or (called and (name in MUTATORS or (name.endswith("_") and not name.endswith("__"))))
        return [node.value] if changing else []
    return [node.target] if isinstance(node, ast.AugAssign) else []


def changes_in(root: ast.AST, name: str) -> list[ast.expr]:
    """Places below `root` that change the object that `name` names. Looks at the text alone."""
    found: list[ast.expr] = []
    for above in ast.walk(root):
        for node in ast.iter_child_nodes(above):
            found += [changed for changed in _changed_by(node, above) if isinstance(changed, ast.Name) and changed.id == name]
    return found


def loads(module: Module, target: ast.Name) -> Iterator[ast.Name]:
    scope = module.names.scope_of[target].lookup(target.id)
    for node in ast.walk(scope.node if scope else module.tree):
        if (
            isinstance(node, ast.Name)
            and node.id == target.id
            and isinstance(node.ctx, ast.Load)
            and module.names.scope_of[node].lookup(node.id) is scope
        ):
            yield node


def changes_of(found: Found, module: Module, name: ast.Name) -> Iterator[ast.expr]:
    """Uses of a variable, anywhere in its scope, that change the object it names."""
    for use in loads(module, name):
        if changes(module, use) or passed(found, module, use) or _called_for_effect(found, module, use):
            yield use


def _called_for_effect(found: Found, module: Module, use: ast.expr) -> bool:
    """`scaler.fit(x)` as a statement, `table.drop(..., inplace=True)`, any draw from a generator."""
    attribute = module.names.parent_of[use]
    call = module.names.parent_of.get(attribute)
    if not (isinstance(attribute, ast.Attribute) and isinstance(call, ast.Call) and call.func is attribute):
        return False
    if any(k.arg == "inplace" and isinstance(k.value, ast.Constant) and k.value.value is True for k in call.keywords):
        return True
    kind = found.kinds.of(module, use)
    return kind == "rng" or (kind in HELD and isinstance(module.names.parent_of[call], ast.Expr))


def passed(found: Found, module: Module, use: ast.expr) -> bool:
    """The variable is an argument of a function that changes it."""
    parent = module.names.parent_of[use]
    keyword = parent if isinstance(parent, ast.keyword) else None
    call = module.names.parent_of[parent] if keyword else parent
    if not isinstance(call, ast.Call) or use is call.func:
        return False
    if found.resolver.library(module, call.func) in MUTATING_FUNCTIONS:
        return bool(call.args) and call.args[0] is use
    definition = found.resolver.definition(module, call.func)
    return definition is not None and _changes_parameter(definition, call, use, keyword, found, 0)


def _changes_parameter(
    definition: Definition, call: ast.Call, use: ast.expr, keyword: ast.keyword | None, found: Found, depth: int
) -> bool:
    node = definition.node
    if isinstance(node, ast.ClassDef) or depth > 3:
        return False
    names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
    position = call.args.index(use) if use in call.args else -1
    parameter = keyword.arg if keyword else names[position] if 0 <= position < len(names) else None
    if parameter is None:
        return False
    if changes_in(node, parameter):
        return True
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            for arg in inner.args:
                if isinstance(arg, ast.Name) and arg.id == parameter:
                    if found.resolver.library(definition.module, inner.func) in MUTATING_FUNCTIONS and inner.args[0] is arg:
                        return True
                    deeper = found.resolver.definition(definition.module, inner.func)
                    if deeper is not None and _changes_parameter(deeper, inner, arg, None, found, depth + 1):
                        return True
    return False
