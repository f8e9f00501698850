"""Runs samples of one loader, several times, and gives the graph of its feed.

    loader -> dataset[0], dataset[7], ... -> collate_fn    recorded, again in coarser steps if samples differ, at last only timed

Every pass starts from the same states of the random-number generators, and these are put back at the end. Runs in the child process only.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.data import IterableDataset, Subset
from torch.utils.data._utils.collate import default_collate, default_convert

from splitter.graph import Graph
from splitter.head_text import HeadText
from splitter.ir_cut import Tail, Tried, TriedHead
from splitter.knowledge_ops import ESCAPES
from splitter.trace_containers import find_containers, name_of, traced_containers
from splitter.trace_events import LIBRARY, READ, Leaf, Record, Result, Seen
from splitter.trace_head import Batches, container_problem, module_space, try_head
from splitter.trace_lines import User
from splitter.trace_links import Chain, linked
from splitter.trace_merge import DifferentError, merge, uneven
from splitter.trace_record import Recorder, is_leaf, leaves_of
from splitter.trace_steps import Plans, Tracker
from splitter.trace_tail import try_tail

LEAST = 2  # samples
PASSES = 4  # runs of a sample that there must be time for: to warm up, recorded (which is slower), timed


class NoGraphError(Exception):
    """There is no graph of this feed; the text says why, in one line."""


@dataclass(frozen=True)
class Asked:
    """What to trace. `deadline` is a time of time.monotonic(). `made`: where containers of transforms were made."""

    feed: str
    samples: int
    deadline: float
    user: User
    made: dict[int, tuple[str, int]]
    progress: Callable[[int, int], None]
    audit: Callable[[Callable[[str, tuple[Any, ...]], None] | None], None]
    tails: tuple[Tail, ...] = ()
    head: HeadText | None = None
    frame: Mapping[str, Any] = field(default_factory=dict)  # local names that the head takes from where the loader is made


def trace_loader(loader: Any, asked: Asked) -> tuple[Graph, tuple[Tried | None, ...], TriedHead | None]:
    """The graph of a feed, and what came of its tails and of the head of its loop. Raises NoGraphError."""
    before = _states()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker
    try:
        with linked(asked.tails, asked.user) as chains:
            feed = _Feed(loader, asked, chains)
            graph = feed.graph()
            tried = tuple(feed.tried(tail, graph.samples) for tail in asked.tails)
        graph, head = feed.with_head(graph, threads)
        return graph, tried, head
    except DifferentError as error:
        raise NoGraphError(str(error)) from error
    finally:
        torch.set_num_threads(threads)
        _restore(before)


def batch_of(loader: Any, asked: Asked) -> tuple[Any, int]:
    """A batch of some samples, and their number. The states of the random-number generators are put back."""
    before = _states()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        feed = _Feed(loader, asked)
        samples = []
        with contextlib.suppress(StopIteration):
            for sample in feed.samples(asked.samples if feed.iterable else len(feed.indices)):
                samples.append(sample())
                if time.monotonic() > asked.deadline:
                    break
        if not samples:
            raise NoGraphError("there is no sample")
        return (loader.collate_fn(samples), len(samples)) if feed.batched else (loader.collate_fn(samples[0]), 1)
    finally:
        torch.set_num_threads(threads)
        _restore(before)


class _Escape(TorchFunctionMode):
    """Sees values of tensors get into Python without an ATen call."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "") in ESCAPES:
            self.recorder.escaped = True
        return function(*args, **(kwargs or {}))


