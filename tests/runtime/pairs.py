"""A script and, written by hand, what a split makes of it: worker and trainer program, run as real processes and compared.

    pair = Pair(moved="class Squares(Dataset): ...", builders='@splitter_runtime.dataset("train") ...', body="...", swaps=...)
    pair.write(folder)             train.py, train_worker.py, train_trainer.py
    assert_same(scratch, pair)     both print the same and end the same

The script is HEAD + moved + body; the trainer is HEAD + body with the swaps made; the worker is HEAD + moved + builders.
`see(value)` in a body takes the bits of a value and the states of all generators into a digest that is printed at the end.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from scratch import Scratch

IMPORTS = """\
import random

import numpy as np
import torch
from torch.utils.data import BatchSampler, ChainDataset, ConcatDataset, Dataset, IterableDataset, Subset
from torch.utils.data import DataLoader, SequentialSampler, get_worker_info, random_split
"""

SEE = '''\

_seen = __import__("hashlib").sha256()
_count = 0


def see(value):
    """Take a value and the generators' states into the digest."""
    global _count
    _count += 1
    for part in (value, torch.get_rng_state(), random.getstate(), np.random.get_state()):
        _see(part)


def _see(value):
    if isinstance(value, torch.Tensor):
        _seen.update(repr((value.dtype, value.shape, value.stride())).encode() + value.numpy().tobytes())
    elif isinstance(value, np.ndarray):
        _seen.update(repr((value.dtype, value.shape)).encode() + value.tobytes())
    elif isinstance(value, (list, tuple)):
        _seen.update(type(value).__name__.encode())
        for part in value:
            _see(part)
    elif isinstance(value, dict):
        _see(list(value.items()))
    else:
        _seen.update(repr(value).encode())


def show():
    print(_count, _seen.hexdigest())


random.seed(5)
np.random.seed(5)
torch.manual_seed(5)
'''

PROGRAM = 'import splitter_runtime\n\nsplitter_runtime.program("train_worker.py", digest="sha256:0", script="train.py")\n'
LOADER = ("DataLoader(", "splitter_runtime.DataLoader(")


@dataclass(frozen=True)
class Pair:
    """Texts of a case. `swaps` are (text in the script, text in the trainer); every DataLoader call of the body becomes the runtime's."""

    moved: str
    builders: str
    body: str
    swaps: tuple[tuple[str, str], ...]
    digest: str = "sha256:0"

    def script(self) -> str:
        return IMPORTS + self.moved + SEE + self.body

    def trainer(self) -> str:
        body = self.body
        for before, after in (*self.swaps, LOADER):
            assert before in body or (before, after) == LOADER, f"{before!r} is not in the script"
            body = body.replace(before, after)
        return PROGRAM + IMPORTS + SEE + body

    def worker(self) -> str:
        head = IMPORTS + "import splitter_runtime\n"
        count = self.moved.count("\n")
        lines = ((head.count("\n") + 1, IMPORTS.count("\n") + 1, count),)
        serve = f'splitter_runtime.serve(digest="{self.digest}", script="train.py", lines={lines!r})'
        return f'{head}{self.moved}\n{self.builders}\n\nif __name__ == "__main__":\n    {serve}\n'

    def write(self, folder: Path) -> Path:
        """Write the three programs into the folder, which is made; returns it."""
        folder.mkdir(exist_ok=True)
        for name, text in (("train.py", self.script()), ("train_worker.py", self.worker()), ("train_trainer.py", self.trainer())):
            (folder / name).write_text(text)
        return folder


Ended = subprocess.CompletedProcess[str]


def run_both(scratch: Scratch, pair: Pair, *arguments: str, quick: bool = True, **environment: str) -> tuple[Ended, Ended]:
    """Script and trainer program, run one after the other; `quick` forks them from a process that has imported torch."""
    folder = pair.write(scratch.folder / "pair")
    run = scratch.run if quick else scratch.run_anew
    script = run([sys.executable, "train.py", *arguments], folder, **environment)
    split = run([sys.executable, "train_trainer.py", *arguments], folder, **environment)
    return script, split


def assert_same(scratch: Scratch, pair: Pair, *arguments: str, quick: bool = True, **environment: str) -> str:
    """Standard output and exit status agree; returns the output."""
    script, split = run_both(scratch, pair, *arguments, quick=quick, **environment)
    assert script.returncode == 0, script.stderr
    assert (split.stdout, split.returncode) == (script.stdout, script.returncode), split.stderr
    return script.stdout
