"""Instances of classes: enum members, named tuples, subclasses of builtins, plain instances, registered pytrees.

An instance is rebuilt with the `__new__` of its builtin base and its attributes; nothing that the class defines runs, but
`__hash__` and `__eq__` of keys. Types registered with `torch.utils._pytree` are taken apart and put together by their registration.
"""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Callable
from typing import Any

from torch.utils import _pytree as pytree

from . import codec_wire as wire
from .codec_classes import HEAP_TYPE, set_state, state_of, why_not_plain
from .codec_lists import fill
from .codec_pickled import pickled_state
from .codec_plain import get_factory, put_factory
from .codec_reader import ATOMS as READ_ATOM
from .codec_reader import NODES as READ_NODE
from .codec_reader import Reader, damaged
from .codec_writer import FAMILIES, Put, Refusal, Writer, attribute_step, type_name
from .errors import CodecError

# bases whose content is sent beside the attributes; the more special first, the place is the number on the wire
_BASES: tuple[type, ...] = (
    collections.OrderedDict,
    collections.defaultdict,
    dict,
    list,
    tuple,
    set,
    frozenset,
    collections.deque,
    str,
    int,
    float,
    bytes,
)
_ATOMIC = (str, int, float, bytes)
_FLAG_BITS = 4096  # enum looks at them one by one
_MUTABLE = (collections.OrderedDict, collections.defaultdict, dict, list, set, collections.deque)


# the plain value of an instance of a subclass, without running its methods
_PLAIN_OF: dict[type, Callable[[Any], Any]] = {
    str: lambda value: str.__getitem__(value, slice(None)),
    int: int.__int__,
    float: float.__float__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
}


# --- classes and enum members


def _put_class(w: Writer, cls: type) -> None:
    w.out.append(wire.CLASS)
    w.class_ref(cls)


def _put_enum(w: Writer, member: enum.Enum) -> None:
    cls = type(member)
    named = cls._member_map_.get(member._name_) is member if member._name_ is not None else False
    w.out.append(wire.ENUM if named else wire.FLAG)
    w.class_ref(cls)
    if named:
        w.text(member._name_)
    else:
        w.put(member._value_)


def _get_enum(r: Reader) -> enum.Enum:
    cls = r.class_ref()
    name = r.text()
    if not issubclass(cls, enum.Enum):
        raise damaged(f"{cls.__qualname__} is not an enum")
    member = cls._member_map_.get(name)
    if member is None:
        raise CodecError.of("R113", name=f"{cls.__qualname__}.{name}")
    return member


def _get_flag(r: Reader) -> enum.Enum:
    cls = r.class_ref()
    value = r.get()
    if not issubclass(cls, enum.Flag) or type(value) is not int or value.bit_length() > _FLAG_BITS:
        raise damaged(f"{cls.__qualname__} is not a flag")
    return cls(value)


# --- subclasses of builtin types


def _base_of(cls: type) -> int:
    for number, base in enumerate(_BASES):
        if issubclass(cls, base):
            return number
    return -1


def _structseq(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "n_sequence_fields") and not cls.__flags__ & (1 << 10)


def _put_structseq(w: Writer, value: Any) -> None:
    w.out.append(wire.STRUCTSEQ)
    w.class_ref(type(value))
    w.items(tuple(value))


def _get_structseq(r: Reader, slot: int) -> Any:
    cls = r.class_ref()
    if not _structseq(cls):
        raise damaged(f"{cls.__qualname__} is not a struct sequence")
    return cls(r.items())


def _put_subclass(w: Writer, value: Any) -> None:
    cls = type(value)
    number = _base_of(cls)
    base: Any = _BASES[number]
    why = why_not_plain(cls, base)
    if why:
        raise Refusal("R107", type=type_name(cls), why=why)
    slot = len(w.memo) - 1
    w.out.append(wire.SUBCLASS)
    w.out.append(number)
    w.class_ref(cls)
    if base in _MUTABLE:
        _put_content(w, base, value)
    else:
        w.opened.add(slot)
        _put_content(w, base, value)
        w.opened.discard(slot)
    w.pairs(_attributes(w, value).items(), attribute_step)


def _attributes(w: Writer, value: object) -> dict[Any, Any]:
    return pickled_state(value) if w.pickled else state_of(value)


def _put_content(w: Writer, base: Any, value: Any) -> None:
    if base is collections.defaultdict:
        put_factory(w, value)
    if base is collections.deque:
        w.put(value.maxlen)
    if issubclass(base, dict):
        w.pairs(base.items(value))
    elif base in _ATOMIC:
        w.put(_PLAIN_OF[base](value))
    else:
        w.items(list(base.__iter__(value)))