class _Feed:
    def __init__(self, loader: Any, asked: Asked, chains: Sequence[Chain] = ()) -> None:
        self.loader, self.asked, self.chains = loader, asked, chains
        self.dataset, self.collate_fn = loader.dataset, loader.collate_fn
        self.iterable = isinstance(self.dataset, IterableDataset)
        self.batched = loader.batch_size is not None or loader.batch_sampler is not None
        self.plans = Plans(asked.user, asked.made)
        self.plans.steps[READ] = Seen(_read_name(self.dataset), "sample", None)
        self.begin = _states()
        self.at_once = not self.iterable and self.batched and _at_once(self.dataset)
        self.containers = [*find_containers(self.dataset), *chains]
        self.collating = find_containers(self.collate_fn)
        self.indices = [] if self.iterable else self.pick()

    def pick(self) -> list[Any]:
        """Which samples to run, spread evenly; a sampler of the user's own says which there are."""
        sampler = self.loader.sampler if self.batched and self.loader.sampler is not None else None
        if sampler is not None and not type(sampler).__module__.startswith("torch.utils.data"):
            found = []
            for index in sampler:
                found.append(index)
                if len(found) == self.asked.samples:
                    break
            return found
        try:
            length = len(self.dataset)
        except (TypeError, NotImplementedError):
            raise NoGraphError("the dataset has no length") from None
        count = min(self.asked.samples, length)
        return [number * (length - 1) // max(count - 1, 1) for number in range(count)]

    # --- passes

    def samples(self, count: int) -> Iterator[Callable[[], Any]]:
        """One call for each sample, from the same random states each time."""
        _restore(self.begin)
        if self.iterable:
            iterator = iter(self.dataset)
            next(iterator, None)  # before the first item there is more to do
            for _ in range(count):
                yield lambda: next(iterator)
            return
        if self.at_once:
            for sample in self.dataset.__getitems__(self.indices[:count]):
                yield lambda sample=sample: sample  # type: ignore[misc]
            return
        for index in self.indices[:count]:
            yield lambda index=index: self.dataset[index]  # type: ignore[misc]

    def graph(self) -> Graph:
        count = self.affordable()
        for _ in range(PASSES * 4):
            records, batch, keep = self.record(count)
            rough = uneven(records)
            if not rough:
                break
            if not self.plans.coarser(rough):
                raise NoGraphError("the samples take different steps")
            self.in_time()
        else:
            raise NoGraphError("the samples take different steps")
        del keep
        self.batch = batch
        times = self.measure(count)
        collate = self.record_collate(batch, records) if self.batched or self.collate_fn is not default_convert else None
        if collate is not None:
            times.update(self.measure_collate(batch))
        return merge(self.asked.feed, records, collate, self.plans.steps, times)

    def tried(self, tail: Tail, count: int) -> Tried | None:
        """What can be parted of a tail with the same bits; None when that can't be seen here."""
        lines = range(tail.container.line, tail.container.end_line + 1)
        made = [one for one in self.containers if self.asked.made.get(id(one), ("", 0))[1] in lines and self.of(one, tail)]
        if tail.links:
            made = [chain for chain in self.chains if chain.tail == tail]
        if len(made) != 1 or self.collate_fn not in (default_collate, default_convert) or time.monotonic() > self.asked.deadline:
            return None
        return try_tail(made[0], tail, lambda: self.samples(count), self.asked.user, self.dataset, batched=self.batched)

    def with_head(self, graph: Graph, threads: int) -> tuple[Graph, TriedHead | None]:
        """The graph with the head of the loop behind it, and what of the head must stay; None when that can't be seen here."""
        head = self.asked.head
        if head is None or not self.batched or time.monotonic() > self.asked.deadline:
            return graph, None

        def collated() -> Any:
            _restore(self.begin)
            return self.collate_fn(self.batch)

        if container_problem(collated(), head) is not None:
            return graph, None
        space = {**module_space(head.module), **self.asked.frame}
        return try_head(head, space, Batches(collated, len(self.batch), self.collate_fn is default_collate, _states), graph, threads)

    def of(self, container: Any, tail: Tail) -> bool:
        """Whether a container was made in the file of a tail."""
        return self.asked.user.path(self.asked.made[id(container)][0]) == tail.container.path

    def affordable(self) -> int:
        """How many samples there is time for. Runs the first ones: they import modules and fill caches."""
        count = self.asked.samples if self.iterable else len(self.indices)
        ran = 0
        took = 0.0
        for sample in self.samples(min(count, LEAST)):
            began = time.monotonic()
            try:
                sample()
            except StopIteration:
                break
            took = time.monotonic() - began
            ran += 1
            self.in_time()
        if ran < LEAST:
            raise NoGraphError(f"the dataset has fewer than {LEAST} samples")
        left = self.asked.deadline - time.monotonic()
        affordable = int(left / PASSES / max(took, 1e-6))
        if affordable < LEAST:
            raise NoGraphError(f"a sample takes {took:.1f} s, too long to run some of them")
        return min(count, affordable)

    def in_time(self) -> None:
        if time.monotonic() > self.asked.deadline:
            raise NoGraphError("running samples took too long")

    def record(self, count: int) -> tuple[list[Record], list[Any], list[Any]]:
        keep: list[Any] = []
        tracker = Tracker(self.plans, "sample", _states, keep)
        records, batch = [], []
        with self.tracking(tracker, self.containers):
            for number, sample in enumerate(self.samples(count)):
                self.in_time()
                try:
                    record, value = self.recorded(tracker, READ, sample, keep)
                except StopIteration:
                    break
                records.append(record)
                batch.append(value)
                self.asked.progress(number + 1, count)
        if len(records) < LEAST:
            raise NoGraphError(f"the dataset has fewer than {LEAST} samples")
        return records, batch, keep

    def recorded(self, tracker: Tracker, step: str, run: Callable[[], Any], keep: list[Any]) -> tuple[Record, Any]:
        recorder = Recorder(keep, tracker.near)
        with recorder, _Escape(recorder), tracker.running(step, recorder):
            value = run()
        leaves = leaves_of(value, keep)
        if tracker.returned is not None and tracker.returned[0] is value and len(tracker.returned[1]) == len(leaves):
            leaves = tracker.returned[1]
        leaves = [_named(leaf, number) for number, leaf in enumerate(leaves)]
        collating = step != READ
        results = [Result(leaf, f"out {n}") for n, leaf in enumerate(leaves) if collating or leaf.key is None or leaf.key[0] != "n"]
        tracker.end(results, changes=collating)
        return Record(recorder.events(), tuple(leaves)), value

    def measure(self, count: int) -> dict[str, float]:
        """Microseconds of each step, per sample: the median over the samples, with nothing recorded."""
        if self.at_once:
            began = time.thread_time_ns()
            ran = sum(1 for _ in self.samples(count))
            return {READ: (time.thread_time_ns() - began) / 1000 / ran}
        tracker = Tracker(self.plans, "sample")
        tracker.statements = any(span is not None and ":" in step for step, span in ((s, v.span) for s, v in self.plans.steps.items()))
        rows: list[dict[str, int]] = []
        with self.tracking(tracker, self.containers):
            for sample in self.samples(count):
                with contextlib.suppress(StopIteration), tracker.running(READ):
                    sample()
                tracker.end([], changes=False)
                rows.append(tracker.times)
                tracker.times = {}
                if time.monotonic() > self.asked.deadline:
                    break
        return {step: median(row.get(step, 0) for row in rows) / 1000 for step in dict.fromkeys(s for row in rows for s in row)}

    @contextlib.contextmanager
    def tracking(self, tracker: Tracker, containers: list[Any]) -> Iterator[None]:
        self.asked.audit(tracker.saw)
        try:
            with traced_containers(containers, tracker):
                yield
        finally:
            self.asked.audit(None)

    # --- collating

    def collate_step(self) -> str:
        """The step that a collate function is, unless it is the user's and its statements are."""
        name = name_of(self.collate_fn)
        step = LIBRARY + name
        self.plans.steps[step] = Seen(name, "collate", None)
        return step

    def record_collate(self, batch: list[Any], records: list[Record]) -> Record:
        keep: list[Any] = []
        tracker = Tracker(self.plans, "collate", _states, keep)
        value = batch if self.batched else batch[0]
        rows = zip(records, batch, strict=True) if self.batched else [(records[0], value)]
        given = [(leaf, part) for record, sample in rows for leaf, part in zip(record.returns, _parts(sample), strict=True)]
        tracker.batch = value, [leaf for leaf, _ in given], [part for _, part in given]
        with self.tracking(tracker, self.collating):
            return self.recorded(tracker, self.collate_step(), lambda: self.collate_fn(value), keep)[0]

    def measure_collate(self, batch: list[Any]) -> dict[str, float]:
        tracker = Tracker(self.plans, "collate")
        value = batch if self.batched else batch[0]
        with self.tracking(tracker, self.collating), tracker.running(self.collate_step()):
            self.collate_fn(value)
        return {step: took / 1000 / (len(batch) if self.batched else 1) for step, took in tracker.times.items()}


def _at_once(dataset: Any) -> bool:
    """Whether the dataset makes the samples of a batch in one call of its own."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return bool(getattr(dataset, "__getitems__", None))


def _parts(sample: Any) -> list[Any]:
    """For each leaf of a sample, the key or the number of the part that it is in."""
    inner: list[tuple[Any, Any]] = [(0, sample)]
    if isinstance(sample, dict):
        inner = list(sample.items())
    elif isinstance(sample, (tuple, list)) and not is_leaf(sample):
        inner = list(enumerate(sample))
    return [part for part, value in inner for _ in leaves_of(value, [])]


def _named(leaf: Leaf, number: int) -> Leaf:
    """A number in what comes out, told apart by its place."""
    return replace(leaf, key=("n", number)) if leaf.key is None else leaf


def _read_name(dataset: Any) -> str:
    return f"{type(dataset).__name__}.{'__iter__' if isinstance(dataset, IterableDataset) else '__getitem__'}"


def _states() -> dict[str, Any]:
    """The states of the random-number generators, to compare and to put back."""
    found: dict[str, Any] = {"torch": torch.get_rng_state().numpy().tobytes(), "random": random.getstate()}
    if "numpy" in sys.modules:
        import numpy

        kind, keys, *rest = numpy.random.get_state(legacy=True)
        found["numpy"] = (kind, numpy.asarray(keys).tobytes(), *rest)
    return found


def _restore(states: dict[str, Any]) -> None:
    torch.set_rng_state(torch.frombuffer(bytearray(states["torch"]), dtype=torch.uint8))
    random.setstate(states["random"])
    if "numpy" in states:
        import numpy

        kind, keys, *rest = states["numpy"]
        numpy.random.set_state((kind, numpy.frombuffer(keys, dtype=numpy.uint32), *rest))
