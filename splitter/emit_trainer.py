"""The trainer program: the script with the least change.

    train = ImageFolder(args.data)           train = splitter_runtime.RemoteDataset("train", {"args.data": args.data})
    loader = DataLoader(train, 64)      ->   loader = splitter_runtime.DataLoader(train, 64)

Decisions stand in the plan; here they become pieces of new text, each tried on one line first and wrapped where it would
pass the limit. They are put into the module's tree at the end, once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from itertools import chain

from splitter.emit_finish import finish_text
from splitter.emit_keywords import Keyword, add_keywords, mapping
from splitter.emit_place import place, repeatable
from splitter.ir import ClassEdit, HandleEdit, LoaderEdit, Removal, SourceFile, Span
from splitter.ir_cut import Insertion
from splitter.prefix_types import Rename
from splitter.splice import LIMIT, Grid, Splice, apply, call, ordered, quoted, undo

RUNTIME = "splitter_runtime"


@dataclass(frozen=True)
class ProgramCall:
    """`splitter_runtime.program(...)` of the trainer; `early` puts it before the script's first import."""

    worker: str
    digest: str
    script: str
    modules: tuple[tuple[str, str], ...] = ()
    roots: tuple[tuple[str, str], ...] = ()
    package: str = ""
    early: bool = False


@dataclass(frozen=True)
class Edits:
    """What changes in one module."""

    handles: tuple[HandleEdit, ...] = ()
    loaders: tuple[LoaderEdit, ...] = ()
    removals: tuple[Removal, ...] = ()
    classes: tuple[ClassEdit, ...] = ()
    renames: tuple[Rename, ...] = ()
    insertions: tuple[Insertion, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.handles or self.loaders or self.removals or self.classes or self.renames or self.insertions)

    @property
    def calls_runtime(self) -> bool:
        """Whether the runtime's name stands in the edited module."""
        return bool(self.handles or self.loaders or self.classes or self.insertions)


def edit(source: SourceFile, edits: Edits, program: ProgramCall | None) -> str:
    """The text of the edited module.

    Raises ValueError when the plan doesn't fit the text, SyntaxError when the result isn't Python.
    """
    # A large import, and most commands need no edit.
    from splitter.emit_tree import edit_tree

    editor = _Editor(source, edits, program)
    lines = editor.lines()
    wrapped: set[int] = set()
    expressions = editor.expressions(wrapped)
    # A line break can bring the rest of its line below the limit, so one is made at a time, the first of its line first.
    while more := _too_long(source.text, [*lines, *chain(*expressions)]) - wrapped:
        wrapped.add(min(more))
        expressions = editor.expressions(wrapped)
    text = edit_tree(editor.grid, expressions, lines)
    splices = [*lines, *chain(*expressions)]
    if undo(text, source.text, splices) != source.text:
        raise ValueError(f"an edit of {source.path} can't be taken back")
    compile(text, source.path, "exec", flags=ast.PyCF_ONLY_AST, dont_inherit=True)
    return text


