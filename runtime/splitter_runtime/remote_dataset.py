"""RemoteDataset: stands for a dataset that a worker program builds. replicated(): a dataset that is built on both sides.

train = RemoteDataset("train", {"args.data": "/data"})
len(train), train.classes, train.set_epoch(3), train[0]      carried out on the worker, in order
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from torch.utils.data import Dataset, IterableDataset

from . import ambient
from .errors import ConfigError
from .finish import Finish
from .frames import Frame, Kind
from .session import Session
from .trees import describe

_T = TypeVar("_T")


def number_of(value: Any) -> int | None:
    """The number under which the templates know a dataset; None for one that they don't."""
    if isinstance(value, RemoteDataset):
        number: int = object.__getattribute__(value, "_splitter_number")
        return number
    return _twins.get(id(value), (None, None, None))[0]


def feed_of(value: Any) -> str | None:
    """The name of the builder that made a dataset on the worker."""
    if isinstance(value, RemoteDataset):
        feed: str | None = object.__getattribute__(value, "_splitter_feed")
        return feed
    return _twins.get(id(value), (None, None, None))[1]


def finish_of(value: Any) -> Finish | None:
    """What is to be done here to samples of a dataset of the worker; None for nothing, and for other values."""
    if isinstance(value, RemoteDataset):
        finish: Finish | None = object.__getattribute__(value, "_splitter_finish")
        return finish
    return None


def _whole_number_of(value: Any) -> int | None:
    """As number_of; ConfigError for a dataset whose samples are finished here, which another dataset on the worker would get unfinished."""
    if finish_of(value) is not None:
        raise ConfigError.of("R601", what="a dataset with a finish can't be a part of another dataset on the worker")
    return number_of(value)


def described(environment: Mapping[str, object]) -> dict[str, Any]:
    """Environment values in the form in which they are sent."""
    return {name: describe(value, number_of) for name, value in environment.items()}


class _Handle:
    """What stands for an object on the worker: its number, and the session that it belongs to."""

    def __init__(self, session: Session, number: int) -> None:
        object.__setattr__(self, "_splitter_session", session)
        object.__setattr__(self, "_splitter_number", number)
        weakref.finalize(self, session.drop, number).atexit = False


def _ask(handle: Any, name: str, *arguments: Any, changes: bool = True) -> Any:
    """Carry out a call on the object behind a handle, and make its answer a value."""
    session: Session = object.__getattribute__(handle, "_splitter_session")
    if session.owner != os.getpid():
        Session.current()  # says what is wrong
    number = object.__getattribute__(handle, "_splitter_number")
    fresh = session.number()
    return _answer(handle, session, session.call(name, number, *arguments, fresh=fresh, changes=changes), arguments)


def _answer(handle: Any, session: Session, frame: Frame, arguments: tuple[Any, ...]) -> Any:
    if frame.kind is not Kind.MARKED:
        return frame.value
    mark, *rest = frame.value
    if mark == "method":
        return RemoteMethod(handle, arguments[0])
    if mark == "iterator":
        return RemoteIterator(session, rest[0])
    if mark == "dataset":
        if finish_of(handle) is not None:
            raise ConfigError.of("R601", what="a dataset with a finish makes another dataset, whose samples nobody finishes")
        return make_handle(session, rest[0], rest[1], None)
    return session_object(session, rest[0])


class RemoteMethod:
    """A method of a dataset on the worker."""

    def __init__(self, handle: RemoteDataset, name: str) -> None:
        self._handle, self.__name__ = handle, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _ask(self._handle, "call", self.__name__, describe(args, number_of), describe(kwargs, number_of))

    def __repr__(self) -> str:
        return f"<remote method {self.__name__} of {object.__repr__(self._handle)}>"


class RemoteIterator(_Handle):
    """An iterator on the worker; `finish` is what is done here to what it gives."""

    def __init__(self, session: Session, number: int, finish: Finish | None = None) -> None:
        super().__init__(session, number)
        object.__setattr__(self, "_splitter_finish", finish)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        value = _ask(self, "call", "__next__", (), {})
        finish: Finish | None = object.__getattribute__(self, "_splitter_finish")
        return value if finish is None else finish.sample(value)


