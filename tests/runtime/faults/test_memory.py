"""No memory for batches that are on their way: none to be had for shared segments, and a budget smaller than a batch."""

from __future__ import annotations

import psutil
import pytest
from stage import Stage

PLACES = ("large:0:3", "noise:0:6")
NOTHING = (0, 0)


@pytest.mark.parametrize("when", ["from the start", "in the middle"])
def test_local_workers_without_segments(stage: Stage, when: str) -> None:
    """A limit of nothing for files holds for memfd, too: as a full disk or a full /dev/shm."""
    start = ("prlimit", "--fsize=0:0") if when == "from the start" else ()
    trainer = stage.trainer("large", "noise", pauses=PLACES, inside=start)
    for place in PLACES:
        trainer.until(f"pause {place}")
        if when == "in the middle":
            limit([trainer.process, *trainer.local()[0].all()])
        trainer.go()
    stage.assert_same(trainer)


def limit(processes: list[psutil.Process]) -> None:
    for process in processes:
        process.rlimit(psutil.RLIMIT_FSIZE, NOTHING)


def test_a_remote_worker_without_segments(stage: Stage) -> None:
    worker = stage.worker(inside=("prlimit", "--fsize=0:0"))
    stage.assert_same(stage.trainer("large", "noise", workers=[worker]))


@pytest.mark.parametrize("local", [True, False], ids=["local", "remote"])
def test_batches_above_the_budget(stage: Stage, local: bool) -> None:
    """A batch of 4 MiB and a budget of 1: they go through alone, also when what made them is killed."""
    workers = [] if local else [stage.worker()]
    trainer = stage.trainer("large", workers=workers or "local", pauses=["large:0:3"], SPLITTER_BUFFER_MB="1")
    trainer.until("pause large:0:3")
    family = trainer.local()[0] if local else workers[0].family()
    family.streams[0].kill()
    trainer.go()
    stage.assert_same(trainer)
