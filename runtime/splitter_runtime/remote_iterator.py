"""The iterator for num_workers >= 1: torch's own, whose worker processes are streams on the workers.

torch makes its queues, event and processes through a multiprocessing context; it gets one whose Process opens a stream. Base seed,
prefetch, order, the end of iterable shards, persistent workers, timeout and pinning remain torch's code.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import multiprocessing.util
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data._utils.worker import _worker_loop
from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind, _MultiProcessingDataLoaderIter

from . import ambient, finishing
from .errors import SplitterError, WorkerLostError
from .failures import Lost, samples
from .frames import Kind, pack_value
from .resume import Beginning, Progress, Replayed, mode_of
from .resume_indices import Indices
from .stream import SKIPPED, Order
from .stream_client import DoneEvent, IndexQueue, ResultQueue, Stream
from .streams import ATTEMPTS, Course, Dispatch

if TYPE_CHECKING:
    from .data_loader import RemoteLoader, Site
    from .sending import Received

_LOOP = tuple(inspect.signature(_worker_loop).parameters)
_PLAIN = (
    "dataset_kind", "auto_collation", "drop_last", "base_seed", "worker_id", "num_workers", "persistent_workers", "shared_seed",
)  # fmt: skip
_iterations = itertools.count(1)


class LoaderView:
    """A loader as torch's iterators see it, with some attributes other than they are."""

    def __init__(self, loader: RemoteLoader, **other: Any) -> None:
        self._loader = loader
        vars(self).update(other)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class StreamContext:
    """What torch takes for a multiprocessing context, and what the streams of one iterator share."""

    def __init__(self, loader: Any, site: Site, dataset: Any, received: Received | None, progress: Progress) -> None:
        self.site = site
        self.progress = progress
        self.tally = site.tally
        self._iteration = next(_iterations)
        self._dataset = dataset
        self._received = received  # the templates hold it as long as this is here
        self._sent: set[Any] = set()  # templates that have the dataset's description
        self._queues = 0
        self.lock = progress.lock  # orders come from the loop's thread, and answers from the one that pins memory
        self.streams: list[Stream] = []
        self._indices: dict[int, Any] = {}  # of batches that the loop hasn't got
        self._under_way: set[int] = set()  # those that were asked for
        self._held: deque[tuple[Stream, int, bytes]] = deque()  # those that were not
        self._frames: dict[int, bytes] = {}  # of those that any stream may make, until one has
        self._mean = 0.0  # bytes of a batch
        stateless = site.stateless and loader._dataset_kind == _DatasetKind.Map
        self.keeps_state = not stateless
        self.cursor = (ambient.GENERATORS if site.draws is None else site.draws) if stateless else None
        self.position = loader._dataset_kind == _DatasetKind.Iterable and site.collates_freely
        self.again = stateless and not loader.persistent_workers
        self.results = ResultQueue(self)
        self.notes = progress.mode != "any"
        self._replayed: Replayed | None = None
        pure = stateless and site.draws == () and not loader.persistent_workers
        self._dispatch = Dispatch(loader.num_workers) if pure else None
        self.last = ("", 0)  # worker and bytes of the batch that has just come

    def Queue(self) -> Any:
        """torch asks for the result queue first, then for an index queue for each stream."""
        self._queues += 1
        return self.results if self._queues == 1 else IndexQueue()

    def Event(self) -> DoneEvent:
        return DoneEvent()

    def Process(self, target: object, args: tuple[Any, ...]) -> Stream:
        multiprocessing.util._flush_std_streams()  # type: ignore[attr-defined]  # as the start of a process does
        self.streams.append(Stream(self, dict(zip(_LOOP, args, strict=True))))
        return self.streams[-1]

    def loop_arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Arguments of torch's worker loop that are plain data."""
        seed = {} if self._replayed is None else {"base_seed": self.progress.base_seed}
        return {**{name: given[name] for name in _PLAIN if name in given}, **seed}

    def go_on(self, replayed: Replayed) -> None:
        """The streams go on from a saved state."""
        self._replayed = replayed

    def course(self, stream: int) -> Course:
        """What a stream was told, before it is started."""
        course = Course(self.keeps_state)
        starts = [] if self._replayed is None else self._replayed.starts()
        if starts:
            here, skipped = starts[stream]
            frames = enumerate(skipped, SKIPPED)
            course.begin_at(here, [b"".join(pack_value(Kind.INDEX, number, index, name="index")) for number, index in frames])
        return course

    # Batches on their way

    def want(self, stream: Stream, number: int, index: Any) -> None:
        """A batch is wanted from that stream. It is asked for as soon as the bytes that are under way allow it."""
        with self.lock:
            self._indices[number] = index
            self._held.append((stream, number, b"".join(pack_value(Kind.INDEX, number, index, name="index"))))
            self._release_held()

    def _release_held(self) -> None:
        while self._held and (not self._under_way or (len(self._under_way) + 1) * self._mean <= self.site.session.settings.budget):
            stream, number, frame = self._held.popleft()
            self._under_way.add(number)
            if self._dispatch is None:
                stream.ask(number, frame)
            else:
                self._frames[number] = frame
                self._ask(self._dispatch.ask(number))

    def _ask(self, sends: list[tuple[int, int]]) -> None:
        for stream, number in sends:
            self.streams[stream].ask(number, self._frames[number])

    def is_wanted(self, stream: int, number: int) -> bool:
        """A stream has made a batch: whether it is the first one to do so."""
        if self._dispatch is None:
            return True
        sends, taken_back = self._dispatch.answered(stream, number)
        for other, moved in taken_back:
            self.streams[other].take_back(moved)
        self._ask(sends)
        return self._frames.pop(number, None) is not None

    def came(self, worker: str, nbytes: int) -> None:
        """A batch has come."""
        self.last = worker, nbytes
        self._mean = nbytes if self._mean == 0 else 0.8 * self._mean + 0.2 * nbytes

    def taken(self, number: int) -> None:
        """The loop has got that batch, and all before it."""
        with self.lock:
            for old in [asked for asked in self._indices if asked <= number]:
                del self._indices[old]
                self._under_way.discard(old)
            self._release_held()

    def indices(self, numbers: list[int]) -> Any:
        """What was asked for under these numbers."""
        return [self._indices.get(number) for number in numbers]

    def index(self, number: int) -> Any:
        """What was asked for under this number."""
        return self._indices.get(number)

    def killed(self, number: int, worker: str, why: str, indices: Any) -> SplitterError:
        """The error that says that one batch brings every process down."""
        shown = samples(indices[0] if indices else None)
        name = self.tally.site.name
        return WorkerLostError.of("R403", number=number, loader=name, times=ATTEMPTS, worker=worker, why=why, indices=shown)

    def open(self, order: Order, stream: Stream, avoid: str | None) -> tuple[str, Any]:
        """Have a process take the order, on the worker with the most room; returns that worker's name and the channel."""
        session = self.site.session
        twin = session.place(avoid)
        parked = self.site.parked.pop(twin, self.key())
        if parked is not None:
            channel = parked
            channel.attach(self.results.inbox)
            channel.send(pack_value(Kind.AGAIN, 0, order))
        else:
            value = {
                "loader": self.site.number,
                "iteration": self._iteration,
                "dataset": None if twin in self._sent else self._dataset,
                "order": order,
            }
            self._sent.add(twin)
            channel = session.open_stream(value, twin, self.results.inbox)
        self.results.streams[channel] = stream
        return twin.name, channel

    def key(self) -> Any:
        """What must be the same for a process to take orders of another iterator."""
        session = self.site.session
        return session.changes, repr(ambient.settings(local=True)), self._received or repr(self._dataset)

    def park(self, stream: Stream) -> None:
        """A stream has ended, and its process waits for orders of another iterator."""
        self.results.streams.pop(stream._channel, None)
        self.site.session.release(stream._worker)
        self.site.parked.put(stream._worker, self.key(), stream._channel)


