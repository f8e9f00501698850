"""Iterable datasets that can say where they are, by torchdata's convention: `state_dict()` and `load_state_dict(state)`, on the iterator
or on the dataset. The state, with those of the generators, is a cursor like that of code that keeps no state.

    position = Position(dataset)            before torch's loop makes its fetcher
    position.take()                         {"iterator": {...}, "ended": False}, None when it has none
    position.restore({...})                 in the place of starting at the beginning
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.utils.data import _DatasetKind


def can_say(target: object) -> bool:
    """Whether something can say where it is, and be brought there."""
    return callable(getattr(target, "state_dict", None)) and callable(getattr(target, "load_state_dict", None))


def position_of(dataset: Any, fetcher: Any) -> dict[str, Any] | None:
    """Where torch's fetcher of an iterable dataset is; None when the dataset can't say it."""
    if can_say(fetcher.dataset_iter):
        return {"ended": fetcher.ended, "iterator": fetcher.dataset_iter.state_dict()}
    if can_say(dataset):
        return {"ended": fetcher.ended, "dataset": dataset.state_dict()}
    return None


def fetcher_at(saved: dict[str, Any], dataset: Any, make: Callable[[], Any]) -> Any:
    """The fetcher that `make` makes, brought where position_of() was said."""
    if "dataset" in saved:
        dataset.load_state_dict(saved["dataset"])
    fetcher = make()
    fetcher.ended = saved["ended"]
    if "iterator" in saved:
        fetcher.dataset_iter.load_state_dict(saved["iterator"])
    return fetcher


class Position:
    """Where this process is in its share of an iterable dataset."""

    def __init__(self, dataset: Any) -> None:
        """Sees the fetchers that are made from now on."""
        self._dataset = dataset
        self._fetcher: Any = None
        self._saved: dict[str, Any] | None = None
        original: Callable[..., Any] = _DatasetKind.create_fetcher
        kinds: Any = _DatasetKind

        def create_fetcher(*arguments: Any) -> Any:
            saved, self._saved = self._saved, None
            make = functools.partial(original, *arguments)
            self._fetcher = make() if saved is None else fetcher_at(saved, self._dataset, make)
            return self._fetcher

        kinds.create_fetcher = staticmethod(create_fetcher)

    def take(self) -> dict[str, Any] | None:
        """Where it is now; None when the dataset can't say it."""
        return None if self._fetcher is None else position_of(self._dataset, self._fetcher)

    def restore(self, saved: dict[str, Any]) -> None:
        """Have the next fetcher start there."""
        self._saved = saved
