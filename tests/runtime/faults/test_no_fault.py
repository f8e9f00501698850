"""Without any fault: every kind of loader, on local workers, on workers behind addresses, and on both at once."""

from __future__ import annotations

import pytest
from stage import KINDS, Stage


@pytest.mark.parametrize(("remote", "local"), [(0, "local"), (2, "local")], ids=["local", "mixed"])
def test_every_kind(stage: Stage, remote: int, local: str) -> None:
    workers = [stage.worker(wait=False) for _ in range(remote)]
    places = [worker.listening().address for worker in workers] + [local] * bool(local)
    stage.assert_same(stage.trainer(*KINDS, workers=",".join(places)))
