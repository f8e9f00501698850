"""What the benchmarks run: for each experiment its contenders, which do the same work, and the rows that come of it.

The measured scripts are in tools/measured; they are copied to bench/ and split there by `splitter transform`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench_memory import measure_memory
from bench_table import SPLIT, Compare, Numbers, Row, derive
from bench_venvs import PEERS, Peer, ensure_venv
from chaos_network import ADDRESSES, Cable
from command import CommandError, Finished, run_command, server
from photos import write_photos_once

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"
TRANSFORM_SECONDS, RUN_SECONDS, START_SECONDS = 120.0, 300.0, 60.0
TORCH, BARE, LOADER = "torch", "bare", "loader"
CUT = "cut"  # folder of splits whose cut was chosen by running samples
SLOW = 200  # megabits a second


@dataclass(frozen=True)
class Bench:
    """Where and how large."""

    folder: Path
    quick: bool  # small sizes, only to see that everything works

    def size(self, full: int, least: int) -> str:
        return str(max(full // 20, least) if self.quick else full)

    @property
    def env(self) -> dict[str, str]:
        """The environment of every program: this one's, with no options of the split."""
        return {name: value for name, value in os.environ.items() if not name.startswith("SPLITTER_")}

    def run(self, *argv: str, python: str = sys.executable, env: Mapping[str, str] | None = None) -> Numbers:
        """Run a Python program that prints one line of JSON at its end; its metrics."""
        ended = run_command([python, *argv], folder=self.folder, seconds=RUN_SECONDS, env={**self.env, **(env or {})})
        return derive(parse_numbers(argv[0], ended), ended.started)


def parse_numbers(program: str, ended: Finished) -> dict[str, float]:
    """The last line that a program printed, as JSON."""
    try:
        return {str(name): float(value) for name, value in json.loads(ended.stdout.splitlines()[-1]).items()}
    except (IndexError, ValueError, TypeError, AttributeError):
        raise CommandError(f"{program} printed no line of JSON with numbers at its end") from None


Run = Callable[[Bench], Numbers]
Arguments = Callable[[Bench], list[str]]  # of a measured script


@dataclass(frozen=True)
class Contender:
    """One of the programs that do an experiment's work."""

    name: str
    run: Run
    prepare: Callable[[Bench], object] = lambda bench: None  # before the first round


@dataclass(frozen=True)
class Experiment:
    """Contenders that run in turn, once in every round."""

    name: str
    script: str  # in tools/measured, without .py
    contenders: tuple[Contender, ...]
    rows: tuple[Row, ...]
    most_rounds: int = 5


def prepare_script(bench: Bench, script: str) -> None:
    """Copy a script and split it; write the photographs when it reads them."""
    bench.folder.mkdir(exist_ok=True)
    if script == "jpeg":
        write_photos_once(bench.folder / "data", train=1500, val=300)
    shutil.copyfile(TOOLS / "measured" / f"{script}.py", bench.folder / f"{script}.py")
    for options in (["--static"], *([["--samples", "16", "--out", CUT]] if script == "jpeg" else [])):
        argv = [sys.executable, "-m", "splitter", "transform", *options, f"{script}.py", "--", "data"]
        run_command(argv, folder=bench.folder, seconds=TRANSFORM_SECONDS, env=bench.env)


def local_pair(script: str, arguments: Arguments) -> tuple[Contender, ...]:
    """The split with workers on this machine, and the script as it is."""

    def run(program: str) -> Run:
        return lambda bench: bench.run(program, *arguments(bench))

    return Contender(SPLIT, run(f"{script}_trainer.py")), Contender(TORCH, run(f"{script}.py"))


def run_remote(bench: Bench, script: str, hosts: int, arguments: list[str]) -> Numbers:
    """Run the trainer with `hosts` worker programs that listen on loopback. `script` may be in a folder of its own."""
    argv = [sys.executable, f"{script}_worker.py", "--listen", "127.0.0.1:0"]
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(server(argv, folder=bench.folder, seconds=START_SECONDS, env=bench.env)) for _ in range(hosts)]
        return bench.run(f"{script}_trainer.py", *arguments, env={"SPLITTER_WORKERS": ",".join(workers)})


