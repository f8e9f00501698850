"""Runs a program as it is and split, and says what became of it.

verdict = judge(text(program), folder, nursery)      # Verdict("identical"), or "refused" with the codes, or what went wrong
"""

from __future__ import annotations

import difflib
import itertools
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from programs.compose import Program, smaller
from programs.nursery import Ended, Nurseries
from splitter.compile import compile_script
from splitter.emit import emit
from splitter.write import write

SECONDS = 30.0
# "different" from the script; "crashed" in the compiler; "late": the script had ended, the split had not; "racy": the script itself prints
# something else every time, so that nothing can be said.
Kind = Literal["identical", "refused", "different", "crashed", "late", "racy"]
FAULTS = ("different", "crashed", "late")


@dataclass(frozen=True)
class Verdict:
    """`codes` are those of loaders that were left, `said` shows a fault, `failed` that the script itself ends with an error."""

    kind: Kind
    codes: tuple[str, ...] = ()
    said: str = ""
    failed: bool = False


def judge(script: str, folder: Path, nursery: Nurseries) -> Verdict:
    """Compile and run a script in an empty folder, which must exist."""
    path = folder / "train.py"
    path.write_text(script, encoding="utf-8")
    try:
        plan = compile_script(path)
        codes = tuple(sorted({feed.code for feed in plan.feeds if feed.code is not None}))
        if not plan.split:
            return Verdict("refused", codes or tuple(found.code for found in plan.diagnostics))
        write(emit(plan), folder, frozenset({"train_trainer.py", "train_worker.py", "train_split.md", "train_split.json"}))
    except Exception:  # any at all is the fault that this looks for
        return Verdict("crashed", said=traceback.format_exc(limit=-6))
    plain = nursery.run(folder, "train.py", seconds=SECONDS)
    split = nursery.run(folder, "train_trainer.py", seconds=SECONDS)
    failed = plain.status != 0
    if split.status is None and plain.status is not None:
        return Verdict("late", codes, split.stdout + split.stderr, failed)
    if _ending(plain) != _ending(split):
        if any(_ending(nursery.run(folder, "train.py", seconds=SECONDS)) != _ending(plain) for _ in range(3)):
            return Verdict("racy", codes, failed=failed)
        return Verdict("different", codes, _difference(plain, split), failed)
    return Verdict("identical", codes, plain.stderr if failed else "", failed)


def _ending(ended: Ended) -> tuple[int | None, str, str]:
    """What must be the same: exit status, output, and the error that ended it."""
    lines = [line for line in ended.stderr.splitlines() if line and not line.startswith("splitter: ")]  # which samples were fetched
    error = lines[-1] if lines and ended.status == 1 else ""
    return ended.status, ended.stdout, error.split(":")[0]


def _difference(plain: Ended, split: Ended) -> str:
    lines = [[*ended.stdout.splitlines(), f"exit status {ended.status}"] for ended in (plain, split)]
    shown = list(itertools.islice(difflib.unified_diff(*lines, "script", "split", n=1, lineterm=""), 40))
    return "\n".join([*shown, "script's errors:", plain.stderr[-1500:], "split's errors:", split.stderr[-2500:]])


def shrunk(program: Program, same: Callable[[Program], bool]) -> Program:
    """A program with as many plain idioms as can be while it is still the `same`; asks for some dozens of programs."""
    for plainer in smaller(program):
        if same(plainer):
            return shrunk(plainer, same)
    return program
