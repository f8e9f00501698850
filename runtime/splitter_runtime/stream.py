"""A stream: one DataLoader worker, a process forked from the template that runs torch's own worker loop.

torch's loop gets queue objects that read frames from the socket and write frames to it. One thread. The process dies with the template
(PR_SET_PDEATHSIG), and ends when its socket closes.

A stream may carry on for another one. With a cursor (the generator states after a batch, for code that keeps no other state) it starts
behind that batch; without, it is given everything that the other one was given, and withholds the answers that are known already.
"""

from __future__ import annotations

import gc
import inspect
import os
import queue
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data import _utils
from torch.utils.data._utils import signal_handling
from torch.utils.data._utils.worker import _IterableDatasetStopIteration, _ResumeIteration, _worker_loop

from . import ambient
from .accepting import from_trainer
from .builders import Loader
from .codec import encode
from .collating import collate_into, shortened
from .errors import CodecError
from .failures import record_wrapper
from .frames import Assembler, Buffer, Kind, pack, pack_value
from .growth import Growth
from .outlet import Console, Outlet, redirect
from .processes import die_with
from .stateful import Position

_PIECE = 1 << 16
LONG = 5000  # microseconds; every batch that takes longer says how long
SKIPPED = 1 << 60  # numbers of batches that a saved loader had given, and upwards
POSITIONS = 0.1  # seconds between two positions in an iterable dataset


@dataclass(frozen=True)
class Start:
    """Where a stream takes over from another: generator states to start with, answers to withhold, bytes of both outputs to drop; when
    `quiet`, these are counted from the first batch, and nothing before is shown.
    """

    states: dict[str, Any] = field(default_factory=dict)
    withhold: int = 0
    skip: tuple[int, int] = (0, 0)
    quiet: bool = False


@dataclass(frozen=True)
class Order:
    """Arguments of torch's worker loop that are plain data, under torch's names, and where the trainer prints.

    `cursor` names the generators whose states go along with each batch; None when the code may keep state besides. `position`: an iterable
    dataset may say where it is. With `again` the process waits for another order when it is done.
    """

    loop: dict[str, Any]
    consoles: tuple[Console, Console]
    cursor: tuple[str, ...] | None = None
    position: bool = False
    again: bool = False
    start: Start = Start()


@dataclass(frozen=True)
class Place:
    """A stream's socket, and what it must let go of: its template's."""

    template: int  # process id
    socket: socket.socket
    inherited: tuple[int, ...]


