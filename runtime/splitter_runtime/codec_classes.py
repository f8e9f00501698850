"""Classes by name: found among modules that are already imported, never executed.

Only the libraries whose objects hold a script's options are imported when one arrives: a worker program has no use for their names, so
it does not import them.
"""

from __future__ import annotations

import contextlib
import copyreg
import importlib
import struct
import sys
import types
from functools import lru_cache
from typing import Any

from .errors import CodecError

OPTIONS = frozenset({"omegaconf", "yacs", "easydict", "addict", "munch", "ml_collections"})
MAINS = ("__main__", "__mp_main__")
_POINTER = struct.calcsize("P")
HEAP_TYPE = 1 << 9  # flag of classes that a class statement (or an extension, at run time) made


def _look_up(module: str, name: str) -> object:
    """What stands under a name, or None; read from the dictionaries themselves, so that no `__getattr__` runs."""
    first, *rest = name.split(".")
    for candidate in MAINS if module in MAINS else (module,):
        home = sys.modules.get(candidate)
        found: object = vars(home).get(first) if isinstance(home, types.ModuleType) else None
        for part in rest:  # through classes only: a module that another one has imported is not in that one
            found = vars(found).get(part) if isinstance(found, type) else None
        if found is not None:
            return found
    return None


def class_names(cls: type) -> tuple[str, str] | None:
    """Module and qualified name under which `cls` is found again, or None when it isn't."""
    module = "__main__" if cls.__module__ in MAINS else cls.__module__
    return (module, cls.__qualname__) if _look_up(module, cls.__qualname__) is cls else None


def resolve(module: str, name: str) -> type:
    """The class of that name; CodecError R113 when it isn't known here."""
    if module not in sys.modules and module.partition(".")[0] in OPTIONS:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    found = _look_up(module, name)
    if not isinstance(found, type):
        raise CodecError.of("R113", name=f"{module}.{name}")
    return found


def why_not_plain(cls: type, base: type = object) -> str | None:
    """Why instances of `cls` can't be rebuilt with `base.__new__` and their state; None when they can.

    A finaliser would run on state that another process chose; a `__reduce__` of its own says that the state is not all
    there is.
    """
    return _why_not_plain(cls, base)


@lru_cache(maxsize=4096)
def _why_not_plain(cls: Any, base: Any) -> str | None:
    if hasattr(cls, "__del__"):
        return "its class has a __del__"
    if base is object and (cls.__reduce_ex__ is not object.__reduce_ex__ or cls.__reduce__ is not object.__reduce__):
        return "its class has a __reduce__ of its own"
    if not cls.__flags__ & HEAP_TYPE:
        return "it is not a Python class"
    attributes = bool(cls.__dictoffset__) + bool(cls.__weakrefoffset__) + len(slots(cls))
    if cls.__basicsize__ > base.__basicsize__ + _POINTER * attributes:
        return "its memory is laid out by an extension module"
    try:
        base.__new__(cls)
    except TypeError as error:
        return str(error)
    return None


def slots(cls: type) -> list[str]:
    """Names of the slots of `cls` and its bases, mangled where needed."""
    names: list[str] = copyreg._slotnames(cls)  # type: ignore[attr-defined]
    return names


def state_of(value: object) -> dict[Any, Any]:
    """Attributes of an instance: its `__dict__` and the slots that are set; no property or `__getattr__` runs."""
    state: dict[Any, Any] = {}
    for name in slots(type(value)):
        member = _member(type(value), name)
        try:
            state[name] = member.__get__(value, type(value))
        except AttributeError:
            continue  # a slot that is not set
    state.update(_dict_of(value))
    return state


def set_state(value: object, state: dict[Any, Any]) -> None:
    """Give a new instance its attributes; no `__setattr__` or `__setstate__` runs. CodecError when it can't have one."""
    names = set(slots(type(value)))
    attributes = _dict_of(value)
    for name, item in state.items():
        if name in names:
            _member(type(value), name).__set__(value, item)
        elif attributes is _NO_DICT:
            raise CodecError.of("R110", why=f"{type(value).__qualname__} has no attribute {name!r}")
        else:
            attributes[name] = item


_NO_DICT: dict[Any, Any] = {}


def _dict_of(value: object) -> dict[Any, Any]:
    try:
        found: dict[Any, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return _NO_DICT
    return found


def _member(cls: type, name: str) -> Any:
    """The descriptor of a slot, not of a property that a subclass has put in its place."""
    for base in cls.__mro__:
        if isinstance(vars(base).get(name), types.MemberDescriptorType):
            return vars(base)[name]
    raise CodecError.of("R110", why=f"{cls.__qualname__} has no slot {name!r}")
