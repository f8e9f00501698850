"""A small training script; prints when it had its first batch."""

import argparse
import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=512)
parser.add_argument("--workers", type=int, default=2)


def main() -> None:
    args = parser.parse_args()
    torch.manual_seed(1)
    dataset = TensorDataset(torch.randn(args.samples, 20), torch.randint(0, 2, (args.samples,)))
    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=args.workers)
    model = nn.Linear(20, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    first = 0.0
    for samples, labels in loader:
        first = first or time.monotonic()
        optimizer.zero_grad()
        loss: torch.Tensor = nn.functional.cross_entropy(model(samples), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    print(json.dumps({"first": first}))


if __name__ == "__main__":
    main()
