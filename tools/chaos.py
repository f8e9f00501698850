"""Throws faults of all kinds at a split while it trains, and compares every batch and loss with the script.

    python tools/chaos.py --minutes 10 --seed 1

The trainer runs epochs until the time is over, with three workers behind addresses (one behind a proxy, one in a network namespace of its
own) and local ones. Then the script runs as many epochs, and what both printed is compared. The seed decides which faults come, when, and
whom they hit. Ends with status 0 when no batch was lost, duplicated or different, 1 when one was or the trainer failed, 2 when something
else did.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from chaos_cast import Cast
from chaos_compare import Totals, compare, is_batch
from chaos_faults import strike
from chaos_network import OWN_NETWORK, Cable, CableError
from chaos_plan import KINDS, Hit, plan
from chaos_processes import eventually
from command import CommandError, run_command
from photos import PhotosError, write_photos_once
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

SCRIPT = Path(__file__).with_name("chaos_script.py")
INSIDE = "SPLITTER_CHAOS_INSIDE"  # set in the process that has a network of its own
TIMEOUT_S, GRACE_S = 3, 60
LOOK_S, AGAIN_S, ENDING_S, FREEING_S = 0.2, 0.5, 180.0, 10.0
TRAIN, VAL = 240, 64  # photographs


@dataclass(frozen=True)
class Blow:
    """A fault that has happened, at a time of the monotonic clock."""

    kind: str
    at: float


@dataclass
class Story:
    """What has happened in a run."""

    blows: list[Blow] = field(default_factory=list)
    missed: int = 0  # faults for which there was nobody to hit
    status: int | None = None  # the trainer's
    last_words: str = ""
    left: int = 0  # processes that its workers still had for it when it had ended
    lines: list[tuple[float, str]] = field(default_factory=list)


class Log:
    """One line for each event, with the seconds since the faults began."""

    def __init__(self, file: TextIO | None) -> None:
        self._file, self.began = file, time.monotonic()

    def begin(self) -> None:
        """Time starts now."""
        self.began = time.monotonic()

    def __call__(self, event: str) -> None:
        if self._file is not None:
            print(f"{time.monotonic() - self.began:8.2f} {event}", file=self._file, flush=True)


def rampage(cast: Cast, hits: tuple[Hit, ...], seconds: float, log: Log, show: Callable[[str], None]) -> Story:
    """Let the faults happen, and their repairs, until the time is over or the trainer ends."""
    story = Story()
    log.begin()
    start = time.monotonic()
    order = itertools.count()
    due: list[tuple[float, int, Callable[[], bool]]] = []
    waiting = list(hits)
    while cast.trainer.status is None and time.monotonic() < start + seconds:
        now = time.monotonic() - start
        while due and due[0][0] <= now:
            _, _, repair = heapq.heappop(due)
            if not repair():
                heapq.heappush(due, (now + AGAIN_S, next(order), repair))
        while waiting and waiting[0].at <= now:
            hit = waiting.pop(0)
            struck = strike(cast, hit)
            log(f"{hit.kind}: {struck.whom if struck is not None else 'nobody there'}, for {hit.lasts} s")
            if struck is None:
                story.missed += 1
                continue
            story.blows.append(Blow(hit.kind, time.monotonic()))
            heapq.heappush(due, (now + hit.lasts, next(order), struck.repair))
        batches = len(cast.trainer.lines)
        show(f"{now:.0f} of {seconds:.0f} s, {len(story.blows)} faults, {batches} lines")
        upcoming = [item[0] for item in due[:1]] + [hit.at for hit in waiting[:1]]
        time.sleep(max(0.0, min([LOOK_S, *(at - (time.monotonic() - start) for at in upcoming)])))
    for _, _, repair in due:
        repair()
    return story


def finish(cast: Cast, story: Story, stop: Path, log: Log) -> None:
    """Let the trainer end by itself, and look whether its workers let go of all that was there for it."""
    for remote in cast.remotes:
        remote.restart()
    stop.touch()
    story.status = cast.trainer.wait(ENDING_S)
    story.last_words = cast.trainer.last_words()
    if story.status is None:
        story.last_words = f"it had not ended after {ENDING_S:.0f} s"
        cast.trainer.end()
    story.lines = cast.trainer.lines
    log(f"the trainer ended with status {story.status}")

    def left() -> int:
        families = [remote.family() for remote in cast.remotes]
        return sum(len(family.templates) + len(family.streams) for family in families if family is not None)

    eventually(lambda: left() == 0, FREEING_S)
    story.left = left()


def stalls(story: Story) -> dict[str, float]:
    """For each kind, the longest time without a batch from one of its faults on, up to the next fault."""
    times = [at for at, line in story.lines if is_batch(line)]
    found: dict[str, float] = {}
    for number, blow in enumerate(story.blows):
        before = blow.at
        end = story.blows[number + 1].at if number + 1 < len(story.blows) else float("inf")
        for at in times:
            if at <= blow.at:
                continue
            found[blow.kind] = max(found.get(blow.kind, 0.0), at - before)
            before = at
            if at > end:
                break
    return found


def report(console: Console, story: Story, totals: Totals, epochs: int) -> bool:
    """Print both tables; returns whether all is well."""
    last = max((at for at, line in story.lines if is_batch(line)), default=0.0)
    longest = stalls(story)
    table = Table(title="faults", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, title_justify="left")
    table.add_column("kind", no_wrap=True)
    for heading in ("happened", "survived", "longest stall, s"):
        table.add_column(heading, justify="right")
    for kind in KINDS:
        blows = [blow for blow in story.blows if blow.kind == kind]
        if blows:
            survived = sum(blow.at < last for blow in blows) if story.status != 0 else len(blows)
            table.add_row(kind, str(len(blows)), str(survived), f"{longest.get(kind, 0.0):.1f}")
    survived = sum(blow.at < last for blow in story.blows) if story.status != 0 else len(story.blows)
    table.add_section()
    table.add_row("all", str(len(story.blows)), str(survived), f"{max(longest.values(), default=0.0):.1f}")
    console.print(table)
    console.print(
        f"{totals.compared:,} batches of {epochs} epochs compared: {totals.lost} lost, {totals.duplicated} duplicated, "
        f"{totals.different} different, and {totals.losses} losses different besides"
    )
    if story.missed:
        console.print(f"{story.missed} faults found nobody to hit")
    well = story.status == 0 and totals.same and story.left == 0
    if totals.first:
        console.print(f"[red]first difference:[/]\n{totals.first}")
    if story.status != 0:
        console.print(f"[red]the trainer ended with status {story.status}:[/] {story.last_words}")
    if story.left:
        console.print(f"[red]{story.left} processes[/] of the trainer's session were left {FREEING_S:.0f} s after its end")
    return well


def prepare(folder: Path) -> dict[str, str]:
    """Lay out the folder: script, split, photographs. Returns the environment of all programs."""
    shutil.copyfile(SCRIPT, folder / "train.py")
    write_photos_once(folder / "photos", train=TRAIN, val=VAL)
    run_command([sys.executable, "-m", "splitter", "transform", "train.py", "--", "photos"], folder=folder, seconds=60)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPLITTER_")}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def split_lines(story: Story) -> tuple[list[str], int]:
    """What the trainer printed, and of how many epochs, the last one perhaps in part."""
    lines = [line for _, line in story.lines]
    epochs = 1 + max((int(line.split(":")[1]) for line in lines if is_batch(line)), default=-1)
    return lines, epochs


def chaos(console: Console, args: argparse.Namespace, folder: Path, cable: Cable | None, log: Log) -> bool:
    """The whole run; returns whether all is well."""
    with console.status("preparing"):
        environment = prepare(folder)
    hits = plan(seed=args.seed, minutes=args.minutes, mean_seconds=args.mean_seconds, longest=2.0 * TIMEOUT_S)
    stop = folder / "stop"
    with Cast(folder, environment, cable) as cast, console.status("starting") as status:
        cast.start(
            ["photos", "--until", str(stop)],
            SPLITTER_TIMEOUT_SECONDS=str(TIMEOUT_S),
            SPLITTER_GRACE_SECONDS=str(GRACE_S),
            SPLITTER_BUFFER_MB="4",
        )
        eventually(lambda: bool(cast.trainer.lines) or cast.trainer.status is not None, 60)
        story = rampage(cast, hits, args.minutes * 60, log, status.update)
        status.update("letting the trainer end")
        finish(cast, story, stop, log)
    lines, epochs = split_lines(story)
    with console.status(f"running the script for {epochs} epochs"):
        argv = [sys.executable, "train.py", "photos", "--epochs", str(epochs)]
        script = run_command(argv, folder=folder, seconds=120 + 300 * args.minutes, env=environment).stdout.splitlines()
    begin = log.began
    (folder / "trainer.out").write_text("".join(f"{at - begin:8.2f} {line}\n" for at, line in story.lines), encoding="utf-8")
    (folder / "script.out").write_text("".join(f"{line}\n" for line in script), encoding="utf-8")
    totals = compare(script if story.status == 0 else script[: len(lines)], lines)
    return report(console, story, totals, epochs)


def enter_own_network() -> None:
    """Go on in a network namespace of our own, where a cable can be cut. Returns when the system doesn't allow it."""
    if os.environ.get(INSIDE) or subprocess.run([*OWN_NETWORK, "true"], capture_output=True).returncode != 0:
        return
    os.environ[INSIDE] = "1"
    os.execvp(OWN_NETWORK[0], [*OWN_NETWORK, sys.executable, *sys.argv])


