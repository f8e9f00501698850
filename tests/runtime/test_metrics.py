"""Metrics: addresses, what trainer and worker say, and what happens when they can't be served."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from urllib.request import urlopen

import pytest
from scratch import python_environment

from splitter_runtime import metrics
from splitter_runtime.errors import ConfigError
from splitter_runtime.metrics import OfWorker, address, serve
from splitter_runtime.status import SessionStatus, StreamStatus, Usage, WorkerStatus

PROGRAM = """
import sys
from urllib.request import urlopen
from splitter_runtime.tally import Tally

tally = Tally.of("train", lambda: 2)
tally.begin()
tally.took("cpu1:7077", 1000, 0.5)
tally.took("cpu2:7077", 3000, 0.25)
tally.took("cpu1:7077", 1000, 0.0)
tally.moved("lost")
place = sys.stdin.readline().strip()
if place:
    print(urlopen(place).read().decode())
tally.end()
"""


def samples(text: str) -> dict[str, float]:
    """Name and labels -> value."""
    return {name: float(value) for name, value in re.findall(r"^(splitter\S*|process\S*) (\S+)$", text, re.MULTILINE)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9100", ("127.0.0.1", 9100)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:9100", ("0.0.0.0", 9100)),
        ("node1:9100", ("node1", 9100)),
        ("[::]:9100", ("::", 9100)),
        ("::1:9100", None),
        (":9100", None),
        ("70000", None),
        ("-1", None),
        ("x", None),
        ("9100 ", None),
        ("", None),
    ],
)
def test_addresses(text: str, expected: tuple[str, int] | None) -> None:
    assert address(text) == expected


def test_of_a_trainer() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=python_environment(SPLITTER_METRICS="0"),
    )
    assert process.stderr is not None
    said = process.stderr.readline()
    found = re.search(r"^splitter: metrics on (http://127\.0\.0\.1:\d+/metrics)$", said)
    assert found is not None, said
    out, errors = process.communicate(found[1] + "\n")
    assert process.returncode == 0, errors
    seen = samples(out)
    assert seen['splitter_batches_total{loader="train",worker="cpu1:7077"}'] == 2
    assert seen['splitter_bytes_total{loader="train",worker="cpu2:7077"}'] == 3000
    assert seen['splitter_wait_seconds_total{loader="train"}'] == 0.75
    assert seen['splitter_moves_total{kind="lost",loader="train"}'] == 1
    assert seen["splitter_workers"] == 2
    assert seen["process_resident_memory_bytes"] > 1 << 20
    assert "process_cpu_seconds_total" in seen


def test_of_a_worker() -> None:
    stream = StreamStatus(channel=1, pid=12, batches=4, nbytes=400, queue=2, resident=1000, cpu=1.5)
    session = SessionStatus("ipv4:10.0.0.1:5", 10.0, 11, resident=500, cpu=0.25, streams=(stream, stream))
    status = WorkerStatus("w.py", 10, 20.0, 5.0, 8, False, 9, 900, Usage(100, 0.5), (session,))
    seen = samples(urlopen(f"http://127.0.0.1:{serve(OfWorker(lambda: status), '127.0.0.1', 0)}").read().decode())
    own = {name.removeprefix("splitter_worker_"): value for name, value in seen.items() if name.startswith("splitter_")}
    assert own == {
        "sessions": 1,
        "streams": 2,
        "batches_total": 9,
        "bytes_total": 900,
        "queue_batches": 4,
        "resident_bytes": 2600,
        "cpu_seconds_total": 3.75,
    }


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        environment = python_environment(SPLITTER_METRICS=str(port), SPLITTER_LOG="warning")
        ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, input="", env=environment)
    assert ended.returncode == 0
    said = f"splitter: SPLITTER_METRICS: can't listen on 127.0.0.1:{port}: Address already in use; there will be no metrics\n"
    assert ended.stderr == said


def test_something_that_is_no_port() -> None:
    with pytest.raises(ConfigError, match="SPLITTER_METRICS takes PORT or HOST:PORT, not 'yes'"):
        metrics.start_on_trainer({"SPLITTER_METRICS": "yes"})


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"needs the package prometheus-client: pip install 'splitter-runtime\[metrics\]'"):
        metrics.start_on_trainer({"SPLITTER_METRICS": "0"})
