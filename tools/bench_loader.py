"""Measures how fast the split hands out batches, against torch's own loader in the unmodified script.

    python tools/bench_loader.py --pairs 5

For each payload a small script that only reads its loader is written to bench/ and split there. Script and split then
run in turn, each with the same number of loader workers; each times whole epochs, from asking for the iterator to its
end, after one epoch to warm up. A pair's ratio is the split's samples per second over the script's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from command import CommandError, run_command
from photos import PhotosError, write_photos_once
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "bench"
TRANSFORM_SECONDS, RUN_SECONDS = 120.0, 300.0

# What every script has after it has made `dataset`: `args.data` is the folder with photographs.
BODY = """
    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=args.workers, drop_last=True)

    rows, batches, seconds = 0, 0, 0.0
    for epoch in range(args.epochs + 1):
        start = time.perf_counter()
        count = 0
        for samples, labels in loader:
            count += 1
        if epoch > 0:  # the first one warms up
            seconds += time.perf_counter() - start
            batches += count
            rows += count * len(labels)
    print(json.dumps({"rows": rows, "batches": batches, "seconds": seconds}))


if __name__ == "__main__":
    main()
"""

START = """
parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--epochs", type=int, default=2)
"""

PHOTOS = f'''"""Reads photographs, cropped and flipped at random."""
import argparse
import json
import os
import time

import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
{START}

def main():
    args = parser.parse_args()
    torch.manual_seed(1)
    dataset = datasets.ImageFolder(os.path.join(args.data, "train"), transforms.Compose([
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
    ]))
{BODY}'''

MEMORY = f'''"""Reads samples that lie in memory."""
import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset
{START}

class Samples(Dataset):
    def __init__(self, kept, shape, length):
        self.samples = torch.rand(kept, *shape)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.samples[index % len(self.samples)], index


def main():
    args = parser.parse_args()
    torch.manual_seed(1)
    dataset = Samples(KEPT, SHAPE, LENGTH)
{BODY}'''


def memory_script(kept: int, shape: tuple[int, ...], length: int) -> str:
    """A script whose dataset has `length` samples, of which `kept` different ones lie in memory."""
    return MEMORY.replace("KEPT", str(kept)).replace("SHAPE", str(shape)).replace("LENGTH", str(length))


@dataclass(frozen=True)
class Payload:
    """One kind of batch to measure."""

    name: str  # of the script, without .py
    title: str
    text: str
    epochs: int


PAYLOADS = (
    Payload("photos", "JPEG, crop to 224", PHOTOS, 1),
    Payload("images", "3x224x224 float32", memory_script(128, (3, 224, 224), 64 * 60), 2),
    Payload("rows", "20 float32", memory_script(4096, (20,), 64 * 2000), 2),
)


@dataclass(frozen=True)
class Rate:
    """One run of a program."""

    rows: float  # samples a second
    batches: float  # batches a second


@dataclass(frozen=True)
class Pair:
    """A run of the script and the run of the split that followed it."""

    script: Rate
    split: Rate

    @property
    def ratio(self) -> float:
        return self.split.rows / self.script.rows


def measure(program: str, payload: Payload, workers: int) -> Rate:
    """Run a program of the payload and read the JSON line that it prints."""
    argv = [sys.executable, program, "data", "--workers", str(workers), "--epochs", str(payload.epochs)]
    ended = run_command(argv, folder=FOLDER, seconds=RUN_SECONDS)
    try:
        found = json.loads(ended.stdout.splitlines()[-1])
        seconds = float(found["seconds"])
        return Rate(found["rows"] / seconds, found["batches"] / seconds)
    except (IndexError, ValueError, KeyError, TypeError, ZeroDivisionError):
        raise CommandError(f"{program} printed no JSON line with rows, batches and seconds") from None


def prepare(payloads: tuple[Payload, ...]) -> None:
    """Write the scripts and, once, the photographs; split every script."""
    FOLDER.mkdir(exist_ok=True)
    write_photos_once(FOLDER / "data", train=1500, val=300)
    for payload in payloads:
        (FOLDER / f"{payload.name}.py").write_text(payload.text, encoding="utf-8")
        argv = [sys.executable, "-m", "splitter", "transform", f"{payload.name}.py", "--", "data"]
        run_command(argv, folder=FOLDER, seconds=TRANSFORM_SECONDS)


def add_row(table: Table, payload: Payload, pairs: list[Pair]) -> None:
    """Add the medians over all pairs, and the lowest and highest ratio."""
    ratios = sorted(pair.ratio for pair in pairs)
    runs = [[pair.script for pair in pairs], [pair.split for pair in pairs]]
    rows = (f"{statistics.median(rate.rows for rate in rates):,.0f}" for rates in runs)
    batches = (f"{statistics.median(rate.batches for rate in rates):,.1f}" for rates in runs)
    spread = f"{ratios[0]:.2f}-{ratios[-1]:.2f}"
    table.add_row(payload.title, *rows, *batches, f"{statistics.median(ratios):.2f}", spread)


def bench(console: Console, payloads: tuple[Payload, ...], pairs: int, workers: int) -> Table:
    """Measure every payload."""
    with console.status("splitting the scripts"):
        prepare(payloads)
    table = Table(
        title=f"batches of 64, {workers} loader workers, medians of {pairs} pairs of runs",
        box=SIMPLE_HEAD,
        padding=0,
        pad_edge=False,
    )
    table.add_column("samples", no_wrap=True)
    for heading in ("samples/s\nscript", "\nsplit", "batches/s\nscript", "\nsplit", "split/\nscript", "\nspread"):
        table.add_column(heading, justify="right", no_wrap=True)
    for payload in payloads:
        done: list[Pair] = []
        for number in range(1, pairs + 1):
            with console.status(f"{payload.name}: pair {number} of {pairs}"):
                script = measure(f"{payload.name}.py", payload, workers)
                split = measure(f"{payload.name}_trainer.py", payload, workers)
            done.append(Pair(script, split))
        add_row(table, payload, done)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the split's loader against the script's.")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of runs for each payload (default: 5)")
    parser.add_argument("--workers", type=int, default=2, help="loader workers of both programs (default: 2)")
    parser.add_argument("--only", choices=[payload.name for payload in PAYLOADS], help="one payload instead of all")
    args = parser.parse_args()
    if args.pairs < 1 or args.workers < 1:
        parser.error("--pairs and --workers must be at least 1")
    payloads = tuple(payload for payload in PAYLOADS if args.only in (None, payload.name))
    console = Console(highlight=False)
    try:
        console.print(bench(console, payloads, args.pairs, args.workers))
    except (CommandError, PhotosError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
