"""DataLoader: torch's own, but for where its batches are made when its dataset is on a worker."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch.utils.data

from .errors import ConfigError
from .inline import InlineIterator
from .remote_dataset import described, feed_of, number_of
from .remote_iterator import StreamsIterator
from .session import Session
from .trees import is_remote, leaves


@dataclass(frozen=True)
class Site:
    """What the worker knows about a loader."""

    session: Session
    number: int
    stateless: bool


class _ByName:
    """Default of `feed`: the loader builder that is named like the dataset, when the worker has one."""


class DataLoader(torch.utils.data.DataLoader[Any]):
    """torch's DataLoader; with a dataset of a worker, or one of torch's wrappers (Subset, ConcatDataset, ...) over such, batches come
    from there.

    `feed` names the loader builder of the worker program (default: the one named like the dataset, if any; None: none), `env` is its
    environment. All other arguments are torch's; collate_fn and worker_init_fn are the builder's on the worker.
    ConfigError for a collate_fn or worker_init_fn that the worker program doesn't have.
    """

    def __init__(
        self,
        dataset: Any,
        *args: Any,
        feed: str | type[_ByName] | None = _ByName,
        env: Mapping[str, object] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dataset, *args, **kwargs)
        self._site = _open_site(self, dataset, feed, env or {}) if is_remote(dataset, number_of) else None

    def _get_iterator(self) -> Any:
        if self._site is None:
            return super()._get_iterator()
        if self.num_workers == 0:
            return InlineIterator(self, self._site)
        self.check_worker_number_rationality()
        return StreamsIterator(self, self._site)


def _open_site(loader: DataLoader, dataset: Any, feed: Any, environment: Mapping[str, object]) -> Site:
    session = Session.current()
    manifest = session.manifest
    names = [feed_of(leaf) for leaf in leaves(dataset)]
    if feed is _ByName:
        feed = next((name for name in names if name in manifest.loaders), None)
    number = session.number()
    has_collate, has_init = session.call("loader", feed, described(environment), fresh=number, changes=False).value
    for attribute, there in (("collate_fn", has_collate), ("worker_init_fn", has_init)):
        given = getattr(loader, attribute)
        if not there and given is not None and not str(getattr(given, "__module__", "")).startswith("torch.utils.data."):
            what = f"{attribute}={getattr(given, '__qualname__', given)!s} is not in the worker program"
            raise ConfigError.of("R601", what=what)
    weakref.finalize(loader, session.drop, number).atexit = False
    stateless = all(name is not None and manifest.datasets.get(name) is True for name in names)
    if feed is not None:
        stateless = stateless and manifest.loaders[feed] is True
    return Site(session, number, stateless)
