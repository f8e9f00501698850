"""train_split.md: for the person who reviews the split.

What moved and where from, what stayed and why, what was checked, how to run it and how to go back.
"""

from __future__ import annotations

import ast
import os.path
import re
from collections.abc import Iterable, Sequence

import splitter
from splitter.diagnostics import CODES, hint, message
from splitter.emit_finish import names
from splitter.fragments import joined
from splitter.head_text import head_notes
from splitter.ir import Builder, Diagnostic, Feed, Fragment, HandleEdit, Plan, Span
from splitter.ir_cut import Crossing, MovedHead
from splitter.mermaid import HEAD, mermaid, table
from splitter.prefix_choice import bytes_line
from splitter.prefix_types import Prefix
from splitter.splice import Grid

_FEW = 6  # names that a line may list
_LOOPS = {"train": "training loop", "eval": "evaluation loop", "either": "loop"}


def report(plan: Plan, folder: str | None = None) -> str:
    """The report as Markdown. `folder` is the script's folder as seen from the report (None: the same)."""
    page = _Report(plan, "" if folder is None else folder.rstrip("/") + "/")
    parts = [page.head(), page.table(), *page.graphs(), page.moved(), page.stayed(), page.checks(), page.run(), page.back()]
    return "\n\n".join(part for part in parts if part) + "\n"


