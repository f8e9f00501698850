"""Plain values: numbers, text, containers, and values of the standard library that are made from a few arguments."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import pathlib
import struct
import sys
import uuid
from collections.abc import Callable
from typing import Any

from . import codec_wire as wire
from .codec_lists import put_closed
from .codec_reader import ATOMS as READ_ATOM
from .codec_reader import NODES as READ_NODE
from .codec_reader import Reader, damaged
from .codec_writer import ATOMS as WRITE_ATOM
from .codec_writer import FAMILIES, Put, Refusal, Writer
from .codec_writer import NODES as WRITE_NODE
from .errors import CodecError

# --- numbers and text


def _put_int(w: Writer, value: int) -> None:
    try:
        raw = wire.I64.pack(value)
    except struct.error:
        w.out.append(wire.BIGINT)
        w.data(value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
    else:
        w.out.append(wire.INT)
        w.out += raw


def _get_int(r: Reader) -> int:
    value: int = wire.I64.unpack_from(r.buf, r.pos)[0]
    r.pos += 8
    return value


def _put_float(w: Writer, value: float) -> None:
    w.out.append(wire.FLOAT)
    w.out += wire.F64.pack(value)


def _get_float(r: Reader) -> float:
    value: float = wire.F64.unpack_from(r.buf, r.pos)[0]
    r.pos += 8
    return value


def _put_str(w: Writer, value: str) -> None:
    w.out.append(wire.STR)
    w.data(value.encode("utf-8", "surrogatepass"))


def _put_bytes(w: Writer, value: bytes) -> None:
    w.out.append(wire.BYTES)
    w.data(value)


def _put_bytearray(w: Writer, value: bytearray) -> None:
    w.out.append(wire.BYTEARRAY)
    w.data(bytes(value))  # a copy: a view would forbid its owner to resize it


WRITE_ATOM[int] = _put_int
WRITE_ATOM[float] = _put_float
WRITE_ATOM[str] = _put_str
WRITE_ATOM[bytes] = _put_bytes
WRITE_NODE[bytearray] = _put_bytearray
WRITE_ATOM[type(None)] = lambda w, v: w.out.append(wire.NONE)
WRITE_ATOM[bool] = lambda w, v: w.out.append(wire.TRUE if v else wire.FALSE)
WRITE_ATOM[type(...)] = lambda w, v: w.out.append(wire.ELLIPSIS)
READ_ATOM[wire.INT] = _get_int
READ_ATOM[wire.BIGINT] = lambda r: int.from_bytes(r.data(), "little", signed=True)
READ_ATOM[wire.FLOAT] = _get_float
READ_ATOM[wire.STR] = Reader.text
READ_ATOM[wire.BYTES] = lambda r: bytes(r.data())
READ_ATOM[wire.NONE] = lambda r: None
READ_ATOM[wire.TRUE] = lambda r: True
READ_ATOM[wire.FALSE] = lambda r: False
READ_ATOM[wire.ELLIPSIS] = lambda r: ...
READ_NODE[wire.BYTEARRAY] = lambda r, slot: bytearray(r.data())


# --- sets and dicts


def put_set(w: Writer, values: Any) -> None:
    put_closed(w, values, wire.SET if type(values) is set else wire.FROZENSET)


def _put_dict(w: Writer, values: dict[Any, Any]) -> None:
    w.out.append(wire.DICT)
    w.pairs(values.items())


def _get_dict(r: Reader, slot: int) -> dict[Any, Any]:
    values: dict[Any, Any] = {}
    r.memo[slot] = values
    r.pairs_into(values.__setitem__)
    return values


def _put_ordered(w: Writer, values: Any) -> None:
    w.out.append(wire.ORDERED if type(values) is collections.OrderedDict else wire.COUNTER)
    w.pairs(values.items())


def _get_ordered(r: Reader, slot: int) -> Any:
    values: Any = collections.OrderedDict()
    r.memo[slot] = values
    r.pairs_into(values.__setitem__)
    return values


def _get_counter(r: Reader, slot: int) -> Any:
    values: Any = collections.Counter()
    r.memo[slot] = values
    r.pairs_into(lambda key, value: dict.__setitem__(values, key, value))
    return values


# a default factory is called later, on the other side: only these, which do nothing but make an empty value
FACTORIES: dict[str, Any] = {
    cls.__name__: cls
    for kinds in (
        (list, dict, set, frozenset, tuple, int, float, complex, bool, str, bytes),
        (collections.OrderedDict, collections.Counter, collections.deque),
    )
    for cls in kinds
}


def put_factory(w: Writer, values: collections.defaultdict[Any, Any]) -> None:
    factory = values.default_factory
    name = getattr(factory, "__name__", "")
    if factory is not None and FACTORIES.get(name) is not factory:
        raise Refusal("R107", type="defaultdict", why=f"its factory {factory!r} is not one of {', '.join(FACTORIES)}")
    w.text(name if factory is not None else "")


def get_factory(r: Reader) -> Any:
    name = r.text()
    return FACTORIES[name] if name else None


def _put_default(w: Writer, values: collections.defaultdict[Any, Any]) -> None:
    w.out.append(wire.DEFAULT)
    put_factory(w, values)
    w.pairs(values.items())


def _get_default(r: Reader, slot: int) -> Any:
    values: collections.defaultdict[Any, Any] = collections.defaultdict(get_factory(r))
    r.memo[slot] = values
    r.pairs_into(values.__setitem__)
    return values


def _put_deque(w: Writer, values: collections.deque[Any]) -> None:
    w.out.append(wire.DEQUE)
    w.put(values.maxlen)
    w.items(values)


def _get_deque(r: Reader, slot: int) -> collections.deque[Any]:
    values: collections.deque[Any] = collections.deque(maxlen=r.get())
    r.memo[slot] = values
    get = r.get
    for _ in range(r.count()):
        values.append(get())
    r.depth -= 1
    return values


WRITE_NODE[set] = WRITE_NODE[frozenset] = put_set
WRITE_NODE[dict] = _put_dict
WRITE_NODE[collections.OrderedDict] = WRITE_NODE[collections.Counter] = _put_ordered
WRITE_NODE[collections.defaultdict] = _put_default
WRITE_NODE[collections.deque] = _put_deque
READ_NODE[wire.SET] = lambda r, slot: set(r.keys())
READ_NODE[wire.FROZENSET] = lambda r, slot: frozenset(r.keys())
READ_NODE[wire.DICT] = _get_dict
READ_NODE[wire.ORDERED] = _get_ordered
READ_NODE[wire.COUNTER] = _get_counter
READ_NODE[wire.DEFAULT] = _get_default
READ_NODE[wire.DEQUE] = _get_deque


# --- values that are made from a few arguments: number on the wire, type, arguments of a value, value of the arguments


def _fraction(numerator: int, denominator: int) -> fractions.Fraction:
    if type(numerator) is not int or type(denominator) is not int or denominator < 1:
        raise damaged("a fraction without a positive denominator")
    # not through the constructor, whose greatest common divisor takes long for hostile numbers
    value = object.__new__(fractions.Fraction)
    value._numerator, value._denominator = numerator, denominator  # type: ignore[attr-defined]
    return value


def _zone_info(key: str) -> Any:
    module = sys.modules.get("zoneinfo")
    if module is None:
        raise CodecError.of("R113", name="zoneinfo.ZoneInfo")
    return module.ZoneInfo(key)


def _decimal(text: str) -> decimal.Decimal:
    if type(text) is not str:
        raise damaged("a decimal that is no text")
    return decimal.Decimal(text)


Row = tuple[int, type, Callable[[Any], tuple[Any, ...]], Callable[..., Any]]
ROWS: list[Row] = [
    (0, complex, lambda v: (v.real, v.imag), complex),
    (1, range, lambda v: (v.start, v.stop, v.step), range),
    (2, slice, lambda v: (v.start, v.stop, v.step), slice),
    (3, datetime.date, lambda v: (v.year, v.month, v.day), datetime.date),
    (4, datetime.timedelta, lambda v: (v.days, v.seconds, v.microseconds), datetime.timedelta),
    (
        5,
        datetime.time,
        lambda v: (v.hour, v.minute, v.second, v.microsecond, v.tzinfo, v.fold),
        lambda h, m, s, us, tz, fold: datetime.time(h, m, s, us, tz, fold=fold),
    ),
    (
        6,
        datetime.datetime,
        lambda v: (v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.tzinfo, v.fold),
        lambda y, mo, d, h, m, s, us, tz, fold: datetime.datetime(y, mo, d, h, m, s, us, tz, fold=fold),
    ),
    (7, datetime.timezone, lambda v: v.__getinitargs__(), datetime.timezone),
    (8, decimal.Decimal, lambda v: (str(v),), _decimal),
    (9, fractions.Fraction, lambda v: (v.numerator, v.denominator), _fraction),
    (10, uuid.UUID, lambda v: (v.int,), lambda number: uuid.UUID(int=number)),
    (11, pathlib.PurePosixPath, lambda v: (str(v),), pathlib.PurePosixPath),
    (12, pathlib.PureWindowsPath, lambda v: (str(v),), pathlib.PureWindowsPath),
    (13, pathlib.PosixPath, lambda v: (str(v),), pathlib.Path),
    (14, pathlib.WindowsPath, lambda v: (str(v),), pathlib.Path),
]
_MAKE = {number: make for number, _, _, make in ROWS}


def built(number: int, take: Callable[[Any], tuple[Any, ...]]) -> Put:
    """The writer of a row."""

    def put(w: Writer, value: Any) -> None:
        w.out.append(wire.BUILT)
        w.out.append(number)
        w.items(take(value))

    return put


def add_row(number: int, cls: type, take: Callable[[Any], tuple[Any, ...]], make: Callable[..., Any]) -> None:
    """Another type that is made from a few arguments."""
    _MAKE[number] = make
    WRITE_ATOM[cls] = built(number, take)


def _get_built(r: Reader) -> Any:
    make = _MAKE[r.buf[r.pos]]
    r.pos += 1
    return make(*r.items())


READ_ATOM[wire.BUILT] = _get_built
for _number, _cls, _take, _make in ROWS:
    add_row(_number, _cls, _take, _make)


def _zone_family(cls: type) -> tuple[Put, bool] | None:
    module = sys.modules.get("zoneinfo")
    if module is None or cls is not module.ZoneInfo:
        return None
    return built(15, lambda v: (v.key,)), True


_MAKE[15] = _zone_info
FAMILIES.append(_zone_family)
