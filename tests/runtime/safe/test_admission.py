"""Who gets in: every combination of connection, token and address, with real workers."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

import pytest
from callers import CHECK, STATUS, WATCH, Caller, Certificates, hello
from crowd import PRINTED, Worker, crowd, train
from scratch import Scratch

from splitter_runtime.wire import SESSION

HOST = socket.gethostname()
ADDRESSES = {"loopback": "127.0.0.1", "ipv6": "[::1]", "everywhere": "0.0.0.0", "everywhere6": "[::]", "hostname": HOST}
SECURITY = ("plain", "tls", "mtls")
SHOWN = {"plain": "plain", "tls": "tls", "mtls": "trainer"}  # what a client must show
TOKENS = {"none": None, "right": "right", "wrong": "wrong", "longer": "right and more", "start": "rig"}


def arguments(security: str, address: str, admits: str, certificates: Certificates) -> list[str]:
    """The command line of a worker; `admits` is "token", "insecure" or "nothing", which says neither."""
    made = ["--listen", f"{ADDRESSES[address]}:0"]
    if security != "plain":
        made += ["--tls-cert", certificates.path("worker.pem"), "--tls-key", certificates.path("worker.key")]
    if security == "mtls":
        made += ["--tls-ca", certificates.path("ca.pem")]
    return made + {"token": ["--token-file", certificates.path("token")], "insecure": ["--insecure"], "nothing": []}[admits]


def is_loopback(host: str) -> bool:
    found = {str(place[0]) for *_, place in socket.getaddrinfo(host.strip("[]"), None)}
    return all(place == "::1" or place.startswith("127.") for place in found)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    made = Certificates.make(tmp_path / "certificates")
    (made.folder / "token").write_text("right\n")
    return made


def target(worker: Worker) -> str:
    """How a client reaches it."""
    host = worker.address.rpartition(":")[0]
    return f"{ {'0.0.0.0': '127.0.0.1', '[::]': '[::1]'}.get(host, host) }:{worker.port}"


def attempts(worker: Worker, security: str, admits: str, certificates: Certificates) -> list[str]:
    """What goes otherwise than it should when all kinds of clients call a worker."""
    wrong = []
    for shown, (name, token) in itertools.product(("plain", "tls", "trainer", "stranger"), TOKENS.items()):
        known = shown == SHOWN[security] or (security == "tls" and shown in ("trainer", "stranger"))
        if not known and name != "right":
            continue  # no connection, whatever it says then
        allowed = admits != "token" or name == "right"
        with Caller(target(worker), certificates.credentials(shown), token) as caller:
            found = {
                "health": caller.unary(CHECK),
                "watch": caller.first(WATCH, b""),
                "status": caller.unary(STATUS),
                "nothing": caller.unary("/splitter.v1.Feed/Nothing"),
                "session": caller.first(SESSION, hello()) if not allowed or not known else "",
            }
        refused = "UNAVAILABLE" if not known else "UNAUTHENTICATED"
        for call, status in found.items():
            expected = [refused]
            if known and call == "health":
                expected = ["OK"]
            elif known and allowed:
                expected = {"watch": ["OK"], "status": ["OK", "UNIMPLEMENTED"], "nothing": ["UNIMPLEMENTED"], "session": [""]}[call]
            if status not in expected:
                wrong.append(f"{shown} client, token {name}, {call}: {status}, not {expected}")
    if worker.templates():
        wrong.append("a refused call has started a template")
    with Caller(target(worker), certificates.credentials(SHOWN[security]), "right") as caller:
        if (status := caller.first(SESSION, hello())) != "OK":
            wrong.append(f"the right client: {status}")
    if len(worker.log().splitlines()) != 1 + (admits == "token") or worker.log().count("refused a call") != (admits == "token"):
        wrong.append(f"logged {worker.log()}")
    return wrong


def test_every_combination(scratch: Scratch, certificates: Certificates) -> None:
    """Workers with a token, without, and with --insecure; each is called in all ways, and has one line in its log for what it refuses."""
    kinds = {"-".join(kind): kind for kind in itertools.product(SECURITY, ADDRESSES, ("token", "insecure", "nothing"))}
    commands = {name: arguments(*kind, certificates) for name, kind in kinds.items()}
    wrong = []
    with crowd(scratch.folder / "crowd", scratch.environment(), commands) as workers:
        for name, (security, address, admits) in kinds.items():
            worker = workers[name]
            may_start = admits != "nothing" or is_loopback(ADDRESSES[address])
            if may_start != (worker.status is None):
                wrong.append(f"{name}: exit status {worker.status}: {worker.log()}")
            elif may_start:
                wrong += [f"{name}: {said}" for said in attempts(worker, security, admits, certificates)]
            elif worker.status != 2 or worker.log().count("\n") != 1 or "can be reached from other machines" not in worker.log():
                wrong.append(f"{name}: exit status {worker.status}: {worker.log()}")
    assert not wrong, "\n".join(wrong)


PROXIES = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"), "http://127.0.0.1:9")


def test_trainers(scratch: Scratch, certificates: Certificates) -> None:
    """The trainer's side of it: by name, over IPv6, with proxies in the environment that lead nowhere."""
    kinds = {"plain": ("plain", "ipv6", "token"), "tls": ("tls", "hostname", "token"), "mtls": ("mtls", "ipv6", "token")}
    (certificates.folder / "wrong").write_text("wrong")
    folder = scratch.folder / "crowd"
    shown = {
        "SPLITTER_TOKEN_FILE": certificates.path("token"),
        "SPLITTER_TLS_CA": certificates.path("ca.pem"),
        "SPLITTER_TLS_CERT": certificates.path("trainer.pem"),
        "SPLITTER_TLS_KEY": certificates.path("trainer.key"),
    }
    with crowd(folder, scratch.environment(), {name: arguments(*kind, certificates) for name, kind in kinds.items()}) as workers:
        for name, keys, proxies in (
            ("plain", 1, {**PROXIES, "no_proxy": ""}),
            ("tls", 2, PROXIES),
            ("mtls", 4, {"no_proxy": "*", "NO_PROXY": "localhost"}),
        ):
            ended = train(scratch, target(workers[name]), **dict(list(shown.items())[:keys]), **proxies)
            assert (ended.stdout, ended.returncode) == (PRINTED, 0), ended.stderr
        ended = train(scratch, target(workers["mtls"]), **{**shown, "SPLITTER_TOKEN_FILE": certificates.path("wrong")})
        assert ended.returncode == 1 and "AuthError: R301: the worker" in ended.stderr.splitlines()[-1]


