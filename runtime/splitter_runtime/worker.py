"""The worker's main process: gRPC, and for each session a template and its streams, whose frames it relays.

Threads of a session: gRPC's own for the answers, which waits on all sockets and takes a frame only when the one before is on its way, so
that a slow trainer stops the streams; and one that takes the trainer's messages. What a stream has in a segment goes to gRPC from there.
The session owns the host's ends of the sockets, and ends the template when it ends.

This process never forks once gRPC runs.
"""

from __future__ import annotations

import contextlib
import hmac
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from . import feed_pb2 as pb
from .frames import CHUNK, Buffer, Frame
from .inbox import Ended, Inbox
from .launcher import Launcher
from .local import TEMPLATE, Tree, Wire
from .manifest import differences
from .wire import SESSION, Data, ToTrainer, ToWorker, dump, load_from_trainer


@dataclass(frozen=True)
class Limits:
    """What one worker takes on: trainers, streams of one trainer, bytes that may wait for one process to read them."""

    sessions: int = 64
    streams: int = 256
    unread: int = 4 << 30
    patience: float = 10.0  # seconds that a process may be stopped


class Session:
    """One trainer: relays between its messages and its processes."""

    def __init__(self, launcher: Launcher, limits: Limits) -> None:
        """Fork the template. OSError when the launcher is gone."""
        self._limits = limits
        self._inbox = Inbox(limits.patience)
        self._lock = threading.Lock()
        self._over = False
        self.ended = threading.Event()
        self._tree = Tree(launcher)
        self._wires = {TEMPLATE: self._tree.template}
        self._inbox.watch(self._tree.template, self._tree.template)

    def take(self, messages: Iterator[ToWorker], refuse: Callable[[str], None]) -> None:
        """Body of the thread that takes the trainer's messages; `refuse` ends the call with a reason."""
        try:
            for message in messages:
                reason = self._take(message)
                if reason:
                    refuse(reason)
                    return
        except grpc.RpcError:
            pass  # the trainer is gone; stop() follows
        finally:
            self.stop()

    def _take(self, message: ToWorker) -> str:
        """Carry out one message; returns why it can't be."""
        if isinstance(message, Data):
            with self._lock:
                wire = self._wires.get(message.channel)
            if wire is not None:  # else it has ended, and the trainer will hear of it
                wire.send([message.body])
                return "too much waits for a process to read it" if wire.unread > self._limits.unread else self._see_unsent(wire)
        elif message.WhichOneof("kind") == "open":
            return self._open(message.open)
        elif message.WhichOneof("kind") == "close":
            with self._lock:
                wire = self._wires.get(message.close.channel)
            if wire is not None:
                wire.kill()
        return ""

    def _see_unsent(self, wire: Wire) -> str:
        """What found no room goes when there is some; whoever waits on the sockets must know."""
        if wire.unsent:
            self._inbox.put(None, None)
        return ""

    def _open(self, message: pb.Open) -> str:
        with self._lock:
            if self._over:
                return ""
            if message.channel in self._wires:
                return f"channel {message.channel} is open already"
            if len(self._wires) > self._limits.streams:
                return f"a session has at most {self._limits.streams} streams here (--max-streams)"
            wire = self._tree.open(message.channel, [message.body])
            self._wires[message.channel] = wire
        self._inbox.put(None, wire)
        return ""

    def answers(self) -> Iterator[ToTrainer]:
        """What goes to the trainer, until the session is over; closes everything in the end."""
        try:
            while not self._over:
                source, event = self._inbox.get()
                if source is None:
                    if isinstance(event, Wire):
                        self._inbox.watch(event, event)
                    elif event is not None:
                        yield event
                elif isinstance(event, Frame):
                    for body in pieces(event.parts()):
                        yield Data(source.channel, body)
                    del event
                    source.give_back()
                else:
                    yield self._end(source, event)
        finally:
            self._close()

    def _end(self, wire: Wire, event: Any) -> ToTrainer:
        """A process has ended, or says what it can't."""
        if not isinstance(event, Ended):
            wire.kill()
            return pb.FromWorker(ended=pb.Ended(channel=wire.channel, why=str(event)))
        if wire.channel == TEMPLATE:
            self._over = True
        else:
            with self._lock:
                self._wires.pop(wire.channel, None)
            wire.close()
        return pb.FromWorker(ended=pb.Ended(channel=wire.channel, why=event.why))

    def ask_to_leave(self) -> None:
        """Tell the trainer that this worker would like to end."""
        self._inbox.put(None, pb.FromWorker(leaving=pb.Leaving()))

    def stop(self) -> None:
        """End the session, from any thread."""
        self._over = True
        self._inbox.put(None, None)

    def _close(self) -> None:
        with self._lock:
            self._over = True
            wires = [wire for wire in self._wires.values() if wire.channel != TEMPLATE]
            self._wires.clear()
        for wire in wires:
            wire.kill()
            wire.close()
        self._tree.close()
        self.ended.set()


