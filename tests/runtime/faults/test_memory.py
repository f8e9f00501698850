"""No memory for batches that are on their way: none to be had for shared segments, and a budget smaller than a batch."""

from __future__ import annotations

import psutil
import pytest
from stage import Stage

NOTHING = (0, 0)


def test_local_workers_without_segments(stage: Stage) -> None:
    """A limit of nothing for files holds for memfd, too: as a full disk or a full /dev/shm. Before a loader starts, and while one runs."""
    places = ("noise:0:6", "large:0:3", "inline:0:6")
    trainer = stage.trainer("noise", "large", "inline", "counted", pauses=places)
    for place in places:
        trainer.until(f"pause {place}")
        for process in trainer.local()[0].all():
            process.rlimit(psutil.RLIMIT_FSIZE, NOTHING)
        trainer.go()
    stage.assert_same(trainer)


def test_segments_that_become_impossible(stage: Stage) -> None:
    trainer = stage.trainer("large", pauses=["large:0:3"])
    trainer.until("pause large:0:3")
    for process in trainer.local()[0].all():
        process.rlimit(psutil.RLIMIT_FSIZE, NOTHING)
    trainer.go()
    stage.assert_same(trainer)


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
