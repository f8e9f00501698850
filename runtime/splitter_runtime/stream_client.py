"""The trainer's side of streams: what torch's iterator takes for its worker processes and queues.

A stream whose process is lost, or whose worker would like to end, or is slow, goes on in another process: `Course` knows what that one
must be told. Everything happens in the thread that waits for batches.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from torch.utils.data._utils.worker import _IterableDatasetStopIteration, _ResumeIteration

from .errors import CodecError, ConfigError, SplitterError
from .failures import Lost, StreamFailure
from .finishing import Work, finished
from .frames import Frame, Kind, pack, pack_value
from .inbox import LOOK, Ended, Inbox
from .notices import tell
from .outlet import Console
from .stream import SKIPPED, Order, Start
from .streams import ATTEMPTS

if TYPE_CHECKING:
    from .remote_iterator import StreamContext

FALSE_START = 0.1  # of a loss: a process that ended before it said anything
PAUSE = 0.1  # seconds after that
_RESULTS = frozenset({Kind.ITEM, Kind.STOP, Kind.FAULT})
LOOK_AT_SPEED = 16  # batches between two looks at whether a stream would be better off elsewhere


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


def console_of(file: Any) -> Console:
    """How a text file of this process writes; as sys.stdout into a pipe does for one that isn't a usual file."""
    return Console(
        getattr(file, "encoding", None) or "utf-8",
        getattr(file, "errors", None) or "strict",
        bool(getattr(file, "line_buffering", False)),
        bool(getattr(file, "write_through", False)),
    )


def _write(number: int, text: bytes) -> None:
    """What a stream prints goes to the file descriptor, as that of a forked worker does."""
    file = sys.__stdout__ if number == 1 else sys.__stderr__
    while text and file is not None:
        text = text[os.write(file.fileno(), text) :]


class ResultQueue:
    """The result queue: events in, torch's (number, batch) out."""

    def __init__(self, context: StreamContext) -> None:
        self._context = context
        self.inbox = Inbox(context.site.session.settings.patience)
        self.streams: dict[Any, Stream] = {}  # by channel
        self._ready: deque[Any] = deque()
        self.work: Work | None = None  # to be done to batches
        self._version = context.site.session.version
        self._batches = 0

    def put(self, item: Any) -> None:
        """torch's own (None, None), from any thread."""
        self.inbox.put(None, item)

    def get(self, timeout: float | None = None) -> Any:
        """The next result; queue.Empty after `timeout` seconds. CodecError when it is damaged."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._ready:
            self._consider_moving()
            left = LOOK if until is None else min(LOOK, max(0.0, until - time.monotonic()))
            try:
                self.pump(left)
            except queue.Empty:
                self._context.site.session.look()
                if until is not None and time.monotonic() >= until:
                    raise
        self._batches += 1
        result = self._ready.popleft()
        return result if self.work is None else finished(result, self.work, self._context.index)

    def pump(self, timeout: float | None) -> None:
        """Take one event. queue.Empty after `timeout` seconds."""
        source, event = self.inbox.get(timeout)
        if source is None:
            self._ready.append(event)
            return
        stream = self.streams.get(source)
        result = stream.take(event) if stream is not None else None
        if result is not None:
            self._ready.append(result)

    def _consider_moving(self) -> None:
        """Workers have come or gone, or some batches have told how fast they are: a stream may be better off elsewhere."""
        session = self._context.site.session
        if self._batches < LOOK_AT_SPEED and self._version == session.version:
            return
        self._batches, self._version = 0, session.version
        for stream in list(self.streams.values()):
            stream.consider_moving()

    def cancel_join_thread(self) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        """Nothing is open here."""


class IndexQueue:
    """The index queue of one stream."""

    stream: Stream | None = None

    def put(self, item: Any) -> None:
        """Send what torch's loop will get there."""
        assert self.stream is not None  # torch puts nothing before it has started the process
        if item is None:
            self.stream.finish()
        elif isinstance(item, _ResumeIteration):
            self.stream.ask(None, b"".join(pack_value(Kind.RESUME, 0, item.seed)))
        else:
            number, index = item
            self.stream.context.want(self.stream, number, index)

    def cancel_join_thread(self) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        """Nothing is open here."""


