"""Reads batches of samples that lie in memory, and prints how fast they came."""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--kept", type=int, default=128, help="different samples in memory")
parser.add_argument("--length", type=int, default=3840, help="samples in an epoch")
parser.add_argument("--shape", type=int, nargs="+", default=[3, 224, 224])
parser.add_argument("--dtype", choices=["float32", "uint8"], default="float32")
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--epochs", type=int, default=2)


class Samples(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, kept: int, shape: list[int], dtype: str, length: int) -> None:
        if dtype == "uint8":
            self.samples = torch.randint(0, 256, (kept, *shape), dtype=torch.uint8)
        else:
            self.samples = torch.rand(kept, *shape)
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.samples[index % len(self.samples)], index


def main() -> None:
    args = parser.parse_args()
    torch.manual_seed(1)
    dataset = Samples(args.kept, args.shape, args.dtype, args.length)
    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=args.workers, drop_last=True)

    first = 0.0
    for epoch in range(args.epochs + 1):
        if epoch == 1:  # the one before warms up
            batches, size, start, cpu = 0, 0, time.perf_counter(), time.process_time()
        for samples, _ in loader:
            first = first or time.monotonic()
            if epoch > 0:
                batches += 1
                size += samples.nbytes
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(json.dumps({"first": first, "batches": batches, "rows": 64 * batches, "bytes": size, "seconds": seconds, "cpu": cpu}))


if __name__ == "__main__":
    main()
