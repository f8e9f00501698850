"""tf.data service: a dispatcher and two workers, each a process.

The service runs no Python of the user's: a graph makes the same batches.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from peer_work import BATCH, parse, report


def serve(dispatcher: str) -> None:
    """Be a worker of `dispatcher`, or the dispatcher when it's empty; print the address, then wait for the end of standard input."""
    service = tf.data.experimental.service
    if dispatcher:
        config = service.WorkerConfig(dispatcher_address=dispatcher)
        server: Any = service.WorkerServer(config)
        print("ready", flush=True)
    else:
        server = service.DispatchServer()
        print(server.target.rpartition("/")[2], flush=True)
    sys.stdin.read()
    os._exit(0)  # stopping a server waits for its clients


@contextlib.contextmanager
def processes(workers: int) -> Iterator[str]:
    """The address of a dispatcher with `workers` workers, which end with the block."""
    running: list[subprocess.Popen[str]] = []

    def started(dispatcher: str) -> str:
        argv = [sys.executable, __file__, "serve", dispatcher]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        running.append(process)
        assert process.stdout is not None
        return process.stdout.readline().strip() or sys.exit("a server of tf.data service didn't start")

    try:
        address = started("")
        for _ in range(workers):
            started(address)
        yield address
    finally:
        for process in running:
            process.kill()
            process.wait()


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
        return
    args = parse()
    start = time.monotonic()
    with processes(args.workers) as address:
        ready = time.monotonic() - start
        samples = tf.random.uniform([args.kept, *args.shape])
        # Shuffled indices reach each worker in its own order; which sample is copied makes no difference to the work.
        # Whole batches are gathered: sample by sample the service is slower.
        indices = tf.data.Dataset.range(args.length).shuffle(args.length).batch(BATCH, drop_remainder=True)
        dataset = indices.map(lambda batch: (tf.gather(samples, batch % args.kept), batch))
        distributed = dataset.apply(
            tf.data.experimental.service.distribute(
                processing_mode=tf.data.experimental.service.ShardingPolicy.DYNAMIC,
                service=f"grpc://{address}",
                compression=None,
            )
        ).prefetch(2)
        report(lambda: distributed.as_numpy_iterator(), lambda batch: batch[0], args.epochs, ready)


if __name__ == "__main__":
    main()
