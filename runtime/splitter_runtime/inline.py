"""The iterator for num_workers=0: the template fetches, which stands for the script's main process.

Every fetch takes the trainer's generator states along and brings back those after it. Code that keeps no state may also fetch ahead of
its turn, each time with the states that the fetch before left, as long as the sampler can be asked early without anybody noticing. In its
turn a batch is taken only when the trainer's own states are those that it was made from; they become the ones after it then. Else it is
made again, in the usual way.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)
from torch.utils.data.dataloader import _DatasetKind, _SingleProcessDataLoaderIter

from . import ahead, ambient, finishing
from .errors import CodecError, WorkerLostError
from .frames import Kind
from .notices import tell
from .remote_iterator import LoaderView
from .resume import Beginning, Progress, Replayed, mode_of
from .resume_indices import Indices

if TYPE_CHECKING:
    from .data_loader import RemoteLoader, Site
    from .sending import Received
    from .session import Session
    from .twin import Call

AHEAD = 2  # fetches under way ahead of their turn
ENOUGH = 3  # misses in a row after which none is tried
REST, LONGEST_REST = 64, 4096  # fetches until one is tried again


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


class Luck:
    """How well a loader does with running ahead; kept from one epoch to the next."""

    def __init__(self, feed: str, names: tuple[str, ...]) -> None:
        """`names`: the generators that the code may draw from."""
        self.feed, self.names = feed, names
        self._misses = 0  # in a row
        self._rest, self._pause = 0, REST
        self._warned = False

    def __repr__(self) -> str:
        return f"<Luck {self.feed}: {self._misses} misses in a row, {self._rest} fetches to rest>"

    @property
    def depth(self) -> int:
        """How many fetches may be under way ahead."""
        return 0 if self._rest else AHEAD if self._misses < ENOUGH else 1

    def took(self) -> None:
        """A fetch was what the script would have made."""
        self._misses, self._pause = 0, REST

    def missed(self) -> None:
        """One was not, since somebody else drew random numbers. Warns once, when that goes on."""
        self._misses += 1
        if self._misses < ENOUGH:
            return
        self._rest, self._pause = self._pause, min(LONGEST_REST, 2 * self._pause)
        if not self._warned:
            self._warned = True
            tell(
                logging.WARNING,
                f"{self.feed}: the script draws random numbers on the CPU between its batches (dropout, perhaps), so none can be made "
                "ahead of its turn; `splitter transform --streams N` makes them as if the script had said num_workers=N",
            )

    def passed(self) -> None:
        """A fetch was made in its turn."""
        self._rest = max(0, self._rest - 1)

    def distrust(self) -> None:
        """The code draws from more than `names`."""
        self.names = ambient.GENERATORS


_LUCK: weakref.WeakKeyDictionary[Site, Luck] = weakref.WeakKeyDictionary()


@dataclass
class Early:
    """An index that was taken early, and its fetch when that is under way; `stamp` is what must be the same in its turn."""

    index: Any
    call: Call | None = None
    stamp: Any = None


class RemoteFetcher:
    """Takes the place of torch's fetcher."""

    def __init__(
        self, site: Site, dataset: Any, kind: int, auto_collation: bool, drop_last: bool, progress: Progress, position: Any = None
    ) -> None:
        """Make the fetcher on the templates; for an iterable dataset that calls iter() on it, unless it starts at a position."""
        self._site, self._progress = site, progress
        self._keeps_state = not site.stateless or kind == _DatasetKind.Iterable  # an iterator is at some place
        self.session: Session = site.session
        self.number = site.session.number()
        arguments = (site.number, dataset, kind, auto_collation, drop_last, position)
        with self._noted():
            made = site.session.call("fetcher", *arguments, fresh=self.number, changes=kind == _DatasetKind.Iterable)
        self.can_say = made.value  # where it is
        weakref.finalize(self, site.session.drop, self.number).atexit = False

    def submit(self, index: Any) -> Call:
        """Send a fetch in its turn: only the home template makes it, since no other one knows the dataset's state from here on."""
        if self._keeps_state:
            self.session.stay_at_home()
        return self.session.submit("fetch", self.number, index, at_home=True, changes=self._keeps_state)

    def fetch(self, index: Any) -> Any:
        """One batch. Raises what the dataset or collate_fn raises."""
        with self._noted():
            return self.session.wait(self.submit(index)).value

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """What is drawn meanwhile must be drawn from the same states when the batches are made again."""
        if self._progress.mode != "again":
            yield
            return
        before = ambient.states()
        yield
        self._progress.drawn_from({name: before[name] for name in ambient.changes(before, ambient.states())})

    def position(self) -> Any:
        """Where it is in an iterable dataset that can say it; None in others."""
        try:
            return self.session.wait(self.session.submit("position", self.number, at_home=True, changes=False)).value
        except CodecError:
            return None

    def send_ahead(self, early: Early, names: tuple[str, ...]) -> None:
        """Send a fetch ahead of its turn."""
        early.call = self.session.submit("fetch_ahead", self.number, early.index, names, at_home=True, changes=False, peek=True)
        early.stamp = self.stamp()

    def stamp(self) -> Any:
        """What must be the same when a fetch is sent and when its turn comes."""
        return self.session.changes, ambient.settings(local=True)


