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
import queue
import sys
import threading
from typing import TYPE_CHECKING, Any

from torch.utils.data._utils.worker import _IterableDatasetStopIteration, _ResumeIteration, _worker_loop
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from .errors import SplitterError, WorkerLostError
from .failures import Lost, StreamFailure
from .frames import Frame, Kind, pack, pack_value
from .nearby import Offer, borrow
from .stream import Console, Order
from .transport import Channel, Ended, Event

if TYPE_CHECKING:
    from .data_loader import DataLoader, Site
    from .sending import Received

_LOOP = tuple(inspect.signature(_worker_loop).parameters)
_PLAIN = (
    "dataset_kind", "auto_collation", "drop_last", "base_seed", "worker_id", "num_workers", "persistent_workers", "shared_seed",
)  # fmt: skip
_iterations = itertools.count(1)


class LoaderView:
    """A loader as torch's iterators see it, with some attributes other than they are."""

    def __init__(self, loader: DataLoader, **other: Any) -> None:
        self._loader = loader
        vars(self).update(other)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class ResultQueue:
    """The result queue: frames in, torch's (number, batch) out."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, item: Any) -> None:
        """Add a frame, or torch's own (None, None)."""
        self._events.put(item)

    def get(self, timeout: float | None = None) -> Any:
        """The next result; queue.Empty after `timeout` seconds. CodecError when it is damaged."""
        item = self._events.get(timeout=timeout)
        if not isinstance(item, Frame):
            return item
        value = item.value
        if item.kind is Kind.STOP:
            return item.number, _IterableDatasetStopIteration(value)
        if item.kind is Kind.FAULT:
            return item.number, StreamFailure(value, self._site.session.lines)
        if item.kind is Kind.RESUMED:
            return _ResumeIteration(value), None
        return item.number, value

    def cancel_join_thread(self) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        """Nothing is open here."""


class IndexQueue:
    """The index queue of one stream."""

    channel: Channel | None = None

    def put(self, item: Any) -> None:
        """Send what torch's loop will get there."""
        assert self.channel is not None  # torch puts nothing before it has started the process
        if item is None:
            parts = pack(Kind.FINISH)
        elif isinstance(item, _ResumeIteration):
            parts = pack_value(Kind.RESUME, 0, item.seed)
        else:
            parts = pack_value(Kind.INDEX, item[0], item[1], name="index")
        self.channel.send(parts)

    def cancel_join_thread(self) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        """Nothing is open here."""


class StreamId(int):
    """Stands for the process id of a stream.

    torch registers the pids of its workers and asks the kernel about each when some child of this process ends. A stream's real pid
    could be that of a child of ours, so the number is this process's own, which is never its own child.
    """

    name: str

    def __new__(cls, name: str) -> StreamId:
        made = super().__new__(cls, os.getpid())
        made.name = name
        return made

    def __str__(self) -> str:
        return self.name


def _console(file: Any) -> Console:
    """How a text file of this process writes; as sys.stdout into a pipe does for one that isn't a usual file."""
    return Console(
        getattr(file, "encoding", None) or "utf-8",
        getattr(file, "errors", None) or "strict",
        bool(getattr(file, "line_buffering", False)),
        bool(getattr(file, "write_through", False)),
    )