class RemoteDataset(Dataset[Any], _Handle):
    """The dataset that the builder `feed` of the worker program makes of `environment`.

    An instance has the special methods that the real dataset has, and is an IterableDataset when that is one. Attributes are read,
    written and called on the worker; values that come back are copies. Raises what the builder raises; CodecError for
    values that can't be sent.

    `finish` is what is left to do here to each sample, in the form of one: callables and None in tuples, lists and dicts (see `finish`).
    Indexing and iterating give finished samples, and loaders finished batches; with finish_on="device" the loop that takes the batches of a
    loader finishes them (see `finish_device`).
    """

    def __new__(
        cls, feed: str, environment: Mapping[str, object] | None = None, finish: Any = None, finish_on: str = "cpu"
    ) -> RemoteDataset:
        if finish_on not in ("cpu", "device"):
            raise ConfigError.of("R601", what=f'finish_on={finish_on!r} is neither "cpu" nor "device"')
        session = Session.current()
        fresh = session.number()
        sent = {name: describe(value, _whole_number_of) for name, value in (environment or {}).items()}
        made = None if finish is None else Finish(finish, on_device=finish_on == "device")
        frame = session.call("construct", feed, sent, fresh=fresh)
        return make_handle(session, fresh, frame.value, feed, made)

    def __init__(self, feed: str, environment: Mapping[str, object] | None = None, finish: Any = None, finish_on: str = "cpu") -> None:
        """Everything is done by then."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_splitter_") or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return _ask(self, "getattr", name, changes=False)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "setattr", name, describe(value, number_of))

    def __delattr__(self, name: str) -> None:
        _ask(self, "delattr", name)

    def __repr__(self) -> str:
        text: str = _ask(self, "text", "repr", changes=False)
        return text

    def __str__(self) -> str:
        text: str = _ask(self, "text", "str", changes=False)
        return text

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise ConfigError.of("R601", what="a dataset on a worker can't be copied or pickled; build it in the process that uses it")


def _special(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        value = _ask(self, "call", name, describe(args, number_of), {}, changes=name not in ("__len__", "__bool__", "__contains__"))
        finish = finish_of(self)
        return value if finish is None or name not in _GIVING else _finished(finish, name, value)

    method.__name__ = method.__qualname__ = name
    return method


_GIVING = ("__getitem__", "__getitems__", "__iter__", "__next__")  # samples


def _finished(finish: Finish, name: str, value: Any) -> Any:
    """What one of these methods gives, finished."""
    if name == "__getitems__":
        return [finish.sample(sample) for sample in value]
    if isinstance(value, RemoteIterator):
        object.__setattr__(value, "_splitter_finish", finish)
        return value
    return value if name == "__iter__" else finish.sample(value)


_classes: dict[tuple[str, bool, tuple[str, ...]], type] = {}
_handles: weakref.WeakValueDictionary[int, RemoteDataset] = weakref.WeakValueDictionary()
_twins: dict[int, tuple[int | None, str | None, Any]] = {}  # id of a local dataset -> its remote twin's number and feed, a reference


def make_handle(
    session: Session, number: int, description: Mapping[str, Any], feed: str | None, finish: Finish | None = None
) -> RemoteDataset:
    """The handle of a dataset that is there already."""
    key = (description["type"], description["iterable"], tuple(description["methods"]))
    if key not in _classes:
        bases = (RemoteDataset, IterableDataset) if description["iterable"] else (RemoteDataset,)
        _classes[key] = type(description["type"], bases, {name: _special(name) for name in description["methods"]})
    handle: RemoteDataset = object.__new__(_classes[key])
    object.__setattr__(handle, "_splitter_feed", feed)
    object.__setattr__(handle, "_splitter_finish", finish)
    _Handle.__init__(handle, session, number)
    _handles[number] = handle
    return handle


def session_object(session: Session, number: int) -> Any:
    """What stands here for an object that the templates know."""
    for known, _, reference in _twins.values():
        if known == number:
            return reference()
    return _handles[number]


def replicated(feed: str, environment: Mapping[str, object], build: Callable[[], _T]) -> _T:
    """Build a dataset here, and the same on the workers from the same generator states; returns the local one.

    Raises what `build` raises; ConfigError when the two builds drew different random numbers.
    """
    session = Session.current()
    fresh = session.number()
    pending = session.submit("construct", feed, described(environment), fresh=fresh)
    made = build()
    session.wait(pending, twice=True)
    different = ambient.changes(session.home.known, ambient.states())
    if different:
        names = ", ".join(sorted(different))
        raise ConfigError.of("R601", what=f"building {feed} here and on the worker drew different random numbers ({names})")
    key = id(made)

    def forget(_: object = None) -> None:
        _twins.pop(key, None)
        session.drop(fresh)

    try:
        reference: Any = weakref.ref(made, forget)
    except TypeError:  # a class without room for weak references: it stays as long as the process
        reference = lambda: made  # noqa: E731
    _twins[key] = (fresh, feed, reference)
    return made
