"""The worker program: what the feeds need, in the words of the script.

    train.py                                  train_worker.py
    24  traindir = join(args.data, "a")       @splitter_runtime.dataset("train")
    25  train = ImageFolder(traindir)    ->   def train(args):  # train.py:24-25
                                                  traindir = join(args.data, "a")
                                                  return ImageFolder(traindir)

Whole lines are carried over as they stand; only their indentation changes, and never inside of a string.
"""

from __future__ import annotations

import ast
import os.path
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import splitter
from splitter.emit_finish import without_tail
from splitter.emit_keywords import mapping
from splitter.emit_page import INDENT, LineMap, Page, Place, entry_text, from_import, plain, tuple_text
from splitter.emit_prefix import Written, closing, constants, opening, swapped
from splitter.head_text import first_lines, fragments_of, function_name, parameter
from splitter.ir import Builder, Fragment, Plan, Span
from splitter.ir_cut import Finish, MovedHead
from splitter.prefix_types import PrefixHead
from splitter.splice import LIMIT, Grid, call, quoted

RUNTIME = "splitter_runtime"


@dataclass(frozen=True)
class Worker:
    """Text of the worker program and where its lines come from (see `splitter_runtime.serve`)."""

    text: str
    lines: LineMap


def emit_worker(plan: Plan, *, script: str, folder: str | None, roots: Sequence[tuple[str, str]] = ()) -> Worker:
    """The worker program of a plan.

    `script` is the script's path and `folder` its folder, absolute or relative to the worker program (None: the same folder).
    `roots` are the top-level names of modules that are elsewhere, and their folders.
    Raises ValueError when the plan doesn't fit the text, SyntaxError when the result isn't Python.
    """
    grids = {source.path: Grid(source.text) for source in (plan.script, *plan.modules)}
    writer = _Writer(plan, grids)
    writer.head(script, folder, roots)
    writer.definitions()
    for builder in plan.worker.builders:
        writer.builder(builder)
    lines = writer.page.line_map(plan.script.path)
    writer.main(lines)
    text = "\n".join(writer.page.lines) + "\n"
    compile(text, "worker", "exec", flags=ast.PyCF_ONLY_AST, dont_inherit=True)
    return Worker(text, lines)