def run_over_cable(bench: Bench, script: str, arguments: list[str]) -> Numbers:
    """Run trainer and worker in networks of their own, with a cable between them that lets SLOW megabits a second through."""
    with Cable() as cable:
        cable.shape(SLOW)
        listen = ("--listen", f"{ADDRESSES['worker']}:0", "--insecure")
        worker = [*cable.inside("worker"), sys.executable, f"{script}_worker.py", *listen]
        with server(worker, folder=bench.folder, seconds=START_SECONDS, env=bench.env) as address:
            argv = [*cable.inside("trainer"), sys.executable, f"{script}_trainer.py", *arguments]
            ended = run_command(argv, folder=bench.folder, seconds=RUN_SECONDS, env={**bench.env, "SPLITTER_WORKERS": address})
    return derive(parse_numbers(script, ended), ended.started)


def run_bare(bench: Bench) -> Numbers:
    """Read a bare byte stream from another process."""
    program = str(TOOLS / "bare_stream.py")
    with server([sys.executable, program, "serve"], folder=bench.folder, seconds=START_SECONDS, env=bench.env) as address:
        return bench.run(program, "read", address, "--bytes", bench.size(4_000_000_000, 400_000_000))


def peer_contender(peer: Peer, kind: str, arguments: Arguments) -> Contender:
    """A peer's program, in the peer's own environment."""

    def prepare(bench: Bench) -> Path:
        folder = bench.folder / "venvs"
        folder.mkdir(exist_ok=True)
        return ensure_venv(folder, peer)

    def run(bench: Bench) -> Numbers:
        return bench.run(str(TOOLS / "peers" / peer.program), kind, *arguments(bench), python=str(prepare(bench)))

    return Contender(peer.name, run, prepare)


def memory_run(program: str) -> Run:
    """Measure the memory of paths.py or its split, with four workers."""

    def run(bench: Bench) -> Numbers:
        argv = [sys.executable, program, *of_paths(bench), "--workers", "4"]
        return derive(measure_memory(argv, folder=bench.folder, seconds=RUN_SECONDS, env=bench.env, epoch=3), 0.0)

    return run


def of_memory(kind: str) -> Arguments:
    """Arguments of memory.py for images of float32 or uint8, or for rows of numbers."""
    if kind == "rows":
        return lambda bench: ["--shape", "20", "--kept", "4096", "--length", bench.size(128_000, 6_400)]
    return lambda bench: ["--shape", "3", "224", "224", "--dtype", kind, "--length", bench.size(3_840, 512)]


def of_jpeg(bench: Bench) -> list[str]:
    return ["data", "--epochs", "1" if bench.quick else "2"]


def of_paths(bench: Bench) -> list[str]:
    return ["data", "--paths", bench.size(1_000_000, 0)]


def local(
    key: str, script: str, arguments: Arguments, what: str, metric: str, compare: Compare, target: float, most_rounds: int = 5
) -> Experiment:
    """The split with two workers on this machine, against the script as it is."""
    row = Row(key, what, TORCH, "torch DataLoader, 2 workers", metric, compare, target)
    return Experiment(key, script, local_pair(script, arguments), (row,), most_rounds)


def against_peers(key: str, script: str, arguments: Arguments, what: str, metric: str, target: float) -> Experiment:
    """The split against every peer that can do the work: one that runs no Python of the user's can't use torchvision."""
    peers = [peer for peer in PEERS if peer.python or script == "memory"]
    rows = [Row(key, what, peer.name, peer.title, metric, Compare.RATE, target) for peer in peers]
    rows += [Row(f"{key}-first", f"first batch: {what}", peer.name, peer.title, "first", Compare.LATER) for peer in peers]
    contenders = [Contender(SPLIT, lambda bench: run_remote(bench, script, 2, arguments(bench)))]
    contenders += [peer_contender(peer, script, arguments) for peer in peers]
    return Experiment(key, script, tuple(contenders), tuple(rows), most_rounds=3)


