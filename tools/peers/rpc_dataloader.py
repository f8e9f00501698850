"""RPCDataloader: a dataset on two daemons of its own, read by its loader."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from peer_datasets import make
from peer_work import BATCH, parse, report
from rpcdataloader import RPCDataloader, RPCDataset

START_SECONDS = 60.0


def free_port() -> int:
    """A port that is free now. The daemon doesn't say which one it took, so it can't be given port 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until the daemon accepts connections. It says nothing when it does."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("a daemon of rpcdataloader didn't start")
        time.sleep(0.05)


@contextlib.contextmanager
def daemons(count: int) -> Iterator[list[str]]:
    """Addresses of `count` daemons, which end with the block."""
    ports = [free_port() for _ in range(count)]
    argv = [sys.executable, "-m", "rpcdataloader.launch", "--host", "127.0.0.1", "--port"]
    # Daemons unpickle the dataset's class by its module's name; -m finds modules in the current folder.
    processes = [subprocess.Popen([*argv, str(port)], cwd=Path(__file__).parent, stderr=subprocess.DEVNULL) for port in ports]
    try:
        for process, port in zip(processes, ports, strict=True):
            wait_for(process, port)
        yield [f"127.0.0.1:{port}" for port in ports]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    args = parse()
    if args.kind == "jpeg":
        args.data = str(Path(args.data).resolve())
    start = time.monotonic()
    with daemons(args.workers) as addresses:
        ready = time.monotonic() - start
        dataset = RPCDataset(addresses, make, args)
        loader = RPCDataloader(dataset, batch_size=BATCH, shuffle=True, drop_last=True)
        report(lambda: loader, lambda batch: batch[0], args.epochs, ready)
    sys.stdout.flush()
    os._exit(0)  # the dataset's end would call the daemons, and try for minutes when they are gone


if __name__ == "__main__":
    main()
