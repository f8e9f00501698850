"""Compiles every training script of a source tree and says what became of it.

    python tools/corpus.py FOLDER --report out.md [--scripts LIST] [--levels N] [--limit SECONDS] [--jobs N]

Each script is given to `splitter transform` in a process of its own, with a time limit and, where `unshare` can make one, in a network
namespace with no network; what it writes goes to a temporary folder. Nothing of the tree is executed or changed. `corpus_scripts.py` says
which files are scripts; `--scripts` names a file with paths relative to FOLDER instead, one to a line.

A loader counts once for each script that reaches it; when it gets several datasets and one of them leaves it, it counts as left. The
report has a table with one row for each folder: the first of a script's path, or the first N. The exit status is 1 when a script
crashed splitter, took longer than the limit, or gave a program that doesn't parse; 2 for bad input.
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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from corpus_report import FAULTS, Outcome, Result, report, summary, verdicts
from corpus_scripts import find_scripts

PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "grpc_proxy")
# Without a network; a user who is not root may do that only in a user namespace.
NAMESPACES = (("unshare", "--net"), ("unshare", "--map-root-user", "--net"))


class CorpusError(Exception):
    """What was given can't be used; the message is one line for the user."""


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
        command = [
            *isolation(),
            sys.executable,
            "-m",
            "splitter",
            "transform",
            str(folder / script),
            "--out",
            str(out),
            "--json",
            "--static",
        ]
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
    loaders = verdicts(feeds)
    split = any(feed["status"] == "split" for feed in feeds)
    wrong = "".join(f"{path.relative_to(out)}: {reason}\n" for path in sorted(out.rglob("*.py")) if (reason := unparsable(path)))
    if split != (status == 0) or (split and not list(out.glob("*_trainer.py"))):
        wrong += f"exit status {status} with {len(feeds)} feeds and the files {sorted(path.name for path in out.glob('*'))}\n"
    result: Result = "not parsing" if wrong else "split" if split else "left" if loaders else "no loader"
    return Outcome(script, result, seconds, loaders, wrong)


def unparsable(path: Path) -> str:
    """Why a file isn't Python; empty when it is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        return str(error)
    return ""


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


def folder_of(script: str, levels: int) -> str:
    """The first folders of a path; "." for a script that is in none."""
    return "/".join(script.split("/")[:-1][:levels]) or "."


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
    parser.add_argument("--levels", type=int, default=1, metavar="N", help="folders of a path that make a row (default: 1)")
    parser.add_argument("--limit", type=float, default=60.0, metavar="SECONDS", help="time for one script (default: 60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="scripts at once (default: CPUs)")
    given = parser.parse_args()
    if given.limit <= 0 or given.jobs < 1 or given.levels < 1:
        parser.error("--limit must be above 0, --jobs and --levels at least 1")
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
        given.report.write_text(report(outcomes, lambda script: folder_of(script, given.levels)), encoding="utf-8")
    except (CorpusError, OSError) as error:
        print(f"corpus: {error}", file=sys.stderr)
        return 2
    print(summary(outcomes))
    return int(any(one.result in FAULTS for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
