"""Fetches that run ahead of their turn: what template and trainer agree on.

The template fetches as if the trainer's generators had just the states that they had after the fetch before, and says which states it
took (a digest), which ones it left, and what was printed. The trainer takes that when its turn comes and its own states are the ones taken.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
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
def unwarned() -> Iterator[list[Any]]:
    """Collect the warnings that are shown, and forget that they were: Python shows most only once in a process."""
    shown: list[Any] = []
    show_it = warnings.showwarning

    def note(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        shown.append((str(message), category, lineno))
        show_it(message, category, filename, lineno, file, line)

    warnings.showwarning = note
    try:
        yield shown
    finally:
        if warnings.showwarning is note:
            warnings.showwarning = show_it
        if shown:
            _forget(shown)


def _forget(shown: list[Any]) -> None:
    for module in list(sys.modules.values()):
        registry: Any = vars(module).get("__warningregistry__")
        for text, category, line in shown if registry else ():
            registry.pop((text, category, line), None)
            registry.pop((text, category, 0), None)


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
