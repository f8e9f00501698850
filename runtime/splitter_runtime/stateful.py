"""Iterable datasets that can say where they are, by torchdata's convention: `state_dict()` and `load_state_dict(state)`, on the iterator
or on the dataset. The state, with those of the generators, is a cursor like that of code that keeps no state.

    position = Position(dataset)            before torch's loop makes its fetcher
    position.take()                         {"iterator": {...}, "ended": False}, None when it has none
    position.restore({...})                 in the place of starting at the beginning
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import _DatasetKind


def _can(target: object) -> bool:
    return callable(getattr(target, "state_dict", None)) and callable(getattr(target, "load_state_dict", None))


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
            if saved is not None and "dataset" in saved:
                self._dataset.load_state_dict(saved["dataset"])
            self._fetcher = original(*arguments)
            if saved is not None:
                self._fetcher.ended = saved["ended"]
                if "iterator" in saved:
                    self._fetcher.dataset_iter.load_state_dict(saved["iterator"])
            return self._fetcher

        kinds.create_fetcher = staticmethod(create_fetcher)

    def take(self) -> dict[str, Any] | None:
        """Where it is now; None when the dataset can't say it."""
        if self._fetcher is None:
            return None
        if _can(self._fetcher.dataset_iter):
            return {"ended": self._fetcher.ended, "iterator": self._fetcher.dataset_iter.state_dict()}
        if _can(self._dataset):
            return {"ended": self._fetcher.ended, "dataset": self._dataset.state_dict()}
        return None

    def restore(self, saved: dict[str, Any]) -> None:
        """Have the next fetcher start there."""
        self._saved = saved
