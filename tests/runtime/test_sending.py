"""Datasets that the trainer builds and sends: whatever happens to them between iterators reaches the workers as it reaches torch's."""

from __future__ import annotations

import sys

import pytest
from pairs import Pair
from scratch import Scratch

from splitter_runtime import sending
from splitter_runtime.errors import CodecError, ConfigError

MOVED = """
class Scale:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x * self.by + torch.rand(1)


class Rows(Dataset):
    def __init__(self, words, scale):
        self.words = words
        self.scale = scale
        self.seen = 0

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        self.seen += 1
        if self.words[i] == "bad":
            raise KeyError(f"{i} is bad")
        return self.scale(torch.tensor([float(len(self.words[i])), self.seen]))

    def together(self, rows):
        return torch.stack(rows) + self.seen


class Shards(IterableDataset):
    def __init__(self, sizes):
        self.sizes = sizes

    def __iter__(self):
        info = get_worker_info()
        for size in self.sizes[info.id :: info.num_workers]:
            yield from (torch.rand(2) + size for _ in range(size))


class Still(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.tensor(self.rows[i])
"""

BUILDERS = """
@splitter_runtime.loader("rows", accepts=("Rows", "Scale"))
def rows_loader():
    return splitter_runtime.Loader()


@splitter_runtime.loader("shards", accepts=("Shards",))
def shards_loader():
    return splitter_runtime.Loader()


@splitter_runtime.loader("still", stateless=True, accepts=("Still",))
def still_loader():
    return splitter_runtime.Loader()
"""

BODY = """
import sys

rows = Rows(["w" * n for n in range(13)], Scale(2))
loader = DataLoader(rows, batch_size=4, shuffle=True, num_workers=2, collate_fn=rows.together)#ROWS
kept = DataLoader(Rows(["a", "bb"] * 6, Scale(3)), batch_size=5, num_workers=1, persistent_workers=True)#KEPT
shards = DataLoader(Shards([5, 2, 4]), batch_size=2, num_workers=2)#SHARDS
still = DataLoader(Still([1, 5, 9, 2]), batch_size=3, shuffle=True)#STILL
for epoch in range(3):
    for batch in zip(loader, kept, shards):
        see(batch)
        rows.words.append("later")
    for batch in still:
        see(batch)
        see(torch.rand(1))
    rows.scale = Scale(epoch)
    rows.seen += 10
    see(rows.seen)
rows.words[3] = "bad"
try:
    list(loader)
except KeyError as error:
    print(type(error).__name__, error.args[0].splitlines()[-1])
rows.words[3] = "good"
rows.scale = lambda x: x - 1
see(list(DataLoader(rows, batch_size=4, num_workers=2)))#LOCAL
see(list(DataLoader(Still([[1], [2]]), num_workers=0)))#ZERO
show()
"""
SWAPS = (
    (")#ROWS", ', feed="rows", send=("dataset", "collate_fn"))'),
    (")#KEPT", ', feed="rows", send="dataset")'),
    (")#SHARDS", ', feed="shards", send="dataset")'),
    (")#STILL", ', feed="still", send="dataset", inline=True)'),
    (")))#LOCAL", ', feed="rows", send="dataset")))'),
    (")))#ZERO", ', feed="still", send="dataset")))'),
)


def test_as_torch_hands_them_to_its_workers(scratch: Scratch) -> None:
    folder = Pair(MOVED, BUILDERS, BODY, SWAPS).write(scratch.folder / "pair")
    trainer = folder / "train_trainer.py"
    trainer.write_text(trainer.read_text().replace("\n_seen = ", f"\n{MOVED}\n_seen = ", 1))
    script, split = (scratch.run([sys.executable, name], folder) for name in ("train.py", "train_trainer.py"))
    assert script.returncode == 0, script.stderr
    assert (split.stdout, split.returncode) == (script.stdout, 0), split.stderr
    said = [line for line in split.stderr.splitlines() if "stays in the trainer" in line]
    assert len(said) == 1 and said[0].startswith('splitter: loader rows stays in the trainer: R108: loader rows["dataset"].scale'), said


def test_what_can_be_sent() -> None:
    assert sending.parts("dataset") == ("dataset",)
    with pytest.raises(ConfigError, match="send='sampler'"):
        sending.parts(("dataset", "sampler"))
    with pytest.raises(CodecError, match=r'loader x\["dataset"\]'):
        sending.Package.of({"dataset": lambda: 1}, "loader x")
