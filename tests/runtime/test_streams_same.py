"""num_workers >= 1: the split gives what the script gives, bit for bit, generators included."""

from __future__ import annotations

import pytest
from pairs import Pair, assert_same
from scratch import Scratch

NOISE = """
class Noise(Dataset):
    def __init__(self, n):
        self.n = n
        self.bias = torch.rand(3)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.randn(5) + i + self.bias.sum() + random.random() + np.random.rand(), i
"""

SHARDS = """
class Shards(IterableDataset):
    def __init__(self, sizes):
        self.sizes = sizes
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        info = get_worker_info()
        mine = self.sizes if info is None else self.sizes[info.id :: info.num_workers]
        for size in mine:
            for number in range(size):
                yield torch.tensor([size, number, self.passes]) + torch.rand(3)

    def __len__(self):
        return sum(self.sizes)
"""

SWAP_NOISE = ("Noise(21)", 'splitter_runtime.RemoteDataset("train", {"n": 21})')
BUILD_NOISE = """
@splitter_runtime.dataset("train")
def train(n):
    return Noise(n)
"""
BUILD_SHARDS = """
@splitter_runtime.dataset("train")
def train(sizes):
    return Shards(sizes)
"""
SWAP_SHARDS = ("Shards([7, 2, 5, 1, 4])", 'splitter_runtime.RemoteDataset("train", {"sizes": [7, 2, 5, 1, 4]})')

EPOCHS = """
for epoch in range(3):
    for batch in loader:
        see(batch)
show()
"""


@pytest.mark.parametrize(
    "keywords",
    [
        "shuffle=True, num_workers=1",
        "shuffle=True, num_workers=2",
        "num_workers=3, drop_last=True",
        "shuffle=True, num_workers=2, persistent_workers=True",
        "shuffle=True, num_workers=2, prefetch_factor=5, generator=torch.Generator().manual_seed(3)",
        "shuffle=True, num_workers=3, timeout=60, in_order=True",
    ],
)
def test_map_style(scratch: Scratch, keywords: str) -> None:
    body = f"dataset = Noise(21)\nloader = DataLoader(dataset, batch_size=4, {keywords})\nprint(len(loader), len(dataset))\n{EPOCHS}"
    assert_same(scratch, Pair(NOISE, BUILD_NOISE, body, (SWAP_NOISE,)))


@pytest.mark.parametrize(
    "keywords",
    [
        "batch_size=3, num_workers=2",
        "batch_size=3, num_workers=3, drop_last=True",
        "batch_size=3, num_workers=2, persistent_workers=True",
        "batch_size=None, num_workers=2",
        "batch_size=2, num_workers=7",
    ],
)
def test_iterable_style_with_uneven_shards(scratch: Scratch, keywords: str) -> None:
    body = f"loader = DataLoader(Shards([7, 2, 5, 1, 4]), {keywords})\n{EPOCHS}"
    assert_same(scratch, Pair(SHARDS, BUILD_SHARDS, body, (SWAP_SHARDS,)))


def test_functions_of_the_loader(scratch: Scratch) -> None:
    moved = (
        NOISE
        + """
def seed_worker(number):
    info = get_worker_info()
    np.random.seed(info.seed % 1000)
    info.dataset.bias += number


def make_collate(scale):
    def collate(samples):
        return {"x": torch.stack([x for x, _ in samples]) * scale, "ids": [i for _, i in samples], "draw": random.random()}

    return collate
"""
    )
    builders = (
        BUILD_NOISE
        + """
@splitter_runtime.loader("train")
def train_loader(scale):
    return splitter_runtime.Loader(collate_fn=make_collate(scale), worker_init_fn=seed_worker)
"""
    )
    body = f"""
loader = DataLoader(Noise(21), batch_size=4, num_workers=2, worker_init_fn=seed_worker, collate_fn=make_collate(3))
{EPOCHS}"""
    given = "worker_init_fn=seed_worker, collate_fn=make_collate(3)"
    there = 'worker_init_fn=print, collate_fn=print, env={"scale": 3}'
    assert_same(scratch, Pair(moved, builders, body, (SWAP_NOISE, (given, there))))


def test_sampler_and_batch_sampler(scratch: Scratch) -> None:
    body = """
dataset = Noise(21)
for loader in (
    DataLoader(dataset, batch_sampler=BatchSampler(SequentialSampler(dataset), 6, drop_last=True), num_workers=2),
    DataLoader(dataset, sampler=[3, 1, 4, 1, 5, 9, 2, 6], batch_size=3, num_workers=2),
    DataLoader(dataset, batch_size=None, num_workers=2),
    DataLoader(dataset, batch_size=None, sampler=SequentialSampler(dataset), num_workers=1),
):
    for batch in loader:
        see(batch)
show()
"""
    assert_same(scratch, Pair(NOISE, BUILD_NOISE, body, (SWAP_NOISE,)))


