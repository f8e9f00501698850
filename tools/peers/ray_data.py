"""Ray Data: batches made by tasks on as many processes as there are workers, read by iter_torch_batches."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # says nothing to anybody

import numpy as np
import ray
from peer_datasets import kept, make
from peer_work import BATCH, parse, report


def fetch(batch: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """One batch from its indices."""
    dataset = kept(json.dumps(vars(args)))
    samples = [dataset[int(index)] for index in batch["id"]]
    return {"image": np.stack([image.numpy() for image, _ in samples]), "label": np.array([label for _, label in samples])}


def run(args: argparse.Namespace, folder: str) -> None:
    """Start Ray, its files in `folder`, read and report."""
    start = time.monotonic()
    ray.init(num_cpus=args.workers, include_dashboard=False, log_to_driver=False, logging_level="error", _temp_dir=folder)
    ready = time.monotonic() - start
    ray.data.DataContext.get_current().enable_progress_bars = False
    length = args.length if args.kind == "memory" else len(make(args))
    length -= length % BATCH
    # Tasks rather than actors, which would be started anew, and import torch, in every epoch.
    dataset = ray.data.range(length, override_num_blocks=length // BATCH).map_batches(fetch, fn_args=(args,), batch_size=BATCH)
    report(lambda: dataset.iter_torch_batches(batch_size=BATCH, prefetch_batches=2), lambda batch: batch["image"], args.epochs, ready)
    ray.shutdown()


def main() -> None:
    args = parse()
    if args.kind == "jpeg":
        args.data = str(Path(args.data).resolve())
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:  # else its logs stay
        run(args, folder)


if __name__ == "__main__":
    main()
