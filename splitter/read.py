"""Step `read`: text to trees.

    train.py: `import data`       ->  Program: modules {"__main__": ..., "data": ...}, each with its tree and names
    data.py:  `class Photos: ...`

Local modules are the files that the script's imports name, looked for in the script's folder and where else its project has modules
(see `roots`). They are parsed, never imported.
"""

from __future__ import annotations

import ast
import codecs
import dataclasses
import io
import os.path
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from splitter.ir import Diagnostic, Fragment, SourceFile, Span
from splitter.path_edits import path_edits
from splitter.roots import Roots, roots
from splitter.scopes import Names, position, resolve_names

ENTRY = "__main__"
BY_NAME = ("import_module(", "__import__(", "locate(")  # calls that import what a string says
DOTTED = re.compile(r"""["']((?:[A-Za-z_]\w*\.)+(?:[A-Za-z_]\w*)?)(?=["'{])""")


class InputError(Exception):
    """What was given can't be read (S1xx). The only exception that steps raise; `diagnostic` says what is wrong."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.code)
        self.diagnostic = diagnostic


@dataclass(frozen=True, eq=False)
class Module:
    """One file: its text, tree and names. `name` is the import name, "__main__" for the script."""

    name: str
    file: SourceFile
    tree: ast.Module
    package: str
    line_starts: list[str]

    def __repr__(self) -> str:
        return f"<Module {self.name} {self.file.path}>"

    @cached_property
    def names(self) -> Names:
        """Scopes and bindings; made when first asked for, since most modules of a large program are never asked."""
        return resolve_names(self.tree)

    @cached_property
    def mentioned(self) -> dict[str, list[ast.Name | ast.Attribute]]:
        """Every name and attribute in the text, by its identifier."""
        found: dict[str, list[ast.Name | ast.Attribute]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Name, ast.Attribute)):
                found.setdefault(node.id if isinstance(node, ast.Name) else node.attr, []).append(node)
        return found

    @cached_property
    def aliases(self) -> dict[str, set[str]]:
        """`from m import a as b`: a -> {b}."""
        found: dict[str, set[str]] = {}
        for node in statements(self.tree):
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                if alias.asname:
                    found.setdefault(alias.name, set()).add(alias.asname)
        return found

    def span(self, node: ast.AST) -> Span:
        """Where `node` stands; ast counts columns in UTF-8 bytes, people in characters."""
        line, column = position(node)
        end, end_column = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", column)
        return Span(self.file.path, line, self._column(line, column), end, self._column(end, end_column))

    def _column(self, line: int, offset: int) -> int:
        text = self.line_starts[line - 1]
        return offset if text.isascii() else len(text.encode("utf-8")[:offset].decode("utf-8"))

    def fragment(self, node: ast.stmt) -> Fragment:
        """The lines of a statement, decorators included."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        return Fragment(self.file.path, first, node.end_lineno or node.lineno)

    def text(self, node: ast.AST) -> str:
        """The source of an expression, in one line, shortened for messages."""
        span = self.span(node)
        lines = self.line_starts[span.line - 1 : span.end_line]
        lines[-1] = lines[-1][: span.end_column]
        lines[0] = lines[0][span.column :]
        text = " ".join("".join(lines).split())
        return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True, eq=False)