class Lookahead(Iterator[Any]):
    """The sampler's indices, and the fetches that are under way for those taken early. Takes the place of torch's fetcher, too."""

    def __init__(self, indices: Iterator[Any], fetcher: RemoteFetcher, luck: Luck) -> None:
        self._indices, self._fetcher, self._luck = indices, fetcher, luck
        self._early: deque[Early] = deque()
        self._turn: Early | None = None
        self._exhausted = False
        weakref.finalize(self, _forget_all, fetcher.session, self._early).atexit = False

    def __next__(self) -> Any:
        if not self._early:
            if self._exhausted:
                raise StopIteration
            self._turn = Early(next(self._indices))
        else:
            self._turn = self._early.popleft()
        return self._turn.index

    def fetch(self, index: Any) -> Any:
        """The batch of the index that __next__ has just given."""
        turn, self._turn = self._turn, None
        if turn is not None and turn.call is not None:
            self._look_ahead()
            made = self._made(turn, turn.call)
            if made is not None:
                return made[0]
            _forget_all(self._fetcher.session, self._early)  # they went on from there
        self._luck.passed()
        call = self._fetcher.submit(index)
        self._look_ahead()
        return self._fetcher.session.wait(call).value

    def _look_ahead(self) -> None:
        """Have fetches under way for the next indices."""
        depth = self._luck.depth
        while len(self._early) < depth and not self._exhausted:
            try:
                self._early.append(Early(next(self._indices)))
            except StopIteration:
                self._exhausted = True
        for early in list(self._early)[:depth]:
            if early.call is None:
                self._fetcher.send_ahead(early, self._luck.names)

    def _made(self, turn: Early, call: Call) -> tuple[Any] | None:
        """The batch that was made ahead, when it is the one that the script would make now."""
        session, luck = self._fetcher.session, self._luck
        if turn.stamp != self._fetcher.stamp():
            session.forget(call)
            return None
        try:
            frame = session.wait(call)
        except WorkerLostError:
            raise
        except Exception:
            return None  # a batch that can't be sent, which is said in its turn
        if frame.kind is Kind.DREW:
            luck.distrust()
            return None
        found = frame.value
        if found is None:
            return None
        before, after, texts, batch = found
        if before != ahead.digest(ambient.states(luck.names)):
            luck.missed()
            return None
        luck.took()
        ambient.set_states(after)
        ahead.show(texts)
        return (batch,)


def _forget_all(session: Session, early: deque[Early]) -> None:
    """Let go of fetches that are under way; their indices stay."""
    for one in early:
        if one.call is not None:
            session.forget(one.call)
            one.call = None


class InlineIterator(_SingleProcessDataLoaderIter):
    """torch's iterator, with a fetcher on the worker."""

    def __init__(
        self, loader: RemoteLoader, site: Site, dataset: Any, received: Received | None = None, replayed: Replayed | None = None
    ) -> None:
        """`dataset` is the description of the loader's dataset; `received` is what was sent for this iterator."""
        indices = Indices(loader, None if replayed is None else replayed.draws)
        # The fetcher that torch makes first is for a map-style dataset, which calls nothing on it.
        view = LoaderView(loader, _dataset_kind=_DatasetKind.Map, _index_sampler=indices, num_workers=0, timeout=0)
        mode = mode_of(loader, site, 0)
        if replayed is None:
            self._progress = Progress(Beginning.now(loader, "iter", "seed"), indices, mode, 0)
        else:
            self._progress = replayed.saved.progress(replayed.saved.beginning(), indices, mode, 0)
            vars(view).update(generator=torch.Generator())
        self._progress.used = not site.stateless and site.session.alone
        loader._progress = self._progress
        super().__init__(view)
        self._progress.base_seed = int(self._base_seed)
        self._num_yielded = self._progress.passed
        self._given = 0
        self._dataset_kind = loader._dataset_kind
        self._received = received  # the templates hold it as long as this is here
        arguments = (self._dataset_kind, self._auto_collation, self._drop_last, self._progress)
        fetcher = RemoteFetcher(site, dataset, *arguments, None if replayed is None else replayed.saved.state.get("position"))
        self._dataset_fetcher: Any = fetcher
        if fetcher.can_say and site.collates_freely:
            self._progress.position = fetcher.position  # also when this iterator has been left
        if site.stateless and self._dataset_kind == _DatasetKind.Map and can_look_ahead(loader._index_sampler):
            luck = _LUCK.setdefault(site, Luck(site.tally.site.name, ambient.GENERATORS if site.draws is None else site.draws))
            self._sampler_iter: Any = Lookahead(self._sampler_iter, fetcher, luck)
            self._dataset_fetcher = self._sampler_iter
        work = finishing.work_of(loader, in_main=True)
        if work is not None:
            self._dataset_fetcher = finishing.FinishedFetcher(self._dataset_fetcher, work)
        self._rest = loader._rest

    def _next_data(self) -> Any:
        try:
            found = super()._next_data()  # type: ignore[no-untyped-call]
        except StopIteration:
            self._progress.finish()
            raise
        if self._rest is not None:
            self._rest.note(found)
        self._given += 1
        self._progress.got(self._given)
        return found
