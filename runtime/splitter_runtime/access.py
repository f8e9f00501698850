"""What a worker is shown by those who call it: the token and certificates that the environment names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ConfigError


@dataclass(frozen=True)
class Access:
    """`credentials` are gRPC channel credentials, None for plain text."""

    token: str | None
    credentials: Any = None

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with every call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


def _read(environment: Mapping[str, str], name: str) -> bytes | None:
    path = environment.get(name)
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError.of("R601", what=f"{name}: can't read {path}: {error.strerror}") from None


def access(environment: Mapping[str, str]) -> Access:
    """Read SPLITTER_TOKEN_FILE, SPLITTER_TLS_CA, SPLITTER_TLS_CERT and SPLITTER_TLS_KEY. ConfigError for a file that can't be read."""
    import grpc

    token = _read(environment, "SPLITTER_TOKEN_FILE")
    names = ("SPLITTER_TLS_CA", "SPLITTER_TLS_CERT", "SPLITTER_TLS_KEY")
    authority, chain, key = (_read(environment, name) for name in names)
    if (chain is None) != (key is None):
        raise ConfigError.of("R601", what="SPLITTER_TLS_CERT and SPLITTER_TLS_KEY go together")
    secure = authority is not None or chain is not None
    credentials = grpc.ssl_channel_credentials(authority, key, chain) if secure else None
    return Access(token.decode("ascii", "replace").strip() if token else None, credentials)