class Stream:
    """One stream, with the methods of multiprocessing's Process that torch uses."""

    daemon = True

    def __init__(self, context: StreamContext, given: dict[str, Any]) -> None:
        self.context = context
        self._given = given
        self._number: int = given["worker_id"]
        self.pid = StreamId(f"stream {self._number}")
        self._course = context.course(self._number)
        self._channel: Any = None
        self._worker = "?"
        self._ended = self._finished = self._leaving = False  # finished: has been told to end

    def start(self) -> None:
        """Have the stream forked; its index queue and the event of its iterator work from now on."""
        self._given["index_queue"].stream = self
        self._given["done_event"].streams.append(self)
        start, frames = self._course.restart()
        self._open(start)
        for frame in frames:
            self._channel.send([frame])
        self.pid = StreamId(f"stream {self._number} on {self._worker}")
        del self._given["index_queue"], self._given["done_event"]

    def _open(self, start: Start, avoid: str | None = None) -> None:
        order = Order(
            self.context.loop_arguments(self._given),
            (console_of(sys.stdout), console_of(sys.stderr)),
            cursor=self.context.cursor,
            position=self.context.position,
            again=self.context.again,
            start=start,
        )
        self._worker, self._channel = self.context.open(order, self, avoid)

    def ask(self, number: int | None, frame: bytes) -> None:
        """Send the order for a batch, or, with None, for the next epoch."""
        with self.context.lock:
            self._course.asked(number, frame)
            self._channel.send([frame])

    def take_back(self, number: int) -> None:
        """Have a batch made by another stream, unless it is being made already."""
        self._course.forget(number)
        self._channel.send(pack(Kind.FORGET, number))

    def done(self) -> None:
        """The iterator is going away: no batch that waits is made any more."""
        self._finished = True
        self._channel.send(pack(Kind.DONE))

    def finish(self) -> None:
        """End after what is under way."""
        self._finished = True
        self._channel.send(pack(Kind.FINISH))

    def is_alive(self) -> bool:
        """Whether it has not ended as asked. One that was lost goes on elsewhere, or says so through the result queue."""
        return not (self._ended and self._finished)

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end; what comes before is thrown away."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._ended:
            try:
                self.context.results.pump(None if until is None else max(0.0, until - time.monotonic()))
            except queue.Empty:
                return

    def terminate(self) -> None:
        """End it at once."""
        self._finished = True
        self._channel.end()

    def consider_moving(self) -> None:
        """Leave the process at the next batch boundary when another worker is better."""
        if self._finished or self._leaving:
            return
        session = self.context.site.session
        if session.is_leaving(self._worker) or not self.context.keeps_state:
            if session.board.better(self._worker) is not None:
                self._leaving = True
                self._channel.send(pack(Kind.LEAVE))

    def take(self, event: Any) -> Any:
        """An event of its process; returns torch's result when it is one."""
        with self.context.lock:
            return self._take(event)

    def _take(self, event: Any) -> Any:
        if isinstance(event, Frame):
            try:
                return self._take_frame(event)
            except CodecError as error:
                return None, Lost(error)
        self._release()
        if self._finished:
            self._ended = True
            return None
        if isinstance(event, Ended):
            return self._lose_process(event)
        self.context.site.session.lose_by_name(self._worker, event)
        return self._go_on("lost", str(event))

    def _lose_process(self, ended: Ended) -> Any:
        """Its process has ended, and goes on; the user is told, unless the whole worker is gone, of which the session tells."""
        session, worker = self.context.site.session, self._worker
        session.look()
        if all(twin.name != worker for twin in session.twins):
            return self._go_on("lost", ended.why)
        self._course.losses += 1.0 if ended.started else FALSE_START
        if not ended.started:
            time.sleep(PAUSE)  # the worker is about to be lost, most likely, which is not known yet
        why = session.lines.map(ended.why)
        result = self._go_on("lost", why)
        if result is None and ended.started:
            name = self.context.tally.site.name
            tell(logging.WARNING, f"{name}: stream {self._number} on {worker} was lost ({why}); it goes on in another process")
        return result

    def _take_frame(self, frame: Frame) -> Any:
        kind = frame.kind
        if kind in _RESULTS:
            return self._result(frame)
        if kind is Kind.TOOK:
            self.context.site.session.board.took(self._worker, frame.number / 1e6)
        elif kind is Kind.CURSOR:
            self._course.at(frame.value)
        elif kind is Kind.OUTPUT:
            number, text = frame.value
            self._course.printed[number - 1] += len(text)
            _write(number, text)
        elif kind is Kind.BYE:
            self._finished = True
            if self.context.again:
                self._ended = True
                self.context.park(self)
        elif kind is Kind.LEFT:
            self._release()
            if frame.number:  # it has grown, and another fork takes its place
                return self._go_on("grown", "")
            return self._go_on("drained" if self.context.site.session.is_leaving(self._worker) else "slow", "")
        elif kind is Kind.RESUMED:
            self._course.answered(None)
            self.context.progress.resumed(self._number, self._course.here())
            return _ResumeIteration(frame.value), None
        else:
            raise CodecError.of("R110", why=f"a stream sent {kind.name}")
        return None

    def _result(self, frame: Frame) -> Any:
        if not self.context.is_wanted(self._number, frame.number):
            self._course.forget(frame.number)  # another stream was given it, too, and was first
            return None
        if frame.number >= SKIPPED:
            why = "its dataset gives fewer batches than it gave"
            return None, Lost(ConfigError.of("R603", loader=self.context.tally.site.name, why=why))
        value = frame.value
        self._course.answered(frame.number)
        if frame.kind is not Kind.STOP and self.context.notes:
            self.context.progress.came(self._number, frame.number, self._course.here())
        if frame.kind is Kind.STOP:
            return frame.number, _IterableDatasetStopIteration(value)
        if frame.kind is Kind.FAULT:
            return frame.number, StreamFailure(value, self.context.site.session.lines)
        self.context.came(self._worker, frame.nbytes)
        return frame.number, value

    def _release(self) -> None:
        """Its process is gone."""
        self.context.results.streams.pop(self._channel, None)
        self._channel.close()
        self.context.site.session.release(self._worker)

    def _go_on(self, kind: str, why: str) -> Any:
        """Have another process take its place; a result that says so when that can't be."""
        self._leaving = False
        if self._course.losses >= ATTEMPTS:
            indices = self.context.indices(self._course.waiting()[:1])
            return None, Lost(self.context.killed(self._number, self._worker, why, indices))
        start, frames = self._course.restart()
        try:
            self._open(start, avoid=self._worker if kind in ("drained", "slow") else None)
        except SplitterError as error:
            self._channel = _NOWHERE
            return None, Lost(error)
        for frame in frames:
            self._channel.send([frame])
        if kind != "grown":
            self.context.tally.moved(kind)
        return None


class _Nowhere:
    """The channel of a stream that can't go on."""

    def send(self, parts: Any) -> None:
        """Nobody is there."""

    def end(self) -> None:
        """Nobody is there."""

    def close(self) -> None:
        """Nobody is there."""


_NOWHERE = _Nowhere()


class DoneEvent:
    """The event that says that the iterator is going away."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self._set = False

    def set(self) -> None:
        """Tell all streams."""
        self._set = True
        for stream in self.streams:
            stream.done()

    def is_set(self) -> bool:
        return self._set