class Program:
    """The script and its local modules, by import name, and where these were found.

    `known_edits` are the statements (by id) that change sys.path in a way which `roots` follows; `sure`: there are no others.
    """

    script: Path
    modules: dict[str, Module]
    roots: Roots
    known_edits: frozenset[int] = frozenset()
    sure: bool = True

    @property
    def entry(self) -> Module:
        return self.modules[ENTRY]

    def mentions(self, identifier: str) -> Iterator[tuple[Module, ast.Name | ast.Attribute]]:
        """Every name or attribute of the program that is spelled `identifier`, or is an import's other name for it."""
        for module in self.containing(identifier):
            for spelled in {identifier, *module.aliases.get(identifier, ())}:
                for node in module.mentioned.get(spelled, ()):
                    yield module, node

    def containing(self, text: str) -> Iterator[Module]:
        """The modules whose text has `text` in it: the cheap question that comes before every expensive one."""
        return (module for module in self.modules.values() if text in module.file.text)

    def elsewhere(self, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """The top-level names of modules that are elsewhere than beside the script, each with its folder, relative to the script's.

        All names when the program may put other folders on sys.path, so that the trainer program looks at what Python finds.
        """
        here = self.roots.script
        found: dict[str, Path] = {}
        for name in set(names) - {ENTRY}:
            path = Path(os.path.abspath(here / self.modules[name].file.path))
            found[name.partition(".")[0]] = path.parents[name.count(".") + (path.name == "__init__.py")]
        if self.roots.package:
            found[self.roots.package.partition(".")[0]] = here.parents[self.roots.package.count(".")]
        return tuple(
            sorted((top, Path(os.path.relpath(path, here)).as_posix()) for top, path in found.items() if path != here or not self.sure)
        )


def read(script: Path) -> Program:
    """Parse the script and every local module that it reaches by imports.

    Raises:
        InputError: S101 no such file, S102 a folder, S103 not Python.
    """
    if script.is_dir():
        raise InputError(Diagnostic("S102", None, (("path", str(script)),)))
    entry = _parse(ENTRY, script, script.name, "")
    first = roots(script, _level(entry.tree))
    entry = dataclasses.replace(entry, package=first.package)
    parsed: dict[tuple[str, Path], Module | None] = {}
    current = first
    for _ in range(5):  # a module can put the folder of another one on the path
        modules = _reached(entry, script, current, parsed)
        edits = [edit for module in modules.values() for edit in _edits(module, current)]
        before, current = current, first.edited(tuple((where, folder) for _, where, folder in edits if folder is not None))
        if current == before:
            break
    unknown = {id(stmt) for stmt, _, folder in edits if folder is None or not current.has(folder)}
    return Program(script, modules, current, frozenset(id(stmt) for stmt, _, _ in edits) - unknown, sure=not unknown)


def _reached(entry: Module, script: Path, where: Roots, parsed: dict[tuple[str, Path], Module | None]) -> dict[str, Module]:
    """The script and its local modules. `parsed` keeps what has been read before; None for what doesn't parse."""
    modules = {ENTRY: entry}
    pending = [entry]
    missing: set[str] = set()
    dynamic = False
    while pending:
        current = pending.pop(0)
        if not dynamic and any(word in current.file.text for word in BY_NAME):
            dynamic = True  # then the modules that were read before can name others in strings, too
            pending += [module for module in modules.values() if module not in pending and module is not current]
        spoken = named_modules(current, where) if dynamic else ()
        for name in (*imported_names(current), *spoken):
            path = where.locate(name) if name not in modules and name not in missing else None
            if path is None or path.resolve() == script.resolve():
                missing.add(name)
                continue
            if (name, path) not in parsed:
                package = name if path.name == "__init__.py" else name.rpartition(".")[0]
                try:
                    parsed[name, path] = _parse(name, path, Path(os.path.relpath(path, where.script)).as_posix(), package)
                except InputError:
                    parsed[name, path] = None
            module = parsed[name, path]
            if module is None:
                missing.add(name)
                continue
            modules[name] = module
            pending.append(module)
    return modules


def _level(tree: ast.Module) -> int:
    """The most dots of a relative import; those with something to fall back on don't count, since they may fail."""
    tried = {id(node) for part in ast.walk(tree) if isinstance(part, ast.Try) for stmt in part.body for node in ast.walk(stmt)}
    return max((node.level for node in statements(tree) if isinstance(node, ast.ImportFrom) and id(node) not in tried), default=0)


def _edits(module: Module, where: Roots) -> Iterator[tuple[ast.stmt, str, str | None]]:
    if "sys" in module.file.text and "path" in module.file.text:
        yield from path_edits(module.tree, module.names, str(where.script / module.file.path))


def _parse(name: str, path: Path, shown: str, package: str) -> Module:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(Diagnostic("S101", None, (("path", str(path)),))) from None
    except OSError as error:
        raise InputError(Diagnostic("S103", None, (("path", str(path)), ("reason", error.strerror or str(error))))) from None
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        bom = raw.startswith(codecs.BOM_UTF8)
        text = raw.removeprefix(codecs.BOM_UTF8).decode(encoding.replace("-sig", "") if bom else encoding)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(raw, filename=str(path))
    except SyntaxError as error:
        line = error.lineno or 1
        column = max((error.offset or 1) - 1, 0)
        span = Span(shown, line, column, line, column + 1) if error.lineno else None
        raise InputError(Diagnostic("S103", span, (("path", shown), ("reason", error.msg)))) from None
    except (ValueError, LookupError, RecursionError) as error:
        reason = "it has null bytes" if b"\0" in raw else str(error)
        raise InputError(Diagnostic("S103", None, (("path", shown), ("reason", reason)))) from None
    file = SourceFile(name, shown, text, encoding.replace("-sig", ""), bom)
    return Module(name, file, tree, package, file.lines)


def absolute(module: str, package: str) -> str:
    """The absolute name of an import as written (`..data` in package a.b is a.data)."""
    level = len(module) - len(module.lstrip("."))
    if level == 0:
        return module
    parts = package.split(".") if package else []
    base = parts[: len(parts) - (level - 1)]
    return ".".join([*base, module.lstrip(".")]) if module.lstrip(".") else ".".join(base)


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement of a module, without a look at expressions."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.stmt):
            yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            stack.extend(child for child in _children(node, field))


def _children(node: ast.AST, field: str) -> list[ast.AST]:
    found = getattr(node, field, None)
    return [child for child in found if isinstance(child, ast.AST)] if isinstance(found, list) else []


def imported_names(module: Module) -> Iterator[str]:
    """Every module name that the imports of `module` may mean, packages first."""
    for node in statements(module.tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from names_in(node, module.package)


def named_modules(module: Module, where: Roots) -> Iterator[str]:
    """Every module name that a string of `module` may mean: "training.dataset.ImageFolder" names training.dataset, "data." all of data."""
    for text in dict.fromkeys(DOTTED.findall(module.file.text)):
        parts = text.rstrip(".").split(".")
        yield from (".".join(parts[:i]) for i in range(1, len(parts) + 1))
        package = where.locate(text[:-1]) if text.endswith(".") else None
        if package is not None and package.name == "__init__.py":
            yield from sorted(f"{text}{path.stem}" for path in package.parent.glob("*.py") if path.stem != "__init__")


def names_in(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    """Every module name that an import may mean, packages first: `from a import b` may mean a and a.b."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        base = absolute("." * node.level + (node.module or ""), package)
        names = [base, *(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")]
    for name in names:
        parts = name.split(".")
        yield from (".".join(parts[:i]) for i in range(1, len(parts) + 1) if parts[0])
