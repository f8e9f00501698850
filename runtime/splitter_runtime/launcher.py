"""The launcher: forks a template for each session.

The worker's main process forks it before gRPC starts, because a process that runs gRPC must not fork. It has one thread and imports
nothing more. It dies with the main process (PR_SET_PDEATHSIG, and the end of the control socket); templates die with it.

Control messages, one packet each: "T" with two descriptors (the template's input socket and output pipe) -> pid of the template;
"E" and a pid -> that template is killed when it still runs, and waited for.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from collections.abc import Callable

from .processes import die_with, receive_with, send_with

_PID = struct.Struct("<q")


def _serve(control: socket.socket, template: Callable[[int, int], None]) -> None:
    while True:
        message, descriptors = receive_with(control, 64)
        if not message:
            return
        if message == b"T":
            here = os.getpid()
            pid = os.fork()
            if pid == 0:
                die_with(here)
                control.close()
                template(descriptors[0], descriptors[1])
                raise SystemExit(0)
            for descriptor in descriptors:
                os.close(descriptor)
            control.send(_PID.pack(pid))
        else:
            (pid,) = _PID.unpack(message[1:])
            os.kill(pid, signal.SIGKILL)  # a child that nobody waited for: the number can't be another's
            os.waitpid(pid, 0)
            control.send(_PID.pack(pid))


class Launcher:
    """The main process's side: start it before any thread, call it from any thread."""

    def __init__(self, template: Callable[[int, int], None]) -> None:
        """Fork. `template(input, output)` runs in every process that fork_template() makes."""
        here = os.getpid()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self.pid = os.fork()
        if self.pid == 0:
            die_with(here)
            self._control.close()
            # Ctrl-C in a terminal goes to everybody; only the main process acts on it.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _serve(theirs, template)
            os._exit(0)
        theirs.close()

    def fork_template(self, input_socket: int, output: int) -> int:
        """Fork a template that has these descriptors; returns its pid. OSError when the launcher is gone."""
        with self._lock:
            send_with(self._control, b"T", [input_socket, output])
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
