"""Metrics for Prometheus: SPLITTER_METRICS=PORT on the trainer, --metrics PORT on a worker. Served on loopback unless HOST:PORT is given.

    splitter_batches_total{loader,worker}  splitter_bytes_total{loader,worker}  splitter_wait_seconds_total{loader}
    splitter_moves_total{loader,kind}      splitter_workers

    splitter_worker_sessions  splitter_worker_streams  splitter_worker_batches_total  splitter_worker_bytes_total
    splitter_worker_queue_batches  splitter_worker_resident_bytes  splitter_worker_cpu_seconds_total

and in both what every process has: process_resident_memory_bytes, process_cpu_seconds_total. Numbers are read when they are asked for, so
that counting costs nothing. The package prometheus-client is needed: the extra `metrics` of splitter-runtime.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import tally
from .errors import ConfigError
from .notices import tell

if TYPE_CHECKING:
    from prometheus_client import Metric

    from .status import WorkerStatus

MISSING = "needs the package prometheus-client: pip install 'splitter-runtime[metrics]'"


class MetricsError(Exception):
    """Metrics can't be served; the text is one line for the user."""


def address(text: str) -> tuple[str, int] | None:
    """Host and port of `9100`, `0.0.0.0:9100` or `[::]:9100`; None when it is none of these."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") if host else "127.0.0.1"
    if not (port.isascii() and port.isdigit()) or int(port) > 65535 or (":" in host and "[" not in text) or text.startswith(":"):
        return None
    return host, int(port)


class OfTrainer:
    """Collector of the loaders' counts."""

    def collect(self) -> Iterable[Metric]:
        """As prometheus-client asks for them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        batches = CounterMetricFamily("splitter_batches", "Batches handed to the program.", labels=("loader", "worker"))
        nbytes = CounterMetricFamily("splitter_bytes", "Bytes of these batches.", labels=("loader", "worker"))
        waited = CounterMetricFamily("splitter_wait_seconds", "Seconds that the program waited for a batch.", labels=("loader",))
        moves = CounterMetricFamily("splitter_moves", "Streams that went on elsewhere.", labels=("loader", "kind"))
        for site in tally.sites():
            for worker, share in list(site.shares.items()):
                batches.add_metric((site.name, worker), share.batches)
                nbytes.add_metric((site.name, worker), share.nbytes)
            waited.add_metric((site.name,), site.waited)
            for kind, count in list(site.moves.items()):
                moves.add_metric((site.name, kind), count)
        yield from (batches, nbytes, waited, moves)
        yield GaugeMetricFamily("splitter_workers", "Workers alive.", tally.workers_alive())


class OfWorker:
    """Collector of a worker's counts."""

    def __init__(self, status: Callable[[], WorkerStatus]) -> None:
        """`status` is called in the thread of a request."""
        self._status = status

    def collect(self) -> Iterable[Metric]:
        """As prometheus-client asks for them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now = self._status()
        yield GaugeMetricFamily("splitter_worker_sessions", "Trainers connected.", len(now.sessions))
        yield GaugeMetricFamily("splitter_worker_streams", "Stream processes.", sum(len(one.streams) for one in now.sessions))
        yield CounterMetricFamily("splitter_worker_batches", "Batches sent, those of streams that have ended included.", now.batches)
        yield CounterMetricFamily("splitter_worker_bytes", "Bytes sent, those of streams that have ended included.", now.nbytes)
        yield GaugeMetricFamily("splitter_worker_queue_batches", "Batches asked for and not sent yet.", now.queue)
        yield GaugeMetricFamily("splitter_worker_resident_bytes", "Resident memory of all processes of the worker.", now.resident)
        yield CounterMetricFamily("splitter_worker_cpu_seconds", "CPU time of all processes of the worker that live.", now.cpu)


def serve(collector: Any, host: str, port: int) -> int:
    """Serve a collector's metrics in a thread of its own; returns the port. OSError when the address can't be had, ImportError."""
    from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    ProcessCollector(registry=registry)
    server, _ = start_http_server(port, host, registry)
    holder = weakref.ref(server)

    def let_go() -> None:
        """A forked child would keep the port."""
        found = holder()
        if found is not None:
            found.socket.close()

    os.register_at_fork(after_in_child=let_go)
    return int(server.server_port)


def start_on_worker(place: tuple[str, int], status: Callable[[], WorkerStatus]) -> str:
    """Serve a worker's metrics at an address(); returns their URL. MetricsError."""
    host, port = place
    try:
        return _url(host, serve(OfWorker(status), host, port))
    except ImportError:
        raise MetricsError(MISSING) from None
    except (OSError, OverflowError) as error:
        raise MetricsError(f"can't listen on {host}:{port}: {getattr(error, 'strerror', None) or error}") from None


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


def start_on_trainer(environment: Mapping[str, str]) -> None:
    """Serve the trainer's metrics, on the port after SPLITTER_METRICS for the second local rank and so on.

    ConfigError for something that is no port, or without prometheus-client. A port that is taken gives a warning: the training goes on.
    """
    text = environment.get("SPLITTER_METRICS", "")
    found = address(text)
    if found is None:
        raise ConfigError.of("R601", what=f"SPLITTER_METRICS takes PORT or HOST:PORT, not {text!r}")
    host, port = found
    rank = environment.get("LOCAL_RANK", "0")
    if port and rank.isdigit():
        port += int(rank)
    try:
        port = serve(OfTrainer(), host, port)
    except ImportError:
        raise ConfigError.of("R601", what=f"SPLITTER_METRICS {MISSING}") from None
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        tell(logging.WARNING, f"SPLITTER_METRICS: can't listen on {host}:{port}: {why}; there will be no metrics")
        return
    if not found[1]:
        tell(logging.INFO, f"metrics on {_url(host, port)}")