class IndexQueue:
    """What torch's loop takes for its index queue, and for the event that says that the iterator is going away."""

    def __init__(self, source: socket.socket, outlet: Outlet) -> None:
        self._source, self._outlet = source, outlet
        self._assembler = Assembler()
        self._poll = select.poll()
        self._poll.register(source, select.POLLIN)
        self._waiting: deque[Any] = deque()
        self._next: deque[Order] = deque()
        self._done = self._leave = False
        self._growth: Growth | None = None
        self._start: Callable[[], None] | None = None
        self.results: ResultQueue

    def begin(self, results: ResultQueue, start: Callable[[], None], *, anywhere: bool) -> None:
        """Take orders of a new iterator; `start` is called before the first batch, `results` gets those that can't be read. `anywhere`: any
        process can go on from any batch.
        """
        self._done = False
        self._growth = (self._growth or Growth()) if anywhere else None
        self._start, self.results = start, results

    def get(self, timeout: float | None = None) -> Any:
        """The next order of the loader: (number, index), _ResumeIteration or None. queue.Empty after `timeout` seconds."""
        while not self._waiting:
            if not self._poll.poll(None if timeout is None else 1000 * timeout):
                raise queue.Empty
            self._read()
        if self._leave:
            self._end()
        if self._growth is not None and self._start is None and isinstance(self._waiting[0], tuple) and self._growth.too_much():
            self._end(grown=True)
        found = self._waiting.popleft()
        if isinstance(found, tuple):
            if self._start is not None:
                self._start()
                self._start = None
            self.results.began, self.results.index = time.monotonic_ns(), found[1]
        return found

    def is_set(self) -> bool:
        """Whether the iterator is going away; orders that wait behind others are looked at too."""
        while not self._done and self._poll.poll(0) and self._read() == _PIECE:
            pass
        if self._leave:
            self._end()
        return self._done

    def next_order(self) -> Order:
        """Wait for the order of the next iterator; ends the process when none will come."""
        while not self._next:
            self._read()
        return self._next.popleft()

    def _read(self) -> int:
        """Take what has come, of up to _PIECE bytes; returns how many there were."""
        chunk = self._source.recv(_PIECE)
        if not chunk:
            os._exit(0)  # the trainer is gone, or doesn't want this stream any more
        for frame in self._assembler.feed(chunk):
            if frame.kind is Kind.INDEX:
                try:
                    self._waiting.append((frame.number, frame.read(from_trainer)))
                except CodecError as error:
                    self.results.refuse(frame.number, error)
            elif frame.kind is Kind.FREE:
                self._outlet.arena.returned(frame.number >> 1, keep=bool(frame.number & 1))
            elif frame.kind is Kind.RESUME:
                self._waiting.append(_ResumeIteration(frame.value))
            elif frame.kind is Kind.FINISH:
                self._waiting.append(None)
            elif frame.kind is Kind.LEAVE:
                self._leave = True
                if not self._waiting:
                    self._end()
            elif frame.kind is Kind.FORGET:
                self._waiting = deque(item for item in self._waiting if not (isinstance(item, tuple) and item[0] == frame.number))
            elif frame.kind is Kind.AGAIN:
                self._next.append(frame.value)
            else:
                self._done = True
        return len(chunk)

    def _end(self, *, grown: bool = False) -> None:
        """Between two batches: another process goes on from here."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._outlet.send(pack(Kind.LEFT, int(grown)))
        os._exit(0)


class ResultQueue:
    """What torch's loop takes for its result queue."""

    def __init__(self, outlet: Outlet, order: Order, position: Position | None) -> None:
        self._outlet, self._number = outlet, order.loop["worker_id"]
        self._cursor, self._withhold = order.cursor, order.start.withhold
        self._position = position
        self._states: dict[str, bytes] = {}
        self._next = 0.0
        self._batches = 0
        self.began, self.index = 0, None  # of the batch that is being made

    def put(self, item: tuple[Any, Any]) -> None:
        """Send one result. One that can't be sent goes as the exception that says why."""
        number, data = item
        if self._withhold:
            self._withhold -= 1
            if isinstance(data, _IterableDatasetStopIteration) and number >= SKIPPED:
                self._outlet.send(pack_value(Kind.STOP, number, data.worker_id))  # there is less data than there was
            return
        if isinstance(number, _ResumeIteration):
            self._outlet.send(pack_value(Kind.RESUMED, 0, number.seed))
        elif isinstance(data, _IterableDatasetStopIteration):
            self._outlet.send(pack_value(Kind.STOP, number, data.worker_id))
        elif isinstance(data, ExceptionWrapper):
            self._outlet.send([*self._where(number), *pack_value(Kind.FAULT, number, record_wrapper(data, self.index))])
        else:
            try:
                encoded = encode(data, name="batch", pickled=True)  # as torch pickles them
            except CodecError as error:
                self.refuse(number, error)
            else:
                self._outlet.deliver(Kind.ITEM, number, encoded, self._where(number))

    def refuse(self, number: int, error: CodecError) -> None:
        """Send an error that is being handled, in the place of a result."""
        wrapper = ExceptionWrapper(where=f"in DataLoader worker process {self._number}")  # type: ignore[no-untyped-call]
        record = {**record_wrapper(wrapper), "own": str(error)}
        self._outlet.send([*self._where(number), *pack_value(Kind.FAULT, number, record)])

    def _where(self, number: int) -> list[Buffer]:
        """How long a batch took, in microseconds, and the cursor after it, as far as it has changed."""
        took = self._time_taken()
        where: dict[str, Any] = {}
        if self._cursor is not None:
            now = ambient.states(self._cursor)
            where, self._states = ambient.changes(self._states, now), now
        elif self._position is not None:
            where = self._where_in_dataset()
        if where or self._cursor is not None:
            sys.stdout.flush()  # whoever goes on from here prints what comes after
            sys.stderr.flush()
        return [*took, *pack_value(Kind.CURSOR, number, where)] if where else took

    def _time_taken(self) -> list[Buffer]:
        """Of short batches, some stand for the others."""
        microseconds = (time.monotonic_ns() - self.began) // 1000
        self._batches += 1
        return pack(Kind.TOOK, microseconds) if microseconds > LONG or self._batches % 16 == 1 else []

    def _where_in_dataset(self) -> dict[str, Any]:
        """The position and all generators' states, now and then; {} in between, and when it can't be sent."""
        if time.monotonic() < self._next:
            return {}
        position = self._position.take() if self._position is not None else None
        if position is None:
            self._position = None
            return {}
        try:
            encode(position)
        except CodecError:
            self._position = None
            return {}
        self._next = time.monotonic() + POSITIONS
        return {**ambient.states(), "position": position}

    def cancel_join_thread(self) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        """The process is about to end."""


