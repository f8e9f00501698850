"""The compiler, as a table of contents.

train.py -> read -> find -> plan (effects, slice) -> emit -> train_worker.py, train_trainer.py, train_split.md, train_split.json
"""

from __future__ import annotations

from pathlib import Path

from splitter.find import find
from splitter.ir import Plan
from splitter.plan import plan
from splitter.read import read


def compile_script(script: Path, *, streams: int | None = None) -> Plan:
    """Read a script and decide what of it goes where. Writes nothing and runs nothing of the script.

    Args:
        script: the program that starts the training.
        streams: treat loaders with num_workers=0 as if the script had said num_workers=streams.

    Raises:
        InputError: the script can't be read (S101-S103).
    """
    program = read(script)
    found = find(program)
    return plan(found, streams=streams)
