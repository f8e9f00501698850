"""Trains small models on photographs and on made-up rows, with loaders of many kinds, one or two at a time.

    python train.py PHOTOS --epochs N        or --until FILE: epochs until the file is there

One line for each batch: which one, its bits, the states of all generators, the loss.
"""

import argparse
import hashlib
import itertools
import os
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torchvision import datasets, transforms

parser = argparse.ArgumentParser()
parser.add_argument("photos")
parser.add_argument("--epochs", type=int, default=None)
parser.add_argument("--until", default="")
args = parser.parse_args()


class Counted(Dataset):
    """What a process has made before changes what it makes, and it draws."""

    def __init__(self, rows):
        self.rows = torch.rand(rows, 8)
        self.made = 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.made += 1
        x = self.rows[index] * (1 + (self.made % 1000) / 1000) + torch.randn(8) * 0.1
        return x, (index + self.made) % 3


class Told(Dataset):
    """The loop tells it the epoch; it draws from all generators."""

    def __init__(self, rows):
        self.rows = torch.rand(rows, 8)
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        x = self.rows[index] + random.random() + float(np.random.rand()) + torch.rand(8)
        return x, (index + self.epoch) % 3


class Noise(Dataset):
    """Draws, and keeps nothing."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        return torch.randn(8) + index / self.rows, index % 3


class Shards(IterableDataset):
    """Every process reads its own files, which are not of the same length."""

    def __init__(self, sizes):
        self.sizes = sizes

    def __iter__(self):
        info = get_worker_info()
        for size in self.sizes[info.id :: info.num_workers]:
            for number in range(size):
                yield torch.arange(8.0) * number / size + torch.rand(8) + random.random(), (size + number) % 3


class Marked(IterableDataset):
    """Knows how far it is, and can go on from there."""

    def __init__(self, count):
        self.count = count
        self.place = 0

    def __iter__(self):
        info = get_worker_info()
        while self.place < self.count:
            self.place += 1
            value = self.place * info.num_workers + info.id
            yield torch.arange(8.0) / value + torch.rand(8), value % 3
        self.place = 0

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class Squares(Dataset):
    """Draws nothing and keeps nothing."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        return torch.arange(index, index + 8).float().square() / self.rows**2, index % 3


def digest(*parts):
    seen = hashlib.sha256()
    for part in parts:
        seen.update(part)
    return seen.hexdigest()[:24]


def generators():
    return digest(torch.get_rng_state().numpy().tobytes(), repr(random.getstate()).encode(), repr(np.random.get_state()).encode())


class Learner:
    """A model that is trained on what it is given, one batch after another."""

    def __init__(self, name, model):
        self.name = name
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        self.epoch = 0
        self.step = 0

    def start(self, epoch):
        self.epoch = epoch
        self.step = 0

    def learn(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.show(x, y, loss)

    def look(self, x, y):
        with torch.no_grad():
            loss = nn.functional.cross_entropy(self.model(x), y)
        self.show(x, y, loss)

    def show(self, x, y, loss):
        bits = digest(x.numpy().tobytes(), y.numpy().tobytes())
        print(f"{self.name}:{self.epoch}:{self.step} {tuple(x.shape)} {bits} {generators()} {loss.item().hex()}", flush=True)
        self.step += 1


def rows_learner(name):
    return Learner(name, nn.Linear(8, 3))


random.seed(11)
np.random.seed(11)
torch.manual_seed(11)

train_photos = datasets.ImageFolder(
    os.path.join(args.photos, "train"),
    transforms.Compose([transforms.RandomResizedCrop(128), transforms.RandomHorizontalFlip(), transforms.ToTensor()]),
)
val_photos = datasets.ImageFolder(
    os.path.join(args.photos, "val"), transforms.Compose([transforms.Resize(64), transforms.CenterCrop(64), transforms.ToTensor()])
)
told_rows = Told(96)

photo_loader = DataLoader(train_photos, batch_size=16, shuffle=True, num_workers=2)
val_loader = DataLoader(val_photos, batch_size=8, num_workers=2, persistent_workers=True)
counted_loader = DataLoader(Counted(64), batch_size=4, shuffle=True, num_workers=2)
lasting_loader = DataLoader(Counted(32), batch_size=4, shuffle=True, num_workers=1, persistent_workers=True)
told_loader = DataLoader(told_rows, batch_size=6, shuffle=True, num_workers=2)
shards_loader = DataLoader(Shards([20, 13, 31, 9, 17, 28]), batch_size=4, num_workers=2)
marked_loader = DataLoader(Marked(40), batch_size=4, num_workers=2)
squares_loader = DataLoader(Squares(128), batch_size=4, shuffle=True, num_workers=2)
inline_loader = DataLoader(Squares(64), batch_size=4, shuffle=True)
ahead_loader = DataLoader(Noise(64), batch_size=4, shuffle=True)

photo = Learner("photo", nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(3 * 8 * 8, len(train_photos.classes))))
val = Learner("val", nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(3 * 8 * 8, len(train_photos.classes))))
counted, lasting, told = rows_learner("counted"), rows_learner("lasting"), rows_learner("told")
shards, marked, squares = rows_learner("shards"), rows_learner("marked"), rows_learner("squares")
inline, ahead = rows_learner("inline"), rows_learner("ahead")

for epoch in itertools.count():
    if epoch == args.epochs or os.path.exists(args.until):
        break
    for learner in (photo, val, counted, lasting, told, shards, marked, squares, inline, ahead):
        learner.start(epoch)
    for (images, labels), (x, y) in zip(photo_loader, squares_loader):  # noqa: B905
        photo.learn(images, labels)
        squares.learn(x, y)
    for x, y in counted_loader:
        counted.learn(x, y)
    for images, labels in val_loader:
        val.look(images, labels)
    told_rows.set_epoch(epoch)
    for (x, y), (x2, y2) in zip(told_loader, lasting_loader):  # noqa: B905
        told.learn(x, y)
        lasting.learn(x2, y2)
    for x, y in shards_loader:
        shards.learn(x, y)
    for x, y in inline_loader:
        inline.learn(x, y)
    for x, y in ahead_loader:
        ahead.learn(x, y)
    for x, y in marked_loader:
        marked.learn(x, y)
    print(f"epoch {epoch} {generators()}", flush=True)
