"""Compiles every training script of a source tree and says what became of it.

    python tools/corpus.py FOLDER --report out.md [--scripts LIST] [--limit SECONDS] [--jobs N]

Each script is given to `splitter transform` in a process of its own, with a time limit and, where `unshare` can make one, in a network
namespace with no network; what it writes goes to a temporary folder. Nothing of the tree is executed or changed. `corpus_scripts.py` says
which files are scripts; `--scripts` names a file with paths relative to FOLDER instead, one to a line.

A loader counts once for each script that reaches it and each dataset that it gets, as in the report of `transform`. The exit status
is 1 when a script crashed splitter, took longer than the limit, or gave a program that doesn't parse; 2 for bad input.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from corpus_scripts import find_scripts

PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "grpc_proxy")
# Without a network; a user who is not root may do that only in a user namespace.
NAMESPACES = (("unshare", "--net"), ("unshare", "--map-root-user", "--net"))

# "left" has loaders and none is split; "bad input" is a file that splitter can't read.
Result = Literal["split", "left", "no loader", "bad input", "crashed", "slow", "not parsing"]
FAULTS: tuple[Result, ...] = ("crashed", "slow", "not parsing")


class CorpusError(Exception):
    """What was given can't be used; the message is one line for the user."""


@dataclass(frozen=True)
class Outcome:
    """What became of one script. `left` has the code of each loader that was left; `said` is what a failure printed."""

    script: str
    result: Result
    seconds: float
    split: int = 0
    left: tuple[str, ...] = ()
    said: str = ""


@functools.cache
def isolation() -> tuple[str, ...]:
    """The command that runs another without a network; empty when there is none."""
    for command in NAMESPACES:
        try:
            ended = subprocess.run([*command, "true"], capture_output=True)
        except OSError:
            continue
        if ended.returncode == 0:
            return command
    return ()


def environment() -> dict[str, str]:
    """No proxies, no settings of splitter, and the traceback of an internal error."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPLITTER_") and name.lower() not in PROXIES}
    return {**kept, "SPLITTER_TRACEBACK": "1", "PYTHONIOENCODING": "utf-8"}


def compile_one(folder: Path, script: str, limit: float) -> Outcome:
    """Give one script to `splitter transform`, for at most `limit` seconds."""
    with tempfile.TemporaryDirectory(prefix="splitter-corpus-") as temporary:
        out = Path(temporary, "out")
        # The working folder is empty: `python -m` looks there for modules first.
        command = [*isolation(), sys.executable, "-m", "splitter", "transform", str(folder / script), "--out", str(out), "--json"]
        start = time.monotonic()
        try:
            ended = subprocess.run(
                command,
                cwd=temporary,
                env=environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return Outcome(script, "slow", time.monotonic() - start)
        return outcome(script, ended.returncode, ended.stdout, ended.stderr, out, time.monotonic() - start)


def outcome(script: str, status: int, plan: str, said: str, out: Path, seconds: float) -> Outcome:
    """Judge one run of `transform`: its exit status, what it printed, and the files that it wrote to `out`."""
    if status == 2:
        return Outcome(script, "bad input", seconds, said=said)
    try:
        feeds = json.loads(plan)["feeds"]
    except ValueError:
        # Status 3 without a plan: there is no loader.
        no_loader = status == 3 and "S104" in said
        return Outcome(script, "no loader" if no_loader else "crashed", seconds, said=said or f"exit status {status}")
    if status not in (0, 3):
        return Outcome(script, "crashed", seconds, said=said or f"exit status {status}")
    split = sum(feed["status"] == "split" for feed in feeds)
    left = tuple(feed["code"] for feed in feeds if feed["status"] == "left")
    wrong = "".join(f"{path.relative_to(out)}: {reason}\n" for path in sorted(out.rglob("*.py")) if (reason := unparsable(path)))
    if bool(split) != (status == 0) or (split and not list(out.glob("*_trainer.py"))):
        wrong += f"exit status {status} with {split} loaders split and the files {sorted(path.name for path in out.glob('*'))}\n"
    result: Result = "not parsing" if wrong else "split" if split else "left" if left else "no loader"
    return Outcome(script, result, seconds, split, left, wrong)


def unparsable(path: Path) -> str:
    """Why a file isn't Python; empty when it is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        return str(error)
    return ""