def test_wrappers_over_handles(scratch: Scratch) -> None:
    body = """
first, second = Noise(21), Noise(9)
train, rest = random_split(first, [15, 6])
for dataset in (train, rest, Subset(train, [4, 2, 0]), ConcatDataset([rest, second, Subset(first, range(3))]), first + second):
    for batch in DataLoader(dataset, batch_size=4, num_workers=2, shuffle=True):
        see(batch)
    see(dataset[1])
    see(len(dataset))
show()
"""
    swaps = (SWAP_NOISE, ("Noise(9)", 'splitter_runtime.RemoteDataset("train", {"n": 9})'))
    assert_same(scratch, Pair(NOISE, BUILD_NOISE, body, swaps))


def test_chain_over_handles(scratch: Scratch) -> None:
    body = """
for loader in (
    DataLoader(ChainDataset([Shards([7, 2, 5, 1, 4]), Shards([3])]), batch_size=4, num_workers=2),
    DataLoader(Shards([3]) + Shards([3]), batch_size=4, num_workers=1),
):
    for batch in loader:
        see(batch)
show()
"""
    swaps = (SWAP_SHARDS, ("Shards([3])", 'splitter_runtime.RemoteDataset("train", {"sizes": [3]})'))
    assert_same(scratch, Pair(SHARDS, BUILD_SHARDS, body, swaps))


def test_leaving_early_and_walking_two_at_once(scratch: Scratch) -> None:
    body = """
dataset = Noise(21)
loader = DataLoader(dataset, batch_size=2, shuffle=True, num_workers=2)
kept = DataLoader(dataset, batch_size=3, num_workers=2, persistent_workers=True)
for epoch in range(3):
    for step, batch in enumerate(loader):
        see(batch)
        if step == epoch:
            break
    for step, pair in enumerate(zip(loader, kept)):
        see(pair)
        if step == 4:
            break
iterator = iter(loader)
see(next(iterator))
other = iter(loader)
see([next(other), next(iterator), next(other)])
del iterator
see(list(other))
show()
"""
    assert_same(scratch, Pair(NOISE, BUILD_NOISE, body, (SWAP_NOISE,)))


def test_state_that_the_main_process_changes_between_epochs(scratch: Scratch) -> None:
    moved = '''
class Curriculum(Dataset):
    """Knows the epoch, and counts what was read from it, which streams do in copies of their own."""

    level = 0

    def __init__(self):
        self.epoch, self.read, self.words = 0, 0, ["a", "b"]

    def __len__(self):
        return 8 + self.epoch

    def set_epoch(self, epoch, *, extra=0):
        self.epoch = epoch + extra
        return self

    def __getitem__(self, i):
        self.read += 1
        return torch.tensor([i, self.epoch, self.read, self.level, len(self.words)])
'''
    builders = """
@splitter_runtime.dataset("train")
def train():
    return Curriculum()
"""
    body = """
dataset = Curriculum()
for keep in (False, True):
    for epoch in range(3):
        assert dataset.set_epoch(epoch, extra=1) is dataset
        dataset.level = 10 * epoch
        loader = DataLoader(dataset, batch_size=3, num_workers=2, persistent_workers=keep)
        for batch in loader:
            see(batch)
        dataset.words = dataset.words + ["c"]
        see([dataset.epoch, dataset.read, dataset.words, len(dataset), dataset[2], len(loader)])
persistent = DataLoader(dataset, batch_size=3, num_workers=2, persistent_workers=True)
for epoch in range(3):
    dataset.level = epoch
    for batch in persistent:
        see(batch)
show()
"""
    assert_same(scratch, Pair(moved, builders, body, (("Curriculum()", 'splitter_runtime.RemoteDataset("train")'),)))


PROFILED = """
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    for batch in loader:
        see(batch)
print([event.count for event in profile.key_averages() if "DataLoader" in event.key])
show()
"""


def test_a_profiler_sees_each_batch(scratch: Scratch) -> None:
    body = f"loader = DataLoader(Noise(21), batch_size=4, num_workers=1)\n{PROFILED}"
    assert_same(scratch, Pair(NOISE, BUILD_NOISE, body, (SWAP_NOISE,)))


def test_a_function_around_the_iterators_sees_each_batch(scratch: Scratch) -> None:
    """As libraries and `splitter verify` put one."""
    before = """
from torch.utils.data.dataloader import _BaseDataLoaderIter
advance, seen = _BaseDataLoaderIter.__next__, []
def watched(self):
    seen.append(1)
    return advance(self)
_BaseDataLoaderIter.__next__ = watched
"""
    body = before + "for batch in DataLoader(Noise(21), batch_size=4, num_workers=2):\n    see(batch)\nprint(len(seen))\nshow()\n"
    assert assert_same(scratch, Pair(NOISE, BUILD_NOISE, body, (SWAP_NOISE,))).startswith("7\n")
