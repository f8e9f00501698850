"""Options of a worker that say who gets in: the token, certificates, and the address, which may need either.

loopback("[::1]:7077")             whether nobody but this machine reaches an address
read_token, read_certificates      files; OptionError says in one line what is wrong with one
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from pathlib import Path
from typing import Any

_UNIX = ("unix:", "unix-abstract:")


class OptionError(Exception):
    """A worker's option can't be used; the message is one line for its operator."""


def loopback(address: str) -> bool:
    """Whether only this machine reaches an address to listen on; False for a name that leads nowhere."""
    if address.startswith(_UNIX):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        found = {place[0] for *_, place in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)} if host else set()
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(ipaddress.ip_address(str(place).partition("%")[0]).is_loopback for place in found)


def read_file(path: str, what: str) -> bytes:
    """The content of a file. OptionError when it can't be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OptionError(f"can't read the {what} {path}: {error.strerror}") from None


def read_token(path: str) -> str:
    """The token in a file."""
    try:
        token = read_file(path, "token file").decode("ascii").strip()
    except UnicodeDecodeError:
        raise OptionError(f"the token file {path} has other than ASCII characters") from None
    if not token or not token.isprintable():
        raise OptionError(f"the token file {path} " + ("holds more than one line" if token else "is empty"))
    return token


def read_certificates(certificate: str, key: str, authority: str | None) -> Any:
    """gRPC's server credentials; with an authority only trainers with a certificate of it get in."""
    pair = (read_file(key, "key"), read_file(certificate, "certificate"))
    roots = read_file(authority, "certificate authority") if authority else None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # gRPC would take anything, and then say that the address is taken; no password: it would be asked for on the terminal
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, OSError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise OptionError(f"the key {key} is not that of the certificate {certificate}") from None
        raise OptionError(f"the certificate {certificate} or the key {key} is not in PEM, or the key has a password") from None
    try:
        if roots is not None:
            context.load_verify_locations(cadata=roots.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise OptionError(f"the certificate authority {authority} is not in PEM") from None
    import grpc  # after the launcher has been forked

    return grpc.ssl_server_credentials([pair], roots, require_client_auth=roots is not None)
