"""`splitter top`: its table, and the command against workers that answer, refuse or aren't there."""

from __future__ import annotations

import dataclasses
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from scratch import python_environment

from splitter.top import AddressError, addresses, rows
from splitter_runtime import feed_pb2 as pb
from splitter_runtime.status import STATUS, SessionStatus, StreamStatus, Usage, WorkerStatus, to_message

STREAM = StreamStatus(channel=1, pid=12, batches=10, nbytes=1_000_000, queue=2, resident=800_000_000, cpu=1.0)
SESSION = SessionStatus("ipv4:10.0.0.5:40122", 150.0, 11, resident=300_000_000, cpu=0.5, streams=(STREAM,))
WORKER = WorkerStatus("w.py", 10, 200.0, 100.0, 8, False, 10, 1_000_000, Usage(100_000_000, 0.25), (SESSION,))


def later(batches: int, cpu: float) -> WorkerStatus:
    """Two seconds later."""
    stream = dataclasses.replace(STREAM, batches=10 + batches, nbytes=1_000_000 * (1 + batches), cpu=1.0 + cpu)
    session = dataclasses.replace(SESSION, streams=(stream,))
    return dataclasses.replace(WORKER, now=202.0, batches=10 + batches, nbytes=1_000_000 * (1 + batches), sessions=(session,))


def test_rows() -> None:
    assert rows({"cpu1:7": WORKER, "cpu2:7": "x"}, {"cpu1:7": later(5, 3.0), "cpu2:7": "can't be reached"}) == [
        ("cpu1:7", "", "", "10", "2.5", "2.5", "2", "1.2 GB", "150%", "1:42"),
        ("", "ipv4:10.0.0.5:40122", "", "11", "", "", "", "300 MB", "0%", "0:52"),
        ("", "", "1", "12", "2.5", "2.5", "2", "800 MB", "150%", ""),
        ("cpu2:7", "can't be reached", *[""] * 8),
    ]


@pytest.mark.parametrize("before", [{}, {"a:1": "can't be reached"}, {"a:1": dataclasses.replace(WORKER, started=99.0, batches=5000)}])
def test_no_speeds_of_a_worker_that_has_just_come(before: dict[str, Any]) -> None:
    assert [row[4] for row in rows(before, {"a:1": WORKER})] == ["0.0", "", "0.0"]


def test_a_worker_that_is_leaving() -> None:
    status = dataclasses.replace(WORKER, draining=True, sessions=())
    assert rows({}, {"a:1": status})[0][:3] == ("a:1", "leaving", "")


def test_addresses() -> None:
    assert addresses("cpu1:7077, cpu2:7077,cpu1:7077,[::1]:5") == ("cpu1:7077", "cpu2:7077", "[::1]:5")
    for wrong in ("", ",", "local", "cpu1", "cpu1:", ":5", "::1:5", "a:b"):
        with pytest.raises(AddressError):
            addresses(wrong)


class Answers(grpc.GenericRpcHandler):
    """A worker's Status, for those who know the token; another batch is made between two questions."""

    asked = 0

    def service(self, call: Any) -> Any:
        if call.method != STATUS:
            return None
        return grpc.unary_unary_rpc_method_handler(self.status, pb.StatusRequest.FromString, pb.StatusReply.SerializeToString)

    def status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        if dict(context.invocation_metadata()).get("authorization") != "Bearer word":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")
        self.asked += 1
        return to_message(later(self.asked, 0.0))


@pytest.fixture
def worker() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Answers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "splitter", "top", *arguments]


def test_once(worker: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("word\n")
    environment = python_environment(SPLITTER_TOKEN_FILE=str(token), http_proxy="http://127.0.0.1:1")
    ended = subprocess.run(command(f"{worker},127.0.0.1:1", "--once"), capture_output=True, text=True, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    head, *lines = [line.split() for line in ended.stdout.splitlines()]
    assert head[:4] == ["worker", "trainer", "stream", "pid"]
    assert [line[0] for line in lines] == [worker, "ipv4:10.0.0.5:40122", "1", "127.0.0.1:1"]
    assert "can't be reached" in ended.stdout.splitlines()[-1]


def test_without_the_token(worker: str) -> None:
    ended = subprocess.run(command(worker, "--once"), capture_output=True, text=True, env=python_environment())
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "refuses the token" in ended.stdout


@pytest.mark.parametrize("workers", ["nothing", ","])
def test_something_that_is_no_address(workers: str) -> None:
    ended = subprocess.run(command(workers), capture_output=True, text=True, env=python_environment())
    assert ended.returncode == 2 and "HOST:PORT" in ended.stderr and ended.stdout == ""


def test_live_until_ctrl_c(worker: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("word")
    ours, theirs = pty.openpty()
    environment = python_environment(SPLITTER_TOKEN_FILE=str(token), TERM="xterm", COLUMNS="140")
    process = subprocess.Popen(command(worker), stdout=theirs, stderr=subprocess.PIPE, text=True, env=environment)
    os.close(theirs)
    seen = b""
    while seen.count(b"batches/s") < 2:
        seen += os.read(ours, 1 << 16)
    process.send_signal(signal.SIGINT)
    try:
        while os.read(ours, 1 << 16):
            pass
    except OSError:
        pass  # it has ended
    os.close(ours)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert worker.encode() in seen
