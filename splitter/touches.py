"""What one expression does with a dataset that it names.

data.classes                 read       the value can be asked of a worker
data.set_epoch(3)            call       the call can be sent
data.epoch = 3               write      so can the value
show(data.transform)         object     the trainer needs the object itself
data.rows.append(x)          change     what a worker would not see
row = data[0]; row += 1      change     the sample may be the dataset's own memory
"""

from __future__ import annotations

import ast
from typing import Literal

from splitter.find import Found
from splitter.kinds import SENDABLE
from splitter.knowledge import MUTATORS, PLAIN_METHODS, TENSOR_METHODS
from splitter.read import Module
from splitter.reading import changed_from
from splitter.resolve import Definition

UseKind = Literal["loader", "length", "index", "iterate", "read", "call", "write", "wrap", "sampler", "object", "change", "handed"]
Touch = tuple[UseKind, ast.AST]
# Attributes of library datasets that are plain data, by torchvision's documentation.
PLAIN_ATTRIBUTES = frozenset("classes class_to_idx samples targets imgs labels data root num_classes train split".split())
BUILTINS = frozenset(f"builtins.{name}" for name in ("setattr", "delattr", "getattr", "vars", "type"))


def sample(found: Found, module: Module, row: ast.Subscript) -> UseKind:
    """`data[i]`: a sample that is only looked at, or one that is changed in place."""
    return "index" if isinstance(row.ctx, ast.Load) and not changed_from(found, module, row) else "change"


def builtin(found: Found, module: Module, call: ast.Call, name: str) -> UseKind:
    """`setattr(data, "epoch", 3)`, `getattr(data, "classes")`, `vars(data)`, `type(data)`"""
    parent = module.names.parent_of[call]
    used = isinstance(parent, (ast.Attribute, ast.Subscript))
    looked = not used or isinstance(getattr(parent, "ctx", None), ast.Load)
    match name.removeprefix("builtins."), [arg.value if isinstance(arg, ast.Constant) else None for arg in call.args]:
        case "setattr", [_, str(), _]:
            return "write" if found.kinds.of(module, call.args[2]) in SENDABLE else "change"
        case "getattr", [_, str() as attribute, *_] if not used:
            return "read" if attribute in PLAIN_ATTRIBUTES else "object"
        case "vars", _ if not used or getattr(parent, "attr", "") in ("items", "keys", "values", "get", "copy"):
            return "object"
        case "type", _ if looked:
            return "read"
    return "change"


def attribute(found: Found, module: Module, node: ast.Attribute, made: Definition | None) -> Touch:
    """`data.x`, whatever is done with it; `made` is the dataset's class, where the script has it."""
    parent = module.names.parent_of[node]
    if not isinstance(node.ctx, ast.Load) or isinstance(parent, ast.AugAssign):
        return _written(found, module, parent), node
    if isinstance(parent, ast.Call) and parent.func is node:
        return _called(found, module, parent), parent
    if changed_from(found, module, node):
        return "change", node
    kind = _member_kind(found, module, node, made)
    end: ast.AST = node
    while isinstance(up := module.names.parent_of[end], (ast.Attribute, ast.Subscript)) and up.value is end:
        end = up
    if end is not node:
        return _through(module, end, kind), end
    return "read" if kind in SENDABLE else "object", node


def _through(module: Module, end: ast.AST, kind: str) -> UseKind:
    """`data.rows[0].x`, `data.rows.append(x)`: something of an attribute."""
    above = module.names.parent_of[end]
    called = isinstance(end, ast.Attribute) and isinstance(above, ast.Call) and above.func is end
    name = end.attr if isinstance(end, ast.Attribute) and called else ""
    if not isinstance(getattr(end, "ctx", None), ast.Load) or isinstance(above, ast.AugAssign) or name in MUTATORS:
        return "change"
    if kind in SENDABLE:
        return "read"
    return "object" if not called or name in PLAIN_METHODS | TENSOR_METHODS else "change"


def _written(found: Found, module: Module, parent: ast.AST) -> UseKind:
    value = parent.value if isinstance(parent, (ast.Assign, ast.AugAssign, ast.AnnAssign)) else None
    sendable = value is not None and found.kinds.of(module, value) in SENDABLE
    return "write" if sendable and not isinstance(parent, ast.Delete) else "change"


def _called(found: Found, module: Module, call: ast.Call) -> UseKind:
    kinds = [found.kinds.of(module, arg) for arg in (*call.args, *(keyword.value for keyword in call.keywords))]
    if any(kind not in SENDABLE and kind != "unknown" for kind in kinds):
        return "change"
    result = found.kinds.of(module, call)
    used = not isinstance(module.names.parent_of[call], ast.Expr)
    if used and changed_from(found, module, call):
        return "change"
    return "object" if used and result not in SENDABLE and result != "unknown" else "call"


def _member_kind(found: Found, module: Module, node: ast.Attribute, made: Definition | None) -> str:
    for definition in (found.kinds.instance_of(module, node.value), made):
        kind = found.kinds.member_kind(definition, node.attr) if definition is not None else "unknown"
        if kind != "unknown":
            return kind
    return "plain" if node.attr in PLAIN_ATTRIBUTES else "unknown"
