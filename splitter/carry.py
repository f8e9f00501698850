"""The module level of the worker program: which definitions, imports and globals the moved code needs.

    class Photos(Dataset):               needed by the moved `Photos(root)`:
        def __getitem__(self, i):            its class, `load` and `SIZE`, and `Image` through load
            return load(self.paths[i])
    def load(path): return Image.open(path).resize(SIZE)
    SIZE = (64, 64)

Names of the script are carried over as text; names of its local modules are imported from there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from splitter.effects import Effects, Fact
from splitter.find import Found
from splitter.import_effects import import_effect, imported_along
from splitter.ir import Diagnostic
from splitter.kinds import SENDABLE
from splitter.order import happens_before
from splitter.read import ENTRY, Module
from splitter.reading import changed_from
from splitter.repeat import deep_facts, forbids
from splitter.resolve import Definition, Library, LocalModule, Value
from splitter.scopes import Binding, Scope, free_names
from splitter.writers import Writers

CACHES = frozenset({"functools.lru_cache", "functools.cache", "functools.cached_property"})
Phase = Literal["build", "batch"]


class Refused(Exception):
    """A slice that can't be made; carries the reason. Never leaves the step `slice`."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.code)
        self.diagnostic = diagnostic


@dataclass(eq=False)
class Carried:
    """What has been collected for one builder; several are merged into one worker module."""

    statements: dict[int, tuple[Module, ast.stmt]] = field(default_factory=dict)
    local_names: set[tuple[str, str]] = field(default_factory=set)
    environment: dict[str, None] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    facts: list[tuple[Phase, Fact]] = field(default_factory=list)
    modules: set[str] = field(default_factory=set)
    definitions: list[Definition] = field(default_factory=list)
    code: list[tuple[Module, ast.AST]] = field(default_factory=list)  # all that was looked at, whoever has its text
    done: set[tuple[int, str]] = field(default_factory=set)
    inside: set[int] = field(default_factory=set)
    quiet: bool = False
    importing: bool = False


