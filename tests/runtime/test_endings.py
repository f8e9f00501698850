"""However a process ends: the trainer goes on with another one, and when the trainer ends, so does everything else."""

from __future__ import annotations

import os
import signal
import sys

import psutil
import pytest
from pairs import Pair
from running import Running, running
from scratch import Scratch

from splitter_runtime.processes import readable

MOVED = """
class Endless(Dataset):
    def __len__(self):
        return 10**9

    def __getitem__(self, i):
        return torch.full((1000,), i)


class Stuck(Endless):
    def __getitem__(self, i):
        if i == 8:
            __import__("time").sleep(1000)
        return torch.tensor(i)
"""
BUILDERS = """
@splitter_runtime.dataset("endless")
def endless():
    return Endless()


@splitter_runtime.dataset("stuck")
def stuck():
    return Stuck()
"""
BODY = """
import sys
count, keep = int(sys.argv[1]), bool(sys.argv[2:])
loader = DataLoader(Endless(), batch_size=4, num_workers=count, persistent_workers=keep)
for step, batch in enumerate(loader):
    if step in (5, 50):
        print("going" if step == 5 else "still going", flush=True)
    if step == 5:
        sys.stdin.readline()
"""
SWAPS = (
    ("Endless()", 'splitter_runtime.RemoteDataset("endless")'),
    ("Stuck()", 'splitter_runtime.RemoteDataset("stuck")'),
)


def case(body: str = BODY) -> Pair:
    return Pair(MOVED, BUILDERS, body, tuple(swap for swap in SWAPS if swap[0] in body))


def all_end(program: Running, others: list[psutil.Process]) -> None:
    """Everything ends, within the limit, by itself."""
    program.ended()
    _, alive = psutil.wait_procs(others, timeout=30)
    assert not alive


@pytest.mark.parametrize(("victim", "count"), [(0, "2"), (1, "2"), (2, "2"), (3, "2"), (0, "0"), (1, "0")])
def test_a_killed_process_of_the_worker(scratch: Scratch, victim: int, count: str) -> None:
    """The worker, the template, a stream: the trainer goes on, and says so in one line for a worker."""
    folder = case().write(scratch.folder / "pair")
    with running(scratch, folder, "train_trainer.py", count) as trainer:
        trainer.until("going")
        below = trainer.below()
        assert len(below) == 2 + int(count)
        ending = below[victim:] if victim < 2 else [below[victim]]  # the others end with it, a little later
        handles = [os.pidfd_open(process.pid) for process in ending]
        below[victim].send_signal(signal.SIGKILL)
        for handle in handles:
            assert readable(handle, 30)  # its parent may not have waited for it
            os.close(handle)
        trainer.go_on()
        trainer.until("still going")
        others = trainer.below()
        trainer.process.send_signal(signal.SIGINT)
        errors = trainer.ended()[1]
        assert errors.count("worker local was lost") == (victim < 2), errors
        all_end(trainer, below + others)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("arguments", [("0",), ("2",), ("2", "persistent")])
def test_a_trainer_that_is_ended(scratch: Scratch, number: signal.Signals, arguments: tuple[str, ...]) -> None:
    """With what the script would have left: nothing. Ctrl-C is a KeyboardInterrupt."""
    folder = case().write(scratch.folder / "pair")
    with running(scratch, folder, "train_trainer.py", *arguments) as trainer:
        trainer.until("going")
        trainer.go_on()
        below = trainer.below()
        trainer.process.send_signal(number)
        status, errors = trainer.ended()
        assert status == -number
        assert errors.strip().splitlines()[-1:] == (["KeyboardInterrupt"] if number == signal.SIGINT else []), errors
        all_end(trainer, below)


def test_a_stream_in_the_middle_of_an_item_is_ended_with_the_iterator(scratch: Scratch) -> None:
    body = """
loader = DataLoader(Stuck(), batch_size=1, num_workers=2)
for step, batch in enumerate(loader):
    if step == 6:
        break
print("left", flush=True)
"""
    folder = case(body).write(scratch.folder / "pair")
    with running(scratch, folder, "train_trainer.py") as trainer:
        trainer.until("left")
        assert trainer.ended() == (0, "")


def test_an_exception_in_the_loop(scratch: Scratch) -> None:
    for count in (0, 2):
        body = f"""
for batch in DataLoader(Endless(), batch_size=1, num_workers={count}):
    raise LookupError("the loop's own")
"""
        folder = case(body).write(scratch.folder / "pair")
        ended = scratch.run([sys.executable, "train_trainer.py"], folder)
        assert ended.returncode == 1 and ended.stderr.endswith("LookupError: the loop's own\n")
        assert ended.stderr.count("Traceback") == 1


def test_exits_with_iterators_alive(scratch: Scratch) -> None:
    for ending in ("", "raise SystemExit(3)", "import os; os._exit(3)"):
        body = f"""
loaders = [DataLoader(Endless(), batch_size=1, num_workers=count, persistent_workers=bool(count)) for count in (0, 1, 2)]
iterators = [iter(loader) for loader in loaders]
for iterator in iterators:
    next(iterator)
{ending}
"""
        folder = case(body).write(scratch.folder / "pair")
        ended = scratch.run([sys.executable, "train_trainer.py"], folder)
        assert (ended.returncode, ended.stderr) == (3 if ending else 0, "")
        scratch.assert_nothing_left()


def test_a_worker_that_is_told_to_end(scratch: Scratch) -> None:
    folder = case().write(scratch.folder / "pair")
    with running(scratch, folder, "train_worker.py", "--listen", "127.0.0.1:0") as worker:
        with running(scratch, folder, "train_trainer.py", "2", SPLITTER_WORKERS=worker.address()) as trainer:
            trainer.until("going")
            below = worker.below()
            assert len(below) == 4
            worker.process.send_signal(signal.SIGTERM)
            trainer.go_on()
            trainer.until("still going")  # it has nowhere else to go
            worker.process.send_signal(signal.SIGTERM)
            assert worker.ended()[0] == 128 + signal.SIGTERM
            trainer.process.kill()
            all_end(worker, below)


def test_a_trainer_of_a_worker_that_stays(scratch: Scratch) -> None:
    """What a trainer had on a worker ends with it, and the worker serves the next one."""
    folder = case().write(scratch.folder / "pair")
    with running(scratch, folder, "train_worker.py", "--listen", "127.0.0.1:0") as worker:
        for number in (signal.SIGKILL, signal.SIGINT):
            with running(scratch, folder, "train_trainer.py", "2", SPLITTER_WORKERS=worker.address()) as trainer:
                trainer.until("going")
                below = worker.below()
                trainer.process.send_signal(number)
                trainer.ended()
                _, alive = psutil.wait_procs(below[1:], timeout=30)
                assert not alive and below[0].is_running()
        worker.process.send_signal(signal.SIGINT)
        assert worker.ended()[0] == 0
