"""kill -9 of the trainer: its workers free everything within five seconds."""

from __future__ import annotations

import os

import psutil
import pytest
from stage import Stage, alive, assert_ends, eventually

WITHIN_S = 5


def segments(process: psutil.Process) -> list[str]:
    """Anonymous memory files that the process has open or mapped."""
    folder = f"/proc/{process.pid}/fd"
    opened = [os.readlink(f"{folder}/{name}") for name in os.listdir(folder) if os.path.lexists(f"{folder}/{name}")]
    with open(f"/proc/{process.pid}/maps") as maps:
        return [path for path in [*opened, *maps] if "/memfd:" in path]


@pytest.mark.parametrize("kind", ["large", "lasting_counted", "inline"])
def test_everything_goes(stage: Stage, kind: str) -> None:
    worker = stage.worker()
    before = len(segments(worker.process))
    trainer = stage.trainer(kind, workers=f"{worker.address},local", pauses=[f"{kind}:0:3"])
    trainer.until(f"pause {kind}:0:3")
    remote, (local,) = worker.family(), trainer.local()
    theirs = (*local.all(), *remote.templates, *remote.streams)
    trainer.process.kill()
    assert_ends(theirs, WITHIN_S)
    trainer.status()
    assert alive(remote.host) and alive(remote.launchers[0])
    assert eventually(lambda: len(segments(worker.process)) <= before, WITHIN_S), segments(worker.process)
    stage.assert_same(stage.trainer("pure", workers=[worker]))