def runtime_name(grid: Grid) -> str:
    """The name under which the runtime is imported: one that the text doesn't use."""
    used = {node.id for node in ast.walk(grid.tree) if isinstance(node, ast.Name)}
    used |= {node.arg for node in ast.walk(grid.tree) if isinstance(node, ast.arg)}
    for node in ast.walk(grid.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            used.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            used |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    name = RUNTIME
    while name in used:
        name += "_"
    return name


def _too_long(text: str, splices: list[Splice]) -> set[int]:
    """Where the splices are that stand on a line which they bring above the limit."""
    result = apply(text, splices)
    found = set()
    shift = 0
    for splice in ordered(splices):
        start = splice.start + shift
        shift += len(splice.text) - (splice.end - splice.start)
        begin = max(result.rfind("\n", 0, start), result.rfind("\r", 0, start)) + 1
        end = start + len(splice.text)
        rest = re.match(r"[^\r\n]*", result[end:])
        lines = (result[begin:end] + (rest[0] if rest else "")).splitlines()
        if splice.text and max(map(len, lines), default=0) > LIMIT:
            found.add(splice.start)
    return found


class _Editor:
    """One module and its edits; `wrapped` holds the offsets of splices that get line breaks of their own."""

    def __init__(self, source: SourceFile, edits: Edits, program: ProgramCall | None) -> None:
        self.source = source
        self.edits = edits
        self.program = program
        self.grid = Grid(source.text)
        self.name = runtime_name(self.grid)
        self.unit = _unit(self.grid)
        calls = [node for node in ast.walk(self.grid.tree) if isinstance(node, ast.Call)]
        self.calls = {self.grid.node_range(node): node for node in calls}

    def lines(self) -> list[Splice]:
        """Whole lines that are put in or taken away."""
        preamble = [self._preamble()] if self.program is not None or self.edits.calls_runtime else []
        return [*preamble, *self._removals(), *map(self._inserted, self.edits.insertions)]

    def expressions(self, wrapped: Set[int]) -> list[list[Splice]]:
        """The splices of each edited expression."""
        handles = [self._handle(handle, wrapped) for handle in self.edits.handles]
        loaders = [self._loader(loader, wrapped) for loader in self.edits.loaders]
        classes = [[Splice(*self.grid.range(edit.span), f"{self.name}.DataLoader")] for edit in self.edits.classes]
        renames = [[Splice(*self.grid.range(rename.span), rename.name)] for rename in self.edits.renames]
        return [group for group in (*handles, *loaders, *classes, *renames) if group]

    def _preamble(self) -> Splice:
        spans = [loader.call for loader in self.edits.loaders]
        spans += [*(handle.span for handle in self.edits.handles), *(edit.span for edit in self.edits.classes)]
        first = min((span.line for span in spans), default=len(self.grid.lines) + 1)
        after = place(self.grid, first, early=self.program is not None and self.program.early)
        newline = self.grid.newline
        text = f"import {RUNTIME}" if self.name == RUNTIME else f"import {RUNTIME} as {self.name}"
        text += newline
        if self.program is not None:
            text += newline + self._program(self.program, fresh=not repeatable(self.grid, after)) + newline
        if self.grid.line(after).strip():
            unended = self.grid.lines[after - 1][-1:] not in ("\r", "\n")
            text = newline * (2 if unended else 1) + text
        if self.grid.line(after + 1).strip():
            text += newline
        offset = self.grid.starts[after]
        return Splice(offset, offset, text)

    def _program(self, program: ProgramCall, *, fresh: bool) -> str:
        arguments = [
            self._quoted(program.worker),
            f"digest={self._quoted(program.digest)}",
            f"script={self._quoted(program.script)}",
        ]
        for name, paths in (("modules", program.modules), ("roots", program.roots)):
            entries = [f"{self._quoted(module)}: {self._quoted(path)}" for module, path in paths]
            long = len(f"{self.unit}{name}={mapping(entries)},") > LIMIT
            newline = self.grid.newline if long else ""
            arguments += [f"{name}={mapping(entries, newline, self.unit, self.unit)}"] if paths else []
        arguments += [f"package={self._quoted(program.package)}"] if program.package else []
        arguments += ["fresh=True"] if fresh else []
        return call(f"{self.name}.program", arguments, unit=self.unit, newline=self.grid.newline)

    def _handle(self, handle: HandleEdit, wrapped: Set[int]) -> list[Splice]:
        start, end = self.grid.range(handle.span)
        if handle.residence == "moved":
            return self._moved(handle, wrapped)
        inner = self.grid.indent(handle.span.line) + self.unit
        newline = self.grid.newline
        environment = self._environment(handle.environment, inner, start in wrapped) or "{}"
        joint = f",{newline}{inner}" if start in wrapped else ", "
        opening = newline + inner if start in wrapped else ""
        arguments = joint.join([self._quoted(handle.builder), environment, "lambda: "])
        return [Splice(start, start, f"{self.name}.replicated({opening}{arguments}"), Splice(end, end, ")")]

    def _moved(self, handle: HandleEdit, wrapped: Set[int]) -> list[Splice]:
        start, end = self.grid.range(handle.span)
        after_break = start in {at for loader in self.edits.loaders for at in self._broken(loader, wrapped)}
        indent = self.grid.indent(handle.span.line) + (self.unit if after_break else "")
        inner = indent + self.unit
        newline = self.grid.newline
        environment = self._environment(handle.environment, inner, start in wrapped)
        arguments = [self._quoted(handle.builder), *([environment] if environment else [])]
        if handle.finish is not None:
            room = LIMIT - len(inner) - 1 if start in wrapped else None
            arguments.append(finish_text(self.grid, handle.finish, self.name, inner, self.unit, room))
            arguments += ['finish_on="device"'] if handle.finish.on == "device" else []
        head = f"{self.name}.RemoteDataset"
        flat = f"{head}({', '.join(arguments)})"
        if start not in wrapped:
            return [Splice(start, end, flat)]
        comma = re.compile(r",[ \t]+(?=[^\s#])").match(self.grid.text, end)
        alone = after_break or not self.grid.line(handle.span.line)[: handle.span.column].strip()
        if alone and comma and len(indent) + len(flat) < LIMIT:
            return [Splice(start, end, flat), Splice(end, comma.end(), f",{newline}{indent}")]
        if len(arguments) == 1:
            return [Splice(start, end, flat)]
        lines = "".join(f"{newline}{inner}{argument}," for argument in arguments)
        return [Splice(start, end, f"{head}({lines}{newline}{indent})")]

    def _broken(self, loader: LoaderEdit, wrapped: Set[int]) -> Iterator[int]:
        """Where the first argument begins, when a line break goes before it."""
        if loader.callee is None:
            return
        start, end = self.grid.range(loader.callee)
        opening = re.compile(r"\s*\([ \t]*(?=[^\s#])").match(self.grid.text, end)
        if start in wrapped and opening is not None:
            yield opening.end()

    def _loader(self, loader: LoaderEdit, wrapped: Set[int]) -> list[Splice]:
        result = []
        if loader.callee is not None:
            start, end = self.grid.range(loader.callee)
            result.append(Splice(start, end, f"{self.name}.DataLoader"))
            for at in self._broken(loader, wrapped):
                begin = self.grid.text.rindex("(", end, at) + 1
                result.append(Splice(begin, at, self.grid.newline + self.grid.indent(loader.callee.line) + self.unit))
        new = list(self._new(loader))
        if loader.streams is not None:
            splice = self._streams(loader, loader.streams)
            if splice is None:
                new.append(Keyword("num_workers", str(loader.streams)))
            else:
                result.append(splice)
        if new:
            result += add_keywords(self.grid, self._call(loader.call), loader.call, new, self.unit, wrapped)
        start, _ = self.grid.range(loader.call)
        return [Splice(start, start, ""), *result] if result else []  # the pieces belong to the whole call

    def _new(self, loader: LoaderEdit) -> Iterator[Keyword]:
        if loader.explicit:
            yield Keyword("feed", self._quoted(loader.feed) if loader.feed is not None else "None")
        if loader.environment:
            yield Keyword("env", entries=self._entries(loader.environment))
        if loader.send:
            names = ", ".join(self._quoted(part) for part in loader.send)
            yield Keyword("send", names if len(loader.send) == 1 else f"({names})")
            if loader.inline:
                yield Keyword("inline", "True")

    def _streams(self, loader: LoaderEdit, streams: int) -> Splice | None:
        """num_workers where the call has it already; None when the keyword is to be added."""
        node = self._call(loader.call)
        for keyword in node.keywords:
            if keyword.arg == "num_workers":
                return Splice(*self.grid.node_range(keyword.value), str(streams))
        if loader.workers is not None:
            return Splice(*self.grid.range(loader.workers), str(streams))
        splats = [keyword for keyword in node.keywords if keyword.arg is None]
        if not splats:
            return None
        # The dictionary may hold num_workers too, and a keyword that is given twice is an error.
        start, end = self.grid.node_range(splats[-1].value)
        return Splice(start, end, f'{{**{self.grid.text[start:end]}, "num_workers": {streams}}}')

    def _call(self, span: Span) -> ast.Call:
        node = self.calls.get(self.grid.range(span))
        if node is None:
            raise ValueError(f"no call at {span}")
        return node

    def _environment(self, names: tuple[str, ...], indent: str, wrapped: bool) -> str:
        if not names:
            return ""
        entries = self._entries(names)
        flat = mapping(entries)
        if not wrapped or len(indent) + len(flat) < LIMIT:
            return flat
        return mapping(entries, self.grid.newline, indent, self.unit)

    def _entries(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{self._quoted(name)}: {name}" for name in names)

    def _quoted(self, text: str) -> str:
        return quoted(text, self.source.encoding)

    def _inserted(self, line: Insertion) -> Splice:
        indent, newline = self.grid.line(line.after)[: line.column], self.grid.newline
        indent = indent if not indent.strip() else " " * line.column
        keys = [self._quoted(key) if isinstance(key, str) else str(key) for key in line.keys]
        made = call(f"{line.value} = {self.name}.finish_on_device", [line.value, line.loader, *keys], indent, self.unit, newline)
        offset = self.grid.starts[min(line.after, len(self.grid.lines))]
        unended = self.grid.lines[line.after - 1][-1:] not in ("\r", "\n")
        return Splice(offset, offset, f"{newline}{indent}{made}" if unended else f"{indent}{made}{newline}")

    def _removals(self) -> list[Splice]:
        fragments = [removal.fragment for removal in self.edits.removals]
        fills = dict(_emptied(self.grid, {line for part in fragments for line in range(part.first, part.last + 1)}))
        result = []
        for removal in self.edits.removals:
            part = removal.fragment
            fill = "".join(text for line, text in fills.items() if part.first <= line <= part.last)
            if removal.comment:
                fill = self.grid.indent(part.last) + f"# {removal.comment}{self.grid.newline}" + fill
            surplus = 0 if fill else _surplus(self.grid, part.first, part.last)
            end = self.grid.starts[min(part.last + surplus, len(self.grid.lines))]
            result.append(Splice(self.grid.starts[part.first - 1], end, fill))
        return result


def _unit(grid: Grid) -> str:
    """One level of indentation, as the file has it."""
    for node in ast.walk(grid.tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.If | ast.For | ast.With) and isinstance(body, list):
            outer, inner = grid.indent(node.lineno), grid.indent(body[0].lineno)
            if inner.startswith(outer) and inner != outer:
                return inner[len(outer) :]
    return "    "


def _emptied(grid: Grid, gone: set[int]) -> Iterator[tuple[int, str]]:
    """For each block that loses all of its statements: the line of its first one, and the `pass` that stands in."""
    for node in ast.walk(grid.tree):
        header = node.pattern if isinstance(node, ast.match_case) else node
        if isinstance(node, ast.Module) or getattr(header, "lineno", None) in gone:
            continue
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if not isinstance(block, list) or not block or any(statement.lineno not in gone for statement in block):
                continue
            first = block[0].lineno
            end = grid.lines[first - 1][len(grid.line(first)) :]
            yield first, grid.indent(first) + "pass" + end


def _surplus(grid: Grid, first: int, last: int) -> int:
    """How many blank lines after the removed ones go with them, so that no gap grows."""
    before = after = 0
    while first - 1 - before >= 1 and not grid.line(first - 1 - before).strip():
        before += 1
    while last + 1 + after <= len(grid.lines) and not grid.line(last + 1 + after).strip():
        after += 1
    opened = grid.line(first - 1).split("#")[0].rstrip().endswith(":")  # they stood at the beginning of a block
    return after if opened else min(before, after)
