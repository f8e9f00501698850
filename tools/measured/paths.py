"""Reads a dataset that holds a long list of paths; prints when epochs start, and how soon each gives its first batch."""

import argparse
import json
import os
import statistics
import time

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("root")
parser.add_argument("--paths", type=int, default=1_000_000)
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--batches", type=int, default=0, help="end epochs after that many (default: when every path was read)")
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--epochs", type=int, default=3)


class Files(Dataset[tuple[int, int]]):
    def __init__(self, root: str, count: int) -> None:
        kinds = [f"n{number:08d}" for number in range(1000)]  # names as in ImageNet
        self.paths = [os.path.join(root, "train", kinds[number % 1000], f"{kinds[number % 1000]}_{number}.JPEG") for number in range(count)]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[int, int]:
        return len(self.paths[index]), index


def main() -> None:
    args = parser.parse_args()
    torch.manual_seed(1)
    dataset = Files(args.root, args.paths)
    loader = DataLoader(dataset, batch_size=args.batch, shuffle=True, num_workers=args.workers)

    later = []
    for epoch in range(1, args.epochs + 1):
        print(f"epoch {epoch}", flush=True)
        start, read = time.perf_counter(), 0
        for _ in loader:
            if read == 0 and epoch > 1:
                later.append(time.perf_counter() - start)
            read += 1
            if read == args.batches:
                break
    print(json.dumps({"later": statistics.median(later)}))


if __name__ == "__main__":
    main()
