"""Worker of train.py: makes the batches of one loader, `loader`, on a CPU host.

    python train_worker.py --listen 0.0.0.0:7077 --token-file token

Written by splitter 0.1.0 from train.py (sha256:b68a9d0e).
Change train.py and run `splitter transform train.py` again.
"""
import torch
from torch.utils.data import DataLoader, Dataset

import splitter_runtime


class Images(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        pixels = torch.randint(0, 256, (3, 8, 8), generator=generator, dtype=torch.uint8)
        return {"id": i, "pixels": pixels, "label": i % 10}


@splitter_runtime.dataset("loader", stateless=True, draws=())
def loader():  # train.py:27
    return Images()


@splitter_runtime.loader("loader", stateless=True, draws=())
def loader_loader(args):  # net.py:20-22
    size = args.patch

    def head(batch):
        pixels = batch["pixels"]
        count = pixels.shape[-1] // size
        tiles = pixels.reshape(-1, 3, count, size, count, size).permute(0, 2, 4, 3, 5, 1)  # side by side
        patches = tiles.flatten(3).flatten(1, 2)
        return {**batch, "pixels": patches}

    return splitter_runtime.Loader(head=head)


if __name__ == "__main__":
    splitter_runtime.serve(
        digest="sha256:b68a9d0e5c028d69",
        script="train.py",
        lines=((8, 5, 1), (9, 7, 1), (14, 10, 8), (26, 27, 1), (35, 20, 3, "net.py")),
    )
