"""Workers from a list: several at once, several trainers at once, and who is let in."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pairs import Pair, assert_same
from running import running
from scratch import Scratch
from test_streams_same import BUILD_NOISE, NOISE, SWAP_NOISE

BODY = """
dataset = Noise(21)
print("n", dataset.n)
for count in (3, 0, 2):
    for batch in DataLoader(dataset, batch_size=4, shuffle=True, num_workers=count):
        see(batch)
dataset.n = 9
for batch in DataLoader(dataset, batch_size=4, num_workers=4):
    see(batch)
show()
"""
PAIR = Pair(NOISE, BUILD_NOISE, BODY, (SWAP_NOISE,))
LOCAL = ("train_worker.py", "--listen", "127.0.0.1:0")


def trainer(scratch: Scratch, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return scratch.run([sys.executable, "train_trainer.py"], folder, **environment)


def script_output(scratch: Scratch, folder: Path) -> str:
    return scratch.run([sys.executable, "train.py"], folder).stdout


def last_line(ended: subprocess.CompletedProcess[str]) -> str:
    return ended.stderr.strip().splitlines()[-1]


def test_several_local_workers(scratch: Scratch) -> None:
    assert_same(scratch, PAIR, SPLITTER_WORKERS="local:2")


def test_a_list_of_workers_and_two_trainers_at_once(scratch: Scratch) -> None:
    folder = PAIR.write(scratch.folder / "pair")
    expected = script_output(scratch, folder)
    with running(scratch, folder, *LOCAL) as first, running(scratch, folder, *LOCAL, "--processes", "4") as second:
        workers = f"{first.address()},{second.address()}"
        trainers = [
            running(scratch, folder, "train_trainer.py", SPLITTER_WORKERS=spec) for spec in (workers, f"{workers},local", second.address())
        ]
        with trainers[0] as one, trainers[1] as two, trainers[2] as three:
            for each in (one, two, three):
                assert each.process.stdout is not None
                assert each.process.stdout.read() == expected
                assert each.ended()[0] == 0


def test_proxies_are_not_asked(scratch: Scratch) -> None:
    folder = PAIR.write(scratch.folder / "pair")
    with running(scratch, folder, *LOCAL) as worker:
        proxy = "http://127.0.0.1:9"
        names = ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy")
        ended = trainer(scratch, folder, SPLITTER_WORKERS=worker.address(), **dict.fromkeys(names, proxy))
        assert ended.returncode == 0, ended.stderr


def test_tokens(scratch: Scratch) -> None:
    folder = PAIR.write(scratch.folder / "pair")
    (folder / "token").write_text("right\n")
    (folder / "other").write_text("wrong\n")
    with running(scratch, folder, *LOCAL, "--token-file", "token") as worker:
        address = worker.address()
        for environment in ({}, {"SPLITTER_TOKEN_FILE": "other"}):
            ended = trainer(scratch, folder, SPLITTER_WORKERS=address, **environment)
            assert ended.returncode == 1
            assert last_line(ended).startswith(f"splitter_runtime.errors.AuthError: R301: the worker {address} refused the token")
        ended = trainer(scratch, folder, SPLITTER_WORKERS=address, SPLITTER_TOKEN_FILE="token")
        assert ended.stdout == script_output(scratch, folder), ended.stderr
    ended = trainer(scratch, folder, SPLITTER_WORKERS=address, SPLITTER_TOKEN_FILE="missing")
    assert "ConfigError: R601: SPLITTER_TOKEN_FILE: can't read missing" in last_line(ended)


def test_a_worker_of_another_split(scratch: Scratch) -> None:
    folder = PAIR.write(scratch.folder / "pair")
    other = Pair(PAIR.moved, PAIR.builders, PAIR.body, PAIR.swaps, digest="sha256:1").write(scratch.folder / "other")
    with running(scratch, other, *LOCAL) as worker:
        ended = trainer(scratch, folder, SPLITTER_WORKERS=worker.address())
        assert ended.returncode == 1
        assert "SkewError: R201" in ended.stderr
        assert "trainer: split sha256:0" in ended.stderr and f"worker {worker.address()}: split sha256:1" in ended.stderr
        assert "torch 2." in ended.stderr and "SPLITTER_ALLOW_SKEW=1" in ended.stderr
        ended = trainer(scratch, folder, SPLITTER_WORKERS=worker.address(), SPLITTER_ALLOW_SKEW="1")
        assert ended.stdout == script_output(scratch, folder), ended.stderr


def certificates(folder: Path) -> None:
    """An authority, and certificates of it for a worker at 127.0.0.1 and for a trainer."""
    subject = ("-subj", "/CN=authority")
    openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem", *subject)
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("worker", "trainer"):
        openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem")


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def test_certificates(scratch: Scratch) -> None:
    folder = PAIR.write(scratch.folder / "pair")
    certificates(folder)
    pair = ("--tls-cert", "worker.pem", "--tls-key", "worker.key")
    with running(scratch, folder, *LOCAL, *pair) as worker:
        ended = trainer(scratch, folder, SPLITTER_WORKERS=worker.address(), SPLITTER_TLS_CA="ca.pem")
        assert ended.stdout == script_output(scratch, folder), ended.stderr
        ended = trainer(scratch, folder, SPLITTER_WORKERS=worker.address(), SPLITTER_TLS_CA="trainer.pem", SPLITTER_CONNECT_SECONDS="2")
        assert ended.returncode == 1 and "WorkerLostError: R401" in last_line(ended)
    own = {"SPLITTER_TLS_CA": "ca.pem", "SPLITTER_TLS_CERT": "trainer.pem", "SPLITTER_TLS_KEY": "trainer.key"}
    with running(scratch, folder, *LOCAL, *pair, "--tls-ca", "ca.pem") as worker:
        ended = trainer(scratch, folder, SPLITTER_WORKERS=worker.address(), **own)
        assert ended.returncode == 0, ended.stderr
        ended = trainer(scratch, folder, SPLITTER_WORKERS=worker.address(), SPLITTER_TLS_CA="ca.pem", SPLITTER_CONNECT_SECONDS="2")
        assert ended.returncode == 1 and "WorkerLostError: R401" in last_line(ended)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--listen", "0.0.0.0:0"), "can be reached from other machines"),
        (("--listen", "127.0.0.1:0", "--token-file", "missing"), "can't read the token file missing: No such file or directory"),
        (("--listen", "127.0.0.1:0", "--token-file", "empty"), "the token file empty is empty"),
        (("--listen", "127.0.0.1"), "--listen takes HOST:PORT"),
        (("--listen", "127.0.0.1:0", "--processes", "0"), "--processes must be at least 1"),
        (("--listen", "127.0.0.1:0", "--tls-cert", "x"), "go together"),
        (("--listen", "127.0.0.1:0", "--tls-cert", "missing", "--tls-key", "missing"), "can't read the key missing"),
        (("--listen", "127.0.0.1:{taken}"), "can't listen on 127.0.0.1:{taken}: Address already in use"),
        (("--listen", "203.0.113.1:7077", "--insecure"), "can't listen on 203.0.113.1:7077"),
    ],
)
def test_a_worker_that_can_not_start(scratch: Scratch, arguments: tuple[str, ...], said: str) -> None:
    folder = PAIR.write(scratch.folder / "pair")
    (folder / "empty").write_text("\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [argument.replace("{taken}", port) for argument in arguments]
        ended = scratch.run([sys.executable, "train_worker.py", *command], folder)
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.startswith("train_worker.py: ") and ended.stderr.count("\n") == 1
    assert said.replace("{taken}", port) in ended.stderr


def test_health(scratch: Scratch) -> None:
    """The health service answers without a token, as those who ask for it have none."""
    folder = PAIR.write(scratch.folder / "pair")
    (folder / "token").write_text("right\n")
    with running(scratch, folder, *LOCAL, "--token-file", "token") as worker, grpc.insecure_channel(worker.address()) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "splitter.v1.Feed"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("spec", ["local:0", "cpu1", "cpu1:x", "cpu1:7077,,cpu2:7077", "a:1,a:1", "ray://"])
def test_a_wrong_list(scratch: Scratch, spec: str) -> None:
    ended = trainer(scratch, PAIR.write(scratch.folder / "pair"), SPLITTER_WORKERS=spec)
    assert ended.returncode == 1 and "ConfigError: R601: SPLITTER_WORKERS" in last_line(ended)


def test_a_worker_that_is_not_there(scratch: Scratch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    environment = {"SPLITTER_WORKERS": address, "SPLITTER_CONNECT_SECONDS": "0.1"}
    ended = trainer(scratch, PAIR.write(scratch.folder / "pair"), **environment)
    assert f"WorkerLostError: R401: worker {address} was lost: unavailable" in last_line(ended)


def test_a_worker_program_that_fails(scratch: Scratch) -> None:
    folder = PAIR.write(scratch.folder / "pair")
    (folder / "train_worker.py").write_text("import nothing_of_that_name\n")
    ended = trainer(scratch, folder)
    assert "WorkerLostError: R401: worker local was lost: it ended while it started (exit status 1)" in last_line(ended)
