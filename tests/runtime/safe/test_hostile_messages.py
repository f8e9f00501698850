"""Messages and frames that are none, or say to be larger than they are: one error each, and no more memory than the limits."""

from __future__ import annotations

import tracemalloc

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from splitter_runtime import feed_pb2 as pb
from splitter_runtime import frames
from splitter_runtime.codec import Limits
from splitter_runtime.errors import CodecError
from splitter_runtime.frames import PREFIX, Assembler, Kind, pack, pack_value
from splitter_runtime.wire import Data, dump, load_from_trainer, load_from_worker

QUICK = settings(max_examples=300, deadline=None)
SMALL = Limits(max_payload=1 << 20, max_header=1 << 16, max_depth=50, max_nodes=20_000)
NUMBERS = st.integers(0, 2**32 - 1)

SENT = st.one_of(
    st.builds(lambda number, body: pb.FromTrainer(open=pb.Open(channel=number, body=body)), NUMBERS, st.binary(max_size=20)),
    st.builds(lambda number: pb.FromTrainer(close=pb.Close(channel=number)), NUMBERS),
    st.builds(lambda number, body: pb.FromTrainer(data=pb.Data(channel=number, body=body)), NUMBERS, st.binary(max_size=300)),
    st.builds(
        lambda digest, versions: pb.FromTrainer(hello=pb.Hello(protocol=1, digest=digest, versions=versions)),
        st.text(max_size=20),
        st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    ),
).map(lambda message: message.SerializeToString())


def same_as_protobuf(raw: bytes) -> None:
    """Reading by hand gives what protobuf gives, for whatever bytes."""
    for load, kind in ((load_from_trainer, pb.FromTrainer), (load_from_worker, pb.FromWorker)):
        try:
            expected = kind.FromString(raw)
        except DecodeError:
            with pytest.raises(DecodeError):
                load(raw)
            continue
        found = load(raw)
        if expected.WhichOneof("kind") == "data":
            assert isinstance(found, Data)
            assert (found.channel, bytes(found.body)) == (expected.data.channel, expected.data.body)
        else:
            assert found == expected


@QUICK
@given(st.binary(max_size=60))
def test_random_messages(raw: bytes) -> None:
    same_as_protobuf(raw)


@QUICK
@given(st.binary(max_size=60))
def test_random_data_messages(raw: bytes) -> None:
    same_as_protobuf(b"\x1a" + bytes([len(raw)]) + raw)
    same_as_protobuf(b"\x1a" + bytes([len(raw) + 1]) + b"\x08" + raw)


@QUICK
@given(SENT, st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=3))
def test_changed_messages(raw: bytes, changes: list[tuple[float, int]]) -> None:
    changed = bytearray(raw)
    for place, byte in changes:
        if changed:
            changed[int(place * len(changed))] = byte
    same_as_protobuf(bytes(changed))


@pytest.mark.parametrize("byte", [0x80, 0xFF, 0x00])
def test_a_number_as_long_as_the_largest_message(byte: int) -> None:
    """Added up digit by digit, it would take hours."""
    same_as_protobuf(b"\x1a" + bytes([byte]) * (8 << 20))
    same_as_protobuf(dump(Data(1, b"x")).replace(b"\x08\x01", b"\x08" + b"\x80" * 4 + b"\x01"))


# --- frames


def refused(raw: bytes, says: str, step: int = 1 << 20) -> None:
    """The bytes are refused, with little memory taken."""
    assembler = Assembler(SMALL)
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match=says):
            for start in range(0, len(raw), step):
                for _ in assembler.feed(raw[start : start + step]):
                    pass
        assert tracemalloc.get_traced_memory()[1] < 2 * (SMALL.max_payload + SMALL.max_header)
    finally:
        tracemalloc.stop()


def prefix(kind: int = Kind.CALL, header: int = 0, payload: int = 0, magic: bytes = frames.MAGIC, version: int = frames.VERSION) -> bytes:
    return PREFIX.pack(magic, version, kind, header, payload, 1)


@pytest.mark.parametrize("step", [1, 1 << 20])
def test_frames_that_are_none(step: int) -> None:
    for raw, says in (
        (prefix(magic=b"XX"), "does not start"),
        (prefix(version=9), "does not start"),
        (prefix(kind=0), "does not start"),
        (prefix(kind=255), "does not start"),
        (prefix(kind=Kind.NEARBY, payload=28) + bytes(28), "does not start"),
        (prefix(header=1 << 31), "R112: the header"),
        (prefix(header=40, payload=1 << 62), "R112: the payload"),
        (prefix(payload=64), "R114: "),
        (prefix(header=5) + b"xxxxx", "header is too short"),
        (prefix(header=20) + b"x" * 20, "R110: "),
    ):
        refused(raw, says, step)


def test_kinds_that_are_none() -> None:
    for kind in set(range(256)) - set(map(int, Kind)):
        refused(prefix(kind=kind), "does not start")


def test_more_memory_than_there_is() -> None:
    with pytest.raises(CodecError, match=r"^R112: the payload of the value received is .* above the limit of the memory that is free here"):
        frames.allocate(1 << 46)


FRAMES = b"".join(
    bytes(part)
    for parts in (pack_value(Kind.CALL, 1, ("fetch", 2, False, [1, 2])), pack(Kind.BYE), pack_value(Kind.INDEX, 3, (4, [1] * 20)))
    for part in parts
)


@QUICK
@given(
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=3),
    st.integers(1, 100),
    st.floats(0, 1),
    st.binary(max_size=30),
)
def test_changed_frames(changes: list[tuple[float, int]], step: int, cut: float, more: bytes) -> None:
    raw = bytearray(FRAMES)
    for place, byte in changes:
        raw[int(place * len(raw))] = byte
    raw = raw[: int(cut * len(raw))] + more
    assembler = Assembler(SMALL)
    try:
        for start in range(0, len(raw), step):
            for frame in assembler.feed(bytes(raw[start : start + step])):
                assert isinstance(frame.kind, Kind)
                assert frame.number < 1 << 64
                frame.read(lambda module, name: False)
    except CodecError as error:
        assert str(error).startswith("R1")
