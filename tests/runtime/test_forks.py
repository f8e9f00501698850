"""Trainers that fork or spawn processes of their own, while gRPC runs in them."""

from __future__ import annotations

import sys

from pairs import Pair, assert_same
from scratch import Scratch
from test_streams_same import BUILD_NOISE, NOISE, SWAP_NOISE

LEFT = """
class Left(Dataset):
    def __len__(self):
        return 15

    def __getitem__(self, i):
        return torch.rand(2) + i


"""


def test_loaders_that_were_left_alone(scratch: Scratch) -> None:
    """torch forks workers for them, before and after and between batches of the others."""
    body = (
        LEFT
        + """
left = torch.utils.data.DataLoader(Left(), batch_size=2, num_workers=2)
kept = torch.utils.data.DataLoader(Left(), batch_size=2, num_workers=1, persistent_workers=True)
for batch in left:
    see(batch)
for epoch in range(2):
    for pair in zip(DataLoader(Noise(21), batch_size=2, num_workers=2), left, kept):
        see(pair)
    for batch in DataLoader(Noise(21), batch_size=4):
        see(batch)
    for batch in left:
        see(batch)
show()
"""
    ).replace("torch.utils.data.DataLoader(", "torch.utils.data.dataloader.DataLoader(")
    # Only the loaders of Noise become the runtime's.
    pair = Pair(NOISE, BUILD_NOISE, body, (SWAP_NOISE, ("dataloader.DataLoader(", "dataloader.DATALOADER(")))
    folder = pair.write(scratch.folder / "pair")
    program = folder / "train_trainer.py"
    program.write_text(program.read_text().replace("DATALOADER", "DataLoader"))
    script, split = (scratch.run([sys.executable, name], folder) for name in ("train.py", "train_trainer.py"))
    assert script.returncode == 0, script.stderr
    assert (split.stdout, split.returncode) == (script.stdout, 0), split.stderr


def test_processes_of_multiprocessing(scratch: Scratch) -> None:
    """Forked children that have nothing to do with the datasets work, and end, as ever."""
    body = """
import multiprocessing, os, subprocess

def work(number):
    return number * 2

dataset = Noise(21)
loader = DataLoader(dataset, batch_size=4, num_workers=1)
with multiprocessing.get_context("fork").Pool(2) as pool:
    for batch in loader:
        see(batch)
        see(pool.map(work, range(3)))
print(subprocess.run(["echo", "hello"], capture_output=True, text=True).stdout)
pid = os.fork()
if pid == 0:
    raise SystemExit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(dataset))
show()
"""
    assert_same(scratch, Pair(NOISE, BUILD_NOISE, body, (SWAP_NOISE,)), quick=False)


def test_a_handle_in_a_forked_child_is_refused(scratch: Scratch) -> None:
    body = """
import os
dataset = Noise(21)
pid = os.fork()
if pid == 0:
    try:
        len(dataset)
    except RuntimeError as error:
        print(str(error)[:5], flush=True)
        os._exit(0)
os.waitpid(pid, 0)
print(len(dataset))
"""
    folder = Pair(NOISE, BUILD_NOISE, body, (SWAP_NOISE,)).write(scratch.folder / "pair")
    ended = scratch.run([sys.executable, "train_trainer.py"], folder)
    assert (ended.stdout, ended.returncode) == ("R601:\n21\n", 0), ended.stderr


def test_spawned_children_have_sessions_of_their_own(scratch: Scratch) -> None:
    body = """
import torch.multiprocessing as mp

def rank(number):
    torch.manual_seed(number)
    dataset = Noise(21)
    for count in (0, 1):
        for batch in DataLoader(dataset, batch_size=4, num_workers=count):
            see(batch)
    with open(f"rank{number}", "w") as file:
        print(_count, _seen.hexdigest(), __file__.rsplit("/")[-1], file=file)

if __name__ == "__main__":
    mp.spawn(rank, nprocs=2)
    for number in range(2):
        print(open(f"rank{number}").read())
    print(__import__("os").path.basename(__file__), __import__("sys").argv)
"""
    assert_same(scratch, Pair(NOISE, BUILD_NOISE, body, (SWAP_NOISE,)), "an argument", quick=False)


def test_a_forked_child_that_loses_its_copy_of_an_iterator(scratch: Scratch) -> None:
    """Its streams are the trainer's: they go on."""
    body = """
import gc, os

dataset = Noise(21)
for keep in (False, True):
    loader = DataLoader(dataset, batch_size=2, num_workers=2, persistent_workers=keep)
    for epoch in range(2):
        iterator = iter(loader)
        see(next(iterator))#FORK
        for batch in iterator:
            see(batch)
show()
"""
    fork = """
        child = os.fork()
        if child == 0:
            __import__("signal").alarm(8)  # its streams would say nothing to it, and torch waits 5 s for each
            del iterator, loader
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0"""
    assert_same(scratch, Pair(NOISE, BUILD_NOISE, body, (SWAP_NOISE, ("#FORK", fork))))
