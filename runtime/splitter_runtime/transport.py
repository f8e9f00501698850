"""The trainer's side of the wire: one Link per worker, one Channel per process there.

A reader thread per link takes messages as they come and puts frames together; it never waits for the program, whose loaders bound what
is under way by their own prefetch windows. Sending never waits either. No decoding here, and no decisions.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

# Its handlers of fork would do nothing but say so: no child of this process uses the connections that it has.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
import grpc

from . import feed_pb2 as pb
from .errors import AuthError, CodecError, SplitterError, WorkerLostError
from .frames import Assembler, Buffer, Frame, chunks
from .wire import OPTIONS, SESSION, Data, ToTrainer, ToWorker, dump, load_from_worker


@dataclass(frozen=True)
class Ended:
    """The process behind a channel has ended."""

    why: str


Event: TypeAlias = "Frame | Ended | SplitterError"


@dataclass(frozen=True)
class Endpoint:
    """How to reach a worker. `credentials` are gRPC channel credentials, None for plain text."""

    name: str  # as people know it
    target: str  # as gRPC does
    token: str | None
    credentials: Any = None
    local: bool = False  # started by this process, with the same file system


class Channel:
    """Bytes to and from one process. `sink` gets every event, in the reader thread; it must not wait."""

    def __init__(self, link: Link, number: int, sink: Callable[[Event], None]) -> None:
        self.link, self.number, self.sink = link, number, sink
        self.assembler = Assembler()

    def send(self, parts: list[Buffer]) -> None:
        """Send one frame, or several."""
        for body in chunks(parts):
            self.link.post(Data(self.number, body))

    def close(self) -> None:
        """End the process at once; the sink still hears Ended."""
        self.link.post(pb.FromTrainer(close=pb.Close(channel=self.number)))


class Link:
    """The session with one worker."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.lost: SplitterError | None = None
        self._outgoing: queue.SimpleQueue[ToWorker | None] = queue.SimpleQueue()
        self._channels: dict[int, Channel] = {}
        self._lock = threading.Lock()
        self._closing = False

    def __repr__(self) -> str:
        return f"<Link {self.endpoint.name}, {len(self._channels)} channels{', lost' if self.lost else ''}>"

    def connect(self, hello: pb.Hello, seconds: float) -> pb.Welcome:
        """Open the session, trying for some seconds; returns what the worker said. AuthError, WorkerLostError."""
        until = time.monotonic() + seconds
        pause = 0.05
        while True:
            try:
                return self._try_to_connect(hello)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                    raise AuthError.of("R301", worker=self.endpoint.name) from None
                if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > until:
                    raise self._lost_by(error) from None
            time.sleep(pause)  # nobody says when a worker that isn't there yet will be
            pause = min(1.0, 2 * pause)

    def _try_to_connect(self, hello: pb.Hello) -> pb.Welcome:
        end = self.endpoint
        if end.credentials is None:
            self._grpc = grpc.insecure_channel(end.target, options=OPTIONS)
        else:
            self._grpc = grpc.secure_channel(end.target, end.credentials, options=OPTIONS)
        metadata = (("authorization", f"Bearer {end.token}"),) if end.token else ()
        method = self._grpc.stream_stream(SESSION, request_serializer=dump, response_deserializer=load_from_worker)
        self._outgoing.put(pb.FromTrainer(hello=hello))
        start: Any = method
        self._call = start(iter(self._outgoing.get, None), metadata=metadata)
        try:
            first: pb.FromWorker = self._call.__next__()
        except grpc.RpcError:
            self._outgoing.put(None)
            self._outgoing = queue.SimpleQueue()
            self._grpc.close()
            raise
        return first.welcome

    def start(self) -> None:
        """Start to take messages; channels may be opened from now on."""
        self._reader = threading.Thread(target=self._read, args=(self._call,), name="splitter-reader", daemon=True)
        self._reader.start()

    def channel(self, number: int, sink: Callable[[Event], None]) -> Channel:
        """Register a channel; when the link is lost already, its sink hears that at once."""
        channel = Channel(self, number, sink)
        with self._lock:
            self._channels[number] = channel
            lost = self.lost
        if lost is not None:
            sink(lost)
        return channel

    def open(self, number: int, parts: list[Buffer], sink: Callable[[Event], None]) -> Channel:
        """Open the channel of a stream; `parts` is the frame that the template forks it by."""
        channel = self.channel(number, sink)
        self.post(pb.FromTrainer(open=pb.Open(channel=number, body=b"".join(parts))))
        return channel

    def post(self, message: ToWorker) -> None:
        """Send a message, in the order of the calls."""
        self._outgoing.put(message)

    def close(self) -> None:
        """End the session, so that the worker ends its processes, and the connection. Doesn't raise; may wait a second."""
        self._closing = True
        self._outgoing.put(None)
        self._reader.join(timeout=1.0)  # the worker ends its side when its processes have ended
        self._call.cancel()
        self._grpc.close()

    def _read(self, call: Any) -> None:
        try:
            for message in call:
                self._take(message)
            self._lose(WorkerLostError.of("R401", worker=self.endpoint.name, why="it ended the session"))
        except grpc.RpcError as error:
            self._lose(self._lost_by(error))
        except CodecError as error:
            call.cancel()
            self._lose(error)

    def _take(self, message: ToTrainer) -> None:
        if isinstance(message, Data):
            channel = self._channels.get(message.channel)
            if channel is not None:
                for frame in channel.assembler.feed(message.body):
                    channel.sink(frame)
        elif message.WhichOneof("kind") == "ended" and message.ended.channel == 0:
            # Its streams end with it; what happened to them is not the reason.
            why = f"its template process ended ({message.ended.why})"
            self._lose(WorkerLostError.of("R401", worker=self.endpoint.name, why=why))
        elif message.WhichOneof("kind") == "ended":
            with self._lock:
                ended = self._channels.pop(message.ended.channel, None)
            if ended is not None:
                ended.sink(Ended(message.ended.why))

    def _lost_by(self, error: grpc.RpcError) -> WorkerLostError:
        details = error.details() or error.code().name
        return WorkerLostError.of("R401", worker=self.endpoint.name, why=f"{error.code().name.lower()}: {details}")

    def _lose(self, error: SplitterError) -> None:
        with self._lock:
            if self.lost is not None:
                return
            self.lost = error
            channels = list(self._channels.values())
            self._channels.clear()
        for channel in channels:
            channel.sink(error)