def open_cable(console: Console) -> Cable | None:
    """The cable to one of the workers; None, and a line, where there can't be one."""
    if not os.environ.get(INSIDE):
        console.print("no network namespaces here, so no cable is cut: unshare --user --net isn't allowed")
        return None
    try:
        return Cable(here=True)
    except CableError as error:
        console.print(f"no cable is cut: {error}")
        return None


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Throw faults at a split, and compare every batch with the script.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="decides the faults (default: 0)")
    parser.add_argument("--mean-seconds", type=float, default=4.0, help="mean time between faults (default: 4)")
    parser.add_argument("--log", type=Path, help="file for one line for each fault")
    args = parser.parse_args()
    if args.minutes <= 0 or args.mean_seconds <= 0:
        parser.error("--minutes and --mean-seconds must be above 0")
    return args


def run(console: Console, args: argparse.Namespace) -> int:
    """Everything, in a folder that is kept only when something went wrong."""
    folder = Path(tempfile.mkdtemp(prefix="splitter-chaos-"))
    well = interrupted = False
    cable = open_cable(console)
    file = open(args.log, "w", encoding="utf-8") if args.log is not None else None
    try:
        well = chaos(console, args, folder, cable, Log(file))
    except (CommandError, PhotosError, OSError) as error:
        print(f"chaos: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        interrupted = True
        print("chaos: interrupted", file=sys.stderr)
        return 130
    finally:
        if file is not None:
            file.close()
        if cable is not None:
            cable.close()
        if well or interrupted:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            console.print(f"logs and programs are in {folder}")
    return 0 if well else 1


def main() -> int:
    args = parse()
    enter_own_network()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return run(Console(highlight=False), args)


if __name__ == "__main__":
    sys.exit(main())
