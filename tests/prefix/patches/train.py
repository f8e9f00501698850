"""Patches of images, from batches that are dicts."""

import argparse

import torch
from net import build
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        pixels = torch.randint(0, 256, (3, 8, 8), generator=generator, dtype=torch.uint8)
        return {"id": i, "pixels": pixels, "label": i % 10}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--patch", type=int, default=4)
    parser.add_argument("--width", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cpu")
    loader = DataLoader(Images(), batch_size=8, shuffle=True, num_workers=2)
    model = build(args)
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        batch = {name: value.to(device) for name, value in batch.items()}
        loss = model(pixels=batch["pixels"], labels=batch["label"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(batch["id"].tolist(), repr(loss.item()))


main()
