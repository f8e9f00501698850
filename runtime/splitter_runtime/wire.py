"""Messages of feed.proto to bytes and back, with few copies for `Data`, which is nearly all there is.

`Data` is written and read by hand, byte for byte as protobuf does it; protobuf would copy the body twice more on each side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from google.protobuf.message import DecodeError

from . import feed_pb2 as pb
from .frames import CHUNK, Buffer

SESSION = "/splitter.v1.Feed/Session"
PROTOCOL = 1


def options(patience: float) -> tuple[tuple[str, int], ...]:
    """gRPC's options on both sides. A machine that went away without a word, or a process that is stopped, is given up after `patience`
    seconds: half of them until a ping is sent, half of them for its answer.
    """
    half = max(100, int(patience * 500))
    return (
        ("grpc.max_receive_message_length", 8 << 20),
        ("grpc.max_send_message_length", 8 << 20),
        ("grpc.enable_http_proxy", 0),  # proxies are for reaching the internet; a worker is never behind one
        ("grpc.keepalive_time_ms", half),
        ("grpc.keepalive_timeout_ms", half),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 50),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.ping_timeout_ms", half),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.min_reconnect_backoff_ms", max(1000, 2 * half)),  # also how long one attempt to connect may take
    )


_DATA = 0x1A  # field 3 of FromTrainer and of FromWorker, a message


@dataclass(frozen=True)
class Data:
    """Some bytes of a channel."""

    channel: int
    body: Buffer


@dataclass(frozen=True)
class Damaged:
    """Bytes that are no message."""

    why: str


@dataclass(frozen=True)
class Pieces:
    """Data to be sent, whose bytes are still in several places."""

    channel: int
    parts: tuple[Buffer, ...]
    size: int


ToWorker: TypeAlias = "Data | pb.FromTrainer"
ToTrainer: TypeAlias = "Data | pb.FromWorker"
Outgoing: TypeAlias = "Pieces | Data | pb.FromTrainer | pb.FromWorker"


def in_pieces(channel: int, parts: Sequence[Buffer]) -> Iterator[Pieces]:
    """Bytes of a channel in messages of at most CHUNK bytes; nothing is copied before dump()."""
    found: list[Buffer] = []
    size = 0
    for part in parts:
        view = memoryview(part).cast("B")
        while len(view):
            piece = view[: CHUNK - size]
            view = view[len(piece) :]
            found.append(piece)
            size += len(piece)
            if size == CHUNK:
                yield Pieces(channel, tuple(found), size)
                found, size = [], 0
    if found:
        yield Pieces(channel, tuple(found), size)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """A number of at most 28 bits, as those of dump() are; IndexError for a longer one, which may have any length."""
    number = 0
    for shift in range(0, 28, 7):
        byte = raw[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
    raise IndexError("a longer number")


def dump(message: Outgoing) -> bytes:
    """Bytes of a message, the same as protobuf would write."""
    if isinstance(message, Data):
        message = Pieces(message.channel, (message.body,), len(message.body))
    if not isinstance(message, Pieces):
        return message.SerializeToString()
    inner = b"\x08" + _varint(message.channel) + b"\x12" + _varint(message.size)
    return b"".join((b"\x1a", _varint(len(inner) + message.size), inner, *message.parts))


def _load_data(raw: bytes) -> Data | None:
    """The Data in `raw` when it has the form that dump() gives it; protobuf reads all others."""
    try:
        if raw[0] != _DATA:
            return None
        size, at = _read_varint(raw, 1)
        if at + size != len(raw) or raw[at] != 0x08:
            return None
        channel, at = _read_varint(raw, at + 1)
        if raw[at] != 0x12:
            return None
        size, at = _read_varint(raw, at + 1)
        return Data(channel, memoryview(raw)[at:]) if at + size == len(raw) else None
    except IndexError:
        return None


def load_from_trainer(raw: bytes) -> ToWorker:
    """Message of a trainer. DecodeError when it is none."""
    data = _load_data(raw)
    if data is not None:
        return data
    message = pb.FromTrainer.FromString(raw)
    return Data(message.data.channel, message.data.body) if message.WhichOneof("kind") == "data" else message


def receive_from_trainer(raw: bytes) -> ToWorker | Damaged:
    """The same without the exception, which gRPC would log with its traceback, and answer as an error of the worker."""
    try:
        return load_from_trainer(raw)
    except DecodeError as error:
        return Damaged(str(error) or "it is no message")


def load_from_worker(raw: bytes) -> ToTrainer:
    """Message of a worker. DecodeError when it is none."""
    data = _load_data(raw)
    if data is not None:
        return data
    message = pb.FromWorker.FromString(raw)
    return Data(message.data.channel, message.data.body) if message.WhichOneof("kind") == "data" else message
