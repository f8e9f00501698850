"""num_workers=0: the dataset stands for the script's own process, with its state, its draws and its prints."""

from __future__ import annotations

import os
import re
import sys

import pytest
from pairs import Pair, assert_same, run_both
from scratch import Scratch

MOVED = '''
import warnings


class Plain(Dataset):
    """Draws nothing and keeps nothing."""

    def __init__(self, n):
        self.rows = torch.arange(n * 3.0).reshape(n, 3)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i] * 2, {"id": i, "name": f"row {i}"}


class Draws(Plain):
    def __getitem__(self, i):
        return self.rows[i] + torch.randn(3) + random.random() + np.random.normal()


class Counts(Plain):
    """Counts its calls, and wears its rows down."""

    calls = 0

    def __getitem__(self, i):
        self.calls += 1
        self.rows[i] *= 0.5
        return self.rows[i].clone() + self.calls


class Talks(Plain):
    def __getitem__(self, i):
        print("getting", i)
        return self.rows[i]


class Mumbles(Talks):
    """Draws, says what, and warns of the first."""

    def __getitem__(self, i):
        drawn = torch.randint(100, (1,)).item()
        warnings.warn(f"drawing of {i}")
        print("drew", drawn, "for", i)
        return self.rows[i] + drawn


class Fails(Plain):
    def __getitem__(self, i):
        drawn = random.random()
        if i % 7 == 5:
            raise ValueError(f"drew {drawn} for {i}")
        return self.rows[i] + drawn


class Seeds(Plain):
    """Seeds what there is on the CPU, so it depends on nothing but the index what it leaves behind."""

    def __getitem__(self, i):
        random.seed(i)
        np.random.seed(i)
        return self.rows[i] + random.random() + np.random.normal()


class Stops(Plain):
    def __getitem__(self, i):
        if i == 7:
            raise StopIteration
        return self.rows[i]


class Walk(IterableDataset):
    def __init__(self, n):
        self.n, self.position = n, 0

    def __iter__(self):
        start = random.randrange(3)
        for number in range(self.n):
            self.position += 1
            yield torch.tensor([start, number, self.position]) + torch.rand(3)


class Tells(Plain):
    """Tells a pipe whenever it is asked."""

    def __getitem__(self, i):
        with open("asked", "w") as pipe:
            pipe.write(f"{i}\\n")
        return self.rows[i] + torch.rand(3)


KINDS = {kind.__name__: kind for kind in (Plain, Draws, Counts, Talks, Mumbles, Fails, Seeds, Stops, Walk, Tells)}
'''


def pair(body: str, *, stateless: object = None, draws: object = None) -> Pair:
    builders = f"""
@splitter_runtime.dataset("train", stateless={stateless}, draws={draws})
def train(kind, n):
    return KINDS[kind](n)
"""
    kinds = ("Plain", "Draws", "Counts", "Talks", "Mumbles", "Fails", "Seeds", "Stops", "Walk", "Tells")
    swaps = [
        (f"{kind}(20)", f'splitter_runtime.RemoteDataset("train", {{"kind": "{kind}", "n": 20}})')
        for kind in kinds
        if f"{kind}(20)" in body
    ]
    return Pair(MOVED, builders, body, tuple(swaps))


EPOCHS = """
for epoch in range(2):
    for batch in loader:
        see(batch)
for epoch in range(3):
    for step, batch in enumerate(loader):
        see(batch)
        if step == epoch + 1:
            break
    for left, right in zip(loader, loader):
        see((left, right))
show()
"""


@pytest.mark.parametrize("stateless", [None, False, True])
@pytest.mark.parametrize("kind", ["Plain", "Draws"])
def test_map_style(scratch: Scratch, kind: str, stateless: object) -> None:
    """A dataset that draws although the worker program calls it stateless is found out, and nothing is lost."""
    body = f"loader = DataLoader({kind}(20), batch_size=3, shuffle=True)\n{EPOCHS}"
    assert_same(scratch, pair(body, stateless=stateless))


@pytest.mark.parametrize("kind", ["Counts", "Stops", "Walk"])
def test_with_state(scratch: Scratch, kind: str) -> None:
    body = f"""
dataset = {kind}(20)
loader = DataLoader(dataset, batch_size=3)
{EPOCHS}
see([getattr(dataset, name, None) for name in ("calls", "rows", "position")])
show()
"""
    assert_same(scratch, pair(body))


def test_state_left_behind_reaches_streams(scratch: Scratch) -> None:
    """What the main process does to a dataset is in every stream that is forked later, on whichever worker."""
    body = """
dataset = Counts(20)
for batch in DataLoader(dataset, batch_size=3):
    see(batch)
for batch in DataLoader(dataset, batch_size=3, num_workers=2):
    see(batch)
see(dataset.calls)
show()
"""
    assert_same(scratch, pair(body), SPLITTER_WORKERS="local:2")


def test_prints_come_in_order(scratch: Scratch) -> None:
    body = """
loader = DataLoader(Talks(20), batch_size=3)
for epoch in range(2):
    for step, batch in enumerate(loader):
        print("step", step, "sum", float(batch.sum()))
        if step == 2:
            break
"""
    for stateless in (None, True):
        out = assert_same(scratch, pair(body, stateless=stateless))
        assert out.startswith("getting 0\ngetting 1\ngetting 2\nstep 0")


