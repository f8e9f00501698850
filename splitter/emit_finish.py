"""A tail of transforms that is parted, as text: what the worker leaves out, and what the trainer says instead.

Compose([                            Compose([
    Flip(),                              Flip(),
    transforms.ToTensor(),     ->        transforms.PILToTensor(),  # the rest of it, and normalize, on the trainer
    normalize,                       ])
])                                   finish=(transforms.Compose([splitter_runtime.ScaleToFloat(), normalize]), None)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from splitter.emit_links import function_text, operations, shortened
from splitter.ir import Span
from splitter.ir_cut import Finish
from splitter.splice import Grid, Splice, apply

_HALF = "PIL"  # PILToTensor is the first half of ToTensor, of images


@dataclass(frozen=True)
class Parted:
    """The text of a module without a tail, of as many lines as before, and the lines that have become empty."""

    text: str
    gone: frozenset[int]


def without_tail(grid: Grid, finish: Finish, runtime: str) -> Parted:
    """Take what the trainer does out of the text. ValueError when the spans aren't those of the text."""
    said = f"  # the rest, {names(grid, finish)}, is done on the trainer"
    splices = shortened(grid, finish, said) if finish.tail.links else _shorter_list(grid, finish, runtime, said)
    made = apply(grid.text, splices)
    before, after = grid.lines, Grid(made).lines
    gone = {number for number, (old, new) in enumerate(zip(before, after, strict=True), 1) if old.strip() and not new.strip()}
    return Parted(made, frozenset(gone))


def _shorter_list(grid: Grid, finish: Finish, runtime: str, said: str) -> list[Splice]:
    """The container's list without its last elements."""
    spans, text = finish.tail.elements, grid.text
    starts, ends = zip(*(grid.range(span) for span in spans), strict=True)
    first = finish.first
    splices = []
    if finish.half:
        splices.append(_half(grid, spans[first - 1], finish, runtime))
    if first < len(spans):
        splices.append(_removal(grid, finish, starts[first], ends[-1], said))
    elif re.compile(r",?[ \t]*\r?(?=\n)").match(text, ends[-1]):
        splices.append(_comment(text, ends[-1], said))
    return splices


def _half(grid: Grid, span: Span, finish: Finish, runtime: str) -> Splice:
    """What stands for the first half of a ToTensor: torchvision's own where its package is at hand, and the runtime's for the rest."""
    start, end = grid.range(span)
    name = re.compile(r"[^()]*?\.\s*(?=ToTensor\b)").match(grid.text, start)
    if name is None or finish.arrays:
        return Splice(start, end, f"{runtime}.ToUnscaledTensor()")
    return Splice(name.end(), name.end(), _HALF)


def _removal(grid: Grid, finish: Finish, start: int, end: int, said: str) -> Splice:
    """The elements from `start` to `end`, with the comma on one side of them; line breaks stay."""
    text = grid.text
    if finish.first == 0:
        comma = re.compile(r"\s*,").match(text, end)
        end = comma.end() if comma else end
        return Splice(start, end, _breaks(text[start:end]))
    before = grid.range(finish.tail.elements[finish.first - 1])[1]
    between = text[before:start]
    if "\n" not in between:
        return Splice(before, end, _breaks(text[before:end]))
    # The elements have lines of their own: the one before keeps its comma and its comment.
    comma = re.compile(r"\s*,").match(text, end)
    end = comma.end() if comma else end
    line = re.compile(r"[^\r\n]*").match(text, before)
    assert line is not None
    kept = line[0].rstrip()
    comment = said if kept in (",", "") else ""
    begin = before + len(kept)
    rest = re.compile(r"[ \t]*(#[^\r\n]*)?(?=\r?\n)").match(text, end)
    return Splice(begin, rest.end() if rest else end, comment + _breaks(text[begin:end]) + _indent(text, end, rest is not None))


def _indent(text: str, end: int, alone: bool) -> str:
    """What stands before the rest of the last line, when there is any."""
    if alone:
        return ""
    start = text.rindex("\n", 0, end) + 1
    return text[start : start + len(text[start:]) - len(text[start:].lstrip(" \t"))]


def _comment(text: str, at: int, said: str) -> Splice:
    place = re.compile(r",?").match(text, at)
    assert place is not None
    return Splice(place.end(), place.end(), said)


def _breaks(text: str) -> str:
    return "".join(re.findall(r"\r\n|\r|\n", text))


def names(grid: Grid, finish: Finish) -> str:
    """`ToTensor's second half and normalize`."""
    if finish.tail.links:
        return operations(grid, finish)[0]
    names = ["ToTensor's second half"] if finish.half else []
    names += [_short(grid.slice(span)) for span in finish.tail.elements[finish.first :]]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _short(text: str) -> str:
    head = re.match(r"[\w.]+", text)
    return head[0].rpartition(".")[2] if head and head[0] != "lambda" else "a function"


def finish_text(grid: Grid, finish: Finish, runtime: str, indent: str = "", unit: str = "    ", room: int | None = None) -> str:
    """`finish=...` of the trainer: the user's own transforms, in the structure of a sample.

    Broken into lines at `indent` where it is longer than `room`.
    """
    if finish.tail.links:
        flat = f"finish={finish.template.format(function_text(grid, finish))}"
        if room is None or len(flat) <= room:
            return flat
        return f"finish={finish.template.format(function_text(grid, finish, f'{grid.newline}{indent}', unit))}"
    steps = [f"{runtime}.ScaleToFloat()"] if finish.half else []
    steps += [grid.slice(finish.tail.value(element)) for element in range(finish.first, len(finish.tail.elements))]
    if len(steps) == 1:
        return f"finish={finish.template.format(steps[0])}"
    flat = _whole(finish, ", ".join(steps))
    if room is None or len(flat) <= room:
        return flat
    lines = "".join(f"{grid.newline}{indent}{unit}{step}," for step in steps)
    return _whole(finish, f"{lines}{grid.newline}{indent}")


def _whole(finish: Finish, listed: str) -> str:
    made = f"{finish.tail.callee}([{listed}])" if finish.tail.listed else f"{finish.tail.callee}({listed})"
    return f"finish={finish.template.format(made)}"
