"""A stream: one DataLoader worker, a process forked from the template that runs torch's own worker loop.

torch's loop gets queue objects that read frames from the input socket and write frames to the output pipe. One thread. The process
dies with the template (PR_SET_PDEATHSIG), and ends when its input closes.
"""

from __future__ import annotations

import inspect
import io
import os
import queue
import socket
import sys
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data import _utils
from torch.utils.data._utils.worker import _IterableDatasetStopIteration, _ResumeIteration, _worker_loop

from .accepting import from_trainer
from .builders import Loader
from .codec import Encoded, encode
from .errors import CodecError
from .failures import record_wrapper
from .frames import CHUNK, Assembler, Buffer, Kind, pack, pack_value
from .nearby import SMALLEST, Lender
from .processes import die_with, readable, write_all


class Outlet:
    """Writes whole frames to a pipe, from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, parts: list[Buffer]) -> None:
        """Write one frame. BrokenPipeError when the trainer is gone."""
        with self._lock:
            write_all(self._descriptor, parts)


class _Output(io.RawIOBase):
    """Standard output or error of a process whose text goes to the trainer."""

    def __init__(self, outlet: Outlet, descriptor: int) -> None:
        self._outlet, self._descriptor = outlet, descriptor
        self.number = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        text = bytes(data)
        try:
            self._outlet.send(pack_value(Kind.OUTPUT, self.number, (self._descriptor, text)))
        except BrokenPipeError:
            pass  # nobody is there to read it
        return len(text)


@dataclass(frozen=True)
class Console:
    """How the trainer's sys.stdout or sys.stderr writes, so that a stream's does the same."""

    encoding: str
    errors: str
    line_buffering: bool
    write_through: bool


LINES = Console("utf-8", "surrogatepass", line_buffering=True, write_through=False)


def redirect(outlet: Outlet, consoles: tuple[Console, Console]) -> tuple[_Output, _Output]:
    """Send what this process prints to the trainer from now on."""
    raws = _Output(outlet, 1), _Output(outlet, 2)
    made = []
    for raw, console in zip(raws, consoles, strict=True):
        buffer: Any = raw if console.write_through else io.BufferedWriter(raw)
        options: Any = {"line_buffering": console.line_buffering, "write_through": console.write_through}
        made.append(io.TextIOWrapper(buffer, console.encoding, console.errors, **options))
    sys.stdout, sys.stderr = made
    return raws


class IndexQueue:
    """What torch's loop takes for its index queue, and for the event that says that the iterator is going away."""

    def __init__(self, source: socket.socket, lender: Lender, results: ResultQueue) -> None:
        """`results` gets the orders that can't be read."""
        self._source, self._lender, self._results = source, lender, results
        self._assembler = Assembler()
        self._waiting: deque[Any] = deque()
        self._done = False

    def get(self, timeout: float | None = None) -> Any:
        """The next order of the loader: (number, index), _ResumeIteration or None. queue.Empty after `timeout` seconds."""
        while not self._waiting:
            if not readable(self._source.fileno(), timeout):
                raise queue.Empty
            self._read()
        return self._waiting.popleft()

    def is_set(self) -> bool:
        """Whether the iterator is going away; orders that wait behind others are looked at too."""
        while not self._done and readable(self._source.fileno(), 0):
            self._read()
        return self._done

    def _read(self) -> None:
        chunk = self._source.recv(CHUNK)
        if not chunk:
            os._exit(0)  # the trainer is gone, or doesn't want this stream any more
        for frame in self._assembler.feed(chunk):
            if frame.kind is Kind.INDEX:
                try:
                    self._waiting.append((frame.number, frame.read(from_trainer)))
                except CodecError as error:
                    self._results.refuse(frame.number, error)
            elif frame.kind is Kind.TAKEN:
                self._lender.taken(frame.number)
            elif frame.kind is Kind.RESUME:
                self._waiting.append(_ResumeIteration(frame.value))
            elif frame.kind is Kind.FINISH:
                self._waiting.append(None)
            else:
                self._done = True


class ResultQueue:
    """What torch's loop takes for its result queue."""

    def __init__(self, outlet: Outlet, number: int, lender: Lender | None) -> None:
        """With a `lender`, large batches go through memory."""
        self._outlet, self._number, self._lender = outlet, number, lender

    def put(self, item: tuple[Any, Any]) -> None:
        """Send one result. One that can't be sent goes as the exception that says why."""
        number, data = item
        if isinstance(number, _ResumeIteration):
            self._outlet.send(pack_value(Kind.RESUMED, 0, number.seed))
        elif isinstance(data, _IterableDatasetStopIteration):
            self._outlet.send(pack_value(Kind.STOP, number, data.worker_id))
        elif isinstance(data, ExceptionWrapper):
            self._outlet.send(pack_value(Kind.FAULT, number, record_wrapper(data)))
        else:
            try:
                parts = self._pack(number, encode(data, name="batch", pickled=True))  # as torch pickles them
            except CodecError as error:
                self.refuse(number, error)
            else:
                self._outlet.send(parts)

    def refuse(self, number: int, error: CodecError) -> None:
        """Send an error that is being handled, in the place of a result."""
        wrapper = ExceptionWrapper(where=f"in DataLoader worker process {self._number}")  # type: ignore[no-untyped-call]
        self._outlet.send(pack_value(Kind.FAULT, number, {**record_wrapper(wrapper), "own": str(error)}))

    def _pack(self, number: int, encoded: Encoded) -> list[Buffer]:
        if self._lender is not None and encoded.nbytes >= SMALLEST:
            try:
                return pack_value(Kind.NEARBY, number, self._lender.lend(number, encoded))
            except OSError:
                pass  # no memory for a second copy; the connection needs none
        return pack(Kind.ITEM, number, encoded)

    def cancel_join_thread(self) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        """The process is about to end."""


@dataclass(frozen=True)
class Order:
    """Arguments of torch's worker loop that are plain data, under torch's names, where the trainer prints, and whether it is nearby."""

    loop: dict[str, Any]
    consoles: tuple[Console, Console]
    nearby: bool = False


@dataclass(frozen=True)
class Place:
    """Descriptors of a stream, and what it must let go of: its template's."""

    template: int  # process id
    source: socket.socket
    output: int
    inherited: tuple[int, ...]


def run_stream(place: Place, dataset: object, loader: Loader, order: Order) -> None:
    """Body of a stream process; returns when the loader has sent the end."""
    die_with(place.template)
    for descriptor in place.inherited:
        os.close(descriptor)
    source, output = place.source, place.output
    outlet = Outlet(output)
    write_all(output, [os.getpid().to_bytes(4, "little")])
    redirect(outlet, order.consoles)
    lender = Lender()
    results = ResultQueue(outlet, order.loop["worker_id"], lender if order.nearby else None)
    orders = IndexQueue(source, lender, results)
    default = _utils.collate.default_collate if order.loop["auto_collation"] else _utils.collate.default_convert
    given = {
        **order.loop,
        "dataset": dataset,
        "dataset_holder": [dataset],  # torch 2.14 takes the dataset out of a list
        "index_queue": orders,
        "data_queue": results,
        "done_event": orders,
        "collate_fn": loader.collate_fn or default,
        "init_fn": loader.worker_init_fn,
    }
    _worker_loop(**{name: given[name] for name in inspect.signature(_worker_loop).parameters})
    sys.stdout.flush()
    sys.stderr.flush()
    outlet.send(pack(Kind.BYE))
