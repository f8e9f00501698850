"""What a trainer with the token may say to a live worker: anything. Its own session may end, with one reason; the worker goes on."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from callers import Caller, hello
from crowd import PAUSED, PRINTED, Worker, crowd, train
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scratch import Scratch

from splitter_runtime import feed_pb2 as pb
from splitter_runtime.codec import encode
from splitter_runtime.frames import MAGIC, PREFIX, VERSION, Assembler, Kind, pack_value
from splitter_runtime.outlet import LINES
from splitter_runtime.stream import Order
from splitter_runtime.trees import Reference
from splitter_runtime.wire import SESSION, Data, dump

LOCAL = ["--listen", "127.0.0.1:0"]


def data(channel: int, body: bytes) -> bytes:
    return dump(Data(channel, body))


def frame(kind: Kind, value: object, number: int = 1) -> bytes:
    return b"".join(map(bytes, pack_value(kind, number, value)))


def opening(channel: int, body: bytes) -> bytes:
    return pb.FromTrainer(open=pb.Open(channel=channel, body=body)).SerializeToString()


def prefix(kind: int, header: int, payload: int) -> bytes:
    return PREFIX.pack(MAGIC, VERSION, kind, header, payload, 1)


GREETING, OPEN = hello(), frame(Kind.OPEN, {})
STATE = struct.pack("<iid", 1 << 30, 0, 0.0) + bytes(4 * 624)

# name: what follows Hello, and a part of the status of the call, or of why the template has ended
ANSWERS: dict[str, tuple[list[bytes], str]] = {
    "no message": ([b"\xff\xff"], "INVALID_ARGUMENT: the worker got bytes that are no message"),
    "nothing": ([b""], "INVALID_ARGUMENT: a trainer doesn't say nothing here"),
    "Hello again": ([GREETING], "INVALID_ARGUMENT: a trainer doesn't say hello here"),
    "a large message": ([data(0, bytes(9 << 20))], "RESOURCE_EXHAUSTED: "),
    "channel 0": ([opening(0, OPEN)], "INVALID_ARGUMENT: channel 0 is open already"),
    # Far more than it takes, since each stream ends as soon as it finds that no loader is named.
    "a channel twice": ([opening(1, OPEN)] * 200, "INVALID_ARGUMENT: channel 1 is open already"),
    "too many streams": ([opening(number, OPEN) for number in range(1, 201)], "RESOURCE_EXHAUSTED: a session has at most 3 streams here"),
    "opened with nothing": ([opening(1, b"")], "INVALID_ARGUMENT: channel 1 is opened by other bytes"),
    "opened with a call": ([opening(1, frame(Kind.CALL, ()))], "INVALID_ARGUMENT: channel 1 is opened by other bytes"),
    "opened with half a frame": ([opening(1, OPEN[:-1])], "INVALID_ARGUMENT: channel 1 is opened by other bytes"),
    "no frame": ([data(0, b"x" * 100)], ": R110: "),
    "a huge payload": ([data(0, prefix(Kind.CALL, 100, 1 << 50))], ": R112: the payload"),
    "a huge header": ([data(0, prefix(Kind.CALL, 1 << 31, 0))], ": R112: the header"),
    "a stream without a socket": ([data(0, OPEN)], ": R110: "),
    "a frame of a worker": ([data(0, frame(Kind.ITEM, 3))], ": R110: "),
    "memory of another machine": ([data(0, prefix(Kind.NEARBY, 10, 28) + bytes(38))], ": R110: "),
    "a context that is none": ([data(0, frame(Kind.CONTEXT, 5))], ": R110: the bytes received are damaged: a context that is none"),
    "a folder": ([data(0, frame(Kind.CONTEXT, {"settings": {"folder": "/"}, "states": {}}))], "chooses no folder here"),
    "a state that is none": ([data(0, frame(Kind.CONTEXT, {"settings": {}, "states": {"numpy": STATE}}))], "whose place is none"),
}


def answer(caller: Caller, bodies: list[bytes]) -> str:
    """The one reason for which a session has ended."""
    status, taken = caller.session(*bodies)
    ended = [message.ended.why for message in taken if message.WhichOneof("kind") == "ended" and message.ended.channel == 0]
    assert len(ended) + (status != "OK") == 1, (status, ended)
    return f"ended: {ended[0]}" if ended else status


def test_a_trainer_that_asks_for_nothing_for_long(scratch: Scratch) -> None:
    """It loses its session, and has another one when it asks again."""
    with crowd(scratch.folder / "crowd", scratch.environment(), {"idle": [*LOCAL, "--idle-seconds", "1"]}) as workers:
        ended = train(scratch, workers["idle"].address, PAUSED)
        assert ended.stdout == PRINTED, ended.stderr
        assert "nothing was asked for in 1 seconds" in ended.stderr


def test_one_reason_each(scratch: Scratch) -> None:
    commands = {"few": [*LOCAL, "--max-streams", "3", "--max-sessions", "20"]}
    with crowd(scratch.folder / "crowd", scratch.environment(), commands) as workers:
        worker = workers["few"]
        with Caller(worker.address) as caller, ThreadPoolExecutor(4) as pool:
            found = dict(zip(ANSWERS, pool.map(lambda case: answer(caller, case[0]), ANSWERS.values()), strict=True))
        wrong = {name: said for name, said in found.items() if ANSWERS[name][1] not in said}
        assert not wrong
        with Caller(worker.address) as caller:
            for first in (b"", b"\xff", data(0, b"x"), opening(1, OPEN)):
                status, taken = caller.session(greeting=first)
                assert status == "INVALID_ARGUMENT: a session starts with Hello" and not taken
        assert train(scratch, worker.address).stdout == PRINTED
        assert "grpc" not in worker.log(), "gRPC has an error of the worker to tell"


def test_limits_of_sessions(scratch: Scratch) -> None:
    """Too many sessions, one that doesn't begin, one that asks for nothing."""
    commands = {"one": [*LOCAL, "--max-sessions", "1"], "hasty": [*LOCAL, "--timeout-seconds", "1", "--idle-seconds", "2"]}
    with crowd(scratch.folder / "crowd", scratch.environment(), commands) as workers:
        with Caller(workers["one"].address) as caller:
            first = caller.stream(SESSION, iter(lambda: GREETING, b""))
            next(first)
            assert caller.session()[0] == "RESOURCE_EXHAUSTED: 1 sessions are open here (--max-sessions)"
            first.cancel()
        soft, hard = psutil.Process(workers["one"].pid).rlimit(psutil.RLIMIT_NOFILE)
        assert soft == hard, "streams need descriptors"
        with Caller(workers["hasty"].address) as caller:
            assert caller.late() == "DEADLINE_EXCEEDED: no Hello in 1 seconds (--timeout-seconds)"
            status, taken = caller.session()
            assert status == "DEADLINE_EXCEEDED: nothing was asked for in 2 seconds (--idle-seconds)"
            assert [message.WhichOneof("kind") for message in taken] == ["welcome"]
            assert not workers["hasty"].templates()


