"""The worker's main process: gRPC, and for each session a template and its streams, whose frames it relays.

Threads of a session: gRPC's own for the answers, which waits on all sockets and takes a frame only when the one before is on its way, so
that a slow trainer stops the streams; and one that takes the trainer's messages. What a stream has in a segment goes to gRPC from there.
The session owns the host's ends of the sockets, and ends the template when it ends.

This process never forks once gRPC runs.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from . import feed_pb2 as pb
from .flows import Flow
from .frames import Frame, Kind, is_one
from .inbox import Ended, Inbox
from .launcher import Launcher
from .local import TEMPLATE, Tree, Wire
from .manifest import differences
from .processes import cpu_ticks
from .status import STATUS, SessionStatus, WorkerStatus, to_message, usage
from .wire import SESSION, Damaged, Data, Outgoing, ToWorker, dump, in_pieces, receive_from_trainer

_LOOKS = 4  # at a session that says nothing, before it has been idle for too long
_INVALID, _EXHAUSTED, _LATE = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED


@dataclass(frozen=True)
class Limits:
    """What one worker takes on: trainers, streams of one trainer, bytes that may wait for the processes of one trainer to read them."""

    sessions: int = 64
    streams: int = 256
    unread: int = 4 << 30
    patience: float = 10.0  # seconds that a process may be stopped, and that a trainer may take for its Hello
    idle: float = 3600.0  # seconds that a trainer may say nothing while it has no stream and its template computes nothing


class Refused(Exception):
    """A trainer asks for what it can't have: ends its session."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class Session:
    """One trainer: relays between its messages and its processes."""

    def __init__(self, launcher: Launcher, limits: Limits, peer: str) -> None:
        """Fork the template. OSError when the launcher is gone."""
        self._peer, self._started = peer, time.time()
        self._flows: dict[int, Flow] = {}
        self._past = Flow()  # of streams that have ended
        self._limits = limits
        self._inbox = Inbox(limits.patience)
        self._lock = threading.Lock()
        self._over = False
        self._heard = True  # something of the trainer, since the last look
        self.ended = threading.Event()
        self._tree = Tree(launcher)
        self._wires = {TEMPLATE: self._tree.template}
        self._inbox.watch(self._tree.template, self._tree.template)

    def take(self, messages: Iterator[ToWorker | Damaged], refuse: Callable[[Refused], None]) -> None:
        """Body of the thread that takes the trainer's messages; `refuse` gets the reason why no more are taken."""
        try:
            for message in messages:
                self._heard = True
                self._take(message)
        except Refused as reason:
            refuse(reason)
        except grpc.RpcError:
            pass  # the trainer is gone; stop() follows
        finally:
            self.stop()

    def _take(self, message: ToWorker | Damaged) -> None:
        """Carry out one message. Refused when it can't be."""
        if isinstance(message, Damaged):
            raise Refused(_INVALID, f"the worker got bytes that are no message: {message.why}")
        if isinstance(message, Data):
            with self._lock:
                wire = self._wires.get(message.channel)
                waiting = sum(each.unread for each in self._wires.values())
            if waiting > self._limits.unread:
                raise Refused(_EXHAUSTED, f"{waiting} bytes wait for processes to read them, above the limit of {self._limits.unread}")
            if wire is not None:  # else it has ended, and the trainer will hear of it
                wire.send([message.body])
                if message.channel in self._flows:
                    self._flows[message.channel].take(message.body)
                if wire.unsent:  # it goes when there is room; whoever waits on the sockets must know
                    self._inbox.put(None, None)
            return
        kind = message.WhichOneof("kind")
        if kind == "open":
            self._open(message.open)
        elif kind == "close":
            with self._lock:
                wire = self._wires.get(message.close.channel)
            if wire is not None:
                wire.kill()
        else:
            raise Refused(_INVALID, f"a trainer doesn't say {kind or 'nothing'} here")

    def _open(self, message: pb.Open) -> None:
        with self._lock:
            if self._over:
                return
            if message.channel in self._wires:
                raise Refused(_INVALID, f"channel {message.channel} is open already")
            if not is_one(message.body, Kind.OPEN):  # the template takes one socket for each
                raise Refused(_INVALID, f"channel {message.channel} is opened by other bytes than one OPEN frame")
            if len(self._wires) > self._limits.streams:
                raise Refused(_EXHAUSTED, f"a session has at most {self._limits.streams} streams here (--max-streams)")
            try:
                wire = self._tree.open(message.channel, [message.body])
            except OSError as error:
                raise Refused(_EXHAUSTED, f"the worker can't open a stream: {error.strerror}") from None
            self._wires[message.channel] = wire
            self._flows[message.channel] = Flow()
        self._inbox.put(None, wire)

    def answers(self) -> Iterator[Outgoing]:
        """What goes to the trainer, until the session is over; closes everything in the end. Refused when it is idle for too long."""
        quiet = ticks = 0
        try:
            while not self._over:
                try:
                    source, event = self._inbox.get(self._limits.idle / _LOOKS)
                except queue.Empty:
                    quiet, ticks = self._look(quiet, ticks)
                    continue
                if source is None:
                    if isinstance(event, Wire):
                        self._inbox.watch(event, event)
                    elif event is not None:
                        yield event
                elif isinstance(event, Frame):
                    if source.channel in self._flows:
                        self._flows[source.channel].give(event)
                    yield from in_pieces(source.channel, event.parts())
                    del event
                    source.give_back()
                else:
                    yield self._end(source, event)
        finally:
            self._close()

    def _look(self, quiet: int, ticks: int) -> tuple[int, int]:
        """How many looks in a row have found the session idle, with this one. Refused when these are too many."""
        now = cpu_ticks(self._tree.template.pid)
        idle = not self._heard and now == ticks and len(self._wires) == 1
        self._heard = False
        if idle and quiet + 1 >= _LOOKS:
            raise Refused(_LATE, f"nothing was asked for in {self._limits.idle:.0f} seconds (--idle-seconds)")
        return (quiet + 1 if idle else 0), now

    def _end(self, wire: Wire, event: Any) -> Outgoing:
        """A process has ended, or says what it can't."""
        if not isinstance(event, Ended):
            wire.kill()
            return pb.FromWorker(ended=pb.Ended(channel=wire.channel, why=str(event), started=True))
        if wire.channel == TEMPLATE:
            self._over = True
        else:
            with self._lock:
                self._wires.pop(wire.channel, None)
                self._past.add(self._flows.pop(wire.channel, Flow()))
            wire.close()
        return pb.FromWorker(ended=pb.Ended(channel=wire.channel, why=event.why, started=event.started))

    def status(self) -> SessionStatus:
        """What it does now."""
        template = self._tree.template.pid
        takes = usage(template)
        with self._lock:
            flows = [(channel, self._wires[channel].pid, flow) for channel, flow in self._flows.items() if channel in self._wires]
        streams = tuple(flow.stream(channel, pid) for channel, pid, flow in flows)
        return SessionStatus(self._peer, self._started, template, takes.resident, takes.cpu, streams)

    def flow(self) -> Flow:
        """What has gone through all of its streams."""
        with self._lock:
            total = Flow()
            for flow in (self._past, *self._flows.values()):
                total.add(flow)
            return total

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