class _Writer:
    """Writes one page, top to bottom."""

    def __init__(self, plan: Plan, grids: dict[str, Grid]) -> None:
        self.plan = plan
        self.grids = dict(grids)
        self.gone: set[tuple[str, int]] = set()  # lines of which nothing is left
        self.page = Page()
        self.runtime = RUNTIME
        carried = "".join(self._text(fragment) for fragment in self._fragments())
        while re.search(rf"\b{self.runtime}\b", carried):
            self.runtime += "_"
        self.reads_doc = re.search(r"\b__doc__\b", carried) is not None
        self.reads_file = re.search(r"\b__file__\b", carried) is not None

    def _fragments(self) -> Iterable[Fragment]:
        worker = self.plan.worker
        yield from worker.imports
        yield from worker.definitions
        for builder in worker.builders:
            yield from builder.body
            if builder.prefix is not None:
                yield builder.prefix.body
            for span in (builder.result, builder.collate_fn, builder.worker_init_fn):
                if span is not None:
                    yield Fragment(span.path, span.line, span.end_line)
            yield from head_fragments(builder)

    def _text(self, fragment: Fragment) -> str:
        return "".join(self.grids[fragment.path].lines[fragment.first - 1 : fragment.last])

    def head(self, script: str, folder: str | None, roots: Sequence[tuple[str, str]]) -> None:
        self._docstring()
        worker = self.plan.worker
        if worker.future:
            self.page.add(f"from __future__ import {', '.join(worker.future)}")
            self.page.gap(1)
        if self.reads_doc:
            self._script_docstring()
        if folder is not None or self.reads_file:
            self._places(script, folder)
        if roots or self.plan.package:
            self._roots(roots)
        self._blocks(worker.imports, self._import_gap)
        if worker.local_imports:
            self.page.gap(1 if worker.imports or folder is not None or self.reads_file else 0)
            for names in worker.local_imports:
                self.page.add(from_import(names.module, names.names))
        if not (roots or self.plan.package):
            self.page.gap(1)
            self._import_runtime()

    def _import_runtime(self) -> None:
        alias = "" if self.runtime == RUNTIME else f" as {self.runtime}"
        self.page.add(f"import {RUNTIME}{alias}")

    def _roots(self, roots: Sequence[tuple[str, str]]) -> None:
        """Where local modules are, before anything is imported from there."""
        self._import_runtime()
        self.page.gap(1)
        entries = [f"{quoted(name)}: {quoted(path)}" for name, path in roots]
        newline = "\n" if len(f"{INDENT}{mapping(entries)},") > LIMIT else ""
        package = [f"package={quoted(self.plan.package)}"] if self.plan.package else []
        self.page.add(call(f"{self.runtime}.roots", [mapping(entries, newline, INDENT, INDENT), *package]))
        self.page.gap(1)

    def _docstring(self) -> None:
        script = plain(os.path.basename(self.plan.script.path))
        stem = os.path.splitext(script)[0]
        names = list(dict.fromkeys(f"`{feed.name}`" for feed in self.plan.feeds if feed.status == "split"))
        what = f"one loader, {names[0]}" if len(names) == 1 else f"the loaders {', '.join(names[:-1])} and {names[-1]}"
        digest = plain(self.plan.digest[:15])
        self.page.add(f'''"""Worker of {script}: makes the batches of {what}, on a CPU host.

    python {stem}_worker.py --listen 0.0.0.0:7077 --token-file token

Written by splitter {splitter.__version__} from {script} ({digest}).
Change {script} and run `splitter transform {script}` again.
"""''')

    def _places(self, script: str, folder: str | None) -> None:
        """The script's `__file__`, and its folder on the path, before anything is imported from there."""
        on_path = folder is not None and not self.plan.package  # python -m has the package's folder on the path, not the script's
        self.page.add("import os.path")
        if on_path:
            self.page.add("import sys")
        self.page.gap(1)
        beside = f"os.path.join(os.path.dirname(__file__), {quoted(script)})"
        line = f"__file__ = {quoted(script) if os.path.isabs(script) else f'os.path.normpath({beside})'}"
        self.page.add(line if len(line) <= LIMIT or os.path.isabs(script) else f"__file__ = os.path.normpath(\n{INDENT}{beside}\n)")
        if on_path:
            self.page.add("sys.path.insert(0, os.path.dirname(__file__))")
        self.page.gap(1)

    def _script_docstring(self) -> None:
        """Moved code that reads `__doc__` means the script's."""
        body = self.grids[self.plan.script.path].tree.body
        if not body or not isinstance(body[0], ast.Expr) or not isinstance(body[0].value, ast.Constant):
            self.page.add("__doc__ = None")
        else:
            self.page.add(f"__doc__ = {quoted(str(body[0].value.value))}")
        self.page.gap(1)

    def definitions(self) -> None:
        """Classes and functions, without the ends of transforms that are the trainer's."""
        definitions = self.plan.worker.definitions
        finishes = [builder.finish for builder in self.plan.worker.builders if builder.finish is not None]
        for finish in {each.edit: each for each in finishes if each.tail.definition is not None}.values():
            path = finish.tail.container.path
            parted = without_tail(self.grids[path], finish, self.runtime)
            self.grids[path] = Grid(parted.text)
            self.gone |= {(path, line) for line in parted.gone}
        if definitions:
            self.page.gap(2 if self._defines(definitions[0]) else 1)
        self._blocks(definitions, self._definition_gap)

    def _import_gap(self, before: Fragment, fragment: Fragment) -> int:
        """Groups of imports stay groups, also when lines between them are left out."""
        grid = self.grids[fragment.path]
        between = range(before.last + 1, fragment.first)
        return int(before.path != fragment.path or any(not grid.line(number).strip() for number in between))

    def _definition_gap(self, before: Fragment, fragment: Fragment) -> int:
        blanks = min(2, self._blanks_before(fragment))
        return max(blanks, 2) if self._defines(before) or self._defines(fragment) else blanks

    def _blocks(self, fragments: Sequence[Fragment], gap: Callable[[Fragment, Fragment], int]) -> None:
        """Fragments one after another; those that are adjacent in the script stay adjacent."""
        before: Fragment | None = None
        for fragment in fragments:
            if before is not None and (before.path, before.last + 1) != (fragment.path, fragment.first):
                self.page.gap(gap(before, fragment))
            self._carry(fragment, "")
            before = fragment

    def _defines(self, fragment: Fragment) -> bool:
        lines = (line.strip() for line in self._text(fragment).splitlines())
        code = [line for line in lines if line and not line.startswith("#")]
        return bool(code) and code[0].startswith(("def ", "class ", "async def ", "@"))

    def _blanks_before(self, fragment: Fragment) -> int:
        grid, count = self.grids[fragment.path], 0
        while fragment.first - 1 - count >= 1 and not grid.line(fragment.first - 1 - count).strip():
            count += 1
        return count

    def builder(self, builder: Builder) -> None:
        """One function. Without the end of its transforms, where that is the trainer's and stands in it."""
        if builder.finish is None or builder.finish.tail.definition is not None:
            self._builder(builder)
            return
        grids, path = self.grids, builder.finish.tail.container.path
        parted = without_tail(grids[path], builder.finish, self.runtime)
        before = self.gone
        self.grids, self.gone = {**grids, path: Grid(parted.text)}, before | {(path, line) for line in parted.gone}
        shift = len(self.grids[path].line(builder.finish.tail.container.end_line)) - len(
            grids[path].line(builder.finish.tail.container.end_line)
        )
        self._builder(replace(builder, result=_widened(builder.result, builder.finish, shift)))
        self.grids, self.gone = grids, before

    def _builder(self, builder: Builder) -> None:
        self.page.gap(2)
        arguments = [quoted(builder.name)]
        if builder.stateless is not None:
            arguments.append(f"stateless={builder.stateless}")
        if builder.draws is not None:
            arguments.append(tuple_text("draws=", [quoted(name) for name in builder.draws], INDENT))
        if builder.globals:
            arguments.append(tuple_text("globals=", [quoted(name) for name in builder.globals], INDENT))
        if builder.finish is not None:
            arguments.append("unfinished=True")
        if builder.accepts:
            arguments.append(tuple_text("accepts=", [quoted(name) for name in builder.accepts], INDENT))
        self.page.add(call(f"@{self.runtime}.{builder.kind}", arguments))
        head = call(f"def {builder.function}", builder.parameters) + ":"
        where = f"# {_extent(builder) or 'takes what the trainer sends'}"
        if "\n" not in head and len(head) + 2 + len(where) <= LIMIT:
            self.page.add(f"{head}  {where}")
        else:
            self.page.add(head)
            self.page.add(INDENT + where)
        before: Fragment | None = None
        for fragment in builder.body:
            adjacent = before is not None and (before.path, before.last + 1) == (fragment.path, fragment.first)
            if before is not None and not adjacent:
                self.page.gap(min(1, self._blanks_before(fragment)))
            self._carry(fragment, self._body_indent(builder))
            before = fragment
        if builder.result is not None:
            self._return(builder, builder.result, before)
        else:
            if builder.prefix is not None:
                self._prefix(builder.prefix, self._body_indent(builder))
            self._return_loader(builder, before)

    def _prefix(self, prefix: PrefixHead, indent: str) -> None:
        """The start of the model's forward, as a function of the batch."""
        self._write(constants(prefix, indent, self._expression))
        self.page.gap(1 if not (self.page.lines[-1].endswith(":") or self.page.lines[-1].lstrip().startswith("#")) else 0)
        self._write(opening(prefix, indent, INDENT))
        grids = self.grids
        self.grids = {**grids, prefix.body.path: swapped(grids[prefix.body.path], prefix)}
        self._carry(prefix.body, indent + INDENT)
        self.grids = grids
        self._write(closing(prefix, indent, INDENT))
        self.page.gap(1)

    def _write(self, lines: Iterable[Written]) -> None:
        for line in lines:
            self.page.add(line.text, None if line.place is None else Place(*line.place))

    def _body_indent(self, builder: Builder) -> str:
        """Tabs where the carried lines are indented by tabs, so that the two never meet in one block."""
        return "\t" if any("\n\t" in "\n" + self._text(fragment) for fragment in (*builder.body, *head_fragments(builder))) else INDENT

    def _return(self, builder: Builder, span: Span, before: Fragment | None) -> None:
        indent = self._body_indent(builder)
        if before is not None:
            self.page.gap(min(1, self._blanks_before(Fragment(span.path, span.line, span.end_line))))
        lines = self._expression(span, indent).split("\n")
        numbers = [n for n in range(span.line, span.end_line + 1) if (span.path, n) not in self.gone]
        for text, number in zip(lines, numbers, strict=True):
            self.page.add(f"{indent}return {text}" if number == span.line else text, Place(span.path, number))

    def _head(self, moved: MovedHead, indent: str, before: Fragment | None) -> None:
        """`def head(batch): ...`: the statements of the loop that have moved, as they stand there."""
        self.page.gap(1 if before is not None else 0)
        inner = indent + ("\t" if indent == "\t" else INDENT)
        self.page.add(f"{indent}def {function_name(moved.head)}({parameter(moved.head)}):")
        for line in first_lines(moved.head):
            self.page.add(inner + line, Place(moved.head.loop.path, moved.head.loop.line))
        for fragment in fragments_of(moved):
            self._carry(fragment, inner)
        self.page.add(f"{inner}return {moved.batch}")
        self.page.gap(1)

    def _return_loader(self, builder: Builder, before: Fragment | None) -> None:
        indent = self._body_indent(builder)
        if builder.head is not None:
            self._head(builder.head, indent, before)
        given = [("collate_fn", builder.collate_fn), ("worker_init_fn", builder.worker_init_fn)]
        spans = [(name, span) for name, span in given if span is not None]
        arguments = [f"{name}={self._expression(span, indent)}" for name, span in spans]
        head = [] if builder.head is None else [f"head={function_name(builder.head.head)}"]
        head += ["head=head"] if builder.prefix is not None else []
        flat = f"{indent}return {self.runtime}.Loader({', '.join([*arguments, *head])})"
        if len(flat) <= LIMIT and "\n" not in flat:
            place = Place(spans[0][1].path, spans[0][1].line) if len(spans) == 1 else None
            self.page.add(flat, place)
            return
        self.page.add(f"{indent}return {self.runtime}.Loader(")
        for name, span in spans:
            text = self._expression(span, indent + INDENT)
            self.page.add(f"{indent}{INDENT}{name}={text},", Place(span.path, span.line))
        for argument in head:
            self.page.add(f"{indent}{INDENT}{argument},")
        self.page.add(f"{indent})")

    def _carry(self, fragment: Fragment, indent: str) -> None:
        grid = self.grids[fragment.path]
        if fragment.last > len(grid.lines):
            raise ValueError(f"{fragment} is outside of the file")
        numbers = range(fragment.first, fragment.last + 1)
        marked = [n for n in numbers if grid.line(n).strip()]
        code = [n for n in marked if not grid.line(n).lstrip().startswith("#")]
        base = grid.indent((code or marked or [fragment.first])[0])
        for number in numbers:
            if (fragment.path, number) not in self.gone:
                self.page.add(_shifted(grid, number, base, indent), Place(fragment.path, number))

    def _expression(self, span: Span, indent: str) -> str:
        """The text of an expression, with its further lines moved to `indent`; in parentheses where it needs them."""
        grid = self.grids[span.path]
        base = grid.indent(span.line)
        ends = (grid.line(span.line)[span.column :], grid.line(span.end_line)[: span.end_column])
        if span.line == span.end_line:
            return grid.slice(span)
        inner = [n for n in range(span.line + 1, span.end_line) if (span.path, n) not in self.gone]
        middle = [_shifted(grid, n, base, indent) for n in inner]
        kept = len(_shifted(grid, span.end_line, base, indent)) - len(grid.line(span.end_line))
        last = _shifted(grid, span.end_line, base, indent)[: max(0, len(ends[1]) + kept)]
        text = "\n".join([ends[0], *middle, last])
        try:
            ast.parse(text.strip(), mode="eval")
        except SyntaxError:
            return f"({text})"
        return text

    def main(self, lines: LineMap) -> None:
        self.page.gap(2)
        self.page.add('if __name__ == "__main__":')
        arguments = [f"digest={quoted(self.plan.agreed)}", f"script={quoted(self.plan.script.path)}"]
        if lines:
            arguments.append(tuple_text("lines=", [entry_text(entry) for entry in lines], INDENT * 2))
        self.page.add(INDENT + call(f"{self.runtime}.serve", arguments, INDENT))


