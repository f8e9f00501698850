"""The worker's main process: gRPC, and for each session a template and its streams, whose bytes it relays.

Threads of a session: gRPC's own for the answers, which waits on all output pipes and reads a piece only when the piece before is on its
way, so that a slow trainer stops the streams and never more than one pipe's worth per stream (1 MiB) waits here; and one that takes
the trainer's messages. The session owns the host's ends of sockets and pipes, and ends the template when it ends.

This process never forks once gRPC runs. It knows processes by pidfd, so a number that was given to another process is never hit.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import queue
import select
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import grpc

from . import feed_pb2 as pb
from .frames import CHUNK
from .launcher import Launcher
from .manifest import differences
from .processes import how_it_ended, readable, send_with, wide_pipe
from .wire import SESSION, Data, ToTrainer, ToWorker, dump, load_from_trainer

TEMPLATE = 0  # its channel
LEAVE = 3.0  # seconds that a template gets to leave by itself


class Process:
    """The host's ends of a channel: the input socket and output pipe of a template or stream."""

    def __init__(self, channel: int) -> None:
        """Makes both; .theirs are the other ends, to be handed over and closed here."""
        self.channel = channel
        self.input, self._their_input = socket.socketpair()
        self.output, self._their_output = wide_pipe()
        self.pid = 0  # not known before the process has said it
        self.handle = -1

    @property
    def theirs(self) -> tuple[int, int]:
        return self._their_input.fileno(), self._their_output

    def hand_over(self) -> None:
        """Close the other ends here."""
        self._their_input.close()
        os.close(self._their_output)

    def meet(self) -> bool:
        """Take the process's first bytes, its pid; False when it ended before."""
        first = os.read(self.output, 4)
        if len(first) < 4:
            return False
        self.pid = int.from_bytes(first, "little")
        try:
            self.handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        """End the process at once, when it is known; else its input, which ends it when it looks."""
        if self.handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        else:
            self.cut()

    def cut(self) -> None:
        """End its input."""
        with contextlib.suppress(OSError):  # the process may have ended first
            self.input.shutdown(socket.SHUT_RDWR)

    def why(self) -> str:
        """How it ended."""
        return how_it_ended(self.handle, self.pid, LEAVE) if self.handle >= 0 else "it ended before it started"

    def close(self) -> None:
        """Give up all descriptors."""
        self.input.close()
        os.close(self.output)
        if self.handle >= 0:
            os.close(self.handle)


class Session:
    """One trainer: relays between its messages and its processes."""

    def __init__(self, launcher: Launcher) -> None:
        """Fork the template. OSError when the launcher is gone."""
        self._launcher = launcher
        self._wake_reader, self._wake_writer = os.pipe()
        self._added: queue.SimpleQueue[Process] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._closed = False
        template = Process(TEMPLATE)
        self._processes = {TEMPLATE: template}
        self._template_pid = launcher.fork_template(*template.theirs)
        template.hand_over()
        self._added.put(template)

    def take(self, messages: Iterator[ToWorker]) -> None:
        """Body of the thread that takes the trainer's messages."""
        try:
            for message in messages:
                if isinstance(message, Data):
                    self._forward(message)
                elif message.WhichOneof("kind") == "open":
                    self._open(message.open)
                elif message.WhichOneof("kind") == "close":
                    with self._lock:
                        process = None if self._closed else self._processes.get(message.close.channel)
                        if process is not None:
                            process.kill()
        except grpc.RpcError:
            pass  # the trainer is gone; stop() follows
        finally:
            self.stop()

    def answers(self) -> Iterator[ToTrainer]:
        """What goes to the trainer, until the session is over; owns and closes everything in the end."""
        poll = select.poll()
        poll.register(self._wake_reader, select.POLLIN)
        reading: dict[int, Process] = {}
        try:
            while not self._over.is_set():
                while not self._added.empty():
                    process = self._added.get()
                    reading[process.output] = process
                    poll.register(process.output, select.POLLIN)
                for descriptor, _ in poll.poll():
                    if descriptor == self._wake_reader:
                        os.read(self._wake_reader, 1 << 16)
                    else:
                        yield from self._relay(reading, poll, descriptor)
        finally:
            self._close()

    def stop(self) -> None:
        """End the session, from any thread."""
        self._over.set()
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            if not self._closed:
                os.write(self._wake_writer, b"x")

    def _relay(self, reading: dict[int, Process], poll: select.poll, descriptor: int) -> Iterator[ToTrainer]:
        process = reading[descriptor]
        if process.pid == 0 and process.meet():
            return
        chunk = os.read(descriptor, CHUNK) if process.handle >= 0 else b""
        if chunk:
            yield Data(process.channel, chunk)
            return
        poll.unregister(descriptor)
        del reading[descriptor]
        why = process.why()
        with self._lock:
            if process.channel != TEMPLATE:
                del self._processes[process.channel]
                process.close()
        yield pb.FromWorker(ended=pb.Ended(channel=process.channel, why=why))
        if process.channel == TEMPLATE:
            self._over.set()

    def _forward(self, message: Data) -> None:
        with self._lock:
            process = None if self._closed else self._processes.get(message.channel)
            if process is None:
                return  # it has ended, and the trainer will hear of it
            # A copy of the socket: this write may wait long, and must not hold the lock nor write to a number that was reused.
            descriptor = process.input.dup()
        try:
            descriptor.sendall(message.body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # likewise
        finally:
            descriptor.close()

    def _open(self, message: pb.Open) -> None:
        with self._lock:
            if self._closed:
                return
            process = Process(message.channel)
            self._processes[message.channel] = process
            template = self._processes[TEMPLATE].input.dup()
        try:
            send_with(template, message.body, process.theirs)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            template.close()
            process.hand_over()
        self._added.put(process)
        self._wake()

    def _close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            processes = list(self._processes.values())
            for process in processes:
                process.cut()
        template = self._processes[TEMPLATE]
        if template.handle < 0 or not readable(template.handle, 0):
            self._let_leave(template)
        try:
            self._launcher.end_template(self._template_pid)
        except OSError:
            pass  # the launcher is gone, and took the template along
        for process in processes:
            process.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    @staticmethod
    def _let_leave(template: Process) -> None:
        """Wait for the template to end, taking what it still prints."""
        while readable(template.output, LEAVE):
            if not os.read(template.output, CHUNK):
                return


class Host(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """The Feed service: opens sessions."""

    def __init__(self, launcher: Launcher, welcome: pb.Welcome, token: str | None) -> None:
        self._launcher, self._welcome, self._token = launcher, welcome, token
        self._sessions: set[Session] = set()
        self._lock = threading.Lock()
        self._stopping = False

    def service(self, call: Any) -> Any:
        """Find the handler of a call, as gRPC asks for it."""
        if call.method != SESSION:
            return None
        return grpc.stream_stream_rpc_method_handler(self._session, request_deserializer=load_from_trainer, response_serializer=dump)

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
        yield pb.FromWorker(welcome=welcome)
        if refused:
            return
        with self._lock:
            if self._stopping:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the worker is shutting down")
            session = Session(self._launcher)
            self._sessions.add(session)
        try:
            threading.Thread(target=session.take, args=(messages,), name="splitter-session", daemon=True).start()
            if not context.add_callback(session.stop):
                session.stop()
            yield from session.answers()
        finally:
            session.stop()
            with self._lock:
                self._sessions.discard(session)
