"""kill -9 of each process of a worker, with each kind of loader: every batch comes once, and is the script's."""

from __future__ import annotations

import psutil
import pytest
from chaos_processes import Family
from stage import Stage, Trainer, Worker, eventually


def victim(family: Family, what: str) -> psutil.Process:
    """The process to kill, of those that run now."""
    found = {"host": (family.host,), "launcher": family.launchers, "template": family.templates, "stream": family.streams}[what]
    assert found, f"no {what} below {family}"
    return found[0]


@pytest.mark.parametrize(
    ("what", "kinds", "places"),
    [
        ("stream", ("noise", "counted", "marked"), ("noise:0:6", "noise:1:9", "counted:0:6", "counted:1:9", "marked:0:5")),
        ("template", ("shards", "inline_counted", "told"), ("shards:0:6", "inline_counted:0:6", "told:1:5")),
        ("host", ("lasting_counted", "inline", "sent"), ("lasting_counted:1:6", "inline:0:6", "sent:1:5")),
    ],
    ids=["stream", "template", "worker"],
)
def test_on_local_workers(stage: Stage, what: str, kinds: tuple[str, ...], places: tuple[str, ...]) -> None:
    trainer = stage.trainer(*kinds, pauses=places)
    for place in places:
        trainer.until(f"pause {place}")
        victim(trainer.local()[0], what).kill()
        trainer.go()
    stage.assert_same(trainer)


@pytest.mark.parametrize(
    ("what", "kinds", "places"),
    [
        ("launcher", ("pure", "lasting"), ("pure:0:6", "lasting:1:5")),
        ("template", ("counted", "inline_noise", "sent"), ("counted:0:9", "inline_noise:1:6", "sent:1:5")),
        ("stream", ("shards", "lasting_counted", "told"), ("shards:0:6", "lasting_counted:1:6", "told:2:5")),
    ],
    ids=["launcher", "template", "stream"],
)
def test_on_remote_workers(stage: Stage, what: str, kinds: tuple[str, ...], places: tuple[str, ...]) -> None:
    """Here and there in turn, while a kind of loader is used that has its state in what is killed.

    A worker ends with its launcher, and is started again by whoever started it.
    """
    workers = [worker.listening() for worker in (stage.worker(wait=False), stage.worker(wait=False))]
    trainer = stage.trainer(*kinds, workers=workers, pauses=places)
    for number, place in enumerate(places):
        trainer.until(f"pause {place}")
        kill_in_one(workers[number % 2 :] + workers[: number % 2], what)
        trainer.go()
        if what == "launcher":
            assert workers[number].status() != 0
            workers[number] = stage.worker(listen=workers[number].address)
    stage.assert_same(trainer)


def kill_in_one(workers: list[Worker], what: str) -> None:
    """Kill the process in the first worker that has one."""
    for worker in workers:
        family = worker.family()
        if what == "launcher" or getattr(family, f"{what}s"):
            victim(family, what).kill()
            return
    raise AssertionError(f"no {what} in {[worker.family() for worker in workers]}")


def test_remote_workers_one_after_the_other(stage: Stage) -> None:
    """The second is killed when the first is back, on the same port, and works again."""
    one, two = [worker.listening() for worker in (stage.worker(wait=False), stage.worker(wait=False))]
    trainer = stage.trainer("noise", "told", "counted", workers=(one, two), pauses=["noise:0:6", "told:1:3", "counted:0:6"])
    trainer.until("pause noise:0:6")
    one.end()
    trainer.go()
    again = stage.worker(listen=one.address)
    trainer.until("pause told:1:3")
    assert eventually(lambda: bool(again.family().templates), 30), trainer.told()
    trainer.go()
    trainer.until("pause counted:0:6")
    two.end()
    trainer.go()
    stage.assert_same(trainer)


@pytest.mark.parametrize("kinds", [("pure", "counted")], ids=["pure and counted"])
def test_local_takes_over_when_all_others_are_gone(stage: Stage, kinds: tuple[str, ...]) -> None:
    worker = stage.worker()
    trainer: Trainer = stage.trainer(*kinds, workers=f"{worker.address},local", pauses=["pure:0:6"])
    trainer.until("pause pure:0:6")
    worker.end()
    trainer.go()
    stage.assert_same(trainer)
