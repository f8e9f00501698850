"""What `decide` works on: origins and loader sites on their way to an edit or to a refusal, and their names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from splitter.ir import Diagnostic, Residence, Role
from splitter.origins import Origin
from splitter.read import Module
from splitter.send import Sent
from splitter.sites import Site
from splitter.slice import Slicer
from splitter.uses import Use

GENERIC = frozenset("data dataset datasets ds loader loaders dataloader dataloaders data_loader data_loaders dl iterator batches".split())
TELLING = re.compile(r"train|valid|val|test|eval|dev")


@dataclass(eq=False)
class Candidate:
    """An origin on its way to a builder, or to a refusal."""

    origin: Origin
    name: str
    slicer: Slicer | None = None
    uses: tuple[Use, ...] = ()
    refused: Diagnostic | None = None
    residence: Residence = "moved"


@dataclass(eq=False)
class SitePlan:
    """A loader site on its way to an edit, or to a refusal."""

    site: Site
    name: str
    candidates: tuple[Candidate, ...] = ()
    loader: Slicer | None = None
    refused: Diagnostic | None = None
    sent: Sent | None = None

    @property
    def split(self) -> bool:
        return self.sent is not None or (self.refused is None and any(candidate.refused is None for candidate in self.candidates))


def variable(module: Module, expr: ast.expr) -> str:
    """The variable (or key, or attribute) that an expression's value is given to."""
    child: ast.AST = expr
    for parent in module.names.ancestors(expr):
        if isinstance(parent, (ast.Assign, ast.AnnAssign)):
            target = parent.targets[0] if isinstance(parent, ast.Assign) else parent.target
            if isinstance(target, ast.Tuple) and isinstance(parent.value, ast.Tuple) and child in parent.value.elts:
                target = target.elts[parent.value.elts.index(child)]
            return target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
        if isinstance(parent, ast.Return):
            function = next((up for up in module.names.ancestors(parent) if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef))), None)
            return function.name if function else ""
        if isinstance(parent, (ast.Call, ast.keyword)) and isinstance(child, ast.expr):
            return ""
        if isinstance(parent, ast.stmt):
            return ""
        child = parent
    return ""


def stem(name: str) -> str:
    """`train_dataset`, `trainloader`, `train_loader` are all about `train`."""
    bare = re.sub(r"^(build|make|get|create|load)_", "", name.strip("_"))
    short = re.sub(r"_?(data_?loaders?|data_?sets?|loaders?|sets?|_ds|_dl|_data|_iter|_iterator|_batches)$", "", bare)
    return short.strip("_") or bare


def best(names: Iterable[str]) -> str:
    """The most telling of some variables' names, shortened: the first that says train or test, else the first that says anything."""
    short = [stem(name) for name in names if name]
    telling = [name for name in short if TELLING.search(name)] or [name for name in short if name not in GENERIC] or short
    return telling[0] if telling else ""


def unused(name: str, taken: set[str]) -> str:
    """The name, with a number when it is taken; it is taken from then on."""
    number, result = 1, name
    while result in taken:
        number += 1
        result = f"{name}_{number}"
    taken.add(result)
    return result


def role(name: str) -> Role:
    if re.search(r"val|test|eval|dev", name):
        return "eval"
    return "train" if "train" in name else "either"
