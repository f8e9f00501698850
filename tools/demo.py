"""Splits an ImageNet-like script, runs script and split on real photographs, and compares what they print.

    python tools/demo.py

Works in the folder demo/ of the repository. Ends with status 0 when both printed the same, 1 when they differ, 2 when
something failed.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from command import CommandError, run_command
from photos import PhotosError, write_photos_once
from rich.console import Console
from rich.table import Table
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tests" / "fixtures" / "imagenet" / "train.py"
FOLDER = ROOT / "demo"
TRAIN, VAL = 1500, 300  # photographs
SCRIPT_ARGUMENTS = ["photos", "--size", "64", "--seed", "1", "--workers", "2"]
TRANSFORM_SECONDS, RUN_SECONDS = 60.0, 80.0

EPOCH = re.compile(r"^epoch (\d+): training loss (\S+), validation loss (\S+), accuracy (\S+)$", re.MULTILINE)
RATE = re.compile(r"^Epoch: \[\d+\] \d+ images, (\S+) images/s$", re.MULTILINE)
STYLES = {"+++": "bold", "---": "bold", "@@": "cyan", "+": "green", "-": "red"}


@dataclass(frozen=True)
class Epoch:
    """What the script says of one epoch; losses as printed, so that equal text means equal bits."""

    number: int
    training: str
    validation: str
    images_per_second: float


@dataclass(frozen=True)
class Outcome:
    """What one program printed."""

    stdout: str
    epochs: tuple[Epoch, ...]


def parse_outcome(stdout: str, stderr: str) -> Outcome:
    """Read losses from standard output and rates from standard error; CommandError when they don't belong together."""
    losses = EPOCH.findall(stdout)
    rates = RATE.findall(stderr)
    if not losses or len(losses) != len(rates):
        raise CommandError(f"the output holds {len(losses)} lines with losses and {len(rates)} with rates")
    epochs = (Epoch(int(loss[0]), loss[1], loss[2], float(rate)) for loss, rate in zip(losses, rates, strict=True))
    return Outcome(stdout, tuple(epochs))


def diff_text(before: Path, after: Path) -> Text:
    """The unified diff of two files, coloured line by line."""
    old, new = (path.read_text(encoding="utf-8").splitlines() for path in (before, after))
    text = Text()
    for line in difflib.unified_diff(old, new, before.name, after.name, lineterm=""):
        style = next((style for prefix, style in STYLES.items() if line.startswith(prefix)), "")
        text.append(line + "\n", style)
    return text


def comparison_table(script: Outcome, split: Outcome) -> Table:
    """Both programs' losses and rates, epoch by epoch."""
    table = Table()
    for heading in ("epoch", "", "script", "split", "equal"):
        table.add_column(heading, justify="right" if heading in ("script", "split") else "left")
    for one, other in zip(script.epochs, split.epochs, strict=True):
        rows = (("training loss", one.training, other.training), ("validation loss", one.validation, other.validation))
        for number, (name, left, right) in enumerate(rows):
            equal = Text("yes", "green") if left == right else Text("NO", "bold red")
            table.add_row("" if number else str(one.number), name, left, right, equal)
        table.add_row("", "images/s", f"{one.images_per_second:.0f}", f"{other.images_per_second:.0f}", "")
        table.add_section()
    return table


def prepare(folder: Path) -> None:
    """Lay out the folder: the script as it is, and the photographs, which are made once."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("train*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    shutil.copyfile(SCRIPT, folder / "train.py")
    write_photos_once(folder / "photos", train=TRAIN, val=VAL)


def run_program(name: str, arguments: list[str], output: Path) -> Outcome:
    """Run one of the two programs; its checkpoints go to `output`."""
    output.mkdir(exist_ok=True)
    argv = [sys.executable, name, *arguments, "--output", output.name]
    ended = run_command(argv, folder=FOLDER, seconds=RUN_SECONDS)
    return parse_outcome(ended.stdout, ended.stderr)


def demo(console: Console, arguments: list[str]) -> bool:
    """Run the whole demonstration and return whether script and split printed the same."""
    with console.status("making photographs"):
        prepare(FOLDER)
    console.print(f"[bold]splitter transform train.py[/]  (in {FOLDER.name}/; {TRAIN} photographs, {VAL} for validation)")
    argv = [sys.executable, "-m", "splitter", "transform", "train.py", "--", *arguments]
    with console.status("splitting train.py"):
        run_command(argv, folder=FOLDER, seconds=TRANSFORM_SECONDS)
    console.print(diff_text(FOLDER / "train.py", FOLDER / "train_trainer.py"), soft_wrap=True)
    with console.status("running train.py"):
        script = run_program("train.py", arguments, FOLDER / "script_output")
    with console.status("running train_trainer.py with local workers"):
        split = run_program("train_trainer.py", arguments, FOLDER / "split_output")
    if len(script.epochs) != len(split.epochs):
        raise CommandError(f"the script ran {len(script.epochs)} epochs and the split {len(split.epochs)}")
    console.print(comparison_table(script, split))
    return script.stdout == split.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="Split an ImageNet-like script, run both and compare.")
    parser.add_argument("--epochs", type=int, default=2, help="epochs to train (default: 2)")
    args = parser.parse_args()
    console = Console(highlight=False)
    try:
        equal = demo(console, [*SCRIPT_ARGUMENTS, "--epochs", str(args.epochs)])
    except (CommandError, PhotosError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    if not equal:
        print("demo: script and split printed different things", file=sys.stderr)
        return 1
    console.print("Script and split printed the same.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