def _get_subclass(r: Reader, slot: int) -> Any:
    number = r.buf[r.pos]
    r.pos += 1
    base: Any = _BASES[number]
    cls: Any = r.class_ref()
    if not issubclass(cls, base) or cls is base or issubclass(cls, enum.Enum):
        raise damaged(f"{cls.__qualname__} is not a subclass of {base.__name__}")
    why = why_not_plain(cls, base)
    if why:
        raise damaged(f"{cls.__qualname__} can't be received: {why}")
    if base in _MUTABLE:
        value = base.__new__(cls)
        r.memo[slot] = value
        _fill_content(r, base, value)
    elif base in _ATOMIC:
        content = r.get()
        if type(content) is not base:
            raise damaged(f"{cls.__qualname__} holds no {base.__name__}")
        value = base.__new__(cls, content)
    else:
        value = base.__new__(cls, r.keys() if base is frozenset else r.items())
    state: dict[Any, Any] = {}
    r.memo[slot] = value
    r.pairs_into(state.__setitem__)
    set_state(value, state)
    return value


def _fill_content(r: Reader, base: Any, value: Any) -> None:
    if base is collections.defaultdict:
        base.__init__(value, get_factory(r))
    if base is collections.deque:
        base.__init__(value, (), r.get())
    if base is list:
        fill(r, value)
    elif base is set:
        set.update(value, r.keys())
    elif base is collections.deque:
        for item in r.items():
            base.append(value, item)
    else:
        r.pairs_into(lambda key, item: base.__setitem__(value, key, item))


# --- plain instances and registered pytrees


def _put_instance(w: Writer, value: object) -> None:
    w.out.append(wire.INSTANCE)
    w.class_ref(type(value))
    w.pairs(_attributes(w, value).items(), attribute_step)


def _get_instance(r: Reader, slot: int) -> Any:
    cls: Any = r.class_ref()
    why = None if cls is types.SimpleNamespace else why_not_plain(cls)
    if why or issubclass(cls, (type, BaseException)):
        raise damaged(f"{cls.__qualname__} can't be received: {why or 'it is no plain class'}")
    new: Any = object.__new__
    value = types.SimpleNamespace() if cls is types.SimpleNamespace else new(cls)
    r.memo[slot] = value
    state: dict[Any, Any] = {}
    r.pairs_into(state.__setitem__)
    set_state(value, state)
    return value


def _registration(cls: type) -> Any:
    """How a user's type was registered; the types of torch and of Python themselves are sent by other rules."""
    node = pytree.SUPPORTED_NODES.get(cls)
    return None if node is None or cls.__module__.split(".")[0] in ("torch", "builtins", "collections") else node


def _put_pytree(w: Writer, value: Any) -> None:
    cls = type(value)
    children, context = _registration(cls).flatten_fn(value)
    slot = len(w.memo) - 1
    w.out.append(wire.PYTREE)
    w.class_ref(cls)
    w.opened.add(slot)
    w.put(context)
    w.items(list(children))
    w.opened.discard(slot)


def _get_pytree(r: Reader, slot: int) -> Any:
    cls = r.class_ref()
    node = _registration(cls)
    if node is None:
        raise CodecError.of("R115", name=f"{cls.__module__}.{cls.__qualname__}")
    context = r.get()
    return node.unflatten_fn(r.items(), context)


def _class_family(cls: type) -> tuple[Put, bool] | None:
    if issubclass(cls, type):
        return _put_class, True
    if issubclass(cls, enum.Enum):
        return _put_enum, True
    if _registration(cls) is not None:
        return _put_pytree, False
    if _structseq(cls):
        return _put_structseq, False
    if _base_of(cls) >= 0:
        return _put_subclass, False
    if cls is types.SimpleNamespace:
        return _put_instance, False
    return (_put_instance, False) if _plain(cls) else None


def _plain(cls: type) -> bool:
    """Whether instances are nothing but their attributes; Refusal with the reason when a Python class is not."""
    if issubclass(cls, (BaseException, types.ModuleType, types.FunctionType)):
        return False
    why = why_not_plain(cls)
    if why and cls.__flags__ & HEAP_TYPE and cls.__module__ != "builtins":
        raise Refusal("R107", type=type_name(cls), why=why)
    return why is None


READ_ATOM[wire.CLASS] = Reader.class_ref
READ_ATOM[wire.ENUM] = _get_enum
READ_ATOM[wire.FLAG] = _get_flag
READ_NODE[wire.SUBCLASS] = _get_subclass
READ_NODE[wire.STRUCTSEQ] = _get_structseq
READ_NODE[wire.INSTANCE] = _get_instance
READ_NODE[wire.PYTREE] = _get_pytree
FAMILIES.append(_class_family)
