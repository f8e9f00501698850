"""Builders: the functions of a worker program that make a dataset, or the functions that go with a loader.

@splitter_runtime.dataset("train", stateless=True)
def train(args): return ImageFolder(args.data)

@splitter_runtime.loader("train")
def train_loader(): return splitter_runtime.Loader(collate_fn=pad)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Loader:
    """What a loader needs besides its dataset; None stands for torch's own default.

    `head`: what the script's loop does first with each batch, done here: it takes the batch and gives the one that the loop goes on with.
    `uniform`: the trainer finishes the samples, so those of a batch must be of one type. Set by the template, which knows the dataset.
    """

    collate_fn: Callable[..., Any] | None = None
    worker_init_fn: Callable[[int], object] | None = None
    head: Callable[[Any], Any] | None = None
    uniform: bool = False

    def collating(self, default: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function that makes a batch of samples, with the head of the loop behind it. `default` is torch's."""
        from .collating import alike

        collate, head = self.collate_fn or (alike(default) if self.uniform else default), self.head
        return collate if head is None else lambda samples: head(collate(samples))


@dataclass(frozen=True)
class Builder:
    """A decorated function; `stateless` is None when it isn't known, `draws` when it isn't or the process matters."""

    name: str
    function: Callable[..., Any]
    stateless: bool | None
    globals: tuple[str, ...]
    draws: tuple[str, ...] | None = None
    accepts: frozenset[str] = frozenset()  # classes and functions of the script that may come with a dataset that is sent
    unfinished: bool = False  # the trainer finishes its samples

    def build(self, environment: Mapping[str, object]) -> Any:
        """Call the function with its environment: dotted names become namespaces. TypeError when a root is missing."""
        roots = namespaces(environment)
        for name in self.globals:
            if name in roots:
                module = self.function.__globals__
                module[name] = _merged(module.get(name), roots[name])
        parameters = inspect.signature(self.function).parameters
        return self.function(**{name: value for name, value in roots.items() if name in parameters})


@dataclass
class Program:
    """The builders of the worker program in this process."""

    datasets: dict[str, Builder] = field(default_factory=dict)
    loaders: dict[str, Builder] = field(default_factory=dict)


PROGRAM = Program()


class Namespace(SimpleNamespace):
    """What stands for the root of dotted names: `args`, of which only some attributes were sent."""


def _merged(old: object, new: object) -> object:
    """A global that several builders read keeps the attributes that earlier ones sent."""
    if not (isinstance(old, Namespace) and isinstance(new, Namespace)):
        return new
    for name, value in vars(new).items():
        setattr(old, name, _merged(getattr(old, name, None), value))
    return old


def namespaces(environment: Mapping[str, object]) -> dict[str, object]:
    """{"args.data": 1, "args.opt.lr": 2, "n": 3} -> {"args": namespace(data=1, opt=namespace(lr=2)), "n": 3}."""
    roots: dict[str, object] = {}
    for name, value in environment.items():
        first, *rest = name.split(".")
        if not rest:
            roots[first] = value
            continue
        space = roots.setdefault(first, Namespace())
        for part in rest[:-1]:
            if not hasattr(space, part):
                setattr(space, part, Namespace())
            space = getattr(space, part)
        setattr(space, rest[-1], value)
    return roots


def dataset(
    name: str,
    *,
    stateless: bool | None = None,
    draws: tuple[str, ...] | None = None,
    globals: tuple[str, ...] = (),
    unfinished: bool = False,
) -> Callable[[_F], _F]:
    """Declare the builder of a dataset. Its parameters are the roots of its environment's names, but for those in `globals`.

    `stateless=True`: what a batch holds depends on its indices and on the generators, not on the batches before. `draws` names the global
    generators ("numpy", "random", "torch") that making a batch may draw from; given at all, it says that any process may make any batch.
    `unfinished`: the trainer runs the end of the transforms, so samples of one batch must be of one type: collating would make them so.
    """

    def declare(function: _F) -> _F:
        PROGRAM.datasets[name] = Builder(name, function, stateless, globals, draws, unfinished=unfinished)
        return function

    return declare


def loader(
    name: str,
    *,
    stateless: bool | None = None,
    draws: tuple[str, ...] | None = None,
    globals: tuple[str, ...] = (),
    accepts: tuple[str, ...] = (),
) -> Callable[[_F], _F]:
    """Declare the builder of a loader's functions; it returns a Loader. `stateless` and `draws` are those of a dataset's builder.

    `accepts` names the script's own classes and functions that a dataset sent by the trainer may consist of: "Photos" of this program,
    "data.Photos" of a module, "torchvision.*" for whatever is in that package.
    """
    names = frozenset(given if "." in given else f"__main__.{given}" for given in accepts)

    def declare(function: _F) -> _F:
        PROGRAM.loaders[name] = Builder(name, function, stateless, globals, draws, names)
        return function

    return declare
