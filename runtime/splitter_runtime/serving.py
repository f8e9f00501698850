"""serve(): the command line of a worker program, and its life.

    python train_worker.py --listen HOST:PORT [--processes N] [--token-file F] [--tls-cert F --tls-key F [--tls-ca F]] [--insecure]

Main process -> launcher -> a template for each session -> streams. The main thread forks the launcher, starts gRPC, and waits for a
signal (the first asks trainers to move their streams away and then ends, the second ends everything at once), or for the launcher to end.
In a trainer's own pool the process is itself the launcher, and ends when the trainer does. Whatever the reason, nothing is left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import resource
import signal
import socket
import sys
import threading
from types import FrameType
from typing import Any, NoReturn

from .accepting import load
from .admission import OptionError, loopback, read_certificates, read_token
from .builders import PROGRAM
from .launcher import Launcher, serve_launcher
from .manifest import Lines, welcome
from .metrics import MetricsError, address, start_on_worker
from .pool import announce
from .template import run_template


def fail(reason: str) -> NoReturn:
    """Bad input: one line, exit status 2."""
    print(f"{os.path.basename(sys.argv[0])}: {reason}", file=sys.stderr)
    raise SystemExit(2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument(
        "--listen", required="--control" not in sys.argv, metavar="HOST:PORT", help="address to listen on; port 0 takes a free one"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count(), metavar="N", help="streams to run at once (default: CPUs)")
    parser.add_argument("--token-file", metavar="F", help="file with the token that trainers must show")
    parser.add_argument("--tls-cert", metavar="F", help="certificate chain of this worker, PEM")
    parser.add_argument("--tls-key", metavar="F", help="its private key, PEM")
    parser.add_argument("--tls-ca", metavar="F", help="accept only trainers with a certificate of this authority")
    parser.add_argument("--insecure", action="store_true", help="let anybody who reaches the address use this worker")
    parser.add_argument(
        "--drain-seconds", type=float, default=30.0, metavar="S", help="after SIGTERM, time for streams to move (default: 30)"
    )
    parser.add_argument("--timeout-seconds", type=float, default=10.0, metavar="S", help="give up what is silent that long (default: 10)")
    parser.add_argument(
        "--idle-seconds", type=float, default=3600.0, metavar="S", help="end sessions that ask for nothing that long (default: 3600)"
    )
    parser.add_argument("--max-sessions", type=int, default=64, metavar="N", help="trainers at once (default: 64)")
    parser.add_argument("--max-streams", type=int, default=256, metavar="N", help="streams of one trainer at once (default: 256)")
    parser.add_argument("--metrics", metavar="PORT", help="serve metrics for Prometheus there; on loopback, or on HOST:PORT")
    parser.add_argument("--control", type=int, help=argparse.SUPPRESS)  # descriptor of a socket to the trainer that started this
    parser.add_argument("--stdout", type=int, help=argparse.SUPPRESS)  # descriptor of that trainer's standard output
    return parser.parse_args()


def _speak(descriptor: int) -> None:
    """Write to the trainer's standard output from now on. What modules printed when they were imported, the trainer has printed, too."""
    sys.stdout.flush()
    os.dup2(descriptor, 1)
    os.close(descriptor)


def _token(options: argparse.Namespace) -> str | None:
    if options.token_file is None:
        return None
    try:
        return read_token(options.token_file)
    except OptionError as error:
        fail(str(error))


def _check(options: argparse.Namespace) -> None:
    if options.processes < 1:
        fail("--processes must be at least 1")
    for name in ("drain_seconds", "timeout_seconds", "idle_seconds", "max_sessions", "max_streams"):
        if getattr(options, name) <= 0:
            fail(f"--{name.replace('_', '-')} must be above 0")
    if options.metrics is not None and address(options.metrics) is None:
        fail(f"--metrics takes PORT or HOST:PORT, not {options.metrics}")
    if bool(options.tls_cert) != bool(options.tls_key):
        fail("--tls-cert and --tls-key go together")
    if options.tls_ca and not options.tls_cert:
        fail("--tls-ca needs --tls-cert and --tls-key")
    unix = options.listen.startswith(("unix:", "unix-abstract:"))
    port = options.listen.rpartition(":")[2]
    if not unix and not (port.isdecimal() and port.isascii() and int(port) < 1 << 16):
        fail(f"--listen takes HOST:PORT, not {options.listen}")
    if not unix:
        _check_free(options.listen)
    if not loopback(options.listen) and not (options.token_file or options.insecure):
        fail(f"{options.listen} can be reached from other machines: give --token-file, or --insecure to let everybody in")


def _check_free(address: str) -> None:
    """gRPC would say that an address is taken in several lines; ask before it does."""
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except (OSError, OverflowError) as error:
        fail(f"can't listen on {address}: {getattr(error, 'strerror', None) or error}")


def _credentials(options: argparse.Namespace) -> Any:
    if not options.tls_cert:
        return None
    try:
        return read_certificates(options.tls_cert, options.tls_key, options.tls_ca)
    except OptionError as error:
        fail(str(error))


