"""Pieces without I/O: placement, frames, messages, environments, lines, modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from splitter_runtime import bootstrap, builders, feed_pb2, frames, pool, streams, wire
from splitter_runtime.codec import Limits
from splitter_runtime.errors import CodecError, ConfigError
from splitter_runtime.failures import LineMap, find_type, nearest_type
from splitter_runtime.manifest import Lines, Manifest

ROOT = Path(__file__).parents[2]


def board_of(rooms: dict[str, int]) -> streams.Board:
    board = streams.Board()
    for name, room in rooms.items():
        board.add(name, room)
    return board


def test_streams_go_where_there_is_most_room() -> None:
    board = board_of({"a": 2, "b": 4})
    assert [board.place() for _ in range(7)] == ["b", "a", "b", "b", "a", "b", "b"]
    board.release("a")
    assert board.place() == "a"
    assert board.place(avoid="b") == "a"
    assert repr(board) == "<Board a: 3/2, b: 5/4>"
    board.remove("a")
    assert board.place() == "b" and board.place(avoid="b") == "b"
    board.remove("b")
    assert board.place() is None


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 40))
def test_no_worker_is_left_out(rooms: list[int], count: int) -> None:
    board = board_of({str(number): room for number, room in enumerate(rooms)})
    placed = [board.place() for _ in range(count)]
    for number, room in enumerate(rooms):
        assert placed.count(str(number)) >= count * room // sum(rooms) - 1


def test_a_slow_worker_gets_no_stream_and_loses_those_that_it_has() -> None:
    board = board_of({"slow": 4, "fast": 4})
    assert [board.place() for _ in range(2)] == ["slow", "fast"]
    assert board.better("slow") is None  # nothing is known yet
    for _ in range(streams.ENOUGH):
        board.took("slow", 0.4)
        board.took("fast", 0.1)
    assert board.better("slow") == "fast" and board.better("fast") is None
    assert [board.place() for _ in range(3)] == ["fast"] * 3


def test_a_worker_that_leaves_gets_no_stream() -> None:
    board = board_of({"a": 2, "b": 1})
    assert board.place() == "a"
    board.close("a")
    assert board.better("a") == "b" and board.place() == "b" and board.place() == "b"
    board.close("b")
    assert board.better("a") is None and board.place() == "a"  # nobody else is there


@given(st.booleans(), st.lists(st.booleans(), max_size=20), st.integers(0, 20))
def test_another_process_is_told_what_is_missing(keeps_state: bool, cursors: list[bool], answers: int) -> None:
    course = streams.Course(keeps_state)
    for number in range(len(cursors)):
        course.asked(number, b"%d" % number)
    for number, moved in list(enumerate(cursors))[:answers]:
        if moved and not keeps_state:
            course.at({"torch": b"%d" % number})
        course.answered(number)
    done = min(answers, len(cursors))
    start, told = course.restart()
    if keeps_state:
        assert (start.withhold, start.states) == (done, {}) and told == [b"%d" % number for number in range(len(cursors))]
    else:
        last = [number for number, moved in list(enumerate(cursors))[:answers] if moved]
        assert start.states == ({"torch": b"%d" % last[-1]} if last else {})
        assert (start.withhold, told) == (0, [b"%d" % number for number in range(done, len(cursors))])


@given(st.integers(1, 4), st.lists(st.integers(0, 10**6), max_size=80), st.integers(0, 30))
def test_batches_that_any_stream_may_make_are_made_once(count: int, choices: list[int], batches: int) -> None:
    """Also when one that was taken back is being made already, so that two streams make it."""
    dispatch = streams.Dispatch(count)
    working: list[list[int]] = [[] for _ in range(count)]
    made: set[int] = set()

    def send(sends: list[tuple[int, int]]) -> None:
        for stream, number in sends:
            assert number not in made
            working[stream].append(number)

    picks = iter(choices)
    asked = 0
    while any(working) or asked < batches:
        if asked < batches and (next(picks, 0) % 2 or not any(working)):
            send(dispatch.ask(asked))
            asked += 1
            continue
        busy = [stream for stream in range(count) if working[stream]]
        stream = busy[next(picks, 0) % len(busy)]
        number = working[stream].pop(0)
        sends, taken_back = dispatch.answered(stream, number)
        made.add(number)
        for other, moved in taken_back:
            if next(picks, 0) % 2:  # in time
                working[other].remove(moved)
        send(sends)
    assert made == set(range(batches))


@given(st.lists(st.integers(0, 300), max_size=5), st.lists(st.integers(1, 700), min_size=1, max_size=20))
def test_frames_in_pieces_of_any_size(sizes: list[int], cuts: list[int]) -> None:
    values = [(number, torch.arange(size)) for number, size in enumerate(sizes)]
    parts = [part for number, value in enumerate(values) for part in frames.pack_value(frames.Kind.ITEM, number, value)]
    parts += frames.pack(frames.Kind.BYE, 7)
    stream = b"".join(parts)
    assembler, found, position = frames.Assembler(), [], 0
    while position < len(stream):
        cut = cuts[len(found) % len(cuts)]
        found += assembler.feed(stream[position : position + cut])
        position += cut
    assert [frame.number for frame in found] == [*range(len(values)), 7]
    assert found[-1].kind is frames.Kind.BYE and found[-1].value is None
    for frame, (number, rows) in zip(found, values, strict=False):
        assert frame.value[0] == number and torch.equal(frame.value[1], rows)


def test_bytes_that_are_no_frames() -> None:
    good = b"".join(frames.pack_value(frames.Kind.ITEM, 0, torch.arange(100)))
    with pytest.raises(CodecError, match="R110"):
        list(frames.Assembler().feed(b"X" + good[1:]))
    with pytest.raises(CodecError, match="R114"):
        list(frames.Assembler().feed(good[:8] + b"\xff\xff" + good[10:]))
    with pytest.raises(CodecError, match="R112"):
        list(frames.Assembler(Limits(max_header=4)).feed(good))
    with pytest.raises(CodecError, match="R112"):
        list(frames.Assembler(Limits(max_payload=100)).feed(good))


def test_large_frames_are_sent_in_pieces() -> None:
    parts = frames.pack_value(frames.Kind.ITEM, 0, torch.zeros(3 << 20, dtype=torch.uint8))
    messages = [wire.load_from_trainer(wire.dump(message)) for message in wire.in_pieces(3, parts)]
    bodies = [bytes(message.body) for message in messages if isinstance(message, wire.Data) and message.channel == 3]
    assert max(map(len, bodies)) == frames.CHUNK and b"".join(bodies) == b"".join(parts)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=300))
def test_data_is_written_as_protobuf_writes_it(channel: int, body: bytes) -> None:
    data = wire.Data(channel, body)
    raw = wire.dump(data)
    assert feed_pb2.FromWorker.FromString(raw).data == feed_pb2.Data(channel=channel, body=body)
    for read, message in (
        (wire.load_from_worker, feed_pb2.FromWorker(data=feed_pb2.Data(channel=channel, body=body))),
        (wire.load_from_trainer, feed_pb2.FromTrainer(data=feed_pb2.Data(channel=channel, body=body))),
    ):
        for form in (raw, message.SerializeToString()):
            assert read(form) == data


def test_other_messages_are_protobuf_s() -> None:
    for message in (feed_pb2.FromTrainer(close=feed_pb2.Close(channel=3)), feed_pb2.FromTrainer(hello=feed_pb2.Hello(digest="x"))):
        assert wire.load_from_trainer(wire.dump(message)) == message
    ended = feed_pb2.FromWorker(ended=feed_pb2.Ended(channel=300, why="killed"))
    assert wire.load_from_worker(wire.dump(ended)) == ended


def test_generated_code_is_current() -> None:
    subprocess.run([sys.executable, str(ROOT / "tools" / "gen_proto.py"), "--check"], check=True)


def test_dotted_names_make_namespaces() -> None:
    roots = builders.namespaces({"args.data": "/d", "n": 3, "args.opt.lr": 0.1, "args.opt.name": "sgd"})
    assert roots["n"] == 3
    args = roots["args"]
    assert (args.data, args.opt.lr, args.opt.name) == ("/d", 0.1, "sgd")  # type: ignore[attr-defined]


def test_a_builder_sets_globals() -> None:
    def build(n: int) -> tuple[int, object]:
        return n, splitter_test_root  # type: ignore[name-defined]  # noqa: F821

    builder = builders.Builder("x", build, None, ("splitter_test_root",))
    try:
        assert builder.build({"n": 1, "splitter_test_root": 2}) == (1, 2)
        with pytest.raises(TypeError, match="n"):
            builder.build({})
    finally:
        del globals()["splitter_test_root"]


def test_lines_of_the_script_in_a_traceback() -> None:
    manifest = Manifest("d", {}, {}, {}, {}, "/out/train_worker.py", (Lines(10, 4, 3, "../train.py"), Lines(13, 1, 2, "../data.py")), 1)
    lines = LineMap(manifest, "/home/me/out")
    assert lines.place(9) is None and lines.place(12) == ("/home/me/train.py", 6) and lines.place(13) == ("/home/me/data.py", 1)
    text = '  File "/out/train_worker.py", line 11, in f\n  File "/lib/x.py", line 11, in g\n  File "/out/train_worker.py", line 99, in h\n'
    assert lines.map(text) == text.replace('/out/train_worker.py", line 11', '/home/me/train.py", line 5')


def test_types_of_exceptions() -> None:
    assert find_type("builtins", "KeyError") is KeyError and find_type("builtins", "print") is None
    assert find_type("json.decoder", "JSONDecodeError") is not None and find_type("nowhere", "X") is None
    assert nearest_type([("nowhere", "X"), ("builtins", "OSError"), ("builtins", "Exception")]) is OSError
    assert nearest_type([("nowhere", "X"), ("builtins", "Exception")]) is None


def test_lists_of_workers() -> None:
    assert pool.parse("") == (pool.Place(),) and pool.parse("local:2") == (pool.Place(), pool.Place())
    assert pool.parse("a:1, [::1]:2,local") == (pool.Place("a:1"), pool.Place("[::1]:2"), pool.Place())
    with pytest.raises(ConfigError):
        pool.parse("local:")


def test_importing_the_runtime_imports_nothing_heavy() -> None:
    code = """