def _starting(order: Order, outlet: Outlet) -> Callable[[], None]:
    """Redirect what is printed; returns what is to be done before the first batch."""
    start = order.start
    outputs = redirect(outlet, order.consoles, (sys.maxsize, sys.maxsize) if start.quiet else start.skip)

    def go_on() -> None:
        # What was drawn before the first batch was drawn before, too.
        ambient.set_states({name: state for name, state in start.states.items() if name in ambient.GENERATORS})
        if start.quiet:
            sys.stdout.flush()
            sys.stderr.flush()
            for output, skip in zip(outputs, start.skip, strict=True):
                output.skip = skip

    return go_on


def _arm_after_torch(outlet: Outlet) -> None:
    """Have fatal signals write the Python stack to the log, then go to the handlers that torch's loop sets for some of them."""
    torch_s: Any = signal_handling
    set_handlers = torch_s._set_worker_signal_handlers

    def set_and_arm() -> None:
        set_handlers()
        outlet.log.arm()

    torch_s._set_worker_signal_handlers = set_and_arm


def run_stream(place: Place, dataset: object, loader: Loader, order: Order) -> None:
    """Body of a stream process; returns when the loader has sent the end."""
    die_with(place.template)
    gc.freeze()  # looking for garbage among what the template has made would copy its pages
    for descriptor in place.inherited:
        os.close(descriptor)
    outlet = Outlet(place.socket)
    outlet.introduce()
    _arm_after_torch(outlet)
    collate_into(outlet.arena)
    orders = IndexQueue(place.socket, outlet)
    while True:
        position = Position(dataset) if order.position else None
        if position is not None and "position" in order.start.states:
            position.restore(order.start.states["position"])
        results = ResultQueue(outlet, order, position)
        orders.begin(results, _starting(order, outlet), anywhere=order.cursor is not None)
        default = shortened(_utils.collate.default_collate) if order.loop["auto_collation"] else _utils.collate.default_convert
        given = {
            **order.loop,
            "dataset": dataset,
            "dataset_holder": [dataset],  # torch 2.14 takes the dataset out of a list
            "index_queue": orders,
            "data_queue": results,
            "done_event": orders,
            "collate_fn": loader.collating(default),
            "init_fn": loader.worker_init_fn,
        }
        _worker_loop(**{name: given[name] for name in inspect.signature(_worker_loop).parameters})
        sys.stdout.flush()
        sys.stderr.flush()
        outlet.send(pack(Kind.BYE))
        if not order.again:
            return
        order = orders.next_order()
