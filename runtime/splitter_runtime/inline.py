"""The iterator for num_workers=0: the template fetches, which stands for the script's main process.

Every fetch takes the trainer's generator states along and brings back those after it. When the worker program is known to be stateless and
the sampler can be asked early without anybody noticing, a few fetches are under way ahead; those must not draw random numbers. When one
does, or something changes in between, it is done again in its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)
from torch.utils.data.dataloader import _DatasetKind, _SingleProcessDataLoaderIter

from . import ambient
from .frames import Kind
from .remote_iterator import LoaderView
from .session import Pending

if TYPE_CHECKING:
    from .data_loader import DataLoader, Site
    from .sending import Received

AHEAD = 2


def can_look_ahead(sampler: Any) -> bool:
    """Whether nobody can tell that the next index was taken early, once the first was taken."""
    kind = type(sampler)
    if kind is BatchSampler:
        return can_look_ahead(sampler.sampler)
    if kind is RandomSampler:
        return sampler.generator is None and not sampler.replacement
    if kind is SubsetRandomSampler:
        return sampler.generator is None
    return kind in (SequentialSampler, DistributedSampler)


@dataclass
class Ahead:
    """An index that was taken early, and its fetch."""

    index: Any
    pending: list[Pending] | None
    stamp: Any


class RemoteFetcher:
    """Takes the place of torch's fetcher."""

    def __init__(self, site: Site, dataset: Any, kind: int, auto_collation: bool, drop_last: bool) -> None:
        """Make the fetcher on the templates; for an iterable dataset that calls iter() on it."""
        self._site = site
        self.number = site.session.number()
        arguments = (site.number, dataset, kind, auto_collation, drop_last)
        site.session.call("fetcher", *arguments, fresh=self.number, changes=kind == _DatasetKind.Iterable)

    def fetch(self, index: Any) -> Any:
        """One batch. Raises what the dataset or collate_fn raises."""
        session = self._site.session
        if not self._site.stateless:
            # Only the home template goes through this; no other one knows the dataset's state from here on.
            session.board.stay_at(session.home.link.endpoint.name)
        pending = session.submit("fetch", self.number, index, at_home=True, changes=not self._site.stateless)
        return session.wait(pending).value

    def peek(self, index: Any) -> Ahead:
        """Send a fetch ahead of its turn."""
        session = self._site.session
        pending = session.submit("fetch", self.number, index, at_home=True, changes=False, peek=True)
        return Ahead(index, pending, self.stamp())

    def stamp(self) -> Any:
        """What must be the same when a fetch is sent and when its turn comes."""
        return self._site.session.changes, ambient.settings(local=True)


class Lookahead(Iterator[Any]):
    """The sampler's indices, and the fetches that are under way for those taken early."""

    def __init__(self, indices: Iterator[Any], fetcher: RemoteFetcher) -> None:
        self._indices, self._fetcher = indices, fetcher
        self._early: deque[Ahead] = deque()
        self._turn: Ahead | None = None
        self._exhausted = False
        self.drew = False

    def __next__(self) -> Any:
        if not self._early:
            if self._exhausted:
                raise StopIteration
            self._turn = None
            return next(self._indices)
        self._turn = self._early.popleft()
        return self._turn.index

    def fetch(self, index: Any) -> Any:
        """The batch of the index that __next__ has just given."""
        if self.drew:
            return self._fetcher.fetch(index)
        turn = self._turn or self._fetcher.peek(index)
        while len(self._early) < AHEAD and not self._exhausted:
            try:
                early = next(self._indices)
            except StopIteration:
                self._exhausted = True
                break
            self._early.append(self._fetcher.peek(early))
        assert turn.pending is not None
        session = self._fetcher._site.session
        if turn.stamp != self._fetcher.stamp():
            return self._fetcher.fetch(index)
        frame = session.wait(turn.pending)
        if frame.kind is Kind.DREW:
            self.drew = True
            return self._fetcher.fetch(index)
        return frame.value


class InlineIterator(_SingleProcessDataLoaderIter):
    """torch's iterator, with a fetcher on the worker."""

    def __init__(self, loader: DataLoader, site: Site, dataset: Any, received: Received | None = None) -> None:
        """`dataset` is the description of the loader's dataset; `received` is what was sent for this iterator."""
        # The fetcher that torch makes first is for a map-style dataset, which calls nothing on it.
        super().__init__(LoaderView(loader, _dataset_kind=_DatasetKind.Map))
        self._dataset_kind = loader._dataset_kind
        self._received = received  # the templates hold it as long as this is here
        fetcher = RemoteFetcher(site, dataset, self._dataset_kind, self._auto_collation, self._drop_last)
        self._dataset_fetcher: Any = fetcher
        if site.stateless and self._dataset_kind == _DatasetKind.Map and can_look_ahead(self._index_sampler):
            self._sampler_iter: Any = Lookahead(self._sampler_iter, fetcher)
            self._dataset_fetcher = self._sampler_iter
