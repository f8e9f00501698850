"""The token, asked for on every call before anything else is done with it. Health checks are let through: those who ask have no token.

A call that is refused has no effect but one line in the log for each peer.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

LOG = logging.getLogger("splitter_runtime.worker")
HEALTH = "/grpc.health.v1.Health/Check"  # not Watch, which stays open: it would keep others out
_PEERS = 1000  # that are remembered as logged


class Gate(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses calls without the token. `token` None lets everybody in."""

    def __init__(self, token: str | None) -> None:
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._logged: dict[str, None] = {}
        self._lock = threading.Lock()

    def intercept_service(self, continuation: Callable[[Any], Any], call: Any) -> Any:
        """The handler of a call, as gRPC asks for it."""
        given = [value for name, value in call.invocation_metadata if name == "authorization"]
        if self._expected is None or call.method == HEALTH or self._fits(given):
            return continuation(call)
        why = "wrong token" if given else "no token"

        def refuse(messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
            self._log(context.peer(), why)
            context.abort(grpc.StatusCode.UNAUTHENTICATED, why)
            yield b""  # abort() has raised; this makes it a generator

        # of streams both ways, whatever the call is: other handlers would wait for its message first
        return grpc.stream_stream_rpc_method_handler(refuse)

    def _fits(self, given: list[str | bytes]) -> bool:
        """Compared in a time that says nothing about the token."""
        assert self._expected is not None
        values = [value.encode() if isinstance(value, str) else value for value in given]
        return len(values) == 1 and hmac.compare_digest(values[0], self._expected)

    def _log(self, peer: str, why: str) -> None:
        """One line for each machine, however often and from whichever port it calls."""
        host = peer if peer.startswith("unix") else peer.rpartition(":")[0]
        with self._lock:
            if host in self._logged:
                return
            if len(self._logged) >= _PEERS:
                del self._logged[next(iter(self._logged))]
            self._logged[host] = None
        LOG.warning("refused a call of %s: %s; more calls of this peer are refused without a word", host, why)