class Carrier:
    """Collects definitions for the moved code at `at` (the origin or the loader call)."""

    def __init__(self, found: Found, effects: Effects, module: Module, at: ast.expr, carried: Carried) -> None:
        self.found = found
        self.effects = effects
        self.module = module
        self.at = at
        self.carried = carried
        self.writers = Writers(found, effects)

    # -- definitions ---------------------------------------------------------------------------------------------------

    def definition(self, definition: Definition, phase: Phase) -> None:
        """Take a function or class along, with everything that it needs."""
        key = (id(definition.node), phase)
        if key in self.carried.done:
            return
        self.carried.done.add(key)
        self.carried.definitions.append(definition)
        self.carried.inside.update(id(node) for node in ast.walk(definition.node))
        module, node = definition.module, definition.node
        self._unpatched(module, node)
        before, self.carried.quiet = self.carried.quiet, module.name != ENTRY  # the text of local modules stays where it is
        if isinstance(node, ast.ClassDef):
            self._class(module, node)
        else:
            self._at_import(module, [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)])
            self.code(module, node, phase)
            self._cached(module, node, phase)
        self.carried.quiet = before

    def _cached(self, module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef, phase: Phase) -> None:
        """A function that remembers its results keeps state in itself."""
        decorators = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
        if any(self.found.resolver.library(module, decorator) in CACHES for decorator in decorators):
            self.carried.facts.append((phase, Fact("writes-global", node.name, module, node)))

    def _unpatched(self, module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        """Refuse when the script stores attributes on a class or function that it shares with the worker: Photos.size = 64."""
        for other, mention in self.found.program.mentions(node.name):
            parent = other.names.parent_of.get(mention)
            patched = isinstance(parent, ast.Call) and mention in parent.args[:1] and self._sets(other, parent)
            stored = isinstance(parent, ast.Attribute) and (
                not isinstance(parent.ctx, ast.Load)
                or any(id(place) not in self.carried.inside for _, place in changed_from(self.found, other, parent))
            )
            if parent is not None and (stored or patched) and id(parent) not in self.carried.inside:
                definition = self.found.resolver.definition(other, mention)
                if definition is not None and definition.node is node:
                    raise Refused(late(f"{node.name}.{parent.attr if isinstance(parent, ast.Attribute) else '...'}", other, parent))

    def _sets(self, module: Module, call: ast.Call) -> bool:
        return self.found.resolver.library(module, call.func) in ("builtins.setattr", "builtins.delattr")

    def _class(self, module: Module, node: ast.ClassDef) -> None:
        for stmt in node.body:
            build = not isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)) or stmt.name in ("__init__", "__post_init__", "__new__")
            if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._at_import(module, [*stmt.decorator_list, *stmt.args.defaults, *(d for d in stmt.args.kw_defaults if d)])
            self.code(module, stmt, "build" if build else "batch") if isinstance(
                stmt, (ast.FunctionDef, ast.AsyncFunctionDef)
            ) else self._at_import(module, [stmt])
        self._at_import(module, [*node.decorator_list, *node.bases, *(k.value for k in node.keywords)])

    def _at_import(self, module: Module, parts: Sequence[ast.AST]) -> None:
        """Code that runs while the worker program is imported, when nothing that the trainer sends is there yet."""
        before, self.carried.importing = self.carried.importing, True
        for part in parts:
            self.code(module, part, "build")
        self.carried.importing = before

    def code(self, module: Module, node: ast.AST, phase: Phase) -> None:
        """Note the facts of some moved code, and take along every module-level name that it reads."""
        self.carried.code.append((module, node))
        self.carried.facts += [(phase, fact) for fact in self.effects.of(module, node)]
        for name in free_names(node, module.names):
            self.name(module, name, phase)

    def name(self, module: Module, name: ast.Name, phase: Phase) -> None:
        """A name that moved code reads: only those of a module are handled here."""
        scope = module.names.scope_of[name].lookup(name.id)
        if scope is None:
            self.unbound(module, name)
        elif scope.kind == "module":
            self.module_name(module, name, phase)

    def unbound(self, module: Module, name: ast.Name) -> None:
        """A builtin, or a name that a star import brings."""
        for star in module.names.top.bindings.get("*", []):
            target = self.found.resolver.target(module, name)
            if isinstance(target, (Definition, Value)) or (isinstance(target, Library) and not target.name.startswith("builtins.")):
                self.statement(module, star)

    # -- module-level names --------------------------------------------------------------------------------------------

    def module_name(self, module: Module, name: ast.Name, phase: Phase) -> None:
        """Take a name of a module's top level along: import, definition, constant, or a value that the trainer sends."""
        bindings = [b for b in module.names.top.bindings[name.id] if b.kind != "delete" and not self.writers.dead(module, b.node)]
        for binding in bindings:
            for target in self.found.resolver.of_binding(module, binding):
                self._follow(target, phase)
        key = (id(module), f"{name.id}.{phase}.{self.carried.quiet}")
        if key in self.carried.done and not self._is_namespace(module, bindings):
            return
        self.carried.done.add(key)
        if all(binding.kind in ("def", "class", "import") for binding in bindings):
            for binding in bindings:
                self.bring(module, binding, name.id)
                self._decorated(module, binding, phase)
            return
        self._variable(module, name, bindings, phase)

    def _follow(self, target: object, phase: Phase) -> None:
        if isinstance(target, Definition):
            self.definition(target, phase)
        elif isinstance(target, LocalModule):
            self.local_module(target.module)
        elif isinstance(target, Value) and target.module is not self.module and target.binding.kind != "param":
            if target.binding.scope.kind == "module" and target.binding.value is not None:
                self.carried.code.append((target.module, target.binding.value))
                self.carried.facts += [("build", fact) for fact in self.effects.of(target.module, target.binding.value)]
                self._unchanging(target.module, target.binding.name)

    def _decorated(self, module: Module, binding: Binding, phase: Phase) -> None:
        for decorator in getattr(binding.node, "decorator_list", []):
            self.code(module, decorator, phase)

    def bring(self, module: Module, binding: Binding, name: str) -> None:
        """Make a module-level name exist in the worker: by its text, or by an import from the local module that has it."""
        if module.name != ENTRY:
            home, _, member = (binding.origin or "").partition(":")
            if binding.kind == "import" and member == name and not home.startswith("."):
                module_of = self.found.program.modules.get(home)  # from where the module has it: `transforms` from torchvision
                if not self.carried.quiet:
                    self.carried.local_names.add((home, name))
                if module_of is not None:
                    self.local_module(module_of)
                return
            if not self.carried.quiet:
                self.carried.local_names.add((module.name, name))
            self.local_module(module)
            return
        self.statement(module, binding)

    def statement(self, module: Module, binding: Binding) -> None:
        """Carry the whole top-level statement that holds a binding (a `try` or `if` around imports included)."""
        node: ast.AST = binding.node
        for up in (node, *module.names.ancestors(node)):
            if isinstance(up, ast.Module):
                break
            node = up
        if not isinstance(node, ast.stmt) or id(node) in self.carried.statements:
            return
        self.carried.statements[id(node)] = (module, node)
        self.carried.inside.update(id(child) for child in ast.walk(node))
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
            self._at_import(module, [node])
        for child in ast.walk(node):
            if isinstance(child, (ast.Import, ast.ImportFrom)) and module.names.scope_of[child].kind == "module":
                for target_module in self._imported(module, child):
                    self.local_module(target_module)

    def _imported(self, module: Module, node: ast.Import | ast.ImportFrom) -> Iterator[Module]:
        for bindings in module.names.top.bindings.values():
            for binding in bindings:
                if binding.node is node and binding.origin is not None:
                    base = binding.origin.partition(":")[0]
                    local = self.found.program.modules.get(base)
                    if local is not None:
                        yield local

    def local_module(self, module: Module) -> None:
        """The worker imports this module of the script: that must do nothing but define things."""
        if module.name in self.carried.modules or module.name == ENTRY:
            return
        self.carried.modules.add(module.name)
        culprit = import_effect(self.effects, module)
        if culprit is not None:
            raise Refused(
                Diagnostic(
                    "S315", self.module.span(self.at), (("name", module.name), ("path", module.file.path), ("line", str(culprit.lineno)))
                )
            )
        for other in imported_along(self.found.program, module):
            self.local_module(other)

    # -- module-level variables ----------------------------------------------------------------------------------------

    def _is_namespace(self, module: Module, bindings: list[Binding]) -> bool:
        return any(self.found.kinds.of_binding(module, binding) == "namespace" for binding in bindings)

    def _variable(self, module: Module, name: ast.Name, bindings: list[Binding], phase: Phase) -> None:
        """A global variable: carried with all the statements that make it, or sent, or refused."""
        if self._is_namespace(module, bindings):
            self._namespace(module, name)
            return
        writers = list(self.writers.of(module, name.id))
        makers = self._makers(module, name.id, bindings, writers)
        if makers is not None and all(self._may_make(module, stmt, name.id) for stmt in makers):
            if self._carry_makers(module, name, bindings, makers):
                return
        self.settled(name.id, [*((module, b.node) for b in bindings), *writers])
        kinds = {self.found.kinds.of_binding(module, b) for b in bindings}
        if module.name == ENTRY and kinds <= SENDABLE:
            self._sent_too_late(module, name)
            self.carried.environment[name.id] = None
            self.carried.globals.add(name.id)
            return
        reason = next((r for b in bindings if isinstance(b.node, ast.stmt) and (r := self.forbids(module, b.node, allow=name.id))), None)
        if reason is not None and reason.code in ("S305", "S316") and kinds & {"model", "parameter"}:
            reason = None  # what the value is says more than how it was made
        raise Refused(reason or self.not_plain(module, name, kinds))

    def _may_make(self, module: Module, stmt: ast.stmt, name: str) -> bool:
        """Whether the worker may make a global, too; what a local module makes when it is imported is judged by `local_module`."""
        reason = self.forbids(module, stmt, allow=name)
        if reason is None or module.name == ENTRY or reason.code != "S305":
            return reason is None
        return not any(fact.effect in ("opens", "writes-file") for fact in deep_facts(self.found, self.effects, module, stmt))

    def _carry_makers(self, module: Module, name: ast.Name, bindings: list[Binding], makers: list[ast.stmt]) -> bool:
        """Carry the statements that make a global; False (and nothing carried) when they need what the trainer sends."""
        environment, statements, globals_ = dict(self.carried.environment), dict(self.carried.statements), set(self.carried.globals)
        try:
            for stmt in makers:
                if module.name == ENTRY:
                    self.carried.statements.setdefault(id(stmt), (module, stmt))
                self.carried.inside.update(id(child) for child in ast.walk(stmt))
                self._at_import(module, [stmt])
        except Refused:
            self.carried.environment, self.carried.statements, self.carried.globals = environment, statements, globals_
            self.carried.importing = False
            return False
        if module.name != ENTRY:
            self.bring(module, bindings[0], name.id)
        return True

    def _sent_too_late(self, module: Module, name: ast.Name) -> None:
        if self.carried.importing:
            what = "not there yet while the worker program is imported"
            raise Refused(Diagnostic("S305", module.span(name), (("name", f"`{name.id}`"), ("what", what))))

    def _namespace(self, module: Module, name: ast.Name) -> None:
        parent = module.names.parent_of.get(name)
        if module.name != ENTRY or not isinstance(parent, ast.Attribute):
            raise Refused(
                Diagnostic("S305", self.module.span(self.at), (("name", f"`{name.id}`"), ("what", "the whole of the parsed arguments")))
            )
        self._sent_too_late(module, name)
        attribute = f"{name.id}.{parent.attr}"
        self.settled(attribute, list(self.writers.of_attribute(module, name.id, parent.attr)))
        self.carried.environment[attribute] = None
        self.carried.globals.add(name.id)

    def _makers(self, module: Module, name: str, bindings: list[Binding], writers: list[tuple[Module, ast.AST]]) -> list[ast.stmt] | None:
        """The top-level statements that together make a global; None when something else changes it too."""
        makers: dict[int, ast.stmt] = {}
        for node in [*(b.node for b in bindings), *(node for _, node in writers)]:
            if id(node) in self.carried.inside and not any(b.node is node for b in bindings):
                tops = self.writers.registrations(module, node)
                if tops is None:
                    continue
            else:
                tops = self.writers.registrations(module, node) or []
                if not tops:
                    return None
            for top in tops:
                makers[id(top)] = top
        if any(writer_module is not module for writer_module, _ in writers):
            return None
        here = module is self.module
        if any(here and not happens_before(self.found.resolver, module, top, self.module, self.at) for top in makers.values()):
            return None
        return sorted(makers.values(), key=lambda stmt: stmt.lineno)

    def settled(self, name: str, writers: list[tuple[Module, ast.AST]]) -> None:
        """Refuse when a global that moved code reads later can change after the dataset was made."""
        for module, node in writers:
            if id(node) not in self.carried.inside and not happens_before(self.found.resolver, module, node, self.module, self.at):
                raise Refused(late(name, module, node))

    def _unchanging(self, module: Module, name: str) -> None:
        for writer_module, node in self.writers.of(module, name):
            if id(node) not in self.carried.inside and not (writer_module is module and self.writers.registrations(module, node)):
                raise Refused(late(name, writer_module, node))

    # -- refusals ----------------------------------------

    def forbids(self, module: Module, stmt: ast.AST, allow: str | None = None) -> Diagnostic | None:
        """Why a statement can't be run a second time in the worker; None when it can."""
        return forbids(self.found, self.effects, module, stmt, self.module.span(self.at), allow)

    def not_plain(self, module: Module, name: ast.AST, kinds: set[str]) -> Diagnostic:
        """The refusal for a value that can't be sent."""
        kind = sorted(kinds - SENDABLE)[0] if kinds - SENDABLE else "unknown"
        if kind in ("model", "parameter"):
            return Diagnostic("S301", module.span(name), (("what", f"`{module.text(name)}`"),))
        words = {
            "unknown": "of a type that can't be told from the script",
            "object": "a live object",
            "rng": "a random generator",
            "function": "a function",
            "class": "a class",
            "loader": "a loader",
            "driver": "what drives the training",
            "namespace": "the whole of the parsed arguments",
            "self": "the whole object",
            "sampler": "a sampler",
            "module": "a module",
            "parser": "a parser",
            "dataset": "another dataset",
        }
        return Diagnostic("S305", module.span(name), (("name", f"`{module.text(name)}`"), ("what", words.get(kind, kind))))


def late(name: str, module: Module, node: ast.AST) -> Diagnostic:
    """The refusal for something that is changed after the dataset was made; it points at the change."""
    return Diagnostic("S311", module.span(node), (("name", f"`{name}`"), ("line", str(getattr(node, "lineno", 0)))))


def frame_scope(module: Module, node: ast.AST) -> Scope:
    """The function (or module) scope whose run evaluates `node`; comprehensions count as part of it."""
    return module.names.scope_of[node].function()