def summary(outcomes: Sequence[Outcome]) -> str:
    """The counts, one to a line."""
    results = Counter(one.result for one in outcomes)
    split, left = sum(one.split for one in outcomes), sum(len(one.left) for one in outcomes)
    lines = [
        f"scripts: {len(outcomes)} ({', '.join(f'{count} {result}' for result, count in results.most_common())})",
        f"loaders: {split + left} ({split} split, {left} left)",
        *(f"  {code} {count}" for code, count, _ in by_code(outcomes)),
    ]
    lines += [f"{one.result}: {one.script}" for one in outcomes if one.result in FAULTS]
    return "\n".join(lines)


def by_code(outcomes: Sequence[Outcome]) -> list[tuple[str, int, int]]:
    """(code, loaders left with it, scripts that have such a loader), the most frequent code first."""
    loaders = Counter(code for one in outcomes for code in one.left)
    scripts = Counter(code for one in outcomes for code in set(one.left))
    return [(code, count, scripts[code]) for code, count in sorted(loaders.items(), key=lambda item: (-item[1], item[0]))]


def report(outcomes: Sequence[Outcome]) -> str:
    """The report as Markdown."""
    results = Counter(one.result for one in outcomes)
    split = sum(one.split for one in outcomes)
    codes = [("split", split, results["split"]), *by_code(outcomes)]
    parts = [
        "# What splitter makes of these scripts",
        _table(("scripts", "count"), [*results.most_common(), ("all", len(outcomes))]),
        _table(("loaders", "count", "scripts"), codes),
        _table(
            ("script", "result", "split", "left", "seconds"),
            [
                (
                    f"`{one.script}`",
                    one.result,
                    one.split,
                    ", ".join(f"{n} {code}" for code, n in sorted(Counter(one.left).items())),
                    f"{one.seconds:.1f}",
                )
                for one in outcomes
            ],
        ),
    ]
    for one in outcomes:
        if one.result in FAULTS and one.said:
            fence = "`" * 3
            while fence in one.said:
                fence += "`"
            parts.append(f"## {one.result}: `{one.script}`\n\n{fence}\n{one.said.rstrip()}\n{fence}")
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def listed(folder: Path, listing: Path) -> list[str]:
    """The paths of a list, without blank lines and those that start with #. CorpusError when a file isn't there."""
    try:
        lines = [line.strip() for line in listing.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"can't read {listing}: {error}") from None
    scripts = list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
    for script in scripts:
        if not (folder / script).is_file():
            raise CorpusError(f"{listing}: there is no file {script} in {folder}")
    return scripts


def run(folder: Path, scripts: Sequence[str], *, limit: float, jobs: int) -> list[Outcome]:
    """All outcomes, in the order of `scripts`; each is printed when it is there."""
    done = []

    def one(script: str) -> Outcome:
        found = compile_one(folder, script, limit)
        done.append(script)
        print(f"{len(done)}/{len(scripts)} {script}: {found.result}, {found.seconds:.1f} s", file=sys.stderr)
        return found

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, scripts))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the source tree")
    parser.add_argument("--report", type=Path, required=True, metavar="FILE", help="Markdown file to write")
    parser.add_argument("--scripts", type=Path, metavar="LIST", help="file with the paths of the scripts, relative to FOLDER")
    parser.add_argument("--limit", type=float, default=60.0, metavar="SECONDS", help="time for one script (default: 60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="scripts at once (default: CPUs)")
    given = parser.parse_args()
    if given.limit <= 0 or given.jobs < 1:
        parser.error("--limit must be above 0 and --jobs at least 1")
    folder = given.folder.absolute()
    try:
        if not folder.is_dir():
            raise CorpusError(f"there is no folder {given.folder}")
        if given.scripts is not None:
            scripts = listed(folder, given.scripts)
        else:
            scripts = [path.relative_to(folder).as_posix() for path in find_scripts(folder)]
        if not scripts:
            raise CorpusError(f"there is no training script in {given.folder}")
        outcomes = run(folder, scripts, limit=given.limit, jobs=given.jobs)
        given.report.write_text(report(outcomes), encoding="utf-8")
    except (CorpusError, OSError) as error:
        print(f"corpus: {error}", file=sys.stderr)
        return 2
    print(summary(outcomes))
    return int(any(one.result in FAULTS for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
