"""A script with several loaders, for the tests of `trace`."""

import random

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torchvision.datasets import FakeData
from torchvision.transforms import functional as TF
from torchvision.transforms import v2


class Photos(Dataset):
    """Statements and a v2 Compose."""

    def __init__(self, transform):
        self.transform = transform
        self.arrays = [np.random.RandomState(i).randint(0, 255, (40 + i, 50, 3), np.uint8) for i in range(40)]

    def __len__(self):
        return 40

    def __getitem__(self, i):
        image = Image.fromarray(self.arrays[i])
        if i % 2:
            image = image.convert("L").convert("RGB")
        image = self.transform(image)
        return image, torch.tensor(i % 7)


class Vectors(Dataset):
    def __init__(self):
        self.data = torch.arange(4000, dtype=torch.float32).reshape(40, 100)
        self.mean = self.data.mean(0)
        self.tf = nn.Sequential(nn.Flatten(0), nn.ReLU())

    def __len__(self):
        return 40

    def __getitem__(self, i):
        x = self.data[i]
        x = (x - self.mean) / 3
        x = self.tf(x)
        scale = x.max().item()
        x = x / (scale + 1)
        label = i % 3
        x = x + torch.randn(x.shape)
        return {"x": x, "label": label}


def jitter(x):
    x = x * 2
    if random.random() < 0.5:
        x = -x
    return x + torch.randn(x.shape) * 0.1


class Words(Dataset):
    """A transform that is a function, a sample that is a dictionary, a collate function."""

    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 9

    def __getitem__(self, i):
        text = "word " * (i + 1)
        tokens = [ord(c) for c in text]
        x = torch.zeros(100)
        x[: len(tokens)] = torch.tensor(tokens)
        x = x - torch.tensor([0.5])
        x = self.transform(x)
        sample = {"x": x, "length": 0}
        sample["length"] = len(tokens)
        return sample


def collate(batch):
    lengths = torch.tensor([one["length"] for one in batch])
    images = torch.stack([one["x"] for one in batch]).half()
    return images, lengths


def scaled(image):
    x = TF.pil_to_tensor(image)
    x = x.float()
    return x / 255


class Stream(IterableDataset):
    def __iter__(self):
        items = range(30)
        for n in items:
            x = torch.full((10,), float(n))
            yield x * 2


def main():
    transform = v2.Compose(
        [
            v2.RandomCrop(32),
            v2.ToImage(),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * 3, [0.2] * 3),
        ]
    )
    photos = DataLoader(Photos(transform), batch_size=4, num_workers=1)
    vectors = DataLoader(Vectors(), batch_size=4, num_workers=1)
    words = DataLoader(Words(jitter), batch_size=4, num_workers=1, collate_fn=collate)
    folder = DataLoader(FakeData(20, (3, 24, 24), transform=scaled), batch_size=4, num_workers=1)
    stream = DataLoader(Stream(), batch_size=4, num_workers=1)
    for loader in (photos, vectors, words, folder, stream):
        for _ in loader:
            open("trained", "w").close()


if __name__ == "__main__":
    main()
