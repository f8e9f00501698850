"""Runs programs in processes forked from one that has imported torch: for tests that compare what script and split print.

What tests of processes, signals and leftovers look at are processes of their own (see `scratch`).
"""

from __future__ import annotations

import atexit
import functools
import subprocess
from collections.abc import Sequence
from pathlib import Path

from programs.nursery import Nursery
from scratch import COMMAND_LIMIT_S


@functools.cache
def nursery() -> Nursery:
    """The one of this test process."""
    made = Nursery()
    atexit.register(made.close)
    return made


def run_quickly(command: Sequence[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Like Scratch.run, for `python FILE ARGUMENTS...`. AssertionError when it takes too long."""
    _, program, *arguments = command
    more = {"SPLITTER_LOG": "warning", **environment}
    ended = nursery().run(folder, program, *arguments, seconds=COMMAND_LIMIT_S, environment=more)
    assert ended.status is not None, f"{program} took more than {COMMAND_LIMIT_S} s: {ended.stdout}{ended.stderr}"
    return subprocess.CompletedProcess(list(command), ended.status, ended.stdout, ended.stderr)