FLOATS, FOUR = of_memory("float32"), "torch DataLoader, 4 workers"
MEMORY_ROW = "memory of trainer and workers, 1,000,000 paths, {} in the third epoch"

LOCAL_EXPERIMENTS = (
    local("float32", "memory", FLOATS, "64 x 3x224x224 float32 from memory", "GB/s", Compare.RATE, 2.5),
    local("uint8", "memory", of_memory("uint8"), "64 x 3x224x224 uint8 from memory", "GB/s", Compare.RATE, 2.5),
    local("rows", "memory", of_memory("rows"), "64 rows of 20 float32 from memory", "batches/s", Compare.RATE, 8.0),
    local("jpeg", "jpeg", of_jpeg, "JPEG decode, crop, normalise", "images/s", Compare.RATE, 1.05),
    local("first", "small", lambda bench: [], "first batch of the first epoch, small script", "first", Compare.LATER, 0.3),
    local("epoch", "paths", of_paths, "first batch of a later epoch, 1,000,000 paths", "later", Compare.TIMES_SOONER, 2.0, most_rounds=3),
    Experiment(
        "remote",
        "memory",
        (Contender(SPLIT, lambda bench: run_remote(bench, "memory", 1, FLOATS(bench))), Contender(BARE, run_bare)),
        (
            Row("remote", "remote on loopback, float32 images", BARE, "bare gRPC byte stream", "GB/s", Compare.RATE, 0.85),
            Row("remote-cpu", "remote on loopback, trainer's CPU time", BARE, "its client", "CPU s/GB", Compare.COST, 1.3),
        ),
    ),
    Experiment(
        "memory",
        "paths",
        (Contender(SPLIT, memory_run("paths_trainer.py")), Contender(TORCH, memory_run("paths.py"))),
        (
            Row("memory", MEMORY_ROW.format("peak"), TORCH, FOUR, "peak", Compare.COST, 0.5),
            Row("memory", MEMORY_ROW.format("lowest"), TORCH, FOUR, "lowest", Compare.COST),
        ),
        most_rounds=3,
    ),
)
CUT_EXPERIMENTS = (
    Experiment(
        "cut",
        "jpeg",
        (
            Contender(SPLIT, lambda bench: run_remote(bench, f"{CUT}/jpeg", 1, of_jpeg(bench))),
            Contender(LOADER, lambda bench: run_remote(bench, "jpeg", 1, of_jpeg(bench))),
        ),
        (Row("cut", "JPEG pipeline, remote on loopback, cut by operations", LOADER, "cut at the loader", "images/s", Compare.RATE, 1.0),),
    ),
    Experiment(
        "cut-slow",
        "jpeg",
        (
            Contender(SPLIT, lambda bench: run_over_cable(bench, f"{CUT}/jpeg", ["data", "--epochs", "1"])),
            Contender(LOADER, lambda bench: run_over_cable(bench, "jpeg", ["data", "--epochs", "1"])),
        ),
        (Row("cut-slow", f"the same over a link of {SLOW} Mbit/s", LOADER, "cut at the loader", "images/s", Compare.RATE, 3.0),),
        most_rounds=3,
    ),
)
PEER_EXPERIMENTS = (
    against_peers("peers", "memory", FLOATS, "remote, float32 images from memory, 2 workers", "GB/s", 1.0),
    against_peers("peers-jpeg", "jpeg", of_jpeg, "remote, JPEG pipeline, same transforms, 2 workers", "images/s", 1.3),
)
EVERYTHING = (*LOCAL_EXPERIMENTS, *CUT_EXPERIMENTS, *PEER_EXPERIMENTS)
KEYS = tuple(dict.fromkeys(row.key for experiment in EVERYTHING for row in experiment.rows))
