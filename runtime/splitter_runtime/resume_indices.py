"""The indices of an epoch, as far as a saved loader must know them.

indices = Indices(loader)       takes the place of the loader's sampler in an iterator
indices.draws.drawn             how many were drawn
indices.draws.digest()          short for all of them
"""

from __future__ import annotations

import hashlib
from array import array
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler
from torch.utils.data.dataloader import _DatasetKind

from .codec import encode
from .stateful import can_say

_TOGETHER = 64  # index batches that are taken into the digest at once


class Draws(Iterator[Any]):
    """The indices of one epoch: counts and digests those that are drawn; `ahead` are handed out first, which were drawn before."""

    def __init__(self, source: Iterator[Any], *, constant: bool, keeps: bool) -> None:
        """`constant`: they say nothing, as those of an iterable dataset; `keeps`: keep those that may have to be saved."""
        self.source, self._constant, self._keeps = source, constant, keeps
        self.ahead: deque[Any] = deque()
        self.drawn, self.exhausted, self.started = 0, False, False
        self.recent: deque[Any] = deque()  # the last ones, when they are kept
        self._digest = hashlib.blake2b(digest_size=16)
        self._batch: list[Any] = []

    def __next__(self) -> Any:
        self.started = True
        if self.ahead:
            return self.ahead.popleft()
        return self.draw()

    def draw(self) -> Any:
        """The next one of the sampler."""
        if self.exhausted:
            raise StopIteration
        try:
            index = next(self.source)
        except StopIteration:
            self.exhausted = True
            raise
        self.drawn += 1
        if self._keeps:
            self.recent.append(index)
        if not self._constant:
            self._batch.append(index)
            if len(self._batch) == _TOGETHER:
                self._take_in()
        return index

    def digest(self) -> str:
        """Short for all that was drawn."""
        self._take_in()
        return self._digest.hexdigest()

    def _take_in(self) -> None:
        for index in self._batch:
            take_in(self._digest, index)
        self._batch.clear()


def take_in(digest: Any, index: Any) -> None:
    """Have a digest depend on an index, or on a batch of them."""
    if type(index) is list and index and type(index[0]) is int:
        try:
            digest.update(b"q%d " % len(index) + array("q", index).tobytes())
            return
        except (TypeError, OverflowError):
            pass
    if isinstance(index, torch.Tensor):
        digest.update(repr(tuple(index.shape)).encode() + index.detach().cpu().contiguous().numpy().tobytes())
    elif isinstance(index, np.ndarray):
        digest.update(repr(index.shape).encode() + index.tobytes())
    elif isinstance(index, (list, tuple)):
        digest.update(b"l%d " % len(index))
        for part in index:
            take_in(digest, part)
    elif isinstance(index, (int, float, str, bytes, np.generic, type(None))):
        digest.update(repr(index).encode() + b";")
    else:
        encoded = encode(index, name="index")
        digest.update(encoded.header)
        for buffer in encoded.parts():
            digest.update(buffer)


class Indices:
    """Takes the place of the loader's sampler in an iterator."""

    def __init__(self, loader: Any, first: Draws | None = None) -> None:
        """`first` are the indices of the first epoch."""
        self.sampler = loader._index_sampler
        self._constant = loader._dataset_kind == _DatasetKind.Iterable
        self._keeps = with_state(loader) is not None
        self.draws, self._first = first, first

    def __iter__(self) -> Draws:
        if self._first is not None and not self._first.started:  # torch asks twice before it takes one
            return self._first
        self._first = None
        self.draws = Draws(iter(self.sampler), constant=self._constant, keeps=self._keeps)
        return self.draws

    def __len__(self) -> int:
        return len(self.sampler)


def with_state(loader: Any) -> Any:
    """The sampler of a loader that can say where it is, by torchdata's convention; None for none."""
    choices = [loader._index_sampler]
    if type(choices[0]) is BatchSampler:
        choices.append(choices[0].sampler)
    return next((sampler for sampler in choices if can_say(sampler)), None)
