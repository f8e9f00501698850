"""Fetches that run ahead of their turn: what template and trainer agree on.

The template fetches as if the trainer's generators had just the states that they had after the fetch before, and says which states it
took (a digest), which ones it left, and what was printed. The trainer takes that when its turn comes and its own states are the ones taken.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

Texts: TypeAlias = "list[tuple[int, bytes]]"  # 1 or 2, and what was written to standard output or error


def digest(states: Mapping[str, bytes]) -> bytes:
    """Short for generator states: equal for equal ones."""
    made = hashlib.blake2b(digest_size=16)
    for name in sorted(states):
        made.update(name.encode() + b"\0" + states[name])
    return made.digest()


@contextmanager
def held(consoles: Iterable[Any]) -> Iterator[Texts]:
    """Collect what is printed, instead of sending it; `consoles` are the raw ends of sys.stdout and sys.stderr."""
    texts: Texts = []
    sys.stdout.flush()
    sys.stderr.flush()
    for console in consoles:
        console.held = texts
    try:
        yield texts
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for console in consoles:
            console.held = None


def show(texts: Texts) -> None:
    """Write in this process what was printed in another."""
    for number, text in texts:
        (sys.stdout if number == 1 else sys.stderr).write(text.decode("utf-8", "surrogatepass"))
