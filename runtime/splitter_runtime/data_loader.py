"""DataLoader: torch's own, but for where its batches are made when its dataset is on a worker."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch.utils.data
from torch.utils.data._utils import collate

from .adapters import install, remember
from .errors import CodecError, ConfigError
from .finish_device import Rest
from .finishing import rest_of, work_of
from .inline import InlineIterator
from .parked import Parked
from .remote_dataset import described, feed_of, number_of
from .remote_iterator import StreamsIterator
from .resume import Progress, Saved, save
from .sending import Package, Received, parts
from .session import Session
from .tally import Tally
from .trees import describe, is_remote, leaves


@dataclass(eq=False)
class Site:
    """What the worker knows about a loader."""

    session: Session
    number: int
    stateless: bool
    feed: str | None
    draws: tuple[str, ...] | None  # generators that making a batch may draw from; None: not known, or the process matters
    tally: Tally
    collates_freely: bool  # collate_fn and worker_init_fn, if any, keep no state
    parked: Parked = field(default_factory=Parked)
    received: tuple[bytes, Received] | None = None  # what was sent last, which streams leave as it is


class _ByName:
    """Default of `feed`: the loader builder that is named like the dataset, when the worker has one."""


class RemoteLoader(torch.utils.data.DataLoader[Any]):
    """A DataLoader whose batches may come from elsewhere, with no more methods than torch's own has: libraries that construct one anew
    must not take it for one that they could save.
    """

    feed: Any
    env: Any
    send: str | tuple[str, ...]
    inline: bool
    _send: tuple[str, ...]
    _site: Site | None
    _known: tuple[Any, Any]
    _progress: Progress | None = None  # of the newest iterator
    _rest: Rest | None = None  # what the loop that takes the batches does to them first
    _saved: Saved | None = None  # where the next one goes on

    def rebuilt(self, dataset: Any, *args: Any, **kwargs: Any) -> RemoteLoader:
        """Another loader with torch's own arguments, whose batches are made where this one's are; the functions must be the same."""
        made = RemoteLoader.__new__(RemoteLoader)
        torch.utils.data.DataLoader.__init__(made, dataset, *args, **kwargs)
        made.feed, made.env, made.send, made.inline = self.feed, self.env, self.send, self.inline
        made._send, made._site, made._known = self._send, self._site, self._known
        remember(made)
        return made

    def _get_iterator(self) -> Any:
        saved, self._saved = self._saved, None
        names = self._to_send()
        if self._site is None or (self._send and self.num_workers == 0 and not self.inline):
            return super()._get_iterator()
        self._rest = rest_of(self)
        received = self._hand_over(self._site, names) if names else None
        if self._site is None:
            if saved is not None:
                why = "its dataset can't be sent, so its batches are made by torch's own loader"
                raise ConfigError.of("R603", loader=self.feed, why=why)
            return super()._get_iterator()
        described = received.reference if received is not None and self._send else describe(self.dataset, number_of)
        if saved is not None:
            return self._go_on(saved, self._site, described, received)
        if self.num_workers == 0:
            return InlineIterator(self, self._site, described, received)
        self.check_worker_number_rationality()
        return StreamsIterator(self, self._site, described, received)

    def _go_on(self, saved: Saved, site: Site, described: Any, received: Received | None) -> Any:
        """An iterator that goes on from a saved state. ConfigError R603 when that can't be exact."""
        workers = saved.workers(self, site)
        if saved.state["mode"] == "again":
            return saved.make_again(self, lambda: InlineIterator(self, site, described, received))
        replayed = saved.replay(self)
        return (StreamsIterator if workers else InlineIterator)(self, site, described, received, replayed)

    def _to_send(self) -> tuple[str, ...]:
        """The parts to send: those that were to be, and functions that a library has replaced, as Lightning does to seed workers."""
        functions = ("collate_fn", "worker_init_fn")[: 2 if self.num_workers else 1]
        new = (name for name, known in zip(functions, self._known, strict=False) if getattr(self, name) is not known)
        return (*self._send, *(name for name in new if name not in self._send))

    def _hand_over(self, site: Site, names: tuple[str, ...]) -> Received | None:
        """Send these parts; None, and no site any more, when the dataset was to be sent and can't be. CodecError for other parts."""
        name = f"loader {site.feed}"
        try:
            package = Package.of({part: getattr(self, part) for part in names}, name)
            if not self.num_workers:  # what the templates hold changes with every batch
                return Received(site.session, site.number, package)
            digest = package.digest()
            if site.received is None or site.received[0] != digest:
                site.received = None
                site.received = digest, Received(site.session, site.number, package)
            return site.received[1]
        except CodecError as error:
            if not self._send:
                raise
            print(f"splitter: {name} stays in the trainer: {error}", file=sys.stderr)
            self._site = None
            return None


