"""Loaders in the hands of libraries that drive the training: Accelerate's Accelerator, Lightning's Trainer and Fabric.

model, loader = accelerator.prepare(model, loader)      hands a loader back for each that it is given, in their order
trainer.fit(model, loader)                              iterates over it
"""

from __future__ import annotations

import ast

from splitter.kinds import Kinds
from splitter.knowledge import DRIVING, PREPARING
from splitter.read import Module

OTHER_LOADER = "stateful_dataloader"  # with it, Accelerate constructs torchdata's loader, which has workers of its own


def drives(kinds: Kinds, module: Module, call: ast.Call) -> bool:
    """Whether a call hands its loaders to such a library, in a way in which they keep their batches."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in DRIVING:
        return False
    return kinds.of(module, call.func.value) == "driver" and not any(kinds.resolver.program.containing(OTHER_LOADER))


def handed_back(call: ast.Call, given: ast.expr) -> tuple[int, ...] | None:
    """Where in the result the loader that was `given` comes back: () when it is the result itself; None when it doesn't, or isn't known."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in PREPARING or given not in call.args:
        return None
    if any(isinstance(arg, ast.Starred) for arg in call.args):
        return None
    return () if len(call.args) == 1 or call.func.attr == "skip_first_batches" else (call.args.index(given),)
