"""Where batches are finished: in the thread that pins memory, in one like it, or in the main thread with num_workers=0.

    num_workers >= 1        streams -> ResultQueue.get() -> queue -> loop
                                       `-- finishes; called by torch's pinning thread, or by a FinishThread without pin_memory
    num_workers == 0        FinishedFetcher.fetch() -> loop

Threads end as torch's pinning thread does: the iterator's _shutdown_workers() wakes and joins them. Those of iterators that are still there
when the program ends are joined then, since a thread that is inside torch when Python goes away brings the process down.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import StackDataset
from torch.utils.data._utils import MP_STATUS_CHECK_INTERVAL, collate
from torch.utils.data._utils.worker import _IterableDatasetStopIteration

from .errors import ConfigError
from .failures import FinishFailure, Lost, samples
from .finish import Finish
from .finish_device import Rest
from .remote_dataset import finish_of
from .trees import children

if TYPE_CHECKING:
    from .remote_iterator import StreamsIterator

Work: TypeAlias = "Callable[[Any], Any]"  # batch -> finished batch


def work_of(loader: Any, *, in_main: bool) -> Work | None:
    """What is to be done to each batch of a loader; None for nothing.

    ConfigError R601 when its dataset joins datasets that are finished in different ways, or its collate_fn is not torch's.
    """
    finish = _finish_of(loader)
    if finish is None or finish.on_device:
        return None
    if not loader._auto_collation:
        return finish.sample
    grad = torch.is_grad_enabled()  # a worker process has the mode that the main thread had when it was forked

    def work(batch: Any) -> Any:
        with torch.set_grad_enabled(grad):
            return finish.batch(batch)

    return (lambda batch: finish.batch(batch, in_main=True)) if in_main else work


def rest_of(loader: Any) -> Rest | None:
    """What is left to do to its batches in the loop that takes them; None for nothing. ConfigError as from `work_of`."""
    finish = _finish_of(loader)
    if finish is None or not finish.on_device:
        return None
    return Rest(finish, in_main=loader.num_workers == 0, collates=loader._auto_collation)


def _finish_of(loader: Any) -> Finish | None:
    """What is to be done to samples of its dataset."""
    finish = _joined(loader.dataset)
    if finish is not None and loader.collate_fn is not (collate.default_collate if loader._auto_collation else collate.default_convert):
        name = getattr(loader.collate_fn, "__qualname__", repr(loader.collate_fn))
        raise ConfigError.of("R601", what=f"collate_fn={name} would get samples of a dataset whose finish is yet to be done")
    return finish


def _joined(dataset: Any) -> Finish | None:
    """The finish of the samples of a dataset, or of a tree of torch's wrappers."""
    found = [_joined(child) for child in children(dataset)]
    if not found:
        return finish_of(dataset)
    if isinstance(dataset, StackDataset):  # its samples consist of those of its datasets
        parts = [None if one is None else one.structure for one in found]
        if all(part is None for part in parts):
            return None
        places = {one.on_device for one in found if one is not None}
        if len(places) > 1:
            raise ConfigError.of("R601", what=f"a {type(dataset).__name__} joins datasets that are finished in different places")
        stacked = dataset.datasets
        structure = dict(zip(stacked, parts, strict=True)) if isinstance(stacked, dict) else tuple(parts)
        return Finish(structure, on_device=places == {True})
    first = found[0]
    for other in found[1:]:
        if first is not other and (first is None or other is None or not first.same_as(other)):
            what = f"a {type(dataset).__name__} joins datasets whose samples the trainer finishes in different ways"
            raise ConfigError.of("R601", what=what)
    return first


def finished(result: Any, work: Work, index_of: Callable[[int], Any]) -> Any:
    """One of torch's results, (number, batch), finished; what is raised takes the place of the batch. Others pass as they are."""
    number, value = result
    if type(number) is not int or isinstance(value, (ExceptionWrapper, _IterableDatasetStopIteration)):
        return result
    try:
        return number, work(value)
    except Exception as error:
        return number, FinishFailure(error, samples(index_of(number)))


class FinishedFetcher:
    """Takes the place of torch's fetcher, over one whose batches are not finished."""

    def __init__(self, fetcher: Any, work: Work) -> None:
        self._fetcher, self._work = fetcher, work

    def fetch(self, index: Any) -> Any:
        """One batch. Raises what the dataset, collate_fn or the finish raises."""
        return self._work(self._fetcher.fetch(index))


class FinishThread(threading.Thread):
    """Takes results, which finishes them, and puts them where the loop gets them."""

    def __init__(self, results: Any, out: queue.Queue[Any], done: threading.Event) -> None:
        super().__init__(name="splitter finish", daemon=True)
        self._results, self._out, self._done = results, out, done

    def run(self) -> None:
        """Go on until the iterator is shut down, or can't go on."""
        while not self._done.is_set() and self._step():
            pass

    def _step(self) -> bool:
        """One result; in a function of its own so that nothing is kept until the next one."""
        try:
            self._out.put(self._results.get(timeout=MP_STATUS_CHECK_INTERVAL))
        except queue.Empty:
            return True
        except BaseException as error:  # the loop would wait for ever
            self._out.put((None, Lost(error)))
            return False
        return True

    def join(self, timeout: float | None = None) -> None:
        """As threads do; nothing when the iterator is collected in this very thread."""
        if threading.current_thread() is not self:
            super().join(timeout)


def start(iterator: StreamsIterator) -> None:
    """Have the results of an iterator over streams finished in another thread: torch's pinning thread, when there is one."""
    if not iterator._pin_memory:
        iterator._pin_memory_thread_done_event = done = threading.Event()
        out: queue.Queue[Any] = queue.Queue()
        thread = FinishThread(iterator._worker_result_queue, out, done)
        thread.start()
        iterator._data_queue, iterator._pin_memory_thread = out, thread
    _at_exit(iterator)


_running: weakref.WeakSet[StreamsIterator] = weakref.WeakSet()
_owner = 0  # the process that ends its threads when it ends


def _at_exit(iterator: StreamsIterator) -> None:
    global _owner
    _running.add(iterator)
    if _owner != os.getpid():
        if not _owner:
            atexit.register(_end)
        _owner = os.getpid()


def _end() -> None:
    if _owner != os.getpid():
        return
    for iterator in list(_running):
        iterator._pin_memory_thread_done_event.set()
        iterator._worker_result_queue.put((None, None))
        iterator._pin_memory_thread.join()