# --- anything

CALLS = [
    ("construct", 1, False, ("numbers", {})),
    ("construct", 1, False, ("numbers", {"x": [1] * 9})),
    ("loader", 2, False, (None, {})),
    ("fetcher", 3, False, (2, 1, 0, True, False)),
    ("fetch", 4, True, (3, [0, 1])),
    ("getattr", 5, False, (1, "__class__")),
    ("call", 6, False, (1, "__getitem__", (1,), {})),
    ("receive", 7, False, (2, encode([1]).header, b"")),
    ("drop", 8, False, (1,)),
]
NUMBERS = st.integers(0, 4)
CHANGES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=2)


def changed(raw: bytes, changes: list[tuple[float, int]]) -> bytes:
    made = bytearray(raw)
    for place, byte in changes:
        if made:
            made[int(place * len(made))] = byte
    return bytes(made)


FRAMES = st.one_of(
    st.sampled_from(CALLS).map(lambda call: frame(Kind.CALL, call)),
    st.builds(frame, st.sampled_from(list(Kind)), st.none() | st.integers() | st.lists(st.integers()) | st.sampled_from(CALLS), NUMBERS),
    st.just(frame(Kind.CONTEXT, {"settings": {}, "states": {}})),
    st.builds(prefix, st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)),
    st.binary(max_size=50),
)
BODIES = st.builds(changed, st.lists(FRAMES, min_size=1, max_size=4).map(b"".join), CHANGES)
MESSAGES = st.builds(
    changed,
    st.one_of(
        st.builds(data, NUMBERS, BODIES),
        st.builds(opening, NUMBERS, st.one_of(BODIES, st.just(OPEN))),
        st.builds(lambda number: pb.FromTrainer(close=pb.Close(channel=number)).SerializeToString(), st.integers(1, 4)),
        st.binary(max_size=50),
    ),
    st.one_of(st.just([]), CHANGES),
)


# a stream that runs, for what follows to hit
LOOP = {"dataset_kind": 0, "auto_collation": True, "drop_last": False, "base_seed": 1, "worker_id": 0, "num_workers": 1}
ORDER = Order({**LOOP, "persistent_workers": False, "shared_seed": None}, (LINES, LINES))
STREAM = [
    data(0, frame(Kind.CALL, CALLS[0]) + frame(Kind.CALL, CALLS[2])),
    opening(1, frame(Kind.OPEN, {"loader": 2, "iteration": 1, "dataset": Reference(1), "order": ORDER})),
    data(1, frame(Kind.INDEX, [0, 1])),
]


def test_a_stream(worker: Worker) -> None:
    """What the next test throws things at makes batches."""
    with Caller(worker.address) as caller:
        _, taken = caller.session(*STREAM, until=1)
        assembler = Assembler()
        kinds = [each.kind for message in taken if message.data.channel == 1 for each in assembler.feed(message.data.body)]
        assert kinds, taken
        assert not {Kind.FAULT, Kind.RAISED} & set(kinds)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    scratch = Scratch(tmp_path_factory.mktemp("sessions"), tmp_path_factory.mktemp("library"))
    with crowd(scratch.folder / "crowd", scratch.environment(), {"worker": LOCAL}) as workers:
        before = psutil.Process(workers["worker"].pid).memory_info().rss
        yield workers["worker"]
        assert train(scratch, workers["worker"].address).stdout == PRINTED
        assert psutil.Process(workers["worker"].pid).memory_info().rss - before < 200 << 20
        _, left = psutil.wait_procs(workers["worker"].templates(), timeout=10)  # that of the trainer which has just ended
        assert not left
    scratch.assert_nothing_left()


def sum_of(lists: tuple[list[bytes], ...]) -> list[bytes]:
    return [message for each in lists for message in each]


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from([[], STREAM]), st.lists(MESSAGES, min_size=1, max_size=6)).map(sum_of), min_size=6, max_size=6))
def test_anything(worker: Worker, sessions: list[list[bytes]]) -> None:
    """Sessions side by side; a trainer comes afterwards, when the fixture ends."""
    with Caller(worker.address) as caller, ThreadPoolExecutor(len(sessions)) as pool:
        for status in pool.map(caller.burst, sessions):
            assert status.partition(":")[0] in ("OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "CANCELLED"), status
    assert psutil.pid_exists(worker.pid)
