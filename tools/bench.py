"""Measures the split against torch's own loader, a bare gRPC stream and, with --peers, other libraries that read on remote workers.

    python tools/bench.py                   the rows that need nothing but this repository
    python tools/bench.py --peers           all rows; makes an environment for each peer below bench/venvs
    python tools/bench.py --only rows --only remote --rounds 3
    python tools/bench.py --markdown        the table as it stands in the README

Contenders of a row run in turn (A B A B ...), each as a process of its own. Every round gives one ratio; the result is their median.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from bench_experiments import CUT_EXPERIMENTS, EVERYTHING, KEYS, LOCAL_EXPERIMENTS, ROOT, Bench
from bench_rounds import Complaints, outcomes
from bench_table import markdown_table, rich_table
from rich.console import Console

WIDTH = 180  # characters of a line, when the table goes to a file


def processor() -> str:
    """The processor's name, as far as Linux tells it."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def title(rounds: int, quick: bool) -> str:
    small = "small sizes, says nothing of speed; " if quick else ""
    python = platform.python_version()
    return f"{small}medians of up to {rounds} rounds; {os.cpu_count()} CPUs ({processor()}), Python {python}, torch {version('torch')}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the split against torch's own loader, a bare gRPC stream and other libraries.")
    parser.add_argument("--only", action="append", choices=KEYS, metavar="ROW", help=f"this row, may be repeated: {', '.join(KEYS)}")
    parser.add_argument("--peers", action="store_true", help="also the rows that install other libraries")
    parser.add_argument("--rounds", type=int, default=5, help="how often each program of a row runs, at most (default: 5; long ones: 3)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--quick", action="store_true", help="one round with small sizes, to see that every row works")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    rounds = 1 if args.quick else args.rounds
    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    offered = EVERYTHING if args.peers or args.only else (*LOCAL_EXPERIMENTS, *CUT_EXPERIMENTS)
    keys = args.only or KEYS
    chosen = [experiment for experiment in offered if any(row.key in keys for row in experiment.rows)]
    complaints = Complaints(progress)
    try:
        lines = list(outcomes(Bench(ROOT / "bench", args.quick), chosen, keys, rounds, progress, complaints))
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
    if not lines:
        return 2
    if args.markdown:
        print(f"{markdown_table(lines)}\n\n{title(rounds, args.quick)}")
    else:
        console.print(rich_table(lines, title(rounds, args.quick)))
    return 2 if complaints.needed else 0


if __name__ == "__main__":
    sys.exit(main())