class Server:
    """gRPC server with the Feed and health services, bound and started."""

    def __init__(self, options: argparse.Namespace, token: str | None, launcher: Launcher, message: Any) -> None:
        from concurrent.futures import ThreadPoolExecutor

        import grpc
        from grpc_health.v1 import health, health_pb2, health_pb2_grpc

        from .gate import Gate
        from .wire import options as grpc_options
        from .worker import Host, Limits

        limits = Limits(options.max_sessions, options.max_streams, patience=options.timeout_seconds, idle=options.idle_seconds)
        self.host = Host(launcher, message, limits)
        self._server = grpc.server(
            ThreadPoolExecutor(max_workers=256, thread_name_prefix="splitter-session"),
            interceptors=[Gate(token)],
            options=(*grpc_options(options.timeout_seconds), ("grpc.so_reuseport", 0), ("grpc.max_concurrent_streams", 128)),
        )
        self._server.add_generic_rpc_handlers((self.host,))
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        for service in ("", "splitter.v1.Feed"):
            self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        credentials = _credentials(options)
        try:
            if credentials is None:
                port = self._server.add_insecure_port(options.listen)
            else:
                port = self._server.add_secure_port(options.listen, credentials)
        except RuntimeError:
            fail(f"can't listen on {options.listen}: the address is taken or not this machine's")
        self._server.start()
        unix = options.listen.startswith(("unix:", "unix-abstract:"))
        self.address = options.listen if unix else f"{options.listen.rpartition(':')[0]}:{port}"

    def stop(self, seconds: float) -> None:
        """Let trainers move their streams away, for so many seconds; then end sessions, in order, within a few seconds."""
        self._health.enter_graceful_shutdown()
        if seconds:
            self.host.drain(seconds)
        self.host.stop()
        self._server.stop(grace=5).wait()


def _metrics(options: argparse.Namespace, server: Server) -> str:
    """Serve metrics, where that was asked for; returns where, or ""."""
    place = None if options.metrics is None else address(options.metrics)
    if place is None:
        return ""
    try:
        return start_on_worker(place, server.host.status)
    except MetricsError as error:
        fail(f"--metrics {error}")


def _watch_launcher(pid: int, over: threading.Event, status: list[int]) -> None:
    os.waitpid(pid, 0)
    if not over.is_set():
        print("the launcher process ended; this worker can't go on", file=sys.stderr)
        status.append(1)
        over.set()


def serve(*, digest: str, script: str, lines: tuple[tuple[Any, ...], ...] = ()) -> None:
    """Run this program as a worker until it is told to end; SystemExit in every case.

    `lines` says where the program's lines come from: (first line here, first line there, number of lines[, file]), the file being
    `script` when it isn't given.
    """
    if not sys.platform.startswith("linux"):
        raise SystemExit("a worker runs on Linux only: it forks, and ties its processes to their parent")
    program = sys._getframe(1).f_code.co_filename
    for builder in PROGRAM.loaders.values():
        load(builder.accepts)
    places = tuple(Lines(part[0], part[1], part[2], part[3] if len(part) > 3 else script) for part in lines)
    options = _arguments()
    message = welcome(digest, PROGRAM, program, places, options.processes or os.cpu_count() or 1)
    if options.control is not None:
        _serve_trainer(options, message.SerializeToString())
    _check(options)
    _serve_network(options, message)


def _serve_trainer(options: argparse.Namespace, message: bytes) -> NoReturn:
    """As the worker of the trainer that has started this: launch its templates, until it ends."""
    control = socket.socket(fileno=options.control)
    if options.stdout is not None:
        _speak(options.stdout)
    with contextlib.suppress(BrokenPipeError):  # the trainer has ended; so will this
        announce(control, message)
        serve_launcher(control, run_template)
    os._exit(0)


def _serve_network(options: argparse.Namespace, message: Any) -> NoReturn:
    """For trainers that connect, until a signal comes."""
    token = _token(options)
    over = threading.Event()
    launcher = Launcher.fork(functools.partial(run_template, here=False))
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else whoever fails to connect writes a line into this worker's log each time
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)  # a few for each stream
    # From here on there are threads; nothing may fork in this process any more.
    status: list[int] = []
    threading.Thread(target=_watch_launcher, args=(launcher.pid, over, status), daemon=True).start()
    try:
        server = Server(options, token, launcher, message)
        metrics = _metrics(options, server)
    except SystemExit:
        over.set()
        launcher.kill()
        raise

    def end(number: int, frame: FrameType | None) -> None:
        if over.is_set():
            launcher.kill()
            os._exit(128 + number)
        over.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    print(f"listening on {server.address}", file=sys.stderr, flush=True)
    if metrics:
        print(f"metrics on {metrics}", file=sys.stderr, flush=True)
    over.wait()
    server.stop(0.0 if status else options.drain_seconds)
    launcher.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status[0] if status else 0)