import sys, splitter_runtime
splitter_runtime.program
splitter_runtime.loader("x")
print([name for name in ("torch", "numpy", "grpc", "google.protobuf") if name in sys.modules])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_patched_modules(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    (package / "inner").mkdir(parents=True)
    for name, text in (("__init__.py", ""), ("inner/__init__.py", "whole = 1"), ("data.py", "from . import inner\nvalue = 'original'\n")):
        (package / name).write_text(text)
    (tmp_path / "copies").mkdir()
    (tmp_path / "copies" / "data.py").write_text("from . import inner\nvalue = 'patched'\ndef fail():\n    1 / 0\n")
    (tmp_path / "copies" / "inner.py").write_text("whole = 2\n")
    copies = {"pkg.data": str(tmp_path / "copies" / "data.py"), "pkg.inner": str(tmp_path / "copies" / "inner.py")}
    code = f"""
import sys
from splitter_runtime.local_modules import TrainerFinder
sys.path.insert(0, {str(tmp_path)!r})
sys.meta_path.insert(0, TrainerFinder({copies!r}, {{}}, {str(tmp_path)!r}))
import pkg.data
print(pkg.data.value, pkg.inner.whole, pkg.data.__file__, pkg.data.__package__, list(pkg.inner.__path__))
"""
    ended = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True)
    assert ended.stdout.split() == ["patched", "2", str(package / "data.py"), "pkg", f"['{package / 'inner'}']"], ended.stderr


def test_wrappers_are_not_searched_for_what_is_not_there() -> None:
    from splitter_runtime.trees import Reference, describe, is_remote, leaves, rebuild

    remote, here = TensorDataset(torch.arange(5)), TensorDataset(torch.arange(4))
    numbers = {id(remote): 3}
    number_of = lambda value: numbers.get(id(value))  # noqa: E731
    tree = ConcatDataset([Subset(remote, [1, 0]), Subset(Subset(remote, [4, 3]), [1])])
    assert is_remote(tree, number_of) and list(leaves(tree)) == [remote, remote]
    again = rebuild(describe(tree, number_of), {3: remote})
    assert [again[i] for i in range(3)] == [tree[i] for i in range(3)] and again.datasets[0].dataset is remote
    assert not is_remote(Subset(here, [1]), number_of) and describe({"a": [remote, here]}, number_of)["a"] == [Reference(3), here]
    with pytest.raises(ConfigError, match="joins"):
        is_remote(ConcatDataset([remote, here]), number_of)


def test_state_of_the_program() -> None:
    assert bootstrap.STATE.trainer is None
    with pytest.raises(ConfigError, match="program"):
        bootstrap.start_workers()
