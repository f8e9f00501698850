"""The head of the loop on the worker: batches are what the loop would have made of them."""

from __future__ import annotations

import pytest
from pairs import Pair, assert_same
from scratch import Scratch

MOVED = """
class Rows(Dataset):
    def __len__(self):
        return 30

    def __getitem__(self, i):
        return torch.arange(4, dtype=torch.uint8) + i, i % 3


def widen(samples):
    images, labels = torch.utils.data.default_collate(samples)
    return [images.repeat(1, 2), labels]
"""
BUILDERS = """
@splitter_runtime.dataset("rows", stateless=True, draws=())
def rows():
    return Rows()


@splitter_runtime.loader("rows", stateless=True, draws=())
def rows_loader(scale):
    def head(batch):
        images, labels = batch
        images = images.float() / scale
        return [images, labels]

    return splitter_runtime.Loader(COLLATE head=head)
"""


@pytest.mark.parametrize("collate", ["", "collate_fn=widen,"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_head_of_a_loop(scratch: Scratch, workers: int, collate: str) -> None:
    body = f"""
SCALE = 255
for images, labels in DataLoader(Rows(), {collate} batch_size=4, num_workers={workers}):
    images = images.float() / SCALE
    see([images, labels])
show()
"""
    swaps = [
        ("Rows(),", 'splitter_runtime.RemoteDataset("rows"), env={"scale": SCALE},'),
        ("    images = images.float() / SCALE\n", ""),
        *([("collate_fn=widen,", "collate_fn=print,")] if collate else []),  # which is there, and not called
    ]
    assert_same(scratch, Pair(MOVED, BUILDERS.replace("COLLATE", collate), body, tuple(swaps)))
