"""Where workers come from: processes on this machine, or a fixed list of addresses.

    parse("local:2")               -> (Place(local), Place(local))
    parse("cpu1:7077,local")       -> (Place("cpu1:7077"), Place(local))
    LocalWorker(program, name)     starts one; .welcome() waits until it is ready; .close() ends it

A local worker is in a session of its own, so that Ctrl-C reaches the trainer alone. It holds one end of a control socket, and ends
with everything below it when the other end closes, as it does when the trainer ends, also by kill -9.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .access import access
from .errors import ConfigError, WorkerLostError
from .forking import Forked

PACKET = 1 << 15  # bytes of a packet of a control socket
ANSWER = 10.0  # seconds that a launcher has to fork a template

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .launcher import Launcher
    from .remote_link import Endpoint


def _standard_output() -> int | None:
    """A descriptor of this process's standard output; None when it's closed."""
    try:
        return os.dup(1)
    except OSError:
        return None


@dataclass(frozen=True)
class Place:
    """One worker: an address, or None for a process on this machine."""

    address: str | None = None


def parse(spec: str) -> tuple[Place, ...]:
    """Read SPLITTER_WORKERS. ConfigError when it isn't a list of addresses, `local` or `local:N`."""
    places: list[Place] = []
    for part in (spec or "local").split(","):
        name, _, rest = part.strip().rpartition(":")
        if part.strip() == "local":
            places.append(Place())
        elif name == "local" and rest.isdigit() and int(rest) > 0:
            places.extend(Place() for _ in range(int(rest)))
        elif name and name != "local" and rest.isdigit() and "/" not in name:
            places.append(Place(part.strip()))
        else:
            raise ConfigError.of("R601", what=f"SPLITTER_WORKERS: {part.strip()!r} is neither HOST:PORT nor local nor local:N")
    addresses = [place.address for place in places if place.address is not None]
    for address in addresses:
        if addresses.count(address) > 1:
            raise ConfigError.of("R601", what=f"SPLITTER_WORKERS names {address} more than once")
    return tuple(places)


_controls: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _let_go() -> None:
    """In a forked child: its copies of the control sockets would keep the workers alive after the trainer has gone."""
    for control in list(_controls):
        control.close()


os.register_at_fork(after_in_child=_let_go)


def _new_python(program: str, arguments: list[str], given: list[int]) -> subprocess.Popen[bytes]:
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = [sys.executable, *flags, program, *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=given, start_new_session=True)


class LocalWorker:
    """A worker process of this trainer's own: a launcher of templates, at the other end of a control socket."""

    def __init__(self, program: str, name: str, fork: Callable[[], None] | None = None) -> None:
        """Start it; doesn't wait. OSError when no process can be started.

        It is a new Python; with `fork` it is a fork of this process, in which that function is called first.
        """
        self.name = name
        self._owner = os.getpid()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _controls.add(self._control)
        arguments = ["--control", str(theirs.fileno())]
        given = [theirs.fileno()]
        stdout = _standard_output()
        if stdout is not None:
            arguments += ["--stdout", str(stdout)]
            given.append(stdout)
        with theirs:
            self._process = _new_python(program, arguments, given) if fork is None else Forked(program, arguments, fork)
        if stdout is not None:
            os.close(stdout)

    @property
    def pid(self) -> int:
        return self._process.pid

    def welcome(self, patience: float) -> bytes:
        """What it says about itself, once it is ready: a Welcome message. WorkerLostError when it ends before, or is stopped so long."""
        size = self._receive(patience)
        message = b""
        while len(message) < int.from_bytes(size, "little"):
            message += self._receive(patience)
        return message

    def _receive(self, patience: float) -> bytes:
        from .processes import Stopped

        stopped = Stopped(self.pid)
        self._control.settimeout(1.0)
        while True:
            try:
                packet = self._control.recv(PACKET)
                break
            except TimeoutError:  # its imports may take any time
                if stopped.seconds() >= patience:
                    self._process.kill()
            except ConnectionResetError:
                packet = b""
                break
        if not packet:
            status = self._process.wait()
            why = f"exit status {status}" if status >= 0 else f"killed by signal {-status}"
            raise WorkerLostError.of("R401", worker=self.name, why=f"it ended while it started ({why})")
        return packet

    def launcher(self) -> Launcher:
        """Its launcher, after welcome()."""
        from .launcher import Launcher

        self._control.settimeout(ANSWER)
        return Launcher(self._control, self.pid)

    def close(self) -> None:
        """End it and everything below it."""
        if os.getpid() != self._owner:
            return
        self._control.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def announce(control: socket.socket, message: bytes) -> None:
    """In a local worker: say that it is ready, in packets as large as the system takes."""
    control.send(len(message).to_bytes(8, "little"))
    for start in range(0, len(message), PACKET):
        control.send(message[start : start + PACKET])


def remote_endpoint(address: str, environment: Mapping[str, str], patience: float) -> Endpoint:
    """How to reach a worker in the list: token and certificates as the environment says. ConfigError for a file that can't be read."""
    from .remote_link import Endpoint

    shown = access(environment)
    return Endpoint(address, address, shown.token, shown.credentials, patience)