class StreamsIterator(_MultiProcessingDataLoaderIter):
    """torch's iterator over worker processes that are streams."""

    _lost: Lost | None = None
    _owner: int | None = None

    def __init__(
        self, loader: RemoteLoader, site: Site, dataset: Any, received: Received | None = None, replayed: Replayed | None = None
    ) -> None:
        """`dataset` is the description of the loader's dataset; `received` is what was sent for this iterator."""
        self._owner = os.getpid()
        indices = Indices(loader, None if replayed is None else replayed.draws)
        view = LoaderView(loader, _index_sampler=indices)
        if replayed is None:
            workers = loader.num_workers
            self._progress = Progress(Beginning.now(loader, "iter", "seed", "iter"), indices, mode_of(loader, site, workers), workers)
        else:
            workers = replayed.saved.workers(loader, site)
            if not loader.num_workers:
                site = dataclasses.replace(site, draws=None)  # that the process matters is not known there
            self._progress = replayed.saved.progress(replayed.saved.beginning(), indices, mode_of(loader, site, workers), workers)
            vars(view).update(num_workers=workers, prefetch_factor=loader.prefetch_factor or 2, generator=torch.Generator())
        self._turn = self._progress.first
        self._context = StreamContext(view, site, dataset, received, self._progress)
        if replayed is not None:
            self._context.go_on(replayed)
        vars(view).update(multiprocessing_context=self._context)
        loader._progress = self._progress
        self._rest = loader._rest
        self._context.results.work = finishing.work_of(loader, in_main=False)
        super().__init__(view)
        if self._context.results.work is not None:
            finishing.start(self)
        if replayed is None:
            self._progress.base_seed = int(self._base_seed)
        self._num_yielded = self._progress.passed
        advance: Any = _BaseDataLoaderIter.__next__
        self._watched = advance.__code__.co_filename != torch.utils.data.dataloader.__file__  # somebody has put a function around it

    def __next__(self) -> Any:
        profiled = torch.autograd._profiler_enabled()  # type: ignore[attr-defined]
        if profiled or self._watched or self._sampler_iter is None or self._dataset_kind != _DatasetKind.Map:
            return super().__next__()
        # The same without the record for a profiler, which takes as long as all else here.
        data = self._next_data()
        self._num_yielded += 1
        return data

    def _shutdown_workers(self) -> None:
        # A process that the script has forked has a copy of this, as workers of torch's own loaders do, and may lose it at any time: the
        # streams are not its own.
        if self._owner == os.getpid():
            super()._shutdown_workers()

    def _get_data(self) -> Any:
        if self._lost is None:
            found = super()._get_data()  # type: ignore[no-untyped-call]
            if not isinstance(found[1], Lost):
                return found
            self._lost = found[1]
        self._lost.reraise()

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._context.tally.begin()
        if not first_iter:
            before = self._progress
            made = Progress(Beginning.now(loader, "iter"), before.indices, before.mode, before.workers, base_seed=before.base_seed)
            self._progress = self._context.progress = loader._progress = made
        super()._reset(loader, first_iter)

    def _try_put_index(self) -> None:
        while self._turn:  # the first batch is the turn of another stream
            next(self._worker_queue_idx_cycle)
            self._turn -= 1
        super()._try_put_index()

    def _next_data(self) -> Any:
        began = time.perf_counter()
        number = self._rcvd_idx
        try:
            found = super()._next_data()  # type: ignore[no-untyped-call]
        except StopIteration:
            self._context.tally.end()
            self._progress.finish()
            raise
        if self._rest is not None:
            self._rest.note(found)
        self._context.taken(number)
        with self._context.lock:
            self._progress.got(self._rcvd_idx)
        worker, nbytes = self._context.last
        self._context.tally.took(worker, nbytes, time.perf_counter() - began)
        return found
