"""How much memory a program and all its descendants take: the sum of their proportional set sizes.

A page that n processes share counts as 1/n in each, so that the sum is what the machine would get back if all of them ended.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from command import CommandError, ended_badly, kill_group, name_of, start

INTERVAL = 0.2  # seconds between samples
PROC = Path("/proc")


def parent_of(stat: str) -> int:
    """The parent in the text of /proc/PID/stat; the name before it may hold spaces and parentheses."""
    return int(stat.rpartition(")")[2].split()[1])


def descendants(parents: Mapping[int, int], root: int) -> frozenset[int]:
    """`root` and all that descend from it, given the parent of every process."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found, waiting = set(), [root]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting.extend(children.get(pid, ()))
    return frozenset(found)


def pss_kib(rollup: str) -> int:
    """The proportional set size in the text of /proc/PID/smaps_rollup, in KiB."""
    return next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)


def read_parents() -> dict[int, int]:
    """The parent of every process on the machine."""
    parents = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = parent_of((folder / "stat").read_text(errors="replace"))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended
    return parents


def tree_mib(root: int) -> float:
    """MiB that `root` and its descendants take now."""
    total = 0
    for pid in descendants(read_parents(), root):
        try:
            total += pss_kib((PROC / str(pid) / "smaps_rollup").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / 1024


def _read_lines(stream: IO[str], lines: list[str]) -> None:
    for line in stream:
        lines.append(line.strip())


def measure_memory(argv: Sequence[str], *, folder: Path, seconds: float, env: Mapping[str, str], epoch: int) -> dict[str, float]:
    """Run a program that prints "epoch N" when it starts one; peak and lowest sum in MiB, from `epoch`'s line to the next one.

    Raises CommandError when it can't be started, fails, takes longer than `seconds`, or `epoch` is too short for a sample.
    """
    process = start(argv, folder=folder, env=env)
    assert process.stdout is not None and process.stderr is not None
    said: list[str] = []
    errors: list[str] = []
    readers = [threading.Thread(target=_read_lines, args=pair) for pair in ((process.stdout, said), (process.stderr, errors))]
    for reader in readers:
        reader.start()
    samples: list[float] = []
    line, deadline = f"epoch {epoch}", time.monotonic() + seconds
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise CommandError(f"{name_of(argv, folder)} had not ended after {seconds:.0f} seconds")
            if said[-1:] == [line]:
                total = tree_mib(process.pid)
                if said[-1:] == [line]:  # else the epoch, and perhaps the program, ended meanwhile
                    samples.append(total)
            try:
                process.wait(INTERVAL)
            except subprocess.TimeoutExpired:
                continue
    finally:
        if process.poll() is None:
            kill_group(process)
        for reader in readers:
            reader.join()
    if process.returncode != 0:
        raise ended_badly(argv, folder, process.returncode, "\n".join(said), "\n".join(errors))
    if not samples:
        raise CommandError(f"{name_of(argv, folder)} was too short to measure its memory in epoch {epoch}")
    return {"peak": max(samples), "lowest": min(samples)}
