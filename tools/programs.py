"""Composes random training programs, and compares each with its split.

    python tools/programs.py [--count N] [--seed S] [--jobs N] [--keep FOLDER] [--only TABLE=IDIOM ...]

The idioms are in `tests/programs`. What is printed: how many programs gave the same output split, how many were refused and with which
codes, and how many were different, crashed splitter or took too long. Those are made as plain as they can be, and written to FOLDER with
what was seen. The exit status is 1 when there was one.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
# Not part of either package, so imported by name.
compose, judging, nurseries = (importlib.import_module(f"programs.{name}") for name in ("compose", "judge", "nursery"))


def programs(count: int, seed: int, fixed: dict[str, str]) -> list[dict[str, str]]:
    """`count` different programs of a seed, with some of their idioms given."""
    chance = random.Random(seed)

    def choose(table: str, options: Sequence[str]) -> str:
        given = fixed.get(table, "")
        return given if given in options else chance.choice(options)

    made: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for _ in range(20 * count):
        program = compose.draw(choose)
        if all(program[table] == idiom for table, idiom in fixed.items()):
            made.setdefault(tuple(program.items()), program)
        if len(made) == count:
            break
    return list(made.values())


class Runner:
    """One nursery, and a folder for each program."""

    def __init__(self) -> None:
        self.nursery = nurseries.Nurseries()

    def judge(self, program: dict[str, str]) -> Any:
        with tempfile.TemporaryDirectory(prefix="splitter-program-") as folder:
            return judging.judge(compose.text(program), Path(folder), self.nursery)

    def shrink(self, program: dict[str, str], kind: str) -> tuple[dict[str, str], Any]:
        plain = judging.shrunk(program, lambda plainer: self.judge(plainer).kind == kind)
        return plain, self.judge(plain)


_runner: list[Runner] = []


def work(program: dict[str, str]) -> tuple[dict[str, str], Any]:
    """In a process of its own: judge a program, and make it plain when there is a fault."""
    if not _runner:
        _runner.append(Runner())
    verdict = _runner[0].judge(program)
    if verdict.kind in judging.FAULTS:
        return _runner[0].shrink(program, verdict.kind)
    return program, verdict


def keep(folder: Path, number: int, program: dict[str, str], verdict: Any) -> Path:
    """Write a program with a fault into a folder of its own."""
    place = folder / f"{verdict.kind}_{number}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "train.py").write_text(compose.text(program))
    (place / "seen.txt").write_text(f"{program}\n\n{verdict.said}\n")
    return place


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200, metavar="N", help="how many programs (default: 200)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="which ones (default: 0)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="programs at once (default: 1)")
    parser.add_argument("--keep", type=Path, default=Path("programs"), metavar="FOLDER", help="for faults (default: programs)")
    parser.add_argument("--only", action="append", default=[], metavar="TABLE=IDIOM", help="fix an idiom; may be given again")
    given = parser.parse_args()
    fixed = dict(one.partition("=")[::2] for one in given.only)
    wrong = [f"{table}={idiom}" for table, idiom in fixed.items() if idiom not in compose.TABLES.get(table, ())]
    if wrong or given.count < 1 or given.jobs < 1:
        parser.error(f"there is no {wrong[0]}" if wrong else "--count and --jobs must be at least 1")
    start = time.monotonic()
    counts: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    faults: dict[tuple[tuple[str, str], ...], Path] = {}
    failed = 0
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for number, (program, verdict) in enumerate(pool.imap_unordered(work, programs(given.count, given.seed, fixed))):
            counts[verdict.kind] += 1
            failed += verdict.failed
            codes.update(verdict.codes if verdict.kind == "refused" else ())
            if verdict.kind in judging.FAULTS and tuple(program.items()) not in faults:
                place = faults[tuple(program.items())] = keep(given.keep, number, program, verdict)
                print(f"{verdict.kind}: {place}: {[idiom for idiom in program.values()]}", flush=True)
    seconds = time.monotonic() - start
    print(f"{sum(counts.values())} programs in {seconds:.0f} s: {', '.join(f'{count} {kind}' for kind, count in counts.most_common())}")
    print(f"refused with: {', '.join(f'{count} {code}' for code, count in codes.most_common())}; scripts that end with an error: {failed}")
    return int(any(counts[kind] for kind in judging.FAULTS))


if __name__ == "__main__":
    sys.exit(main())
