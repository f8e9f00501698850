"""Graph and Cut as plain values for JSON, and back: the same that went in comes out.

    Step("crop", "sample", None, 2.5, ("torch",))
    {"name": "crop", "part": "sample", "span": null, "microseconds": 2.5, "draws": ["torch"]}

The keys are the fields of the types in `graph`, so those are the schema: what they say about a field is checked on the way back. Tuples
become lists, sets sorted lists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from math import isfinite
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from splitter.graph import Cut, Graph

_T = TypeVar("_T")


def graph_json(graph: Graph) -> dict[str, object]:
    return _fields(graph)


def cut_json(cut: Cut) -> dict[str, object]:
    return _fields(cut)


def graph_from(value: object) -> Graph:
    """The graph of which `value` is the JSON. ValueError that names the place where it isn't one."""
    return _dataclass(Graph, value, "graph")


def cut_from(value: object) -> Cut:
    """The cut of which `value` is the JSON. ValueError that names the place where it isn't one."""
    return _dataclass(Cut, value, "cut")


def _fields(value: Any) -> dict[str, object]:
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: object) -> object:
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return sorted(value) if isinstance(value, frozenset) else value


def _dataclass(kind: type[_T], value: object, where: str) -> _T:
    hints = get_type_hints(kind)
    if not isinstance(value, dict):
        raise ValueError(f"{where}: {_named(value)} instead of an object")
    if value.keys() != hints.keys():
        missing, unknown = sorted(hints.keys() - value.keys()), sorted(map(str, value.keys() - hints.keys()))
        raise ValueError(f"{where}: " + ", ".join([*(f"{key} is missing" for key in missing), *(f"{key} is unknown" for key in unknown)]))
    arguments = {name: _read(hint, value[name], f"{where}.{name}") for name, hint in hints.items()}
    try:
        return kind(**arguments)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where}: {error}") from None


def _read(kind: Any, value: object, where: str) -> object:
    """`value` as `kind`, which is the type of a field."""
    if is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, value, where)
    if kind in _SCALARS:
        return _scalar(kind, value, where)
    return _READERS[get_origin(kind)](get_args(kind), value, where)


def _scalar(kind: type, value: object, where: str) -> object:
    if kind is float and type(value) is int and abs(value) <= 1 << 53:
        return float(value)
    if type(value) is not kind:  # a bool is an int for isinstance
        raise ValueError(f"{where}: {_named(value)} instead of {_SCALARS[kind]}")
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{where}: {value} is no finite number")
    return value


def _choice(choices: tuple[Any, ...], value: object, where: str) -> object:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{where}: {_named(value)} instead of one of {', '.join(choices)}")
    return value


def _optional(kinds: tuple[Any, ...], value: object, where: str) -> object:
    return None if value is None else _read(kinds[0], value, where)


def _tuple(kinds: tuple[Any, ...], value: object, where: str) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where}: {_named(value)} instead of a list")
    return tuple(_read(kinds[0], part, f"{where}[{index}]") for index, part in enumerate(value))


def _set(kinds: tuple[Any, ...], value: object, where: str) -> frozenset[object]:
    return frozenset(_tuple(kinds, value, where))


def _named(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


_SCALARS: dict[type, str] = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}
_READERS: dict[Any, Callable[[tuple[Any, ...], object, str], object]] = {
    Literal: _choice,
    UnionType: _optional,  # every union in these types is `X | None`
    Union: _optional,  # what Python before 3.14 makes of `Literal[...] | None`
    tuple: _tuple,
    frozenset: _set,
}
