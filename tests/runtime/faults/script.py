"""Loaders of every kind, one after another: `train.py [--pause KIND:EPOCH:STEP ...] KIND...`.

One line for each batch: its bits, the states of all generators, the loss of a small model. Where it is told to pause it says so,
and goes on when it reads a line, so that a fault hits at a known place.
"""

import argparse
import hashlib
import random
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

parser = argparse.ArgumentParser()
parser.add_argument("kinds", nargs="+")
parser.add_argument("--pause", action="append", default=[])
args = parser.parse_args()


class Noise(Dataset):
    """Draws from every generator for every sample, and keeps nothing."""

    def __init__(self, rows):
        self.rows = torch.rand(rows, 4)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        x = self.rows[index] + torch.randn(4) * 0.1 + random.random() + float(np.random.rand())
        return x, index % 3


class Counted(Dataset):
    """What a process has made before changes what it makes."""

    def __init__(self, rows):
        self.rows = torch.rand(rows, 4)
        self.made = 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.made += 1
        return self.rows[index] * (1 + self.made / 100), (index + self.made) % 3


class CountedNoise(Dataset):
    """The same, and it draws."""

    def __init__(self, rows):
        self.rows = torch.rand(rows, 4)
        self.made = 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.made += 1
        return self.rows[index] * (1 + self.made / 100) + torch.randn(4) * 0.1, (index + self.made) % 3


class Shards(IterableDataset):
    """Every process reads its own files, which are not of the same length."""

    def __init__(self, sizes):
        self.sizes = sizes

    def __iter__(self):
        info = get_worker_info()
        mine = self.sizes[info.id :: info.num_workers]
        for size in mine:
            for number in range(size):
                yield torch.full((4,), float(number)) / size + torch.rand(4) + random.random(), (size + number) % 3


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
            yield torch.arange(4.0) / value + torch.rand(4), value % 3
        self.place = 0

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class Plain(Dataset):
    """Draws nothing and keeps nothing."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        return torch.arange(index, index + 4).float() / self.rows, index % 3


class Wide(Dataset):
    """Draws, keeps nothing, and makes a MiB of each sample."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        return torch.rand(1) + torch.arange(index, index + (1 << 18)).float() / self.rows, index % 3


class Told(Dataset):
    """The loop tells it the epoch, and it says so."""

    def __init__(self, rows):
        print("told: made")
        self.rows = torch.rand(rows, 4)
        self.epoch = -1
        self.shift = 0.0

    def set_epoch(self, epoch):
        self.epoch = epoch
        self.shift += random.random()
        print(f"told: epoch {epoch}, shifted by {self.shift.hex()}")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index] + self.shift + torch.rand(4), (index + self.epoch) % 3


def digest(*parts):
    seen = hashlib.sha256()
    for part in parts:
        seen.update(part)
    return seen.hexdigest()[:24]


def generators():
    return digest(torch.get_rng_state().numpy().tobytes(), repr(random.getstate()).encode(), repr(np.random.get_state()).encode())


def pause(place):
    if place in args.pause:
        print(f"pause {place}", flush=True)
        sys.stdin.readline()


class Learner:
    """A model that is trained on the first columns of a batch."""

    def __init__(self, kind):
        self.kind = kind
        self.model = nn.Linear(4, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def run(self, epoch, loader):
        total = 0.0
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(self.model(x[:, :4]), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            place = f"{self.kind}:{epoch}:{step}"
            bits = digest(x.numpy().tobytes(), y.numpy().tobytes())
            print(f"{place} {tuple(x.shape)} {bits} {generators()} {loss.item().hex()}", flush=True)
            pause(place)
        print(f"{self.kind}:{epoch} loss {total.hex()}", flush=True)


def train(kind, loader, epochs=2):
    learner = Learner(kind)
    for epoch in range(epochs):
        learner.run(epoch, loader)


def start(kind):
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)


def noise():
    train("noise", DataLoader(Noise(96), batch_size=4, shuffle=True, num_workers=2))


def counted():
    train("counted", DataLoader(CountedNoise(96), batch_size=4, shuffle=True, num_workers=2))


def shards():
    train("shards", DataLoader(Shards([20, 13, 31, 9, 17, 28]), batch_size=4, num_workers=2))


def marked():
    train("marked", DataLoader(Marked(45), batch_size=4, num_workers=2))


def lasting():
    train("lasting", DataLoader(Noise(64), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True), epochs=3)


def lasting_counted():
    loader = DataLoader(CountedNoise(64), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True)
    train("lasting_counted", loader, epochs=3)


def pure():
    train("pure", DataLoader(Plain(96), batch_size=4, shuffle=True, num_workers=2))


def large():
    train("large", DataLoader(Wide(48), batch_size=4, num_workers=2))


def inline():
    train("inline", DataLoader(Plain(96), batch_size=4, shuffle=True))


def inline_noise():
    train("inline_noise", DataLoader(Noise(96), batch_size=4, shuffle=True))


def inline_counted():
    train("inline_counted", DataLoader(Counted(96), batch_size=4, shuffle=True))


def told():
    dataset = Told(64)
    loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2)
    learner = Learner("told")
    for epoch in range(3):
        dataset.set_epoch(epoch)
        learner.run(epoch, loader)


def sent():
    dataset = Told(64)
    announce = dataset.set_epoch
    loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2)
    learner = Learner("sent")
    for epoch in range(3):
        announce(epoch)
        learner.run(epoch, loader)


RUNS = {
    "noise": noise,
    "counted": counted,
    "shards": shards,
    "marked": marked,
    "lasting": lasting,
    "lasting_counted": lasting_counted,
    "pure": pure,
    "large": large,
    "inline": inline,
    "inline_noise": inline_noise,
    "inline_counted": inline_counted,
    "told": told,
    "sent": sent,
}

for kind in args.kinds:
    print(f"start {kind}", flush=True)
    start(kind)
    RUNS[kind]()
    print(f"{kind} end {generators()}", flush=True)
