"""Lists and tuples. Many plain numbers or texts are packed, and in datasets rows like (file name, class)."""

from __future__ import annotations

import itertools
from array import array
from typing import Any

from . import codec_wire as wire
from .codec_reader import NODES as READ_NODE
from .codec_reader import Reader, damaged
from .codec_writer import NODES as WRITE_NODE
from .codec_writer import Writer
from .errors import CodecError

PACK_FROM = 8  # shorter lists of numbers are written one by one


def _packed(values: list[Any] | tuple[Any, ...]) -> tuple[bool, array[Any]] | None:
    """Whether these are ints (or else floats), and the numbers packed; None when they are anything else."""
    kind = type(values[0])
    if (kind is not int and kind is not float) or len(set(map(type, values))) != 1:
        return None
    try:
        return kind is int, array("q" if kind is int else "d", values)
    except OverflowError:
        return None


def _put_list(w: Writer, values: list[Any]) -> None:
    packed = _packed(values) if len(values) >= PACK_FROM else None
    if packed is not None:
        w.out.append(wire.INTS if packed[0] else wire.FLOATS)
        w.data(packed[1].tobytes())
    elif len(values) >= PACK_FROM and _put_packed(w, values):
        return
    else:
        w.out.append(wire.LIST)
        w.items(values)


def _put_packed(w: Writer, values: list[Any]) -> bool:
    """Write a list of texts, or (in datasets) of rows of numbers and texts; False when it is neither."""
    kinds = set(map(type, values))
    if kinds == {str}:
        w.out.append(wire.TEXTS)
        w.data(array("I", map(len, values)).tobytes())
        w.data("".join(values).encode("utf-8", "surrogatepass"))
        return True
    if not w.code or kinds != {tuple} or len(set(map(len, values))) != 1 or not values[0]:
        return False
    columns = list(map(list, zip(*values, strict=True)))
    if not all(len(found := set(map(type, column))) == 1 and found <= {int, float, str} for column in columns):
        return False
    w.out.append(wire.ROWS)
    w.items(columns)
    return True


def _put_tuple(w: Writer, values: tuple[Any, ...]) -> None:
    packed = _packed(values) if len(values) >= PACK_FROM else None
    if packed is None:
        put_closed(w, values, wire.TUPLE)
    else:
        w.out.append(wire.TUPLE_INTS if packed[0] else wire.TUPLE_FLOATS)
        w.data(packed[1].tobytes())


def put_closed(w: Writer, values: Any, tag: int) -> None:
    """A container that can't be referred to from inside itself, since it exists only when its items do."""
    number = len(w.memo) - 1
    w.out.append(tag)
    w.opened.add(number)
    w.items(values, "[{}]" if tag == wire.TUPLE else "{{{}}}")
    w.opened.discard(number)


def _get_list(r: Reader, slot: int) -> list[Any]:
    values: list[Any] = []
    r.memo[slot] = values
    fill(r, values)
    return values


def fill(r: Reader, values: list[Any]) -> None:
    get = r.get
    for _ in range(r.count()):
        list.append(values, get())
    r.depth -= 1


def _unpack(r: Reader, kind: str) -> list[Any]:
    numbers = array(kind)
    numbers.frombytes(r.data())
    _spend_nodes(r, len(numbers))
    return numbers.tolist()


def _spend_nodes(r: Reader, nodes: int) -> None:
    r.nodes += nodes
    if r.nodes > r.limits.max_nodes:
        raise CodecError.of("R112", what="the number of nodes", size=r.nodes, limit=r.limits.max_nodes)


def _get_texts(r: Reader, slot: int) -> list[str]:
    lengths = array("I")
    lengths.frombytes(r.data())
    text = r.text()
    _spend_nodes(r, len(lengths))
    if sum(lengths) != len(text):
        raise damaged("texts that are longer or shorter than they say")
    ends = list(itertools.accumulate(lengths, initial=0))
    return [text[start:end] for start, end in itertools.pairwise(ends)]


def _get_rows(r: Reader, slot: int) -> list[tuple[Any, ...]]:
    columns = r.items()
    if not columns or any(type(column) is not list for column in columns):
        raise damaged("rows without columns")
    _spend_nodes(r, len(columns) * len(columns[0]))
    return list(zip(*columns, strict=True))


WRITE_NODE[list] = _put_list
READ_NODE[wire.TEXTS] = _get_texts
READ_NODE[wire.ROWS] = _get_rows
WRITE_NODE[tuple] = _put_tuple
READ_NODE[wire.LIST] = _get_list
READ_NODE[wire.TUPLE] = lambda r, slot: tuple(r.items())
READ_NODE[wire.INTS] = lambda r, slot: _unpack(r, "q")
READ_NODE[wire.FLOATS] = lambda r, slot: _unpack(r, "d")
READ_NODE[wire.TUPLE_INTS] = lambda r, slot: tuple(_unpack(r, "q"))
READ_NODE[wire.TUPLE_FLOATS] = lambda r, slot: tuple(_unpack(r, "d"))
