"""Runs programs in processes forked from one that has imported torch: for tests that compare what script and split print.

What tests of processes, signals and leftovers look at are processes of their own (see `scratch`).
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scratch import COMMAND_LIMIT_S

NURSERY = Path(__file__).parent / "programs" / "nursery.py"


@functools.cache
def nursery() -> Any:
    """The one of this test process. By its file: another module may be called `programs` here."""
    spec = importlib.util.spec_from_file_location("programs_nursery", NURSERY)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.Nursery()
    atexit.register(made.close)
    return made


def run_quickly(command: Sequence[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Like Scratch.run, for `python FILE ARGUMENTS...`. AssertionError when it takes too long."""
    _, program, *arguments = command
    more = {"SPLITTER_LOG": "warning", **environment}
    ended = nursery().run(folder, program, *arguments, seconds=COMMAND_LIMIT_S, environment=more)
    assert ended.status is not None, f"{program} took more than {COMMAND_LIMIT_S} s: {ended.stdout}{ended.stderr}"
    return subprocess.CompletedProcess(list(command), ended.status, ended.stdout, ended.stderr)
