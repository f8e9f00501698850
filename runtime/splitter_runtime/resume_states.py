"""Generator states as a saved loader keeps them: short, and all in one tensor, so that a checkpoint holds them as they are.

    shelf = Shelf()
    where = shelf.put({"torch": bytes, "random": bytes})      {"torch": 0, "random": 1}
    Shelf(shelf.tensor()).get(where)                          the same states

own_generators(loader)     the generators that belong to a loader and its samplers, always in the same order
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

_HEAD = struct.Struct("<BH")  # kind, bytes
_WORDS = 624  # of a Mersenne twister


@dataclass(frozen=True)
class Layout:
    """Where the words lie in a state of ambient's."""

    size: int
    start: int
    width: int  # bytes of a word

    def shortened(self, state: bytes) -> bytes | None:
        """The words in 4 bytes each, and the rest without zeros at its end; None when they need more."""
        end = self.start + self.width * _WORDS
        words = np.frombuffer(state, f"<u{self.width}", _WORDS, self.start)
        if int(words.max()) >> 32:
            return None
        return words.astype("<u4").tobytes() + (state[: self.start] + state[end:]).rstrip(b"\0")

    def lengthened(self, short: bytes) -> bytes:
        """What shortened() was given."""
        words = np.frombuffer(short, "<u4", _WORDS).astype(f"<u{self.width}").tobytes()
        rest = short[4 * _WORDS :].ljust(self.size - len(words), b"\0")
        return rest[: self.start] + words + rest[self.start :]


# torch's, numpy's and Python's; told apart by their size. 0 is any other, as it is.
_LAYOUTS = (None, Layout(5056, 24, 8), Layout(2512, 16, 4), Layout(2520, 4, 4))


def shortened(state: bytes) -> bytes:
    """A generator's state in few bytes, with what is needed to find its end."""
    for kind, layout in enumerate(_LAYOUTS):
        short = layout.shortened(state) if layout is not None and layout.size == len(state) else None
        if short is not None:
            return _HEAD.pack(kind, len(short)) + short
    return _HEAD.pack(0, len(state)) + state


def lengthened(short: bytes) -> bytes:
    """What shortened() was given."""
    layout = _LAYOUTS[short[0]]
    return short[_HEAD.size :] if layout is None else layout.lengthened(short[_HEAD.size :])


class Shelf:
    """States, each under a number; the same state twice is kept once."""

    def __init__(self, saved: torch.Tensor | None = None) -> None:
        """ValueError for a tensor that isn't one of tensor()."""
        self._places: dict[bytes, int] = {}
        raw = b"" if saved is None else saved.detach().cpu().numpy().tobytes()
        at = 0
        while at < len(raw):
            kind, size = _HEAD.unpack_from(raw.ljust(at + _HEAD.size, b"\0"), at)
            end = at + _HEAD.size + size
            if kind >= len(_LAYOUTS) or end > len(raw):
                raise ValueError("the generator states are cut short")
            self._places[raw[at:end]] = len(self._places)
            at = end

    def put(self, states: Mapping[str, bytes]) -> dict[str, int]:
        """Keep these; returns the number of each."""
        return {name: self._places.setdefault(shortened(state), len(self._places)) for name, state in states.items()}

    def get(self, where: Mapping[str, int]) -> dict[str, bytes]:
        """What put() was given. IndexError for a number that isn't there."""
        states = list(self._places)
        return {name: lengthened(states[number]) for name, number in where.items()}

    def tensor(self) -> torch.Tensor:
        """All of it, uint8."""
        raw = bytearray().join(self._places)
        return torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)


def own_generators(loader: Any) -> list[Any]:
    """Generators of the loader, its samplers, and the samplers in these; in the order in which they are found."""
    found: dict[int, Any] = {}
    for value in _values(loader, set()):
        if isinstance(value, (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)):
            found.setdefault(id(value), value)
    return list(found.values())


def _values(loader: Any, seen: set[int]) -> Iterator[Any]:
    yield loader.generator
    below = [loader.batch_sampler, loader.sampler]
    while below:
        sampler = below.pop(0)
        if id(sampler) in seen or not hasattr(sampler, "__dict__"):
            continue
        seen.add(id(sampler))
        for value in vars(sampler).values():
            yield value
            if isinstance(value, Sampler):
                below.append(value)


def state_of(generator: Any) -> Any:
    """Its state as bytes (torch's) or plain data."""
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    if isinstance(generator, np.random.Generator):
        return _plain(generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return _plain(generator.get_state(legacy=False))
    return generator.getstate()


def _plain(state: Any) -> Any:
    """numpy's arrays as tuples: they could not be loaded with weights_only."""
    if isinstance(state, dict):
        return {name: _plain(value) for name, value in state.items()}
    if isinstance(state, np.ndarray):
        return ("array", str(state.dtype), tuple(state.tolist()))
    return state.item() if isinstance(state, np.generic) else state


def _arrays(state: Any) -> Any:
    if isinstance(state, dict):
        return {name: _arrays(value) for name, value in state.items()}
    if isinstance(state, (tuple, list)) and len(state) == 3 and state[0] == "array":
        return np.asarray(state[2], dtype=state[1])
    return state


def set_state(generator: Any, state: Any) -> None:
    """Bring a generator back where state_of() found it. ValueError, TypeError when it is one of another kind."""
    if isinstance(generator, torch.Generator):
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = _arrays(state)
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(_arrays(state))
    else:
        version, words, gauss = state
        generator.setstate((version, tuple(words), gauss))
