"""What the split printed against what the script printed, batch by batch.

    compare(script_lines, split_lines) -> Totals(compared=4000, lost=0, duplicated=0, different=0, losses=0, first="")

A batch's line starts with its name, `LOADER:EPOCH:STEP`, and ends with its loss; any other line is compared as one without a name. A batch
that is different makes the losses of all later batches of its loader different, so these are counted by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Totals:
    """Numbers of batches; `losses` that are different though the batch isn't. `first` shows the first difference, "" when there is none."""

    compared: int
    lost: int
    duplicated: int
    different: int
    losses: int
    first: str

    @property
    def same(self) -> bool:
        """Whether both have printed the same, in the same order."""
        return not (self.lost or self.duplicated or self.different or self.losses or self.first)


def name_of(line: str) -> str:
    """The batch that a line tells of, or the whole line."""
    name = line.split(" ", 1)[0]
    return name if name.count(":") == 2 else line


def is_batch(line: str) -> bool:
    """Whether the line tells of a batch."""
    return name_of(line) != line


def compare(script: Sequence[str], split: Sequence[str]) -> Totals:
    """Compare all lines of the split with the script's; batches that the script has not made count as different."""
    expected = {name_of(line): line for line in script}
    seen: dict[str, str] = {}
    duplicated = different = losses = 0
    for line in split:
        name = name_of(line)
        there = expected.get(name, "")
        if name in seen:
            duplicated += 1
        elif _without_loss(there) != _without_loss(line):
            different += 1
        elif there != line:
            losses += 1
        seen.setdefault(name, line)
    lost = sum(name not in seen for name in expected)
    return Totals(sum(is_batch(line) for line in seen.values()), lost, duplicated, different, losses, _first(script, split))


def _without_loss(line: str) -> str:
    return line.rpartition(" ")[0] if is_batch(line) else line


def _first(script: Sequence[str], split: Sequence[str]) -> str:
    for here, there in zip(script, split, strict=False):
        if here != there:
            return f"script: {here}\nsplit:  {there}"
    if len(script) == len(split):
        return ""
    longer, who = (script, "script") if len(script) > len(split) else (split, "split")
    return f"only the {who}: {longer[min(len(script), len(split))]}"
