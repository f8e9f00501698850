"""Datasets that stand for others: torch's Subset, ConcatDataset, ChainDataset and StackDataset, described as plain data and made again.

    describe(Subset(handle, [1, 2]), number_of) -> Wrapper("Subset", {"dataset": Reference(3), "indices": [1, 2]})
    rebuild(that, {3: the_dataset})             -> Subset(the_dataset, [1, 2])

Made again without their constructors, which would call len() on the datasets once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch.utils.data import ChainDataset, ConcatDataset, StackDataset, Subset

from .errors import ConfigError

WRAPPERS: dict[str, type] = {kind.__name__: kind for kind in (Subset, ConcatDataset, ChainDataset, StackDataset)}
_CHILDREN = {Subset: "dataset", ConcatDataset: "datasets", ChainDataset: "datasets", StackDataset: "datasets"}


@dataclass(frozen=True)
class Reference:
    """A dataset on the worker."""

    number: int


@dataclass(frozen=True)
class Wrapper:
    """One of torch's wrappers; `state` is its __dict__, datasets in it described."""

    kind: str
    state: dict[str, Any]


def children(dataset: Any) -> list[Any]:
    """The datasets right below one of the wrappers, [] for anything else."""
    attribute = _CHILDREN.get(type(dataset))
    if attribute is None:
        return []
    below = getattr(dataset, attribute)
    return [below] if attribute == "dataset" else list(below.values() if isinstance(below, dict) else below)


def leaves(dataset: Any) -> Iterator[Any]:
    """The datasets that a tree of wrappers stands on."""
    below = children(dataset)
    if not below:
        yield dataset
    for child in below:
        yield from leaves(child)


def is_remote(dataset: Any, number_of: Callable[[Any], int | None]) -> bool:
    """Whether a dataset is on the worker. ConfigError for a tree that is so only in part."""
    found = {number_of(leaf) is not None for leaf in leaves(dataset)}
    if len(found) == 2:
        raise ConfigError.of("R601", what=f"a {type(dataset).__name__} joins datasets of the worker with others")
    return found == {True}


def describe(value: Any, number_of: Callable[[Any], int | None]) -> Any:
    """The value with references in place of datasets of the worker, also inside wrappers, lists, tuples and dicts."""
    number = number_of(value)
    if number is not None:
        return Reference(number)
    kind = type(value)
    if kind in _CHILDREN:
        if any(number_of(leaf) is not None for leaf in leaves(value)):
            return Wrapper(kind.__name__, {name: describe(part, number_of) for name, part in vars(value).items()})
        return value
    if kind in (list, tuple) and len(value) <= _FEW:
        return kind(describe(part, number_of) for part in value)
    if kind is dict and len(value) <= _FEW:
        return {name: describe(part, number_of) for name, part in value.items()}
    return value


_FEW = 1000  # longer lists are data: index lists with millions of numbers are not searched for datasets


def rebuild(value: Any, objects: Mapping[int, Any], known: dict[int, Any] | None = None) -> Any:
    """describe() backwards. KeyError for a dataset that isn't there. What is one list, tuple or dict stays one, however often it occurs."""
    known = {} if known is None else known
    if isinstance(value, Reference):
        return objects[value.number]
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, Wrapper):
        kind: Any = WRAPPERS[value.kind]
        made = known[id(value)] = kind.__new__(kind)
        vars(made).update({name: rebuild(part, objects, known) for name, part in value.state.items()})
        return made
    kind = type(value)
    if kind not in (list, tuple, dict) or len(value) > _FEW:
        return value
    if kind is tuple:
        return known.setdefault(id(value), tuple(rebuild(part, objects, known) for part in value))
    made = known[id(value)] = kind()
    if kind is list:
        made.extend(rebuild(part, objects, known) for part in value)
    else:
        made.update({name: rebuild(part, objects, known) for name, part in value.items()})
    return made