def test_without_batches_and_with_other_samplers(scratch: Scratch) -> None:
    body = """
dataset = Plain(20)
from torch.utils.data import DistributedSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler
distributed = DistributedSampler(dataset, num_replicas=2, rank=1)
for epoch in range(2):
    distributed.set_epoch(epoch)
    for loader in (
        DataLoader(dataset, batch_size=None),
        DataLoader(dataset, batch_sampler=BatchSampler(SequentialSampler(dataset), 6, drop_last=True)),
        DataLoader(dataset, batch_size=4, sampler=RandomSampler(dataset, replacement=True, num_samples=9)),
        DataLoader(dataset, batch_size=4, sampler=SubsetRandomSampler([1, 5, 2, 8, 3])),
        DataLoader(dataset, batch_size=4, sampler=WeightedRandomSampler([0.1] * 20, 11)),
        DataLoader(dataset, batch_size=4, sampler=distributed),
        DataLoader(dataset, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3)),
    ):
        for step, batch in enumerate(loader):
            see(batch)
            see(torch.rand(1))
            if step == 3:
                break
show()
"""
    assert_same(scratch, pair(body, stateless=True))


def test_changes_in_the_middle_of_an_epoch(scratch: Scratch) -> None:
    """What the loop does to the dataset is in the very next batch, although fetches are under way ahead."""
    body = """
dataset = Plain(20)
loader = DataLoader(dataset, batch_size=2)
for step, batch in enumerate(loader):
    see(batch)
    if step in (2, 5):
        dataset.rows = torch.full((20, 3), float(step))
    if step == 7:
        torch.set_default_dtype(torch.float64)
torch.set_default_dtype(torch.float32)
with torch.no_grad():
    for batch in loader:
        see(batch)
show()
"""
    assert_same(scratch, pair(body, stateless=True))


def test_in_a_thread_of_its_own(scratch: Scratch) -> None:
    body = """
import queue, threading
done = queue.Queue(2)

def read():
    for batch in DataLoader(Counts(20), batch_size=3):
        done.put(batch)
    done.put(None)

dataset = Counts(20)
threading.Thread(target=read).start()
while (batch := done.get()) is not None:
    see([batch, len(dataset)])
show()
"""
    assert_same(scratch, pair(body))


MODEL_DRAWS = """
loader = DataLoader(Draws(20), batch_size=2, shuffle=True)
for epoch in range(2):
    for step, batch in enumerate(loader):
        see(batch)
        if epoch == 0 or step % 4 == 0:
            see(torch.nn.functional.dropout(batch))
        if step == 7:
            torch.manual_seed(3)
    see(random.random())
show()
"""


@pytest.mark.parametrize("draws", ["None", "('numpy', 'random', 'torch')", "('torch',)"])
def test_a_model_that_draws(scratch: Scratch, draws: str) -> None:
    """Batches that were made ahead from other states are made again; also when the worker program is wrong about what they draw."""
    script, split = run_both(scratch, pair(MODEL_DRAWS, stateless=True, draws=draws))
    assert (split.stdout, split.returncode) == (script.stdout, 0), split.stderr
    assert split.stderr.count("`splitter transform --streams N`") == 1
    assert "train: the script draws random numbers on the CPU between its batches" in split.stderr


def test_what_a_fetch_says_is_said_once_and_in_its_turn(scratch: Scratch) -> None:
    body = """
for between in (False, True):
    for step, batch in enumerate(DataLoader(Mumbles(20), batch_size=3)):
        print("step", step, float(batch.sum()), torch.rand(1).item() if between else "")
"""
    script, split = run_both(scratch, pair(body, stateless=True, draws="('torch',)"))
    assert (split.stdout, split.returncode) == (script.stdout, 0), split.stderr
    warned = [f"drawing of {i}" for i in range(20)]
    assert re.findall("UserWarning: (.*)", script.stderr) == warned
    assert re.findall("UserWarning: (.*)", split.stderr) == warned


def test_exceptions_are_raised_in_their_turn(scratch: Scratch) -> None:
    body = """
for between in (False, True):
    batches = iter(DataLoader(Fails(20), batch_size=2))
    while True:
        try:
            see(next(batches))
        except ValueError as error:
            print(error)
        except StopIteration:
            break
        if between:
            random.random()
show()
"""
    out = assert_same(scratch, pair(body, stateless=True, draws="('random',)"))
    assert out.count("drew") == 6


def test_seeding_reaches_the_script(scratch: Scratch) -> None:
    body = """
for between in (False, True):
    for batch in DataLoader(Seeds(20), batch_size=3, shuffle=True):
        see(batch)
        see(random.random() if between else 0)
show()
"""
    assert_same(scratch, pair(body, stateless=True))


def test_batches_are_made_ahead(scratch: Scratch) -> None:
    """While the loop has the first batch, the next is on its way; the script itself would wait here for ever."""
    body = """
pipe = __import__("os").fdopen(__import__("os").open("asked", 2))  # for reading and writing, so that nobody waits for the other
steps = iter(DataLoader(Tells(20), batch_size=1))
for asked in range(18):
    if asked not in (1, 2):
        next(steps)
    print(pipe.readline().strip())
"""
    case = pair(body, stateless=True, draws="('torch',)")
    folder = scratch.folder / "pair"
    case.write(folder)
    os.mkfifo(folder / "asked")
    ended = scratch.run([sys.executable, "train_trainer.py"], folder)
    assert (ended.stdout.split(), ended.returncode) == ([str(number) for number in range(18)], 0), ended.stderr
