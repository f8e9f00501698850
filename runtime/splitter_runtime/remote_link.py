"""The Link over gRPC, for workers on other hosts.

A reader thread per link takes messages as they come and puts frames together; it never waits for the program, whose loaders bound what
is under way by their own prefetch windows. Sending never waits either. No decoding here, and no decisions.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# Its handlers of fork would do nothing but say so: no child of this process uses the connections that it has.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
import grpc

from . import feed_pb2 as pb
from .errors import AuthError, CodecError, SplitterError, WorkerLostError
from .frames import Assembler, Buffer
from .inbox import Ended, Event, Inbox
from .memory import Buffers
from .wire import SESSION, Data, Outgoing, ToTrainer, dump, in_pieces, load_from_worker, options


@dataclass(frozen=True)
class Endpoint:
    """How to reach a worker. `credentials` are gRPC's, None for plain text; `patience` is seconds without a sign of life."""

    name: str  # as people know it
    target: str  # as gRPC does
    token: str | None
    credentials: Any = None
    patience: float = 10.0


class RemoteChannel:
    """Bytes to and from one process of a remote worker."""

    def __init__(self, link: RemoteLink, number: int, inbox: Inbox) -> None:
        self.link, self.number, self.inbox = link, number, inbox
        self.assembler = Assembler(take=link.buffers.take)

    def __repr__(self) -> str:
        return f"<RemoteChannel {self.number} of {self.link.name}>"

    @property
    def unsent(self) -> bool:
        return False

    def tell(self, event: Event) -> None:
        """In the link's reader thread."""
        self.inbox.put(self, event)

    def send(self, parts: Sequence[Buffer]) -> None:
        for message in in_pieces(self.number, parts):
            self.link.post(message)

    def attach(self, inbox: Inbox) -> None:
        self.inbox = inbox

    def end(self) -> None:
        self.link.post(pb.FromTrainer(close=pb.Close(channel=self.number)))

    def close(self) -> None:
        """Nothing is held here."""


class RemoteLink:
    """The session with one worker."""

    local = False

    def __init__(self, endpoint: Endpoint) -> None:
        self.name, self._endpoint = endpoint.name, endpoint
        self.buffers = Buffers()
        self.on_leaving: Callable[[], None] | None = None  # called when the worker would like to end, in the reader thread
        self._lost: SplitterError | None = None
        self._outgoing: queue.SimpleQueue[Outgoing | None] = queue.SimpleQueue()
        self._channels: dict[int, RemoteChannel] = {}
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<RemoteLink {self.name}, {len(self._channels)} channels{', lost' if self._lost else ''}>"

    def connect(self, hello: pb.Hello, seconds: float) -> pb.Welcome:
        until = time.monotonic() + seconds
        pause = 0.05
        while True:
            try:
                return self._try_to_connect(hello)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                    raise AuthError.of("R301", worker=self.name) from None
                if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > until:
                    raise self._lost_by(error) from None
            time.sleep(pause)  # nobody says when a worker that isn't there yet will be
            pause = min(1.0, 2 * pause)

    def _try_to_connect(self, hello: pb.Hello) -> pb.Welcome:
        end = self._endpoint
        chosen = options(end.patience)
        if end.credentials is None:
            self._grpc = grpc.insecure_channel(end.target, options=chosen)
        else:
            self._grpc = grpc.secure_channel(end.target, end.credentials, options=chosen)
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

    def start(self, inbox: Inbox) -> RemoteChannel:
        channel = RemoteChannel(self, 0, inbox)
        self._channels[0] = channel
        self._reader = threading.Thread(target=self._read, args=(self._call,), name="splitter-reader", daemon=True)
        self._reader.start()
        return channel

    def open(self, number: int, parts: Sequence[Buffer], inbox: Inbox) -> RemoteChannel:
        channel = RemoteChannel(self, number, inbox)
        with self._lock:
            self._channels[number] = channel
            lost = self._lost
        if lost is not None:
            channel.tell(lost)
        self.post(pb.FromTrainer(open=pb.Open(channel=number, body=b"".join(parts))))
        return channel

    def post(self, message: Outgoing) -> None:
        """Send a message, in the order of the calls."""
        self._outgoing.put(message)

    def lost(self) -> SplitterError | None:
        return self._lost

    def close(self) -> None:
        self._outgoing.put(None)
        if self._reader is not None:
            self._reader.join(timeout=1.0)  # the worker ends its side when its processes have ended
            self._call.cancel()
        if hasattr(self, "_grpc"):
            self._grpc.close()

    def _read(self, call: Any) -> None:
        try:
            for message in call:
                self._take(message)
            self._lose(WorkerLostError.of("R401", worker=self.name, why="it ended the session"))
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
                    channel.tell(frame)
            return
        kind = message.WhichOneof("kind")
        if kind == "leaving":
            if self.on_leaving is not None:
                self.on_leaving()
        elif kind == "ended" and message.ended.channel == 0:
            # Its streams end with it; what happened to them is not the reason.
            why = f"its template process ended ({message.ended.why})"
            self._lose(WorkerLostError.of("R401", worker=self.name, why=why))
        elif kind == "ended":
            with self._lock:
                ended = self._channels.pop(message.ended.channel, None)
            if ended is not None:
                ended.tell(Ended(message.ended.why, message.ended.started))

    def _lost_by(self, error: grpc.RpcError) -> WorkerLostError:
        details = error.details() or error.code().name
        return WorkerLostError.of("R401", worker=self.name, why=f"{error.code().name.lower()}: {details}")

    def _lose(self, error: SplitterError) -> None:
        with self._lock:
            if self._lost is not None:
                return
            self._lost = error
            channels = list(self._channels.values())
            self._channels.clear()
        for channel in channels:
            channel.tell(error)
