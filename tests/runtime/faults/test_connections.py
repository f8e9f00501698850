"""The network breaks, the workers don't: resets, and packets that get lost, for a moment and for long."""

from __future__ import annotations

import threading

from chaos_network import ADDRESSES, Cable, Proxy
from stage import Stage, eventually


def test_resets(stage: Stage) -> None:
    """The worker's session goes with its connection; the next one builds everything again."""
    worker = stage.worker()
    places = ("marked:0:5", "counted:0:6", "counted:0:12", "inline:0:6", "told:1:4")
    with Proxy(worker.address) as proxy:
        trainer = stage.trainer("marked", "counted", "inline", "told", workers=[proxy.address], pauses=places)
        for place in places:
            trainer.until(f"pause {place}")
            assert proxy.reset() > 0
            trainer.go()
        stage.assert_same(trainer)


def test_a_reset_of_one_of_two(stage: Stage) -> None:
    one, two = [worker.listening() for worker in (stage.worker(wait=False), stage.worker(wait=False))]
    with Proxy(one.address) as proxy:
        trainer = stage.trainer("noise", "shards", workers=[proxy.address, two], pauses=["noise:0:6", "shards:1:6"])
        for place in ("noise:0:6", "shards:1:6"):
            trainer.until(f"pause {place}")
            assert proxy.reset() > 0
            trainer.go()
        stage.assert_same(trainer)


def test_resets_in_the_middle_of_a_batch(stage: Stage) -> None:
    """A batch of 4 MiB that has come in part hasn't come: nor has what was said of the generators behind it."""
    worker = stage.worker()
    places = ("large:0:2", "large:1:2")
    with Proxy(worker.address) as proxy:
        trainer = stage.trainer("large", workers=[proxy.address], pauses=places)
        for place, count in zip(places, (6 << 20, 2 << 20), strict=True):
            trainer.until(f"pause {place}")
            proxy.reset_after(count)
            trainer.go()
        stage.assert_same(trainer)


def test_a_partition(stage: Stage) -> None:
    """Packets between two network namespaces get lost: for a moment, which nobody notices; then until both sides have given up."""
    with Cable() as cable:
        listen = f"{ADDRESSES['worker']}:7077"
        worker = stage.worker("--insecure", "--timeout-seconds", "3", listen=listen, inside=cable.inside("worker"))
        places = ["noise:0:6", "counted:0:6"]
        inside = cable.inside("trainer")
        trainer = stage.trainer(
            "noise", "counted", workers=[worker], pauses=places, inside=inside, SPLITTER_TIMEOUT_SECONDS="3", SPLITTER_GRACE_SECONDS="50"
        )
        trainer.until("pause noise:0:6")
        before = worker.family().templates
        cable.cut()
        trainer.go()
        threading.Event().wait(1)  # the length of the fault
        cable.join()
        trainer.until("pause counted:0:6")
        assert worker.family().templates == before
        cable.cut()
        trainer.go()
        assert eventually(lambda: not worker.family().templates, 20)
        cable.join()
        stage.assert_same(trainer)
        assert worker.family().templates != before
