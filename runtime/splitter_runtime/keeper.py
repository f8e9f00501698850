"""Keepers: one for each worker of the pool, a thread whenever its worker isn't there, to bring it back.

A worker that was lost is connected again (a local one is started again), its template is brought where the others are (`Session.join`),
and streams may move there.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

from . import manifest
from .bootstrap import STATE, local_name
from .errors import AuthError, ConfigError, SkewError, SplitterError, WorkerLostError
from .pool import LocalWorker, Place, remote_endpoint
from .transport import Link, LocalLink
from .twin import Twin

if TYPE_CHECKING:
    from .session import Session

LONGEST_PAUSE = 2.0  # seconds between two attempts
ATTEMPTS = 3  # at starting a local worker, one after another
FINAL = (AuthError, ConfigError, SkewError)  # trying again would not help


class Keeper:
    """Sees to it that one worker of the pool is there."""

    def __init__(self, session: Session, number: int, place: Place) -> None:
        self._session, self.number, self._place = session, number, place
        self._stop = threading.Event()
        self.tried = threading.Event()  # an attempt has come to its end
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._busy = self._wanted = False
        self._old: Twin | None = None  # to be closed
        self.twin: Twin | None = None
        self.reason: object = "it is not there yet"
        self.gave_up: SplitterError | None = None  # why it isn't tried any more
        self.name = place.address or local_name(STATE.places, number)

    def look_for_it(self, *, seconds: float = 0.0) -> None:
        """Start to look for the worker; the first attempt may take that long."""
        with self._lock:
            self._old, self.twin = self.twin or self._old, None
            self._wanted = True
            if not self._busy:
                self._busy = True
                name = f"splitter-keeper {self.name}"
                self._thread = threading.Thread(target=self._run, args=(seconds,), name=name, daemon=True)
                self._thread.start()

    def _run(self, seconds: float) -> None:
        """Body of the thread: until the worker is there, and once more when it was lost meanwhile."""
        while True:
            with self._lock:
                if not self._wanted:
                    self._busy = False
                    return
                old, self._old, self._wanted = self._old, None, False
            self._look(old, seconds)
            seconds = 0.0

    def let_go(self) -> None:
        """Do without the worker as long as another one is there."""
        old, self.twin = self.twin, None
        if old is not None:
            threading.Thread(target=old.close, name="splitter-keeper", daemon=True).start()

    def stop(self) -> None:
        """Look no more; waits for an attempt that is under way only briefly."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)

    def _look(self, old: Twin | None, seconds: float) -> None:
        if old is not None:
            old.close()
        pause, failures = 0.1, 0
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                twin = self._meet(seconds)
                if not self._session.join(twin, self):
                    twin.close()
                return
            except FINAL as error:
                self.reason = self.gave_up = error
                return
            except (SplitterError, OSError) as error:
                self.reason = error
            finally:
                self.tried.set()
                self._session.news.set()
            seconds = 0.0
            failures = failures + 1 if time.monotonic() - began < 60 else 1
            if self._place.address is None and failures >= ATTEMPTS:
                self.gave_up = WorkerLostError.of("R401", worker=self.name, why=f"it ended {failures} times in a row: {self.reason}")
                return
            self._stop.wait(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)

    def _meet(self, seconds: float) -> Twin:
        """Connect, and have a template forked. SplitterError, OSError."""
        link = self._link()
        try:
            assert STATE.trainer is not None
            hello = manifest.hello(STATE.trainer.digest)
            welcome = link.connect(hello, seconds)
            manifest.check(hello, welcome, self.name)
            return Twin(link, manifest.read(welcome), self._session.settings.patience)
        except BaseException:
            with contextlib.suppress(Exception):
                link.close()
            raise

    def _link(self) -> Link:
        if self._place.address is None:
            assert STATE.trainer is not None
            ready = STATE.workers.pop(self.name) if self.name in STATE.workers else None
            return LocalLink(ready or LocalWorker(STATE.trainer.worker, self.name), self._session.settings.patience)
        from .remote_link import RemoteLink

        return RemoteLink(remote_endpoint(self._place.address, os.environ, self._session.settings.patience))


def connect_all(session: Session, keepers: list[Keeper]) -> None:
    """Have every worker tried once, and wait for one at least. What the first attempt says about tokens and versions is raised."""
    seconds = session.settings.connect
    for keeper in keepers:
        keeper.look_for_it(seconds=seconds if len(keepers) == 1 else 0.0)
    until = time.monotonic() + seconds
    while True:
        for keeper in keepers:
            if isinstance(keeper.gave_up, FINAL):
                raise keeper.gave_up
        if all(keeper.tried.is_set() for keeper in keepers):
            if any(keeper.twin is not None for keeper in keepers):
                return
            if all(keeper.gave_up is not None for keeper in keepers) or time.monotonic() > until:
                raise _why_none(keepers, seconds)
        session.news.wait(0.5)
        session.news.clear()


def _why_none(keepers: list[Keeper], seconds: float) -> SplitterError:
    if len(keepers) == 1 and isinstance(keepers[0].reason, SplitterError):
        return keepers[0].reason
    return WorkerLostError.of("R402", seconds=f"{seconds:.0f}", why="; ".join(f"{keeper.name}: {keeper.reason}" for keeper in keepers))
