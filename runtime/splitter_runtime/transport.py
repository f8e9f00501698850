"""One interface, two kinds: a Link joins the trainer to one worker, a Channel to one process there.

    link.connect(hello, seconds)           what the worker says about itself
    channel = link.start(inbox)            its template; events of the channel come to the inbox, as (channel, event)
    channel = link.open(3, parts, inbox)   a stream
    channel.send(parts); channel.end()

The kind for this trainer's own workers is here: no gRPC, and no thread. The other one is in `remote_link`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

from . import feed_pb2 as pb
from .errors import SplitterError, WorkerLostError
from .frames import Buffer
from .inbox import Inbox
from .local import Tree, Wire
from .pool import LocalWorker


class Channel(Protocol):
    """Frames to and from one process."""

    @property
    def unsent(self) -> bool:
        """Whether something waits until the inbox is looked at."""

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send one frame, or several. Never waits."""

    def attach(self, inbox: Inbox) -> None:
        """Have the events come there from now on."""

    def end(self) -> None:
        """End the process at once; the inbox still hears Ended."""

    def close(self) -> None:
        """Give up what this side holds; after Ended, or when nobody waits for it any more."""


class Link(Protocol):
    """The session with one worker."""

    name: str
    local: bool  # the same file system, started by this process
    on_leaving: Callable[[], None] | None  # called when the worker would like to end, in any thread

    def connect(self, hello: pb.Hello, seconds: float) -> pb.Welcome:
        """Reach the worker, trying for some seconds. AuthError, WorkerLostError."""

    def start(self, inbox: Inbox) -> Channel:
        """Have the template forked. WorkerLostError."""

    def open(self, number: int, parts: Sequence[Buffer], inbox: Inbox) -> Channel:
        """Open the channel of a stream; `parts` is the frame that the template forks it by."""

    def lost(self) -> SplitterError | None:
        """Why the worker is no longer there, as far as that is known."""

    def close(self) -> None:
        """End the session. Doesn't raise; may wait a few seconds."""


class LocalChannel:
    """A process of this trainer's own worker."""

    def __init__(self, wire: Wire, inbox: Inbox) -> None:
        self._wire, self._inbox = wire, inbox
        inbox.watch(wire, self)

    def __repr__(self) -> str:
        return f"<LocalChannel {self._wire!r}>"

    @property
    def unsent(self) -> bool:
        return self._wire.unsent

    def send(self, parts: Sequence[Buffer]) -> None:
        self._wire.send(parts)

    def attach(self, inbox: Inbox) -> None:
        self._inbox.forget(self._wire)
        self._inbox = inbox
        inbox.watch(self._wire, self)

    def end(self) -> None:
        self._wire.kill()

    def close(self) -> None:
        self._inbox.forget(self._wire)
        self._wire.close()


class LocalLink:
    """A worker of this trainer's own."""

    local = True
    on_leaving: Callable[[], None] | None = None

    def __init__(self, worker: LocalWorker, patience: float) -> None:
        """Its template is given up when it is stopped for `patience` seconds."""
        self.name, self._worker, self._patience = worker.name, worker, patience
        self._tree: Tree | None = None

    def __repr__(self) -> str:
        return f"<LocalLink {self.name}>"

    def connect(self, hello: pb.Hello, seconds: float) -> pb.Welcome:
        """Wait until it is ready, however long its imports take."""
        return pb.Welcome.FromString(self._worker.welcome(self._patience))

    def start(self, inbox: Inbox) -> LocalChannel:
        try:
            self._tree = Tree(self._worker.launcher())
        except OSError as error:
            raise WorkerLostError.of("R401", worker=self.name, why=f"its launcher is gone ({error})") from None
        return LocalChannel(self._tree.template, inbox)

    def open(self, number: int, parts: Sequence[Buffer], inbox: Inbox) -> LocalChannel:
        assert self._tree is not None  # start() comes first
        return LocalChannel(self._tree.open(number, parts), inbox)

    def lost(self) -> SplitterError | None:
        if self._tree is None:
            return None
        stopped = self._tree.template.stopped_for()
        if stopped >= self._patience:
            self._tree.template.kill()
            return WorkerLostError.of("R401", worker=self.name, why=f"its template process has been stopped for {stopped:.0f} s")
        if self._tree.template.alive():
            return None
        why = f"its template process ended ({self._tree.template.why()})"
        return WorkerLostError.of("R401", worker=self.name, why=why)

    def close(self) -> None:
        if self._tree is not None:
            with contextlib.suppress(OSError):
                self._tree.close()
        self._worker.close()