def test_files_that_are_none(scratch: Scratch, certificates: Certificates) -> None:
    """One line and status 2 for each file that can't be used, and for an address that is taken."""
    folder = certificates.folder
    for name, content in {"junk": b"junk\n", "empty": b"\n", "lines": b"one\ntwo\n", "other": "é\n".encode()}.items():
        (folder / name).write_bytes(content)
    worker, key, missing, junk = (certificates.path(name) for name in ("worker.pem", "worker.key", "missing", "junk"))
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        cases = {
            "missing token": (["--token-file", missing], f"can't read the token file {missing}: No such file or directory"),
            "folder for a token": (["--token-file", str(folder)], f"can't read the token file {folder}: Is a directory"),
            "empty token": (["--token-file", certificates.path("empty")], "is empty"),
            "two tokens": (["--token-file", certificates.path("lines")], "holds more than one line"),
            "token in Latin": (["--token-file", certificates.path("other")], "has other than ASCII characters"),
            "missing key": (["--tls-cert", worker, "--tls-key", missing], f"can't read the key {missing}"),
            "missing certificate": (["--tls-cert", missing, "--tls-key", key], f"can't read the certificate {missing}"),
            "missing authority": (["--tls-cert", worker, "--tls-key", key, "--tls-ca", missing], "can't read the certificate authority"),
            "certificate that is none": (["--tls-cert", junk, "--tls-key", key], "is not in PEM"),
            "key that is none": (["--tls-cert", worker, "--tls-key", junk], "is not in PEM"),
            "authority that is none": (["--tls-cert", worker, "--tls-key", key, "--tls-ca", junk], "is not in PEM"),
            "key of another": (["--tls-cert", worker, "--tls-key", certificates.path("trainer.key")], "is not that of the certificate"),
            "half of a pair": (["--tls-key", key], "go together"),
            "authority alone": (["--tls-ca", worker], "--tls-ca needs --tls-cert and --tls-key"),
            "no port": (["--listen", "127.0.0.1"], "--listen takes HOST:PORT"),
            "large port": (["--listen", "127.0.0.1:65536"], "--listen takes HOST:PORT, not 127.0.0.1:65536"),
            "taken": (["--listen", f"[::1]:{taken.getsockname()[1]}"], "Address already in use"),
            "name like loopback": (["--listen", "127.name.invalid:0"], "can't listen on 127.name.invalid:0"),
        }
        commands = {name: ["--listen", "127.0.0.1:0", *given] for name, (given, _) in cases.items()}
        with crowd(scratch.folder / "crowd", scratch.environment(), commands) as workers:
            said = {name: (worker.status, worker.log()) for name, worker in workers.items()}
    wrong = [
        (name, *said[name])
        for name, (_, part) in cases.items()
        if said[name][0] != 2 or part not in said[name][1] or said[name][1].count("\n") != 1
    ]
    assert not wrong
