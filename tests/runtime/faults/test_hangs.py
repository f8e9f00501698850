"""SIGSTOP: what doesn't answer for the time that is set is given up, and what it had is made elsewhere."""

from __future__ import annotations

import signal

import psutil
from chaos_processes import send
from stage import Stage, alive, assert_ends

SHORT = {"SPLITTER_TIMEOUT_SECONDS": "2"}


def test_a_stopped_local_worker(stage: Stage) -> None:
    """It is ended, stopped as it is, and another one is started."""
    places = ("counted:0:6", "inline:0:6")
    trainer = stage.trainer("counted", "inline", pauses=places, **SHORT)
    stopped: list[psutil.Process] = []
    for place in places:
        trainer.until(f"pause {place}")
        family = trainer.local()[0]
        send(family.all(), signal.SIGSTOP)
        stopped += family.all()
        trainer.go()
    stage.assert_same(trainer)
    assert_ends(stopped, 5)


def test_a_stopped_stream(stage: Stage) -> None:
    """Its template is told to end it."""
    places = ("noise:0:6", "counted:0:6")
    trainer = stage.trainer("noise", "counted", pauses=places, **SHORT)
    stopped: list[psutil.Process] = []
    for place in places:
        trainer.until(f"pause {place}")
        stream = trainer.local()[0].streams[0]
        stream.suspend()
        stopped.append(stream)
        trainer.go()
    stage.assert_same(trainer)
    assert_ends(stopped, 5)


def test_a_stopped_remote_worker(stage: Stage) -> None:
    """The other one makes its batches; it goes on later, finds that nobody waits for it, and serves the next trainer."""
    one, two = [worker.listening() for worker in (stage.worker(wait=False), stage.worker(wait=False))]
    trainer = stage.trainer("shards", "noise", workers=(one, two), pauses=["shards:0:6"], **SHORT)
    trainer.until("pause shards:0:6")
    stopped = one.family()
    send(stopped.all(), signal.SIGSTOP)
    trainer.go()
    stage.assert_same(trainer)
    send(stopped.all(), signal.SIGCONT)
    assert_ends((*stopped.templates, *stopped.streams), 15)
    assert alive(stopped.host)
    stage.assert_same(stage.trainer("noise", workers=[one]))


def test_a_stopped_stream_of_a_remote_worker(stage: Stage) -> None:
    worker = stage.worker()
    trainer = stage.trainer("lasting_counted", workers=[worker], pauses=["lasting_counted:1:6"], **SHORT)
    trainer.until("pause lasting_counted:1:6")
    stream = worker.family().streams[1]
    stream.suspend()
    trainer.go()
    stage.assert_same(trainer)
    assert_ends([stream], 5)