class Host(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """The Feed service: opens sessions."""

    def __init__(self, launcher: Launcher, welcome: pb.Welcome, limits: Limits) -> None:
        self._launcher, self._welcome, self._limits = launcher, welcome, limits
        self._sessions: set[Session] = set()
        self._lock = threading.Lock()
        self._stopping = False
        self._started = time.time()
        self._past = Flow()  # of sessions that have ended

    def service(self, call: Any) -> Any:
        """Find the handler of a call, as gRPC asks for it."""
        if call.method == STATUS:
            return grpc.unary_unary_rpc_method_handler(  # what the request holds doesn't matter, so it isn't read
                lambda request, context: to_message(self.status()), response_serializer=pb.StatusReply.SerializeToString
            )
        if call.method != SESSION:
            return None
        return grpc.stream_stream_rpc_method_handler(self._session, request_deserializer=receive_from_trainer, response_serializer=dump)

    def status(self) -> WorkerStatus:
        """What the worker does now."""
        with self._lock:
            sessions, total = list(self._sessions), Flow()
            for flow in (self._past, *(session.flow() for session in sessions)):
                total.add(flow)
        return WorkerStatus(
            self._welcome.program,
            os.getpid(),
            time.time(),
            self._started,
            self._welcome.processes,
            self._stopping,
            total.batches,
            total.nbytes,
            usage(os.getpid()),
            tuple(session.status() for session in sessions),
        )

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

    def _hello(self, messages: Iterator[ToWorker | Damaged]) -> pb.Hello:
        """The first message. Refused when it is another one, or late."""
        found: queue.SimpleQueue[object] = queue.SimpleQueue()

        def wait() -> None:
            with contextlib.suppress(grpc.RpcError):
                found.put(next(messages, None))

        threading.Thread(target=wait, name="splitter-hello", daemon=True).start()
        try:
            first = found.get(timeout=self._limits.patience)
        except queue.Empty:
            raise Refused(_LATE, f"no Hello in {self._limits.patience:.0f} seconds (--timeout-seconds)") from None
        if not isinstance(first, pb.FromTrainer) or first.WhichOneof("kind") != "hello":
            raise Refused(_INVALID, "a session starts with Hello")
        return first.hello

    def _enter(self, peer: str) -> Session:
        """A new session. Refused when there are too many."""
        with self._lock:
            if self._stopping:
                raise Refused(grpc.StatusCode.UNAVAILABLE, "the worker is shutting down")
            if len(self._sessions) >= self._limits.sessions:
                raise Refused(_EXHAUSTED, f"{self._limits.sessions} sessions are open here (--max-sessions)")
            try:
                session = Session(self._launcher, self._limits, peer)
            except OSError as error:
                raise Refused(_EXHAUSTED, f"the worker can't start a template: {error.strerror or error}") from None
            self._sessions.add(session)
        return session

    def _session(self, messages: Iterator[ToWorker | Damaged], context: Any) -> Iterator[Outgoing]:
        try:
            yield from self._serve(messages, context)
        except Refused as reason:
            context.abort(reason.code, str(reason))

    def _serve(self, messages: Iterator[ToWorker | Damaged], context: Any) -> Iterator[Outgoing]:
        hello = self._hello(messages)
        different = differences(self._welcome, hello)
        refused = bool(different) and not (hello.allow_skew and "protocol" not in different)
        welcome = pb.Welcome()
        welcome.CopyFrom(self._welcome)
        welcome.refused = refused
        if refused:
            yield pb.FromWorker(welcome=welcome)
            return
        session = self._enter(context.peer())
        reasons: list[Refused] = []
        try:
            threading.Thread(target=session.take, args=(messages, reasons.append), name="splitter-session", daemon=True).start()
            if not context.add_callback(session.stop):
                session.stop()
            yield pb.FromWorker(welcome=welcome)
            yield from session.answers()
            if reasons:
                raise reasons[0]
        finally:
            session.stop()
            with self._lock:
                self._sessions.discard(session)
                self._past.add(session.flow())
