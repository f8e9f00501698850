"""Runs the programs that the tools compare, and says in one line what went wrong with one."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class CommandError(Exception):
    """A program failed; the message is one line for the user."""


@dataclass(frozen=True)
class Finished:
    """What a program that ended well wrote."""

    stdout: str
    stderr: str


def run_command(argv: Sequence[str], *, folder: Path, seconds: float) -> Finished:
    """Run `argv` in `folder` and wait for at most `seconds`.

    Raises CommandError when it can't be started, takes longer, or ends with a status other than 0.
    """
    name = shlex.join([Path(argv[0]).name, *argv[1:]])
    try:
        ended = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise CommandError(f"`{name}` in {folder} had not ended after {seconds:.0f} seconds") from None
    except OSError as error:
        raise CommandError(f"`{name}` in {folder} can't be started: {error}") from None
    if ended.returncode != 0:
        said = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
        last = f": {said[-1].strip()}" if said else ""
        raise CommandError(f"`{name}` in {folder} ended with status {ended.returncode}{last}")
    return Finished(ended.stdout, ended.stderr)
