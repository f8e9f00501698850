"""What the peers' programs share: the datasets of tools/measured, as functions of an index, and the loop that reads batches.

Printed numbers are as in tools/measured; `ready` is how long the program took to start its servers, which the split has running beforehand.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

BATCH = 64


def parse() -> argparse.Namespace:
    """The arguments that the benchmark gives: those of memory.py after `memory`, those of jpeg.py after `jpeg`."""
    parser = argparse.ArgumentParser()
    kinds = parser.add_subparsers(dest="kind", required=True)
    memory, jpeg = kinds.add_parser("memory"), kinds.add_parser("jpeg")
    memory.add_argument("--kept", type=int, default=128)
    memory.add_argument("--length", type=int, default=3840)
    memory.add_argument("--shape", type=int, nargs="+", default=[3, 224, 224])
    memory.add_argument("--dtype", choices=["float32"], default="float32")
    jpeg.add_argument("data")
    for kind in (memory, jpeg):
        kind.add_argument("--workers", type=int, default=2)
        kind.add_argument("--epochs", type=int, default=2)
    return parser.parse_args()


def report(epoch: Callable[[], Iterable[Any]], images_of: Callable[[Any], Any], epochs: int, ready: float) -> None:
    """Read one epoch to warm up and then `epochs` of them, and print the numbers.

    `images_of` gives a batch's images, which have nbytes and a length.
    """
    first = 0.0
    batches = rows = size = 0
    start = cpu = 0.0
    for number in range(epochs + 1):
        if number == 1:
            start, cpu = time.perf_counter(), time.process_time()
        for batch in epoch():
            first = first or time.monotonic()
            if number > 0:
                images = images_of(batch)
                batches += 1
                rows += len(images)
                size += images.nbytes
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    numbers = {"first": first, "ready": ready, "batches": batches, "rows": rows, "bytes": size, "seconds": seconds, "cpu": cpu}
    print(json.dumps(numbers))
