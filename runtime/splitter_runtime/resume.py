"""Resume: what a loader's `state_dict()` holds, and how an iterator goes on from there.

    progress = Progress(...)        one for each epoch: what was drawn from the sampler, and where each stream is behind its last batch
    saved = save(loader, progress)  plain data and tensors
    Saved.read(saved)               checked
    Saved.replay(loader)            the sampler where it was: it is asked again, under the generator states of then

Which way an epoch goes on is its `mode`:

    any       any process may make any batch: from the sampler alone
    cursors   code that keeps no state: every stream starts with its generator states
    streams   code that keeps state: every stream makes again what it had made, and withholds it; or starts at a position in its data
    main      num_workers=0, code that keeps no state: from the sampler alone
    again     num_workers=0, code that keeps state: all batches are made again, and thrown away
    position  num_workers=0, an iterable dataset that can say where it is
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import _DatasetKind

from . import ambient
from .errors import ConfigError
from .resume_indices import Draws, Indices, with_state
from .resume_states import Shelf, own_generators, set_state, state_of
from .streams import Here

if TYPE_CHECKING:
    from .data_loader import RemoteLoader, Site

VERSION = 1
_USUAL = (BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


@dataclass
class Beginning:
    """Generator states before the sampler was asked, and the steps that followed until the first index."""

    trainer: Mapping[str, bytes]
    own: list[Any]
    steps: tuple[str, ...]  # iter: the sampler is iterated; seed: the base seed is drawn

    @classmethod
    def now(cls, loader: Any, *steps: str) -> Beginning:
        return cls(ambient.states(), [state_of(generator) for generator in own_generators(loader)], steps)


@dataclass
class Progress:
    """One epoch of a loader. Streams note what comes, in any thread, under the lock of their context."""

    beginning: Beginning
    indices: Indices
    mode: str
    workers: int
    lock: threading.RLock = field(default_factory=threading.RLock)
    base_seed: int = 0
    passed: int = 0  # batches that the loop has got
    base: int = 0  # those of them that an iterator before this one gave
    finished: bool = False
    first: int = 0  # the stream whose turn is next
    counts: list[int] = field(default_factory=list)  # batches of each stream that the loop has got
    behind: list[Here] = field(default_factory=list)  # where each is behind the last of these
    drew: str = ""  # digest of the generator states that fetches of the main process drew from
    used: bool = False  # the dataset has state of an earlier epoch, which can't be saved
    position: Any = None  # called for the position in the data of num_workers=0
    _pending: dict[int, tuple[int, Here]] = field(default_factory=dict)
    _settled: int = 0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * self.workers
        self.behind = self.behind or [Here() for _ in range(self.workers)]

    def came(self, stream: int, number: int, here: Here) -> None:
        """A stream has given the batch of that number."""
        self._pending[number] = stream, here

    def resumed(self, stream: int, here: Here) -> None:
        """A stream of the epoch before is ready for this one."""
        self.behind[stream] = here

    def got(self, upto: int) -> None:
        """The loop has got all batches below that number."""
        for number in range(self._settled, upto):
            found = self._pending.pop(number, None)
            if found is not None:
                stream, self.behind[stream] = found
                self.counts[stream] += 1
                self.first = (stream + 1) % self.workers
        self._settled = upto
        self.passed = sum(self.counts) if self.mode == "streams" else self.base + upto
        draws = self.indices.draws
        while draws is not None and draws.recent and draws.drawn - self.passed < len(draws.recent):
            draws.recent.popleft()

    def finish(self) -> None:
        """The epoch is over."""
        self.finished, self.position = True, None

    def drawn_from(self, states: Mapping[str, bytes]) -> None:
        """A fetch of the main process drew from generators in these states."""
        if states:
            digest = hashlib.blake2b(self.drew.encode(), digest_size=16)
            for name in sorted(states):
                digest.update(name.encode() + states[name])
            self.drew = digest.hexdigest()


def mode_of(loader: Any, site: Site, workers: int) -> str:
    """How an epoch of the loader goes on when it is saved."""
    mapped = loader._dataset_kind == _DatasetKind.Map
    if site.stateless and mapped:
        return "any" if site.draws == () else "cursors" if workers else "main"
    return "streams" if workers else "again"


def _cannot_save(loader: RemoteLoader, why: str) -> ConfigError:
    return ConfigError.of("R602", loader=_name(loader), why=why)


def _cannot_go_on(loader: Any, why: str) -> ConfigError:
    return ConfigError.of("R603", loader=_name(loader), why=why)


def _name(loader: Any) -> str:
    site = loader._site
    return site.tally.site.name if site is not None else type(loader.dataset).__name__


def _shape(loader: Any) -> dict[str, Any]:
    iterable = loader._dataset_kind == _DatasetKind.Iterable
    return {"iterable": iterable, "batch_size": loader.batch_size, "drop_last": loader.drop_last}


def save(loader: RemoteLoader, progress: Progress | None) -> dict[str, Any]:
    """The state of a loader. ConfigError R602 when it can't be saved."""
    if loader._site is None:
        raise _cannot_save(loader, "its batches are made by torch's own loader, which can't go on in the middle of an epoch")
    state: dict[str, Any] = {"version": VERSION, "batches": 0, **_shape(loader)}
    if progress is None or progress.finished:
        return state
    with progress.lock:
        return {**state, **_save(loader, progress)}