def pieces(parts: list[Buffer]) -> Iterator[bytes]:
    """A frame in messages of at most CHUNK bytes, each copied once."""
    small = bytearray()
    for part in parts:
        view = memoryview(part).cast("B")
        for start in range(0, len(view), CHUNK):
            piece = view[start : start + CHUNK]
            if len(small) + len(piece) > CHUNK:
                yield bytes(small)
                small.clear()
            if len(piece) == CHUNK:
                yield bytes(piece)
            else:
                small += piece
    if small:
        yield bytes(small)


class Host(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """The Feed service: opens sessions."""

    def __init__(self, launcher: Launcher, welcome: pb.Welcome, token: str | None, limits: Limits) -> None:
        self._launcher, self._welcome, self._token, self._limits = launcher, welcome, token, limits
        self._sessions: set[Session] = set()
        self._lock = threading.Lock()
        self._stopping = False

    def service(self, call: Any) -> Any:
        """Find the handler of a call, as gRPC asks for it."""
        if call.method != SESSION:
            return None
        return grpc.stream_stream_rpc_method_handler(self._session, request_deserializer=load_from_trainer, response_serializer=dump)

    def drain(self, seconds: float) -> None:
        """Open no session any more, ask trainers to do without this worker, and wait until they do."""
        with self._lock:
            self._stopping = True
            sessions = list(self._sessions)
        for session in sessions:
            session.ask_to_leave()
        waiting = threading.Timer(seconds, self.stop)
        waiting.daemon = True
        waiting.start()
        for session in sessions:
            session.ended.wait()
        waiting.cancel()

    def stop(self) -> None:
        """End all sessions and open none any more."""
        with self._lock:
            self._stopping = True
            sessions = list(self._sessions)
        for session in sessions:
            session.stop()

    def _authorised(self, context: Any) -> bool:
        given = dict(context.invocation_metadata()).get("authorization", "")
        if isinstance(given, str):
            given = given.encode()
        return self._token is None or hmac.compare_digest(given, f"Bearer {self._token}".encode())

    def _session(self, messages: Iterator[ToWorker], context: Any) -> Iterator[ToTrainer]:
        if not self._authorised(context):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")
        first = next(messages, None)
        if not isinstance(first, pb.FromTrainer) or first.WhichOneof("kind") != "hello":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a session starts with Hello")
            return  # abort() has raised
        different = differences(self._welcome, first.hello)
        refused = bool(different) and not (first.hello.allow_skew and "protocol" not in different)
        welcome = pb.Welcome()
        welcome.CopyFrom(self._welcome)
        welcome.refused = refused
        if refused:
            yield pb.FromWorker(welcome=welcome)
            return
        with self._lock:
            if self._stopping:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the worker is shutting down")
            if len(self._sessions) >= self._limits.sessions:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._limits.sessions} sessions are open here (--max-sessions)")
            session = Session(self._launcher, self._limits)
            self._sessions.add(session)
        reasons: list[str] = []
        try:
            threading.Thread(target=session.take, args=(messages, reasons.append), name="splitter-session", daemon=True).start()
            if not context.add_callback(session.stop):
                session.stop()
            yield pb.FromWorker(welcome=welcome)
            yield from session.answers()
            if reasons:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, reasons[0])
        finally:
            session.stop()
            with contextlib.suppress(KeyError), self._lock:
                self._sessions.discard(session)
