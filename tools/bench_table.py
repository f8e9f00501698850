"""Rows of the speed table: what was measured to ratios, and ratios to text. No I/O.

{"split": {"batches/s": 100.0}, "torch": {"batches/s": 40.0}}, ...   one dictionary for each round
64 x 3x224x224 float32 ... | torch DataLoader | 100 batches/s | 40.0 batches/s | 2.50 | 2.41-2.62 | >= 2.5
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

SPLIT = "split"
HEADINGS = ("what", "against", "split", "other", "result", "spread", "target")

Numbers = Mapping[str, float]  # metric -> value, what one run of a program gave
Round = Mapping[str, Numbers]  # contender -> its run in this round; contenders that failed are missing


class Compare(Enum):
    """How the split's value and the other's give the result."""

    RATE = "split/other, more is better"
    COST = "split/other, less is better"
    TIMES_SOONER = "other/split, more is better"
    LATER = "split - other in seconds, less is better"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    key: str  # for --only; lines with several peers share it
    what: str
    other: str  # the contender to compare with
    against: str  # the same for people
    metric: str
    compare: Compare
    target: float | None = None


@dataclass(frozen=True)
class Outcome:
    """Medians and spread over the rounds in which both ran."""

    row: Row
    split: float
    other: float
    results: tuple[float, ...]  # sorted, one for each round

    @property
    def result(self) -> float:
        return statistics.median(self.results)

    @property
    def met(self) -> bool | None:
        """Whether the target is met, as far as there is one."""
        if self.row.target is None:
            return None
        at_least = self.row.compare in (Compare.RATE, Compare.TIMES_SOONER)
        return self.result >= self.row.target if at_least else self.result <= self.row.target


def derive(found: Mapping[str, float], started: float) -> dict[str, float]:
    """Metrics of one run from what its program printed; `started` is when its process was made, on the same clock as `first`.

    `ready` is how many seconds of that a program took to start servers, which the split has running beforehand.
    """
    metrics = {name: found[name] for name in ("peak", "lowest", "later") if name in found}
    if "first" in found:
        metrics["first"] = found["first"] - started - found.get("ready", 0.0)
    seconds = found.get("seconds", 0.0)
    if seconds > 0:
        if "batches" in found:
            metrics["batches/s"] = found["batches"] / seconds
        if "rows" in found:
            metrics["images/s"] = found["rows"] / seconds
        if "bytes" in found:
            metrics["GB/s"] = found["bytes"] / seconds / 1e9
    if found.get("bytes", 0) > 0 and "cpu" in found:
        metrics["CPU s/GB"] = found["cpu"] / found["bytes"] * 1e9
    return metrics


def compared(compare: Compare, split: float, other: float) -> float:
    """The result of one round."""
    if compare is Compare.LATER:
        return split - other
    return other / split if compare is Compare.TIMES_SOONER else split / other


def outcome(row: Row, rounds: Sequence[Round]) -> Outcome | None:
    """The row's line; None when the two never ran in the same round."""
    pairs = [
        (done[SPLIT][row.metric], done[row.other][row.metric])
        for done in rounds
        if row.metric in done.get(SPLIT, {}) and row.metric in done.get(row.other, {})
    ]
    if not pairs:
        return None
    results = sorted(compared(row.compare, *pair) for pair in pairs)
    split, other = (statistics.median(values) for values in zip(*pairs, strict=True))
    return Outcome(row, split, other, tuple(results))


def shown_value(metric: str, value: float) -> str:
    """A median with its unit."""
    if metric in ("first", "later"):
        return f"{value * 1000:,.0f} ms" if value < 1 else f"{value:.2f} s"
    if metric in ("peak", "lowest"):
        return f"{value:,.0f} MiB"
    if metric in ("GB/s", "CPU s/GB"):
        return f"{value:.2f} {metric}"
    return f"{value:,.0f} {metric}" if value >= 100 else f"{value:.1f} {metric}"


def shown_result(compare: Compare, value: float) -> str:
    return f"{value:+.2f} s" if compare is Compare.LATER else f"{value:.2f}"


def cells(done: Outcome) -> tuple[str, ...]:
    """One line of the table, in the order of HEADINGS."""
    row, target = done.row, ""
    if row.target is not None:
        sign = "≥" if row.compare in (Compare.RATE, Compare.TIMES_SOONER) else "≤"
        target = f"{sign} {row.target:g}" + (" s" if row.compare is Compare.LATER else "") + ("" if done.met else ", missed")
    low, high = (shown_result(row.compare, value) for value in (done.results[0], done.results[-1]))
    values = (shown_value(row.metric, value) for value in (done.split, done.other))
    return (row.what, row.against, *values, shown_result(row.compare, done.result), f"{low} to {high}", target)


def rich_table(outcomes: Sequence[Outcome], title: str) -> Table:
    """For a terminal."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if number < 2 else "right", no_wrap=number >= 2)
    for done in outcomes:
        style = {True: "green", False: "red", None: ""}[done.met]
        texts = cells(done)
        table.add_row(*texts[:4], Text(texts[4], style), texts[5], Text(texts[6], style))
    return table


def markdown_table(outcomes: Sequence[Outcome]) -> str:
    """For the README."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * 2 + "---:|" * (len(HEADINGS) - 2)]
    lines.extend("| " + " | ".join(cells(done)) + " |" for done in outcomes)
    return "\n".join(lines)
