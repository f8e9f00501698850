"""Worker of train.py: makes the batches of the loaders `train` and `test`, on a CPU host.

    python train_worker.py --listen 0.0.0.0:7077 --token-file token

Written by splitter 0.1.0 from train.py (sha256:874482cb).
Change train.py and run `splitter transform train.py` again.
"""
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, random_split

import splitter_runtime

# Pairs of columns whose values are crossed.
CROSSES = ((0, 1), (0, 3), (1, 2))


def mix(key, seed):
    """Spread integers over 31 bits."""
    key = (key ^ (key >> 15)) * 2246822519 + seed
    return (key ^ (key >> 13)) % 2147483647


class Clicks(Dataset):
    def __init__(self, rows, seed):
        generator = np.random.default_rng(seed)
        self.ids = generator.integers(0, 1 << 40, (rows, 4))
        self.age = generator.integers(12, 90, rows)
        self.prices = generator.random((rows, 3), dtype=np.float32)
        self.clicked = generator.random(rows) < 0.3

    def __len__(self):
        return len(self.age)

    def __getitem__(self, i):
        ids = torch.from_numpy(np.append(self.ids[i], self.age[i]))
        return ids, torch.from_numpy(self.prices[i]).log1p(), np.float32(self.clicked[i])


@splitter_runtime.dataset("train", stateless=True, draws=())
def train(args):  # train.py:88
    return Clicks(args.rows, seed=3)


@splitter_runtime.loader("train", stateless=True, draws=())
def train_loader(args):  # train.py:45-51
    edges = torch.tensor([18, 25, 35, 50, 65])
    buckets = args.buckets

    def head(batch):
        features, prices, clicked = batch
        ids, age = features[:, :4], features[:, 4].contiguous()

        # Every column has a seed of its own, so that equal values of two columns meet in no bucket but by chance.
        hashed = [mix(ids[:, column], column + 1) for column in range(4)]
        crossed = [mix(hashed[a] * 31 + hashed[b], 101 + a * 7 + b) for a, b in CROSSES]
        band = mix(torch.bucketize(age, edges), 997)
        rows = torch.stack([*hashed, *crossed, band], 1) % buckets
        return [rows, prices, clicked]

    return splitter_runtime.Loader(head=head)


@splitter_runtime.loader("test", stateless=True, draws=())
def test_loader(args):  # train.py:45-51
    edges = torch.tensor([18, 25, 35, 50, 65])
    buckets = args.buckets

    def head(batch):
        features, prices, clicked = batch
        ids, age = features[:, :4], features[:, 4].contiguous()

        # Every column has a seed of its own, so that equal values of two columns meet in no bucket but by chance.
        hashed = [mix(ids[:, column], column + 1) for column in range(4)]
        crossed = [mix(hashed[a] * 31 + hashed[b], 101 + a * 7 + b) for a, b in CROSSES]
        band = mix(torch.bucketize(age, edges), 997)
        rows = torch.stack([*hashed, *crossed, band], 1) % buckets
        return [rows, prices, clicked]

    return splitter_runtime.Loader(head=head)


if __name__ == "__main__":
    splitter_runtime.serve(
        digest="sha256:874482cbfb7c318d",
        script="train.py",
        lines=(
            (8, 5, 2), (10, 8, 1), (14, 10, 2), (18, 14, 4), (24, 20, 14), (42, 88, 1), (47, 40, 1), (52, 45, 7),
            (66, 40, 1), (71, 45, 7),
        ),
    )