class _Report:
    def __init__(self, plan: Plan, base: str) -> None:
        self.plan = plan
        self.base = base
        self.script = os.path.basename(plan.script.path)
        self.stem = os.path.splitext(self.script)[0]
        self.grids = {source.path: Grid(source.text) for source in (plan.script, *plan.modules)}

    def head(self) -> str:
        split = sum(feed.status == "split" for feed in self.plan.feeds)
        lines = [f"# {self.script}, split", f"{split} of {len(self.plan.feeds)} loaders split. {self._crossings()}".rstrip()]
        return "\n\n".join(lines)

    def _crossings(self) -> str:
        """What crosses for a sample, where a cut has made that less."""
        parts = []
        for feed in self.plan.feeds:
            if feed.crossing is not None and 0 < feed.crossing.cut.bytes < feed.crossing.cut.bytes_at_loader:
                after, before = feed.crossing.cut.bytes, feed.crossing.cut.bytes_at_loader
                parts.append(
                    f"{_code(feed.name)}: **{after:,} bytes a sample cross instead of {before:,} ({before / after:.1f} times fewer).**"
                )
        return " ".join(parts)

    def table(self) -> str:
        head = ("loader", "where", "dataset", "streams", "stateless", "draws")
        rows = [
            (
                _code(feed.name),
                self._link(feed.loader),
                feed.residence or f"left: {feed.code}",
                _code(feed.streams) if feed.streams else "-",
                {True: "yes", False: "no", None: "not known"}[feed.stateless] if feed.status == "split" else "-",
                ", ".join(feed.draws) or "nothing" if feed.status == "split" else "-",
            )
            for feed in self.plan.feeds
        ]
        return _table(head, rows)

    def graphs(self) -> Iterable[str]:
        for feed in self.plan.feeds:
            if feed.status == "split":
                yield self._graph(feed)

    def _graph(self, feed: Feed) -> str:
        if feed.crossing is not None:
            return self._recorded(feed, feed.crossing)
        builders = {(builder.kind, builder.name): builder for builder in self.plan.worker.builders}
        made = self._node("dataset", self._maker(feed), feed.origin or feed.loader)
        worker, trainer, edges = [made], [], []
        if feed.residence == "sent":
            sent = next((edit.send for edit in self.plan.loaders if edit.send and edit.call == feed.loader), ())
            functions = [name for name in sent if name != "dataset"]
            label = f"{feed.name}: a copy for each iterator" + (f"<br>with {' and '.join(functions)}" if functions else "")
            worker, trainer, edges = [f'copy["{label}"]'], [f"    {made}"], ['  dataset -->|"sent with each iterator"| copy']
        loader = builders.get(("loader", feed.name))
        if loader is not None and loader.collate_fn is not None:
            text = " ".join(self.grids[loader.collate_fn.path].slice(loader.collate_fn).split())
            worker.append(self._node("collate", f"collate: {_short(text)}", loader.collate_fn))
        loop = _LOOPS[feed.role]
        first, last = worker[0].partition("[")[0], worker[-1].partition("[")[0]
        return "\n".join(
            [
                "```mermaid",
                "flowchart LR",
                "  subgraph worker",
                f"    {' --> '.join(worker)}",
                "  end",
                "  subgraph trainer",
                *trainer,
                f"    {self._node('sampler', f'{feed.name}: sampler', feed.loader)}",
                f'    loop["{loop}"]',
                "  end",
                *edges,
                f'  sampler -->|"indices"| {first}',
                f'  {last} ==>|"batches"| loop',
                "```",
            ]
        )

    def _recorded(self, feed: Feed, crossing: Crossing) -> str:
        """The graph of the operations that samples ran, with the cut, and what crosses."""
        loop = f"{feed.name}: {_LOOPS[feed.role]}"
        graph, cut = crossing.graph, crossing.cut
        parts = [
            f"`{feed.name}`, from {graph.samples} samples; a KiB that crosses is priced at {crossing.price:g} \u00b5s of the trainer:",
            f"```mermaid\n{mermaid(graph, cut, loop)}```",
            _table(HEAD, table(graph, cut)),
        ]
        return "\n\n".join(parts)

    def _maker(self, feed: Feed) -> str:
        """The class or function that makes the dataset, as the script spells it."""
        span = feed.origin
        builder = self._builder(feed)
        if builder is not None and builder.result is not None:
            span = builder.result
        if span is None or span.path not in self.grids:
            return "dataset"
        text = self.grids[span.path].slice(span)
        try:
            tree = ast.parse(f"({text})", mode="eval").body
        except SyntaxError:
            return "dataset"
        return _short(ast.unparse(tree.func if isinstance(tree, ast.Call) else tree))

    def _builder(self, feed: Feed) -> Builder | None:
        datasets = [builder for builder in self.plan.worker.builders if builder.kind == "dataset"]
        return next((builder for builder in datasets if builder.name == feed.name), None)

    def _node(self, identifier: str, label: str, span: Span) -> str:
        where = Fragment(span.path, span.line, span.end_line)
        return f'{identifier}["{_label(label)}<br>{_label(str(where))}"]'

    def moved(self) -> str:
        lines = ["## What moved", ""]
        for feed in self.plan.feeds:
            if feed.status != "split":
                continue
            where = ", ".join(self._link_fragment(fragment) for fragment in feed.moved) or self._link(feed.loader)
            text = f"- {_code(feed.name)}: {where}, to {self.stem}_worker.py."
            if feed.residence == "sent":
                place = self._link(feed.origin or feed.loader)
                text = f"- {_code(feed.name)}: the trainer builds the dataset as before ({place}) and sends it to the workers whenever an "
                text += f"iterator is made; {self.stem}_worker.py has the code that it needs there."
            if feed.residence == "replicated":
                text += " The trainer builds the dataset as well."
            head = self.plan.moved_heads().get(feed.name)
            if head is not None:
                text += self._head(head)
            if feed.environment:
                text += f" Sent when the loader opens: {', '.join(_code(name) for name in feed.environment)}."
            lines.append(text)
        if self.plan.prefix is not None:
            lines.append(self._prefix(self.plan.prefix))
        if self.plan.needs:
            needs = ", ".join(_code(need) for need in self.plan.needs)
            lines += ["", f"The worker imports these files too, so copy them with it: {needs}."]
        return "\n".join(lines)

    def _head(self, moved: MovedHead) -> str:
        """What the loop did first, and where it is now."""
        own = tuple(moved.head.statements[number].fragment for number in moved.statements)
        lines = ", ".join(self._link_fragment(fragment) for fragment in joined(own))
        return (
            f" With it the head of the loop at {self._link(moved.head.loop)}: {lines}. Batches arrive as these statements leave them, "
            "bit for bit the same with one thread and with several on the samples that were run."
        )

    def _prefix(self, prefix: Prefix) -> str:
        """The start of the model's forward."""
        to = ", ".join(_code(feed.feed) for feed in prefix.feeds)
        text = (
            f"- The start of {_code(f'{prefix.owner}.forward')}: {self._link_fragment(prefix.body)}, to {self.stem}_worker.py, for {to}. "
        )
        pairs = [f"{_code(result)} comes in the place of {_code(parameter)}" for result, parameter in prefix.results if result != parameter]
        pairs += [f"{_code(result)} comes as it is after these lines" for result, parameter in prefix.results if result == parameter]
        said = bytes_line(self.plan, prefix)
        return text + f"In the batches {' and '.join(pairs)}{f': {said}' if said else ''}."

    def stayed(self) -> str:
        rows = [(f"{self._link(note.span)} {_code(note.what) if note.what else ''}".strip(), _cell(note.why)) for note in self.plan.notes]
        rows += self._finished()
        rows += [
            (f"{self._link(note.span)} {_code(note.what) if note.what else ''}".strip(), _cell(note.why)) for note in head_notes(self.plan)
        ]
        for feed in self.plan.feeds:
            if feed.status == "left":
                rows.append((f"{self._link(feed.loader)} loader {_code(feed.name)}", self._reason(feed)))
        rows.append(("shuffling", "samplers always stay with the trainer"))
        text = "## What stayed, and why\n\n" + _table(("where", "why"), rows)
        warnings = [self._finding(found) for found in self.plan.diagnostics if CODES[found.code].severity != "error"]
        return "\n".join([text, "", *warnings]) if warnings else text

    def _finished(self) -> Iterable[tuple[str, str]]:
        """The tails of transforms that the trainer runs."""
        for handle in self.plan.handles:
            finish = handle.finish
            if finish is not None:
                first = finish.tail.elements[finish.first - 1 if finish.half else finish.first]
                what = names(self.grids[first.path], finish)
                why = "commutes with collating, bit for bit on the samples that were run, and makes less cross when it stays"
                yield f"{self._link(first)} {_code(what)} of {_code(handle.builder)}", f"{why}; {self._where(handle)}"

    def _where(self, handle: HandleEdit) -> str:
        """Where samples are finished, and why not on the device when that was asked for."""
        finish = handle.finish
        assert finish is not None
        if finish.on == "device":
            loaders = {feed.loader for feed in self.plan.feeds if self.plan.builder_of(feed) == handle.builder}
            lines = {landing.line for landing in self.plan.landings if landing.loader in loaders}
            path = self.plan.script.path
            places = [self._link_fragment(Fragment(path, line.after, line.after)) for line in self.plan.insertions if line in lines]
            behind = f", behind {', '.join(places)}" if places else ", though no loop reads it"
            return f"done on whole batches where they are{behind}, by operations that give the same bits on every device"
        why = f"; not on the device: {_cell(finish.device)}" if self.plan.finish_on == "device" else ""
        return f"done on each sample of a batch, by `finish=`{why}"

    def _reason(self, feed: Feed) -> str:
        for found in self.plan.diagnostics:
            if found.code == feed.code and found.span is not None and _near(found.span, feed):
                return _cell(f"{found.code}: {message(found)}. To split it: {hint(found)}")
        why = "; ".join(feed.why) or CODES[feed.code or "S901"].title
        return _cell(f"{feed.code}: {why}")

    def _finding(self, found: Diagnostic) -> str:
        where = "" if found.span is None else f"{self._link(found.span)} "
        return f"- {where}{found.code}: {_cell(message(found))}. {_cell(hint(found))}."

    def checks(self) -> str:
        lines = [
            f"- Text: with its edits taken back {self.stem}_trainer.py is {self.script} again, character for character; "
            "both programs parse.",
            f"- Digest: `{self.plan.agreed}`, of {self.script} and the local modules that it imports. Trainer and workers compare it when "
            f"they connect; `splitter check {self.script}` compares these files with the script.",
        ]
        for feed in self.plan.feeds:
            if feed.status == "split":
                lines.append(f"- {_code(feed.name)}: {self._checked(feed)}")
            if feed.uncut is not None:
                lines.append(f"- {_code(feed.name)}: the cut stays at the loader: {_cell(feed.uncut)}.")
        left = [f"{_code(feed.name)} ({feed.code})" for feed in self.plan.feeds if feed.status == "left"]
        if self.plan.prefix is not None:
            lines.append(
                "- The start of forward: on a recorded batch of each loader it gives, with one thread and the worker's constants, the bits "
                "that it gives in the model; it does nothing whose bits differ from device to device."
            )
        lines.append(f"- Refused: {', '.join(left) or 'nothing'}.")
        lines.append(
            f"- Not run yet: `splitter verify {self.script} -- ARGS` runs script and split side by side and compares batches and "
            "random-number generators, bit for bit."
        )
        return "\n".join(["## What was checked", "", *dict.fromkeys(lines)])

    def _checked(self, feed: Feed) -> str:
        state = {
            True: "keeps no state from batch to batch",
            False: "keeps state from batch to batch, in its stream as in the script's own worker process",
            None: "may keep state from batch to batch, in its stream as in the script's own worker process",
        }[feed.stateless]
        draws = f"draws from {', '.join(feed.draws)}, with the seeds of the script's own" if feed.draws else "draws no random numbers"
        text = f"what runs on the worker {draws}; it {state}."
        accepts = next((b.accepts for b in self.plan.worker.builders if (b.kind, b.name) == ("loader", feed.name)), ())
        if accepts:
            own = [name for name in accepts if not name.endswith(".*")]
            listed = [f"the {len(own)} classes and functions of the script that it lists"] if len(own) > _FEW else list(map(_code, own))
            names = ", ".join([*listed, *(_code(name) for name in accepts if name not in own)])
            text += f" Of what is sent the worker accepts {names} and what packages that it imports define; "
            text += "with anything else in it the loader stays in the trainer, which says so."
        return text

    def run(self) -> str:
        trainer, worker = f"{self.stem}_trainer.py", f"{self.stem}_worker.py"
        settings = "SPLITTER_WORKERS=cpu1:7077,cpu2:7077 SPLITTER_TOKEN_FILE=token"
        rows = [
            (f"python {worker} --listen 0.0.0.0:7077 --token-file token", "on each CPU host"),
            (f"{settings} python {trainer} ARGS", "on the GPU host"),
            (f"python {trainer} ARGS", "all on one machine"),
        ]
        width = max(len(command) for command, _ in rows)
        commands = "\n".join(f"    {command:{width}}  # {where}" for command, where in rows)
        return f"## Run it\n\n{commands}\n\nAfter a change of {self.script}, run `splitter transform {self.script}` again."

    def back(self) -> str:
        plan = self.plan
        modules = {edit.module for edits in (plan.handles, plan.loaders, plan.removals, plan.classes) for edit in edits}
        patched = bool(modules - {plan.script.module})
        names = [f"{self.stem}_{rest}" for rest in ("worker.py", "trainer.py", "split.md", "split.json", *(["split/"] if patched else []))]
        files = f"{', '.join(names[:-1])} and {names[-1]}"
        text = f"Run {self.script}: it is as it was. {files} can be deleted."
        return f"## Go back\n\n{text}\n\nWritten by splitter {splitter.__version__}."

    def _link(self, span: Span) -> str:
        return f"[{span.path}:{span.line}]({self._target(span.path)}#L{span.line})"

    def _link_fragment(self, fragment: Fragment) -> str:
        anchor = f"L{fragment.first}" if fragment.first == fragment.last else f"L{fragment.first}-L{fragment.last}"
        return f"[{fragment}]({self._target(fragment.path)}#{anchor})"

    def _target(self, path: str) -> str:
        return re.sub(r"[ ()<>]", lambda match: f"%{ord(match[0]):02X}", self.base + path)


def _near(span: Span, feed: Feed) -> bool:
    """Whether a finding is about this feed: it stands in its loader's call or its dataset's construction."""
    return any(
        place is not None and span.path == place.path and place.line <= span.line <= place.end_line for place in (feed.loader, feed.origin)
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(row) for row in (head, *rows)]
    return "\n".join([f"| {lines[0]} |", "|" + "---|" * len(head), *(f"| {line} |" for line in lines[1:])])


def _code(text: str) -> str:
    """Text as code in a table cell."""
    ticks = "`" if "`" not in text else "``"
    return ticks + _cell(text) + ticks


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _label(text: str) -> str:
    """Text inside of a quoted Mermaid label."""
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def _short(text: str) -> str:
    return text if len(text) <= 50 else text[:47] + "..."
