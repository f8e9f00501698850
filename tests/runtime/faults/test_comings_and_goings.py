"""Workers that come back, come late, leave politely, or don't come back at all."""

from __future__ import annotations

import signal

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from stage import Stage, Trainer, Worker, eventually

LOST = "splitter_runtime.errors.WorkerLostError: R402"


def both(stage: Stage, *options: str) -> list[Worker]:
    return [worker.listening() for worker in (stage.worker(*options, wait=False), stage.worker(*options, wait=False))]


def test_the_only_worker_is_started_again(stage: Stage) -> None:
    worker = stage.worker()
    trainer = stage.trainer("lasting", "inline_counted", "told", workers=[worker], pauses=["lasting:1:5", "told:1:4"])
    for place in ("lasting:1:5", "told:1:4"):
        trainer.until(f"pause {place}")
        worker.end()
        trainer.go()
        worker = stage.worker(listen=worker.address)
    stage.assert_same(trainer)


def test_all_are_gone_and_one_comes_back(stage: Stage) -> None:
    workers = both(stage)
    trainer = stage.trainer("counted", "shards", workers=workers, pauses=["counted:0:6"], SPLITTER_GRACE_SECONDS="40")
    trainer.until("pause counted:0:6")
    for worker in workers:
        worker.end()
    trainer.go()
    stage.worker(listen=workers[1].address)
    stage.assert_same(trainer)


def test_nobody_comes_back(stage: Stage) -> None:
    workers = both(stage)
    trainer = stage.trainer("noise", workers=workers, pauses=["noise:0:6"], SPLITTER_GRACE_SECONDS="1")
    trainer.until("pause noise:0:6")
    for worker in workers:
        worker.end()
    trainer.go()
    assert trainer.status() == 1
    assert trainer.errors[-1].startswith(LOST), trainer.told()
    assert sum(line.startswith("Traceback") for line in trainer.errors) == 1, trainer.told()
    assert all(worker.address in trainer.errors[-1] for worker in workers), trainer.told()


def test_a_worker_that_comes_late(stage: Stage) -> None:
    """The trainer starts with those that are there; what is too much for these moves over in the middle of an epoch."""
    one, late = stage.worker("--processes", "1"), stage.free_address()
    places = [f"noise:0:{step}" for step in range(6, 20)]
    trainer = stage.trainer("noise", workers=[one, late], pauses=places)
    trainer.until(f"pause {places[0]}")
    two = stage.worker(listen=late)
    assert eventually(lambda: bool(two.family().templates), 30), trainer.told()
    moved = False
    for place in places:
        trainer.until(f"pause {place}")
        moved = moved or eventually(lambda: bool(two.family().streams), 1)
        trainer.go()
    stage.assert_same(trainer)
    assert moved, "no stream has moved to the worker that came late"


def leave(worker: Worker, trainer: Trainer) -> None:
    """Tell the worker to leave while the trainer pauses; it ends well while the trainer goes on."""
    worker.process.send_signal(signal.SIGTERM)
    trainer.go()
    assert worker.status() == 0, worker.told()


def test_one_of_two_leaves(stage: Stage) -> None:
    one, two = both(stage)
    trainer = stage.trainer("noise", "counted", "lasting", workers=[one, two], pauses=["noise:0:6", "lasting:1:4"])
    trainer.until("pause noise:0:6")
    leave(one, trainer)
    trainer.until("pause lasting:1:4")
    back = stage.worker(listen=one.address)
    assert eventually(lambda: bool(back.family().templates), 30), trainer.told()
    leave(two, trainer)
    stage.assert_same(trainer)


def test_a_remote_worker_leaves_to_local_ones(stage: Stage) -> None:
    one = stage.worker()
    trainer = stage.trainer("shards", "inline_counted", workers=f"{one.address},local", pauses=["shards:0:6"])
    trainer.until("pause shards:0:6")
    leave(one, trainer)
    stage.assert_same(trainer)


def test_the_only_worker_leaves_and_another_comes(stage: Stage) -> None:
    worker = stage.worker("--drain-seconds", "2")
    trainer = stage.trainer("counted", "inline", workers=[worker], pauses=["counted:0:6"])
    trainer.until("pause counted:0:6")
    leave(worker, trainer)
    stage.worker(listen=worker.address)
    stage.assert_same(trainer)


def test_the_second_signal_ends_at_once(stage: Stage) -> None:
    """Also while the trainer takes nothing, so that nothing can move away."""
    one, two = both(stage, "--drain-seconds", "1000")
    trainer = stage.trainer("noise", workers=[one, two], pauses=["noise:0:6"])
    trainer.until("pause noise:0:6")
    one.process.send_signal(signal.SIGTERM)
    assert eventually(lambda: not serves(one), 30)
    one.end(signal.SIGTERM)
    trainer.go()
    stage.assert_same(trainer)


def serves(worker: Worker) -> bool:
    """What the worker's health service says."""
    with grpc.insecure_channel(worker.address) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=""), timeout=30)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
