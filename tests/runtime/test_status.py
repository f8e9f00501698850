"""What a worker says of itself: the same on both sides of the wire, and true of real processes."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from splitter_runtime import feed_pb2 as pb
from splitter_runtime.status import SessionStatus, StreamStatus, Usage, WorkerStatus, from_message, to_message, usage

small = st.integers(0, 2**32 - 1)
large = st.integers(0, 2**64 - 1)
seconds = st.floats(0, 1e10)
streams = st.builds(StreamStatus, small, small, large, large, small, large, seconds)
sessions = st.builds(SessionStatus, st.text(), seconds, small, large, seconds, st.lists(streams, max_size=3).map(tuple))
workers = st.builds(
    WorkerStatus, st.text(), small, seconds, seconds, small, st.booleans(), large, large, st.builds(Usage, large, seconds),
    st.lists(sessions, max_size=3).map(tuple),
)  # fmt: skip


@given(workers)
def test_over_the_wire_and_back(status: WorkerStatus) -> None:
    assert from_message(pb.StatusReply.FromString(to_message(status).SerializeToString())) == status


def test_what_a_process_takes() -> None:
    found = usage(os.getpid())
    assert found.resident > 1 << 20 and found.cpu > 0
    assert usage(2**22 + 1) == Usage()  # above the highest number of a process


def test_sums() -> None:
    stream = StreamStatus(channel=1, pid=12, batches=4, nbytes=400, queue=2, resident=1000, cpu=1.5)
    session = SessionStatus("a", 10.0, 11, resident=500, cpu=0.25, streams=(stream, stream))
    status = WorkerStatus("w.py", 10, 20.0, 5.0, 8, False, 9, 900, Usage(100, 0.5), (session, session))
    assert (status.queue, status.resident, status.cpu) == (8, 5100, 7.0)