def _widened(span: Span | None, finish: Finish, shift: int) -> Span | None:
    """The span of an expression whose last line has become longer by `shift` before its end."""
    if span is None or span.path != finish.tail.container.path or span.end_line != finish.tail.container.end_line:
        return span
    return replace(span, end_column=span.end_column + shift)


def _shifted(grid: Grid, number: int, base: str, indent: str) -> str:
    """One line with `indent` in place of `base`; a line that begins inside a string stays as it is."""
    line = grid.line(number)
    if number in grid.inside_string:
        return line
    if not line.strip():
        return ""
    shared = next((n for n, pair in enumerate(zip(base, line, strict=False)) if pair[0] != pair[1]), len(base))
    return indent + line[shared:]


def _extent(builder: Builder) -> str:
    """The lines that a builder comes from, for the comment on its first line."""
    spans = [span for span in (builder.result, builder.collate_fn, builder.worker_init_fn) if span is not None]
    moved = [builder.prefix.body] if builder.prefix is not None else []
    own = [*builder.body, *moved, *(Fragment(span.path, span.line, span.end_line) for span in spans)]
    groups = [own, list(head_fragments(builder))]
    extents = []
    for parts in groups:
        for path in dict.fromkeys(part.path for part in parts):
            own = [part for part in parts if part.path == path]
            extents.append(str(Fragment(path, min(part.first for part in own), max(part.last for part in own))))
    return plain(", ".join(extents))


def head_fragments(builder: Builder) -> tuple[Fragment, ...]:
    return () if builder.head is None else fragments_of(builder.head)
