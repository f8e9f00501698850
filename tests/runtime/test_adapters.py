"""Libraries that construct another loader from the parts of one."""

from __future__ import annotations

import sys

from pairs import Pair, assert_same
from scratch import Scratch
from test_streams_same import BUILD_NOISE, NOISE, SWAP_NOISE

# constructs a loader as Accelerate does: through the name that its module has imported
LIBRARY = """
from torch.utils.data import DataLoader

KEPT = ("num_workers", "collate_fn", "worker_init_fn", "generator", "persistent_workers", "prefetch_factor")


def prepare(loader):
    return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, **{name: getattr(loader, name) for name in KEPT})
"""
BODY = """
import gc

torch_loader = torch.utils.data.DataLoader


def prepared(count):
    return data_loader.prepare(DataLoader(dataset, batch_size=4, shuffle=True, num_workers=count))


def kind(loader):
    return type(loader).__module__.split(".")[0]


dataset = Noise(21)
early = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2)
from accelerate import data_loader

for loader in (prepared(2), prepared(0), data_loader.prepare(early), data_loader.prepare(prepared(2))):
    print(kind(loader), kind(data_loader.prepare(DataLoader([1, 2], num_workers=0))))
    gc.collect()
    for epoch in range(2):
        for batch in loader:
            see(batch)
show()
"""


def test_a_loader_that_a_library_constructs_anew_has_the_same_batches(scratch: Scratch) -> None:
    folder = Pair(NOISE, BUILD_NOISE, BODY, (SWAP_NOISE, ("DataLoader([", "torch_loader(["))).write(scratch.folder / "pair")
    (folder / "accelerate").mkdir()
    (folder / "accelerate" / "__init__.py").write_text("")
    (folder / "accelerate" / "data_loader.py").write_text(LIBRARY)
    script, split = (scratch.run([sys.executable, name], folder) for name in ("train.py", "train_trainer.py"))
    assert script.stdout.count("torch torch\n") == 4, script.stderr
    assert (split.stdout, split.returncode) == (script.stdout.replace("torch torch\n", "splitter_runtime torch\n"), 0), split.stderr


SEEDED = """
dataset = Noise(21)
for count in (2, 0):
    loader = DataLoader(dataset, batch_size=4, num_workers=count)
    for function in (None, random.seed, torch.manual_seed):
        loader.worker_init_fn = function
        for batch in loader:
            see(batch)
show()
"""


def test_a_function_that_a_library_gives_a_loader_goes_to_the_worker(scratch: Scratch) -> None:
    assert_same(scratch, Pair(NOISE, BUILD_NOISE, SEEDED, (SWAP_NOISE,)))
