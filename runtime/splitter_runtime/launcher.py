"""The launcher: forks a template for each session.

It has one thread and imports nothing more. For a trainer's own worker it is the process that the trainer has started; for others the
worker's main process forks it before gRPC starts, because a process that runs gRPC must not fork. It dies with the main process
(PR_SET_PDEATHSIG) or the trainer (the end of the control socket); templates die with it.

Control messages, one packet each: "T" with a descriptor (the template's socket) -> pid of the template; "E" and a pid -> that template is
killed when it still runs, and waited for.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable

from .processes import die_with, receive_with, send_with

_PID = struct.Struct("<q")


def serve_launcher(control: socket.socket, template: Callable[[int], None]) -> None:
    """Body of the launcher; returns when nobody holds the other end of `control` any more. `template(socket)` runs in every template."""
    while True:
        try:
            message, descriptors = receive_with(control, 64)
        except ConnectionResetError:
            return
        if not message:
            return
        if message == b"T":
            here = os.getpid()
            pid = os.fork()
            if pid == 0:
                die_with(here)
                gc.freeze()  # looking for garbage among modules would copy the pages that hold them
                control.close()
                template(descriptors[0])
                raise SystemExit(0)
            os.close(descriptors[0])
            control.send(_PID.pack(pid))
        else:
            (pid,) = _PID.unpack(message[1:])
            os.kill(pid, signal.SIGKILL)  # a child that nobody waited for: the number can't be another's
            os.waitpid(pid, 0)
            control.send(_PID.pack(pid))


class Launcher:
    """The other end of a launcher's control socket; may be used from any thread."""

    def __init__(self, control: socket.socket, pid: int) -> None:
        self._control, self.pid = control, pid
        self._lock = threading.Lock()

    @classmethod
    def fork(cls, template: Callable[[int], None]) -> Launcher:
        """Fork a launcher, in a process without threads."""
        here = os.getpid()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            die_with(here)
            ours.close()
            # Ctrl-C in a terminal goes to everybody; only the main process acts on it.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            serve_launcher(theirs, template)
            os._exit(0)
        theirs.close()
        return cls(ours, pid)

    def fork_template(self, descriptor: int) -> int:
        """Fork a template that has this socket; returns its pid. OSError when the launcher is gone."""
        with self._lock:
            send_with(self._control, b"T", [descriptor])
            return self._answer()

    def end_template(self, pid: int) -> None:
        """Kill the template when it still runs, with its streams. Call once. OSError when the launcher is gone."""
        with self._lock:
            self._control.send(b"E" + _PID.pack(pid))
            self._answer()

    def _answer(self) -> int:
        answer = self._control.recv(64)
        if not answer:
            raise ConnectionResetError("the launcher ended")
        number: int = _PID.unpack(answer)[0]
        return number

    def kill(self) -> None:
        """End the launcher and with it all templates and streams, at once."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
