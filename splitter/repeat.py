"""What may run a second time: a statement of the script, in the worker. (For modules see `import_effects`.)

root = os.path.join(args.data, "train")     may
noise = torch.randn(8)                      may not: the generators would move twice
open("log", "w").write(stamp)               may not: it writes
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from splitter.effects import Effects, Fact
from splitter.find import Found
from splitter.ir import Diagnostic, Span
from splitter.read import Module

# Facts of a statement that forbid running it a second time, in the worker, and the code that says so.
FORBIDDING = {
    "draws": "S316",
    "reseeds": "S316",
    "unstable": "S306",
    "device": "S302",
    "model": "S301",
    "gradient": "S307",
    "unknown": "S305",
    "writes-global": "S305",
    "writes-file": "S305",
    "opens": "S305",
    "prints": "S305",
}


def forbids(found: Found, effects: Effects, module: Module, stmt: ast.AST, span: Span, allow: str | None = None) -> Diagnostic | None:
    """Why a statement can't be run a second time in the worker; None when it can."""
    for fact in deep_facts(found, effects, module, stmt):
        if fact.effect not in FORBIDDING or fact.makes or (fact.effect == "writes-global" and fact.what == allow):
            continue
        code = FORBIDDING[fact.effect]
        text = module.text(stmt) if isinstance(stmt, ast.expr) else module.text(stmt).split("=")[0].strip()
        if code in ("S305", "S316"):
            return Diagnostic(code, span, (("name", f"`{text}`"), ("what", f"made by {fact.what}, which must not run twice,")))
        return Diagnostic(code, fact.module.span(fact.node), (("what", fact.what),))
    return None


def deep_facts(found: Found, effects: Effects, module: Module, root: ast.AST, seen: frozenset[int] = frozenset()) -> Iterator[Fact]:
    """The facts of some code and of the program's own functions and constructors that it calls."""
    yield from effects.of(module, root)
    for node in ast.walk(root):
        if isinstance(node, ast.Call):
            definition = found.resolver.definition(module, node.func)
            if definition is not None and isinstance(definition.node, ast.ClassDef):
                definition = found.resolver.method(definition, "__init__")
            if definition is not None and id(definition.node) not in seen and len(seen) < 12:
                for fact in deep_facts(found, effects, definition.module, definition.node, seen | {id(definition.node)}):
                    if fact.effect not in ("writes-self", "in-place"):
                        yield fact
