"""`splitter top HOST:PORT,...`: a live table of workers, the trainers connected to them, and their streams.

    worker           trainer         stream  pid     batches/s   MB/s  queue  memory  CPU    up
    cpu1:7077                                            31.2  812.3      4  1.9 GB  212%  3:05
                     10.0.0.5:40122          77103                           0.3 GB    2%  2:11
                                          1  77110        15.6  406.1      2  0.8 GB  105%
                                          2  77111        15.6  406.2      2  0.8 GB  105%
    cpu2:7077        can't be reached

Speeds are those between two looks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from splitter_runtime.access import Access, access
from splitter_runtime.status import STATUS, SessionStatus, StreamStatus, WorkerStatus, from_message

if TYPE_CHECKING:
    from rich.table import Table

INTERVAL = 1.0  # seconds between two looks
PATIENCE = 3.0  # seconds in which a worker answers
COLUMNS = ("worker", "trainer", "stream", "pid", "batches/s", "MB/s", "queue", "memory", "CPU", "up")
LEFT = 2  # columns of text, the others are numbers
OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 1000))
FAILURES = {
    "UNAVAILABLE": "can't be reached",
    "DEADLINE_EXCEEDED": "doesn't answer",
    "UNAUTHENTICATED": "refuses the token",
    "UNIMPLEMENTED": "has no status to tell: another version of splitter_runtime",
}

Look = Mapping[str, "WorkerStatus | str"]  # by address: what a worker says, or why it says nothing


class AddressError(ValueError):
    """What is to be looked at is no list of addresses; the text is one line for the user."""


def addresses(text: str) -> tuple[str, ...]:
    """`cpu1:7077,cpu2:7077` as a tuple. AddressError."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for part in found:
        host, _, port = part.rpartition(":")
        if not host or not port.isdigit() or (":" in host and not host.startswith("[")):
            raise AddressError(f"{part!r} is not HOST:PORT")
    if not found:
        raise AddressError("no HOST:PORT is given")
    return found


@dataclass(frozen=True)
class _Counts:
    """Counters of a worker, session or stream; differences of two are speeds."""

    batches: int = 0
    nbytes: int = 0
    cpu: float = 0.0


def _counts(looked: WorkerStatus | SessionStatus | StreamStatus) -> _Counts:
    if isinstance(looked, SessionStatus):
        streams = looked.streams
        return _Counts(sum(one.batches for one in streams), sum(one.nbytes for one in streams), looked.cpu)
    return _Counts(looked.batches, looked.nbytes, looked.cpu)


def rows(before: Look, after: Look) -> list[tuple[str, ...]]:
    """The cells of the table, a line for each worker, session and stream."""
    made: list[tuple[str, ...]] = []
    for address, now in after.items():
        if isinstance(now, str):
            made.append((address, now, *[""] * (len(COLUMNS) - 2)))
            continue
        then = before.get(address)
        if isinstance(then, str) or then is None or then.started != now.started:
            then = now
        made += _worker_rows(address, then, now)
    return made


def _worker_rows(address: str, then: WorkerStatus, now: WorkerStatus) -> list[tuple[str, ...]]:
    seconds = now.now - then.now
    up = _clock(now.now - now.started)
    made = [(address, "leaving" if now.draining else "", "", str(now.pid), *_numbers(then, now, seconds, now.queue, now.resident), up)]
    for session in now.sessions:
        old = next((one for one in then.sessions if one.template == session.template), session)
        up = _clock(now.now - session.started)
        memory = _bytes(session.resident)
        made.append(("", session.peer, "", str(session.template), "", "", "", memory, _percent(old, session, seconds), up))
        streams = {one.channel: one for one in old.streams}
        for stream in session.streams:
            numbers = _numbers(streams.get(stream.channel, stream), stream, seconds, stream.queue, stream.resident)
            made.append(("", "", str(stream.channel), str(stream.pid or ""), *numbers, ""))
    return made


def _numbers(then: Any, now: Any, seconds: float, queue: int, resident: int) -> tuple[str, ...]:
    old, new = _counts(then), _counts(now)
    speed = 1 / seconds if seconds > 0 else 0.0
    batches = f"{max(0, new.batches - old.batches) * speed:.1f}"
    megabytes = f"{max(0, new.nbytes - old.nbytes) * speed / 1e6:.1f}"
    return batches, megabytes, str(queue), _bytes(resident), _percent(then, now, seconds)


def _percent(then: Any, now: Any, seconds: float) -> str:
    used = max(0.0, _counts(now).cpu - _counts(then).cpu)
    return f"{used / seconds if seconds > 0 else 0.0:.0%}"


def _bytes(number: int) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Watch:
    """Asks the workers at some addresses."""

    def __init__(self, places: Sequence[str], shown: Access) -> None:
        import grpc

        from splitter_runtime import feed_pb2 as pb

        self._metadata = shown.metadata
        self._request = pb.StatusRequest()
        self._channels = {
            place: grpc.insecure_channel(place, options=OPTIONS)
            if shown.credentials is None
            else grpc.secure_channel(place, shown.credentials, options=OPTIONS)
            for place in places
        }
        self._calls: dict[str, Any] = {
            place: channel.unary_unary(
                STATUS, request_serializer=pb.StatusRequest.SerializeToString, response_deserializer=pb.StatusReply.FromString
            )
            for place, channel in self._channels.items()
        }

    def look(self) -> Look:
        """Ask all of them at once."""
        asked = {place: call.future(self._request, timeout=PATIENCE, metadata=self._metadata) for place, call in self._calls.items()}
        return {place: self._answer(future) for place, future in asked.items()}

    @staticmethod
    def _answer(future: Any) -> WorkerStatus | str:
        import grpc

        try:
            return from_message(future.result())
        except grpc.RpcError:
            code = future.code().name
            return FAILURES.get(code, f"fails: {code.lower()}")

    def close(self) -> None:
        """Close the connections."""
        for channel in self._channels.values():
            channel.close()


def table(before: Look, after: Look) -> Table:
    """The rows as rich draws them."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, name in enumerate(COLUMNS):
        made.add_column(name, justify="left" if number < LEFT else "right", header_style="bold", overflow="fold")
    for row in rows(before, after):
        style = "bold" if row[0] else "dim" if row[2] else ""
        if row[0] and isinstance(after[row[0]], str):
            style = "red"
        made.add_row(*(Text("".join(c for c in cell if c.isprintable())) for cell in row), style=style)
    return made


def watch(text: str, environment: Mapping[str, str], *, once: bool) -> bool:
    """Print the table: once, or again and again on a terminal until Ctrl-C. Returns whether a worker answered in the end.

    AddressError and ConfigError for what can't be looked at.
    """
    from rich.console import Console

    watching = Watch(addresses(text), access(environment))
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 140)
    try:
        last = watching.look()
        if once or not console.is_terminal:
            time.sleep(INTERVAL)
            now = watching.look()
            console.print(table(last, now))
            return any(isinstance(status, WorkerStatus) for status in now.values())
        return _live(watching, console, last)
    finally:
        watching.close()


def _live(watching: Watch, console: Any, last: Look) -> bool:
    from rich.live import Live

    try:
        with Live(table(last, last), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(INTERVAL)
                now = watching.look()
                live.update(table(last, now), refresh=True)
                last = now
    except KeyboardInterrupt:
        return True
