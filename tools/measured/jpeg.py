"""Reads photographs, cropped and flipped at random and normalised, and prints how fast they came."""

import argparse
import json
import os
import time

import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--epochs", type=int, default=2)


def main() -> None:
    args = parser.parse_args()
    torch.manual_seed(1)
    dataset = datasets.ImageFolder(
        os.path.join(args.data, "train"),
        transforms.Compose(
            [
                transforms.RandomResizedCrop(224),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
            ]
        ),
    )
    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=args.workers, drop_last=True)

    first = 0.0
    for epoch in range(args.epochs + 1):
        if epoch == 1:  # the one before warms up
            batches, size, start, cpu = 0, 0, time.perf_counter(), time.process_time()
        for images, _ in loader:
            first = first or time.monotonic()
            if epoch > 0:
                batches += 1
                size += images.nbytes
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(json.dumps({"first": first, "batches": batches, "rows": 64 * batches, "bytes": size, "seconds": seconds, "cpu": cpu}))


if __name__ == "__main__":
    main()
