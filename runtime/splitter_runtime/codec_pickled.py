"""The attributes with which an instance would come out of pickle, for values that the script's own loader pickles.

torch's worker processes pickle their batches, so a class that says what is in its pickle gets just that:

    def __getstate__(self):                      without a __setstate__: the attributes in it
        return {"data": self.data}
    @dataclass(frozen=True, slots=True)          with a __setstate__ that is known: the attributes that it sets

Only `__getstate__` runs, where the value is, as it does in the script. A `__setstate__` would run where it arrives, on what another
process has chosen: one that isn't known is refused, and so is a `__reduce__`.
"""

from __future__ import annotations

import collections
import copyreg
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .codec_classes import slots, state_of
from .codec_writer import Refusal, type_name

# pairs of __getstate__ and __setstate__, and the attributes that they take from one object to another
_KNOWN: dict[tuple[str, str], Callable[[Any], frozenset[str]]] = {
    ("dataclasses", "_dataclass_{}"): lambda cls: frozenset(field.name for field in dataclasses.fields(cls)),
    ("attr._make", "_ClassBuilder._make_getstate_setstate.<locals>.slots_{}"): lambda cls: frozenset(
        field.name for field in cls.__attrs_attrs__
    ),
    ("transformers.tokenization_utils_base", "BatchEncoding.__{}__"): lambda cls: frozenset({"data", "_encodings"}),
    ("transformers.feature_extraction_utils", "BatchFeature.__{}__"): lambda cls: frozenset({"data"}),
}
# attributes of these are not in their pickle, which calls the class
_CALLED = (collections.Counter, collections.defaultdict)


@dataclass(frozen=True)
class _Rule:
    why_not: str = ""
    asked: bool = False  # __getstate__ is
    kept: frozenset[str] | None = None  # names of attributes; None: all


def pickled_state(value: object) -> dict[Any, Any]:
    """Attributes of an instance as pickle would take them along. Refusal when that takes more than running __getstate__."""
    cls: Any = type(value)
    rule = _rule(cls)
    if rule.why_not:
        raise Refusal("R107", type=type_name(cls), why=rule.why_not)
    if rule.asked:
        return _asked(value)
    state = state_of(value)
    return state if rule.kept is None else {name: item for name, item in state.items() if name in rule.kept}


def _asked(value: Any) -> dict[Any, Any]:
    cls = type(value)
    try:
        state = value.__getstate__()
    except Exception as error:  # whatever the user's code raises; in the script it ends the loader's process
        raise Refusal("R107", type=type_name(cls), why=f"its __getstate__ raises {type(error).__name__}: {error}") from error
    if state is None:
        return {}
    if type(state) is not dict or not all(type(name) is str for name in state):
        raise Refusal("R107", type=type_name(cls), why="what its __getstate__ returns is not a dict of attributes")
    if not state.keys().isdisjoint(slots(cls)) or (state and not cls.__dictoffset__):
        raise Refusal("R107", type=type_name(cls), why="its __getstate__ returns slots among the attributes")
    return state


@lru_cache(maxsize=4096)
def _rule(cls: Any) -> _Rule:
    if cls in copyreg.dispatch_table:
        return _Rule(why_not="copyreg has a function for its class")
    owner = _owner(cls, "__reduce__")
    if any(found.__module__ not in ("builtins", "collections", "types") for found in (owner, _owner(cls, "__reduce_ex__"))):
        return _Rule(why_not="its class has a __reduce__ of its own")
    if owner in _CALLED:
        if _owner(cls, "__init__") is not owner:
            return _Rule(why_not=f"its class has an __init__ of its own, which pickle calls for a {owner.__name__}")
        return _Rule(kept=frozenset())
    getter, setter = getattr(cls, "__getstate__", None), getattr(cls, "__setstate__", None)
    own = getter is not getattr(object, "__getstate__", None)  # before Python 3.11 object has none
    if setter is None:
        return _Rule(asked=own)
    for (module, name), kept in _KNOWN.items():
        if _is(getter, module, name.format("getstate")) and _is(setter, module, name.format("setstate")):
            return _Rule(kept=kept(cls))
    return _Rule(why_not="its class has a __setstate__ of its own")


def _is(function: Any, module: str, name: str) -> bool:
    return getattr(function, "__module__", None) == module and getattr(function, "__qualname__", None) == name


def _owner(cls: type, name: str) -> type:
    """The class in which an attribute of `cls` is defined."""
    return next(base for base in cls.__mro__ if name in vars(base))