def _save(loader: RemoteLoader, progress: Progress) -> dict[str, Any]:
    mode, shelf, draws = progress.mode, Shelf(), progress.indices.draws
    assert draws is not None  # an iterator has asked for them
    stateful = with_state(loader)
    if mode in ("cursors", "streams", "any") and progress.workers > 1 and not loader.in_order:
        raise _cannot_save(loader, "with in_order=False its batches come in no certain order")
    position = progress.position() if mode == "again" and progress.position is not None else None
    if position is not None:
        mode = "position"
    if mode == "again" and progress.used:
        raise _cannot_save(loader, "with num_workers=0, its dataset keeps state of the epochs before")
    if mode in ("streams", "again") and stateful is not None:
        raise _cannot_save(
            loader, "its dataset keeps state, so batches are made again, and a sampler with state_dict says nothing of these"
        )
    found: dict[str, Any] = {
        "mode": mode,
        "batches": progress.passed,
        "workers": progress.workers,
        "base_seed": progress.base_seed,
        "drawn": draws.drawn,
        "exhausted": draws.exhausted,
        "steps": progress.beginning.steps,
        "indices": draws.digest(),
        "drew": progress.drew,
        "first": progress.first,
    }
    if position is not None:
        found["position"] = position
    elif stateful is not None:
        window = [*draws.recent][-(draws.drawn - progress.passed) :] if draws.drawn > progress.passed else []
        found["sampler"], found["window"] = stateful.state_dict(), window
    if stateful is None and position is None:
        usual = mode != "again" and all(type(sampler) in _USUAL for sampler in _samplers(loader))
        names = [name for name in progress.beginning.trainer if name == "torch" or not usual]
        found["trainer"] = shelf.put({name: progress.beginning.trainer[name] for name in names})
    found["own"] = [
        _both(shelf, before, generator) for before, generator in zip(progress.beginning.own, own_generators(loader), strict=True)
    ]
    if mode in ("cursors", "streams"):
        found["streams"] = [_stream(loader, shelf, *one) for one in zip(progress.counts, progress.behind, strict=True)]
    found["generators"] = shelf.tensor()
    return found


def _samplers(loader: RemoteLoader) -> list[Any]:
    """The sampler that is asked, and the one that it asks."""
    asked = loader._index_sampler
    return [asked, asked.sampler] if type(asked) is BatchSampler else [asked]


def _both(shelf: Shelf, before: Any, generator: Any) -> dict[str, Any]:
    """States of a generator of the loader's own: at the epoch's beginning, and now."""
    states = {"before": before, "now": state_of(generator)}
    return {"torch": shelf.put(states)} if isinstance(before, bytes) else states