class DataLoader(RemoteLoader):
    """torch's DataLoader; with a dataset of a worker, or one of torch's wrappers (Subset, ConcatDataset, ...) over such, batches come
    from there.

    `feed` names the loader builder of the worker program (default: the one named like the dataset, if any; None: none), `env` is its
    environment. `send` names what is built here and sent to the workers whenever an iterator is made: "dataset", or a tuple that has
    "collate_fn" or "worker_init_fn" too; with num_workers=0 (unless `inline` says that nothing changes the dataset meanwhile), or when
    a part can't be sent, the loader is torch's own. All other arguments are torch's; collate_fn and worker_init_fn are the builder's on
    the worker, unless they are sent.
    ConfigError for a collate_fn or worker_init_fn that the worker program doesn't have.
    """

    def __init__(
        self,
        dataset: Any,
        *args: Any,
        feed: str | type[_ByName] | None = _ByName,
        env: Mapping[str, object] | None = None,
        send: str | tuple[str, ...] = (),
        inline: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(dataset, *args, **kwargs)
        self.feed, self.env, self.send, self.inline = feed, env, send, inline  # by these names Lightning constructs it again
        self._send = parts(send)
        elsewhere = self.num_workers > 0 or inline if self._send else is_remote(dataset, number_of)
        self._site = _open_site(self, dataset, feed, env or {}) if elsewhere else None
        self._known = (self.collate_fn, self.worker_init_fn)  # what the worker has, or is sent
        remember(self)
        install()

    def __iter__(self) -> Any:
        if self._iterator is not None and self._iterator._num_workers != self.num_workers:
            self._iterator = None  # an epoch with as many streams as the saved one had
        return super().__iter__()

    def state_dict(self) -> dict[str, Any]:
        """Where the newest iterator is, as plain data and tensors for torch.save, which torch.load(weights_only=True) reads: less than
        64 KiB for 8 streams, and what the sampler's state_dict() gives.

        The states of torch's, numpy's and Python's own generators in the trainer are the script's to save. The state says nothing of the
        dataset. ConfigError R602 when the batches can't be made exactly again, or are made by torch's own loader.
        """
        return dict(self._saved.state) if self._saved is not None else save(self, self._progress)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Have the next iterator go on where state_dict() was called: with batches that are the same, bit for bit.

        The sampler is asked again, under the generator states of then; afterwards the trainer's have those that they had before: the
        script restores them itself, before or after this. A sampler with state_dict() and load_state_dict() is brought where it was
        instead. Code that keeps no state reads no data again. That epoch has as many streams as the saved one; later ones have
        num_workers. The dataset must be as it was when that epoch began.
        ConfigError R603 when that can't be, here or when the iterator is made.
        """
        saved = Saved.read(self, state_dict)
        self._progress, self._iterator, self._saved = None, None, saved


def _is_default(loader: DataLoader, attribute: str) -> bool:
    """Whether a loader has torch's own function there."""
    torch_has = {
        "collate_fn": collate.default_collate if loader._auto_collation else collate.default_convert,
        "worker_init_fn": None,
    }
    return attribute not in loader._send and getattr(loader, attribute) is torch_has[attribute]


def _open_site(loader: DataLoader, dataset: Any, feed: Any, environment: Mapping[str, object]) -> Site:
    session = Session.current()
    manifest = session.manifest
    names = [] if loader._send else [feed_of(leaf) for leaf in leaves(dataset)]
    if feed is _ByName:
        feed = next((name for name in names if name in manifest.loaders), None)
    number = session.number()
    has = session.call("loader", feed, described(environment), fresh=number, changes=False).value
    there_are = dict(zip(("collate_fn", "worker_init_fn"), has, strict=True))
    left_out = [attribute for attribute, there in there_are.items() if there and _is_default(loader, attribute)]
    if left_out:  # options that the script gives only sometimes
        session.call("leave_out", number, tuple(left_out), changes=False)
    for attribute, there in there_are.items():
        given = None if there or attribute in loader._send else getattr(loader, attribute)
        if given is not None and not str(getattr(given, "__module__", "")).startswith("torch.utils.data."):
            what = f"{attribute}={getattr(given, '__qualname__', given)!s} is not in the worker program"
            raise ConfigError.of("R601", what=what)
    work_of(loader, in_main=False)  # says early what is wrong
    stateless = all(name is not None and manifest.datasets.get(name) is True for name in names)
    draws = [manifest.dataset_draws.get(name or "") for name in names]
    collates_freely = feed is None or manifest.loaders[feed] is True
    if feed is not None:
        stateless = stateless and collates_freely
        draws.append(manifest.loader_draws.get(feed))
    known = stateless and all(drawn is not None for drawn in draws) and not (loader.num_workers and there_are["worker_init_fn"])
    drawn = tuple(sorted({name for names in draws for name in names or ()})) if known else None
    name = feed or next((name for name in names if name), "loader")
    site = Site(session, number, stateless, feed, drawn, Tally.of(name, lambda: len(session.twins)), collates_freely)
    weakref.finalize(site, session.drop, number).atexit = False
    weakref.finalize(site, site.parked.close).atexit = False
    session.parked.add(site.parked)
    return site