class Stream:
    """One stream, with the methods of multiprocessing's Process that torch uses."""

    daemon = True

    def __init__(self, context: StreamContext, args: tuple[Any, ...]) -> None:
        self._context = context
        self._given = dict(zip(_LOOP, args, strict=True))
        self.pid = StreamId(f"stream {self._given['worker_id']}")
        self._ended = threading.Event()
        self._finished = False  # said that it ends as asked, or was told to end at once

    def start(self) -> None:
        """Have the stream forked; its index queue and the event of its iterator work from now on."""
        multiprocessing.util._flush_std_streams()  # type: ignore[attr-defined]  # as the start of a process does
        loop = {name: self._given[name] for name in _PLAIN if name in self._given}
        order = Order(loop, (_console(sys.stdout), _console(sys.stderr)))
        self._worker, channel = self._context.open(order, self._take)
        self._channel = self._given["index_queue"].channel = channel
        self._given["done_event"].channels.append(channel)
        self.pid = StreamId(f"stream {self._given['worker_id']} on {self._worker}")
        del self._given["index_queue"], self._given["done_event"]

    def is_alive(self) -> bool:
        """Whether it has not ended as asked. One that was lost says so through the result queue, with the reason."""
        return not (self._ended.is_set() and self._finished)

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        self._ended.wait(timeout)

    def terminate(self) -> None:
        """End it at once."""
        self._finished = True
        self._channel.close()

    def _take(self, event: Event) -> None:
        """In the link's reader thread."""
        if isinstance(event, Frame):
            if event.kind is Kind.OUTPUT:
                number, text = event.value
                _write(number, text)
            elif event.kind is Kind.BYE:
                self._finished = True
            elif event.kind is Kind.NEARBY and self._context.nearby(self._worker):  # from no other worker is an offer believed
                self._borrow(event)
            else:
                self._context.results.put(event)
            return
        if isinstance(event, Ended):
            error: SplitterError = WorkerLostError.of("R401", worker=self._worker_name(), why=f"{self._stream()}: {event.why}")
        else:
            error = event
        self._ended.set()
        self._context.release(self)
        if not self._finished:
            self._context.results.put((None, Lost(error)))

    def _borrow(self, frame: Frame) -> None:
        offer: Offer = frame.value
        try:
            payload = borrow(offer)
        except FileNotFoundError:
            return  # the stream was killed; that it has ended comes next
        self._channel.send(pack(Kind.TAKEN, frame.number))
        self._context.results.put(Frame(Kind.ITEM, frame.number, offer.header, payload))

    def _stream(self) -> str:
        return f"stream {self._given['worker_id']} of {self._given['num_workers']} ended"

    def _worker_name(self) -> str:
        return getattr(self, "_worker", "?")


def _write(number: int, text: bytes) -> None:
    """What a stream prints goes to the file descriptor, as that of a forked worker does."""
    file = sys.__stdout__ if number == 1 else sys.__stderr__
    while text and file is not None:
        text = text[os.write(file.fileno(), text) :]


class DoneEvent:
    """The event that says that the iterator is going away."""

    def __init__(self) -> None:
        self.channels: list[Channel] = []
        self._set = False

    def set(self) -> None:
        """Tell all streams."""
        self._set = True
        for channel in self.channels:
            channel.send(pack(Kind.DONE))

    def is_set(self) -> bool:
        return self._set


class StreamContext:
    """What torch takes for a multiprocessing context."""

    def __init__(self, site: Site, dataset: Any, received: Received | None) -> None:
        self._site = site
        self._iteration = next(_iterations)
        self._dataset = dataset
        self._received = received  # the templates hold it as long as this is here
        self._sent: set[str] = set()  # workers that have the dataset's description
        self._queues = 0
        self.results = ResultQueue(site)

    def Queue(self) -> Any:
        """torch asks for the result queue first, then for an index queue for each stream."""
        self._queues += 1
        return self.results if self._queues == 1 else IndexQueue()

    def Event(self) -> DoneEvent:
        return DoneEvent()

    def Process(self, target: object, args: tuple[Any, ...]) -> Stream:
        return Stream(self, args)

    def nearby(self, worker: str) -> bool:
        """Whether that worker's large batches come through memory."""
        return self._site.session.twin(worker).nearby

    def open(self, order: Order, sink: Any) -> tuple[str, Channel]:
        """Open one stream on the worker with the most room; returns that worker's name."""
        session = self._site.session
        worker = session.board.place()
        value = {
            "loader": self._site.number,
            "iteration": self._iteration,
            "dataset": None if worker in self._sent else self._dataset,
            "order": dataclasses.replace(order, nearby=self.nearby(worker)),
        }
        self._sent.add(worker)
        return worker, session.open_stream(value, session.twin(worker), sink)

    def release(self, process: Stream) -> None:
        """A stream has ended."""
        self._site.session.board.release(process._worker)


class StreamsIterator(_MultiProcessingDataLoaderIter):
    """torch's iterator over worker processes that are streams."""

    _lost: Lost | None = None

    def __init__(self, loader: DataLoader, site: Site, dataset: Any, received: Received | None = None) -> None:
        """`dataset` is the description of the loader's dataset; `received` is what was sent for this iterator."""
        super().__init__(LoaderView(loader, multiprocessing_context=StreamContext(site, dataset, received)))

    def _get_data(self) -> Any:
        if self._lost is None:
            found = super()._get_data()  # type: ignore[no-untyped-call]
            if not isinstance(found[1], Lost):
                return found
            self._lost = found[1]
        self._lost.reraise()