def _stream(loader: RemoteLoader, shelf: Shelf, count: int, here: Here) -> dict[str, Any]:
    if not here.whole:
        raise _cannot_save(loader, "with persistent_workers, its dataset keeps state of the epochs before")
    states = {name: state for name, state in here.states.items() if name in ambient.GENERATORS}
    made = {"count": count, "withhold": here.answered, "printed": here.printed, "quiet": here.quiet, "states": shelf.put(states)}
    return {**made, "position": here.states["position"]} if "position" in here.states else made


@dataclass
class Replayed:
    """Where an iterator goes on."""

    saved: Saved
    draws: Draws
    before: list[Any]  # the index batches that were given, as far as they are made again

    def starts(self) -> list[tuple[Here, list[Any]]]:
        """For each stream, where it starts, and the index batches of the answers to be withheld."""
        workers = self.saved.state["workers"]
        found = []
        for number, one in enumerate(self.saved.state.get("streams", ())):
            here = self.saved.here(one)
            mine = [None] * one["count"] if not self.before else self.before[number::workers][: one["count"]]
            found.append((here, mine[one["count"] - here.answered :]))
        return found


class Saved:
    """A state that save() gave, checked."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state
        self._shelf = Shelf(state.get("generators"))

    @classmethod
    def read(cls, loader: RemoteLoader, state: Any) -> Saved | None:
        """None when the loader is to begin an epoch. ConfigError R603 when the state isn't one of such a loader."""
        if loader._site is None:
            raise _cannot_go_on(loader, "its batches are made by torch's own loader")
        if not isinstance(state, Mapping) or state.get("version") != VERSION:
            raise _cannot_go_on(loader, f"it is not a state of this version ({VERSION})")
        for name, here in _shape(loader).items():
            if state.get(name) != here:
                raise _cannot_go_on(loader, f"{name} was {state.get(name)} and is {here}")
        try:
            return cls(dict(state)) if "mode" in state else None
        except (ValueError, AttributeError, TypeError) as error:
            raise _cannot_go_on(loader, f"it is damaged ({error})") from None

    def workers(self, loader: RemoteLoader, site: Site) -> int:
        """How many streams the epoch goes on with. ConfigError R603 when the code is of another kind than it was."""
        state = self.state
        now = mode_of(loader, site, state["workers"])
        if state["mode"] == "any" and now != "any" and state["workers"]:
            raise _cannot_go_on(loader, "making a batch drew no random numbers, and may now")
        stateless = ("any", "cursors", "main")
        if (state["mode"] in stateless) != (now in stateless):
            raise _cannot_go_on(loader, f"its code {'kept no' if state['mode'] in stateless else 'kept'} state, and it is other code now")
        return int(loader.num_workers if state["mode"] == now == "any" else state["workers"])

    def here(self, stream: Mapping[str, Any]) -> Here:
        states: dict[str, Any] = dict(self._shelf.get(stream["states"]))
        if "position" in stream:
            states["position"] = stream["position"]
        first, second = stream["printed"]
        return Here(states, stream["withhold"], (first, second), stream["quiet"])

    def progress(self, beginning: Beginning, indices: Indices, mode: str, workers: int) -> Progress:
        """The progress of an iterator that goes on."""
        state = self.state
        made = Progress(beginning, indices, mode, workers, base=state["batches"], passed=state["batches"], base_seed=state["base_seed"])
        made.first = state["first"] % max(1, workers)
        if "streams" in state:
            made.counts = [one["count"] for one in state["streams"]]
            made.behind = [self.here(one) for one in state["streams"]]
        if mode in ("any", "cursors") and workers:
            made.first = state["batches"] % workers
        return made

    def beginning(self) -> Beginning:
        """The saved epoch's."""
        own = [self._shelf.get(one["torch"])["before"] if "torch" in one else one["before"] for one in self.state["own"]]
        return Beginning(self._shelf.get(self.state.get("trainer", {})), own, tuple(self.state["steps"]))

    @contextlib.contextmanager
    def as_it_was(self, loader: Any) -> Iterator[None]:
        """The generators as they were when the epoch began. Afterwards the trainer's are put back, and the loader's own are where they
        were saved.
        """
        own = own_generators(loader)
        if len(own) != len(self.state["own"]):
            raise _cannot_go_on(loader, f"loader and samplers had {len(self.state['own'])} generators, and have {len(own)}")
        now = ambient.states()
        beginning = self.beginning()
        try:
            ambient.set_states(beginning.trainer)
            for generator, before in zip(own, beginning.own, strict=True):
                self._set(loader, generator, before)
            yield
            for generator, one in zip(own, self.state["own"], strict=True):
                self._set(loader, generator, self._shelf.get(one["torch"])["now"] if "torch" in one else one["now"])
        finally:
            ambient.set_states(now)

    def _set(self, loader: Any, generator: Any, state: Any) -> None:
        try:
            set_state(generator, state)
        except (ValueError, TypeError, RuntimeError, KeyError) as error:
            raise _cannot_go_on(loader, f"a generator of its sampler is another one than it was ({error})") from None

    def replay(self, loader: Any) -> Replayed:
        """Ask the sampler again, or bring it where it was. ConfigError R603 when it gives others than it gave."""
        state, sampler = self.state, loader._index_sampler
        constant = loader._dataset_kind == _DatasetKind.Iterable
        stateful = with_state(loader)
        if (stateful is not None) != ("sampler" in state) and state["mode"] != "position":
            raise _cannot_go_on(loader, "only one of the samplers, the one of then and the one of now, has state_dict")
        draws = Draws(iter(()), constant=constant, keeps=stateful is not None)
        before: list[Any] = []
        with self.as_it_was(loader):
            if constant:
                draws.source, draws.drawn = iter(sampler), state["drawn"]
                sample = next(iter(sampler))
                before = [sample] * max((one["count"] for one in state.get("streams", ())), default=0) * max(1, state["workers"])
            elif stateful is not None:
                stateful.load_state_dict(state["sampler"])
                draws.source = iter(() if state["exhausted"] else sampler)
                draws.ahead.extend(state["window"])
                draws.recent.extend(state["window"])
                draws.drawn, draws.exhausted = state["drawn"], state["exhausted"]
            else:
                before = self._ask_again(loader, draws)
        return Replayed(self, draws, before)

    def _ask_again(self, loader: Any, draws: Draws) -> list[Any]:
        """Returns the index batches that are made again; those that are not are in `draws`."""
        state = self.state
        for step in state["steps"]:
            if step == "iter":
                draws.source = iter(loader._index_sampler)
            else:
                torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        before = []
        for number in range(state["drawn"]):
            try:
                index = draws.draw()
            except StopIteration:
                break
            if number >= state["batches"]:
                draws.ahead.append(index)
            elif state["mode"] == "streams":
                before.append(index)
        if state["exhausted"]:
            with contextlib.suppress(StopIteration):  # what a sampler does after its last index
                draws.draw()
        if (draws.drawn, draws.exhausted, draws.digest()) != (state["drawn"], state["exhausted"], state["indices"]):
            why = (
                "its sampler gives other indices than it gave; it draws from a generator that is not the loader's, or keeps "
                "state (set_epoch?): bring it where it was at the epoch's beginning, or give it state_dict() and load_state_dict()"
            )
            raise _cannot_go_on(loader, why)
        return before

    def make_again(self, loader: Any, make: Callable[[], Any]) -> Any:
        """The iterator of num_workers=0 that `make` makes, after the batches that were given; what they print is not shown.

        ConfigError R603 when they are not made as they were.
        """
        state, nowhere = self.state, io.StringIO()
        with self.as_it_was(loader), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            iterator = make()
            for number in range(state["batches"]):
                if next(iterator, self) is self:
                    raise _cannot_go_on(loader, f"there are {number} batches where there were {state['batches']}")
            progress = iterator._progress
            if progress.indices.draws.digest() != state["indices"]:
                raise _cannot_go_on(loader, "its sampler gives other indices than it gave")
            if progress.drew != state["drew"]:
                why = "its dataset draws random numbers, and so does the script between two batches; with num_workers=1 it could"
                raise _cannot_go_on(loader, why)
        return iterator
