"""The template: the process that has built the datasets and stands for the script's main process.

It carries out calls in the order in which they come, each with the trainer's generator states, and forks streams. It has no thread of
its own and no gRPC. It dies with the launcher, and leaves as a Python program does when its input ends.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import multiprocessing
import os
import socket
import struct
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import Dataset, IterableDataset, _utils
from torch.utils.data.dataloader import _DatasetKind
from torch.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

from . import ahead, ambient
from .accepting import from_trainer, unpack
from .builders import PROGRAM, Loader
from .codec import encode
from .errors import CodecError, ConfigError
from .failures import record_exception
from .frames import CHUNK, Assembler, Buffer, Frame, Kind, pack, pack_value
from .outlet import LINES, Outlet, redirect
from .processes import receive_with
from .stateful import can_say, fetcher_at, position_of
from .stream import Place, run_stream
from .trees import leaves, rebuild

create_fetcher: Callable[..., Any] = _DatasetKind.create_fetcher

SPECIAL_METHODS = (
    "__len__", "__getitem__", "__getitems__", "__setitem__", "__delitem__", "__contains__", "__iter__", "__next__", "__call__", "__bool__",
    "__enter__", "__exit__",
)  # fmt: skip


class Template:
    """Objects of one session, and the calls on them. Numbers are given by the trainer."""

    def __init__(self, outlet: Outlet, here: bool) -> None:
        self._outlet, self._here = outlet, here
        self._objects: dict[int, Any] = {}  # datasets, and iterators over them
        self._names: dict[int, str] = {}
        self._loaders: dict[int, Loader] = {}
        self._fetchers: dict[int, Any] = {}
        self._after: dict[int, dict[str, bytes]] = {}  # fetcher -> generator states after its last fetch
        self._bound: dict[int, tuple[int, Any]] = {}  # loader -> number of its newest iterator, and the dataset of that
        self._states = ambient.states()
        self._fetched: Any = None  # the index of the call that is carried out
        self._ran_code = False  # the call that is carried out read an attribute by running code
        self._calls: dict[str, Callable[..., tuple[Kind, Any, str]]] = {
            "construct": self._construct,
            "loader": self._loader,
            "leave_out": self._leave_out,
            "receive": self._receive,
            "fetcher": self._fetcher,
            "fetch": self._fetch,
            "fetch_ahead": self._fetch_ahead,
            "position": self._position,
            "getattr": self._getattr,
            "setattr": self._setattr,
            "delattr": self._delattr,
            "call": self._call_method,
            "text": self._text,
            "drop": self._drop,
        }
        self._consoles = redirect(outlet, (LINES, LINES))

    # What the trainer asks for

    def context(self, frame: Frame) -> None:
        """Take over generator states and settings of the trainer."""
        new = frame.value
        try:
            if not self._here and not new["settings"].keys().isdisjoint(ambient.LOCAL):
                raise CodecError.of("R110", why="a trainer on another machine chooses no folder here")
            ambient.apply_settings(new["settings"])
            ambient.set_states(new["states"])
            self._states.update(new["states"])
        except (AttributeError, KeyError, TypeError, ValueError, struct.error) as error:
            raise CodecError.of("R110", why=f"a context that is none: {error}") from error

    def call(self, frame: Frame) -> None:
        """Carry out one call and answer it."""
        number = frame.number
        for console in self._consoles:
            console.number = number
        peek = self._ran_code = False
        self._fetched = None
        try:
            name, fresh, peek, arguments = frame.read(from_trainer)
            if type(name) is not str:
                raise CodecError.of("R110", why="a call without a name")
            kind, value, label = self._calls[name](fresh, *arguments)
            encoded = encode(value, name=label)
        except BaseException as error:  # whatever the user's code raises, or a value is that can't be read, the trainer raises
            kind, encoded = Kind.RAISED, encode(record_exception(error, self._fetched))
        sys.stdout.flush()
        sys.stderr.flush()
        after = ambient.states()
        changed = ambient.changes(self._states, after)
        if changed and peek:
            ambient.set_states({name: self._states[name] for name in changed})
            self._outlet.send(pack(Kind.DREW, number))
            return
        before: list[Buffer] = []
        if changed:
            self._states = after
            before += pack_value(Kind.STATES, number, changed)
        if self._ran_code:
            before += pack(Kind.RAN, number)
        self._outlet.deliver(kind, number, encoded, before)

    def open(self, frame: Frame, place: Place) -> None:
        """Fork a stream, as torch forks a worker."""
        given = frame.value
        number, iteration = given["loader"], given["iteration"]
        if self._bound.get(number, (None, None))[0] != iteration:
            self._bound[number] = (iteration, rebuild(given["dataset"], self._objects))
        dataset = self._bound[number][1]
        loader = self._for(number, dataset, auto_collation=given["order"].loop["auto_collation"])
        arguments = (place, dataset, loader, given["order"])
        # A fork of multiprocessing's, so that what the user's code asks multiprocessing about itself is as in the script.
        multiprocessing.get_context("fork").Process(target=run_stream, args=arguments, daemon=True).start()

    def _for(self, number: int, dataset: Any, *, auto_collation: bool) -> Loader:
        """The loader of that number, for batches of that dataset, which may be one whose samples the trainer finishes."""
        made = self._loaders[number]
        if not auto_collation:
            return made
        feeds = {self._names[known] for known, value in self._objects.items() if any(value is leaf for leaf in leaves(dataset))}
        unfinished = any(feed in PROGRAM.datasets and PROGRAM.datasets[feed].unfinished for feed in feeds)
        return dataclasses.replace(made, uniform=True) if unfinished else made

    # Calls: each returns the kind of its answer, the value, and the name of the value in error messages

    def _construct(self, fresh: int, feed: str, environment: dict[str, Any]) -> tuple[Kind, Any, str]:
        if feed not in PROGRAM.datasets:
            raise ConfigError.of("R601", what=f"the worker program has no dataset {feed!r}, it has {sorted(PROGRAM.datasets)}")
        made = PROGRAM.datasets[feed].build({name: rebuild(value, self._objects) for name, value in environment.items()})
        if isinstance(made, (IterDataPipe, MapDataPipe)):
            raise ConfigError.of("R601", what=f"{feed} is a DataPipe; the runtime takes datasets only")
        self._objects[fresh], self._names[fresh] = made, feed
        return Kind.RESULT, _description(made), feed

    def _loader(self, fresh: int, feed: str | None, environment: dict[str, Any]) -> tuple[Kind, Any, str]:
        made: object = Loader()
        if feed is not None:
            if feed not in PROGRAM.loaders:
                raise ConfigError.of("R601", what=f"the worker program has no loader {feed!r}, it has {sorted(PROGRAM.loaders)}")
            made = PROGRAM.loaders[feed].build({name: rebuild(value, self._objects) for name, value in environment.items()})
        if not isinstance(made, Loader):
            raise ConfigError.of("R601", what=f"the loader builder {feed!r} returned {type(made).__name__}, not splitter_runtime.Loader")
        self._loaders[fresh], self._names[fresh] = made, feed or ""
        return Kind.RESULT, (made.collate_fn is not None, made.worker_init_fn is not None), "loader"

    def _leave_out(self, fresh: int, number: int, names: tuple[str, ...]) -> tuple[Kind, Any, str]:
        left_out: dict[str, Any] = dict.fromkeys(names)
        self._loaders[number] = dataclasses.replace(self._loaders[number], **left_out)
        return Kind.RESULT, None, "loader"

    def _receive(self, fresh: int, loader: int, header: bytes, payload: Any) -> tuple[Kind, Any, str]:
        builder = PROGRAM.loaders.get(self._names[loader])
        received = unpack(header, payload, builder.accepts if builder else frozenset())
        self._objects[fresh], self._names[fresh] = received.pop("dataset", None), self._names[loader]
        self._loaders[loader] = dataclasses.replace(self._loaders[loader], **received)
        return Kind.RESULT, None, "dataset"

    def _fetcher(
        self, fresh: int, loader: int, dataset: Any, kind: int, auto_collation: bool, drop_last: bool, position: Any
    ) -> tuple[Kind, Any, str]:
        default = _utils.collate.default_collate if auto_collation else _utils.collate.default_convert
        real = rebuild(dataset, self._objects)
        collate = self._for(loader, real, auto_collation=auto_collation).collating(default)
        make = functools.partial(create_fetcher, kind, real, auto_collation, collate, drop_last)
        made = self._fetchers[fresh] = make() if position is None else fetcher_at(position, real, make)
        return Kind.RESULT, kind == _DatasetKind.Iterable and (can_say(made.dataset_iter) or can_say(real)), "fetcher"

    def _position(self, fresh: int, fetcher: int) -> tuple[Kind, Any, str]:
        return Kind.RESULT, position_of(self._fetchers[fetcher].dataset, self._fetchers[fetcher]), "position"

    def _fetch(self, fresh: int, fetcher: int, index: Any) -> tuple[Kind, Any, str]:
        self._fetched = index
        batch = self._fetchers[fetcher].fetch(index)
        self._after[fetcher] = ambient.states()
        return Kind.RESULT, batch, "batch"

    def _fetch_ahead(self, fresh: int, fetcher: int, index: Any, names: tuple[str, ...]) -> tuple[Kind, Any, str]:
        """A batch as it is when nobody draws from the generators `names` between the fetch before and this one.

        Gives (digest of their states before it, states that it changed, texts that it printed, batch); None when the states aren't
        known here, or when it raised or warned: it will be made again in its turn.
        """
        known = self._after.get(fetcher, {})
        if not known.keys() >= set(names):
            return Kind.RESULT, None, "batch"
        before = {name: known[name] for name in names}
        with ahead.held(self._consoles) as texts, ahead.unwarned() as warned:
            ambient.set_states(ambient.changes(self._states, before))
            try:
                batch = self._fetchers[fetcher].fetch(index)
                after = ambient.states(names)
            except BaseException:
                return Kind.RESULT, None, "batch"
            finally:
                ambient.set_states({name: self._states[name] for name in names})
        if warned:
            return Kind.RESULT, None, "batch"
        self._after[fetcher] = {**known, **after}
        return Kind.RESULT, (ahead.digest(before), ambient.changes(before, after), texts, batch), "batch"

    def _getattr(self, fresh: int, number: int, name: str) -> tuple[Kind, Any, str]:
        self._ran_code = _runs_code(self._objects[number], name)
        value = getattr(self._objects[number], name)
        if inspect.isroutine(value) or isinstance(value, functools.partial):
            return Kind.MARKED, ("method",), name
        return self._answer(fresh, value, f"{self._names[number]}.{name}")

    def _setattr(self, fresh: int, number: int, name: str, value: Any) -> tuple[Kind, Any, str]:
        setattr(self._objects[number], name, rebuild(value, self._objects))
        return Kind.RESULT, None, name

    def _delattr(self, fresh: int, number: int, name: str) -> tuple[Kind, Any, str]:
        delattr(self._objects[number], name)
        return Kind.RESULT, None, name

    def _call_method(self, fresh: int, number: int, name: str, args: Any, kwargs: Any) -> tuple[Kind, Any, str]:
        target = self._objects[number]
        args, kwargs = rebuild(args, self._objects), rebuild(kwargs, self._objects)
        value = iter(target) if name == "__iter__" else getattr(target, name)(*args, **kwargs)
        return self._answer(fresh, value, f"{self._names[number]}.{name}()")

    def _text(self, fresh: int, number: int, how: str) -> tuple[Kind, Any, str]:
        target = self._objects[number]
        return Kind.RESULT, repr(target) if how == "repr" else str(target), how

    def _drop(self, fresh: int, number: int) -> tuple[Kind, Any, str]:
        for table in (self._objects, self._names, self._loaders, self._fetchers, self._after, self._bound):
            table.pop(number, None)
        return Kind.RESULT, None, "drop"

    def _answer(self, fresh: int, value: Any, label: str) -> tuple[Kind, Any, str]:
        """A value as it is; datasets and iterators stay here, and the trainer gets a handle."""
        for number, known in self._objects.items():
            if known is value:
                return Kind.MARKED, ("handle", number), label
        if isinstance(value, Dataset):
            self._objects[fresh], self._names[fresh] = value, label
            return Kind.MARKED, ("dataset", fresh, _description(value)), label
        if isinstance(value, Iterator):
            self._objects[fresh], self._names[fresh] = value, label
            return Kind.MARKED, ("iterator", fresh), label
        return Kind.RESULT, value, label


def _runs_code(target: Any, name: str) -> bool:
    """Whether reading an attribute runs code of its class, which may change something: a property, __getattr__."""
    try:
        found = inspect.getattr_static(target, name)
    except AttributeError:
        return True
    plain = inspect.getattr_static(type(target), "__getattribute__") is object.__dict__["__getattribute__"]
    return not plain or (hasattr(type(found), "__get__") and not inspect.isroutine(found))


def _description(made: Any) -> dict[str, Any]:
    """What a handle must know to look like the dataset that it stands for."""
    # Not hasattr(type(made), ...): that would find type's own __call__.
    methods = [name for name in SPECIAL_METHODS if any(name in vars(kind) for kind in type(made).__mro__)]
    if hasattr(made, "__getitems__") and "__getitems__" not in methods:
        methods.append("__getitems__")
    return {"type": type(made).__name__, "iterable": isinstance(made, IterableDataset), "methods": methods}


def run_template(descriptor: int, *, here: bool = True) -> None:
    """Body of a template process; `descriptor` is its socket. Returns when the session ends. `here`: the trainer is on this machine."""
    source = socket.socket(fileno=descriptor)
    outlet = Outlet(source)
    outlet.introduce()
    outlet.log.arm()
    try:
        _serve(Template(outlet, here), outlet, source)
    except CodecError as error:  # bytes that no trainer sends
        print(error, file=sys.stderr, flush=True)
        os._exit(1)  # nothing of the program needs to leave in order, and the trainer waits only briefly to hear why


def _serve(template: Template, outlet: Outlet, source: socket.socket) -> None:
    assembler = Assembler()
    sockets: deque[int] = deque()
    while True:
        chunk, passed = receive_with(source, CHUNK)
        if not chunk:
            return
        sockets.extend(passed)
        for frame in assembler.feed(chunk):
            if frame.kind is Kind.CONTEXT:
                template.context(frame)
            elif frame.kind is Kind.CALL:
                template.call(frame)
            elif frame.kind is Kind.FREE:
                outlet.arena.returned(frame.number >> 1, keep=bool(frame.number & 1))
            elif frame.kind is not Kind.OPEN or not sockets:
                raise CodecError.of("R110", why=f"a template gets no {frame.kind.name} like this")
            else:
                _open(template, frame, Place(os.getpid(), socket.socket(fileno=sockets.popleft()), (source.fileno(),)))


def _open(template: Template, frame: Frame, place: Place) -> None:
    try:
        template.open(frame, place)
    except Exception:
        # The channel closes without a stream, which the trainer reports; the reason can only go to this worker's log.
        traceback.print_exc(file=sys.__stderr__)
    finally:
        place.socket.close()
