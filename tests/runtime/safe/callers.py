"""Clients of a worker that speak gRPC themselves, and certificates for them."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from splitter_runtime import feed_pb2 as pb
from splitter_runtime.manifest import versions
from splitter_runtime.wire import PROTOCOL, SESSION

STATUS = "/splitter.v1.Feed/Status"
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
NAMES = ["IP:127.0.0.1", "IP:::1", "DNS:localhost", f"DNS:{socket.gethostname()}"]
SECONDS = 20


def hello(digest: str = "sha256:0") -> bytes:
    """The first message of a trainer of the same versions."""
    return pb.FromTrainer(hello=pb.Hello(protocol=PROTOCOL, digest=digest, versions=versions())).SerializeToString()


@dataclass(frozen=True)
class Certificates:
    """An authority, and certificates of it for a worker and a trainer; another authority and a trainer of that."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        folder.mkdir(exist_ok=True)
        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        (folder / "names").write_text(f"subjectAltName={','.join(NAMES)}\n")
        for authority, names in (("ca", ("worker", "trainer")), ("other", ("stranger",))):
            openssl(
                folder, "req", "-x509", *new, "-days", "2", "-keyout", f"{authority}.key", "-out", f"{authority}.pem", "-subj", "/CN=ca"
            )
            for name in names:
                openssl(folder, "req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
                signing = ("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
                openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem")
        return cls(folder)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def credentials(self, kind: str) -> Any:
        """What a client shows: "plain" nothing, "tls" nothing but checks the worker, else the certificate of that name."""
        if kind == "plain":
            return None
        pair = () if kind == "tls" else [(self.folder / f"{kind}.{end}").read_bytes() for end in ("key", "pem")]
        return grpc.ssl_channel_credentials((self.folder / "ca.pem").read_bytes(), *pair)


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


class Caller:
    """A connection to a worker; every call gives the name of the status that it ends with, or OK."""

    def __init__(self, target: str, credentials: Any = None, token: str | None = None) -> None:
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_send_message_length", -1), ("grpc.enable_retries", 0)]
        self._channel = grpc.insecure_channel(target, options) if credentials is None else grpc.secure_channel(target, credentials, options)
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def unary(self, method: str, body: bytes = b"") -> str:
        """A call with one message each way."""
        try:
            self._channel.unary_unary(method)(body, metadata=self._metadata, timeout=SECONDS)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"

    def first(self, method: str, *bodies: bytes) -> str:
        """A stream of messages, and one taken of what comes back."""
        call = self.stream(method, iter(bodies))
        try:
            next(call)
        except grpc.RpcError as error:
            return str(error.code().name)
        except StopIteration:
            return "ENDED"
        finally:
            call.cancel()
        return "OK"

    def session(
        self, *bodies: bytes, greeting: bytes | None = None, seconds: float = SECONDS, until: int = -1
    ) -> tuple[str, list[pb.FromWorker]]:
        """Hello and more, and then nothing: what comes back until the worker ends the session, whose status and reason come first.

        After `seconds`, or when something comes of the channel `until`, the trainer ends it.
        """
        over = threading.Event()

        def sent() -> Iterator[bytes]:
            yield hello() if greeting is None else greeting
            yield from bodies
            over.wait(seconds)

        taken: list[pb.FromWorker] = []
        try:
            for raw in self.stream(SESSION, sent()):
                taken.append(pb.FromWorker.FromString(raw))
                if taken[-1].data.channel == until:
                    over.set()
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}", taken
        finally:
            over.set()
        return "OK", taken

    def late(self) -> str:
        """A session without Hello."""
        over = threading.Event()

        def silence() -> Iterator[bytes]:
            over.wait(SECONDS)
            yield from ()

        try:
            next(self.stream(SESSION, silence()))
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
        finally:
            over.set()
        return "OK"

    def burst(self, bodies: list[bytes]) -> str:
        """A session that goes on for a moment, unless the worker ends it before."""
        return self.session(*bodies, seconds=0.5)[0]

    def stream(self, method: str, bodies: Iterator[bytes]) -> Any:
        start: Any = self._channel.stream_stream(method)
        return start(bodies, metadata=self._metadata, timeout=SECONDS)
