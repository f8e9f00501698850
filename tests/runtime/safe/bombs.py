"""Headers by hand that ask for more than their bytes: memory, time, depth of the stack, a place outside of their memory.

BOMBS[name] = Bomb(header, code, says)      `says` is in the one CodecError that the header may cause
"""

from __future__ import annotations

import struct
import types
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from splitter_runtime import codec_wire as wire
from splitter_runtime.codec import encode

HUGE = 1 << 33  # elements that a tensor of a few bytes says to have


@dataclass(frozen=True)
class Bomb:
    """A header, whether it belongs to a value that may hold code, and a part of the message that it causes."""

    header: bytes
    says: str
    code: bool = False


def tree(*parts: bytes | int, sizes: tuple[int, ...] = ()) -> bytes:
    """A header; numbers are tags."""
    body = b"".join(bytes([part]) if isinstance(part, int) else part for part in parts)
    table = struct.pack(f"<{len(sizes)}Q", *sizes)
    length = wire.FRAME.size + len(table) + len(body)
    return wire.FRAME.pack(wire.MAGIC, wire.FORMAT, wire.ORDER, 0, length, len(sizes)) + table + body


def of(value: Any) -> bytes:
    """The tree of a small plain value."""
    encoded = encode(value)
    assert not encoded.nbytes
    return encoded.header[wire.FRAME.size :]


def u32(number: int) -> bytes:
    return wire.U32.pack(number)


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return u32(len(raw)) + raw


def named(module: str, name: str) -> bytes:
    """A class, the first of the value."""
    return u32(0) + text(module) + text(name)


def array(dtype: Any, size: int, stride: int) -> bytes:
    """A writable numpy array of one dimension at the start of segment 0."""
    return bytes([wire.ARRAY]) + of(dtype) + struct.pack("<BBIQ2q", 1, 1, 0, 0, size, stride)


def chain(length: int, width: int) -> bytes:
    """The start of a list: an empty tuple, and as many more, each of which is `width` times the one before; one more item may follow."""
    out = [bytes([wire.LIST]) + u32(length + 2), bytes([wire.TUPLE]) + u32(0)]
    out += [bytes([wire.TUPLE]) + u32(width) + (bytes([wire.REF]) + u32(number)) * width for number in range(1, length + 1)]
    return b"".join(out)


def masked(data: bytes, mask: bytes, fill: bytes) -> bytes:
    return tree(wire.SUBARRAY, text("masked"), u32(4), data, mask, fill, wire.FALSE, sizes=(64,))


FIELDS = ("fields", ("a",), ("|u1",), (0,), (None,), 1, False, False)
FEW, MANY, NONE = array("|u1", 2, 1), array("|u1", HUGE, 0), bytes([wire.NONE])
WIDE, DEEP = chain(40, 2), chain(60_000, 1)
REF_WIDE, REF_DEEP = bytes([wire.REF]) + u32(41), bytes([wire.REF]) + u32(60_001)
LONG = bytes([wire.BIGINT]) + text(b"\xff" * 500_000 + b"\1")
MT_STATE: dict[str, Any] = {"bit_generator": "MT19937", "state": {"key": np.zeros(2).tolist(), "pos": 1 << 30}}
PHILOX: dict[str, Any] = {
    "bit_generator": "Philox",
    "state": {"counter": [1, 2, 3, 4], "key": [1, 2]},
    "buffer": [1, 2, 3, 4],
    "buffer_pos": -(1 << 28),
    "has_uint32": 0,
    "uinteger": 0,
}
MODULE = next(name for name, value in vars(zipfile).items() if isinstance(value, types.ModuleType) and hasattr(value, "system"))

BOMBS = {
    "a mask to convert": Bomb(masked(MANY, MANY, NONE), "mask of another shape or dtype"),
    "many values to fill with": Bomb(masked(FEW, NONE, MANY), "more than one value to fill with"),
    "many records to fill with": Bomb(masked(array(FIELDS, 2, 1), NONE, array(FIELDS, HUGE, 0)), "more than one value to fill with"),
    "a palette of a number": Bomb(
        tree(wire.IMAGE, text("PIL.Image"), named("PIL.Image", "Image"), u32(7), *map(of, ("P", 1, 1, b"x", ("RGB", HUGE), None, {}))),
        "palette",
    ),
    "a wide key": Bomb(tree(WIDE, wire.DICT, u32(1), REF_WIDE, wire.NONE), "number of nodes"),
    "a wide key of a Counter": Bomb(tree(WIDE, wire.COUNTER, u32(1), REF_WIDE, of(1)), "number of nodes"),
    "a wide item of a set": Bomb(tree(WIDE, wire.SET, u32(1), REF_WIDE), "number of nodes"),
    "a wide item of a frozenset": Bomb(tree(WIDE, wire.FROZENSET, u32(1), REF_WIDE), "number of nodes"),
    "a wide item of a set in order": Bomb(
        tree(WIDE, wire.OBJECT, 16, u32(2), wire.FALSE, wire.TUPLE, u32(1), REF_WIDE), "nodes", code=True
    ),
    "a deep key": Bomb(tree(DEEP, wire.DICT, u32(1), REF_DEEP, wire.NONE), "the depth"),
    "a deep item of a set": Bomb(tree(DEEP, wire.SET, u32(1), REF_DEEP), "the depth"),
    "many flags": Bomb(tree(wire.FLAG, named("re", "RegexFlag"), LONG), "RegexFlag is not a flag"),
    "a logger of many parts": Bomb(tree(wire.OBJECT, 12, u32(1), wire.STR, text("." * 30_000)), "a logger without a name", code=True),
    "a long seed": Bomb(tree(wire.OBJECT, 4, u32(4), LONG, of(()), of(4), of(0)), "a seed of an unusual length", code=True),
    "a place behind the state": Bomb(
        tree(wire.OBJECT, 3, u32(3), of("MT19937"), of(MT_STATE), wire.NONE), "whose place is none", code=True
    ),
    "a place before the buffer": Bomb(tree(wire.OBJECT, 3, u32(3), of("Philox"), of(PHILOX), wire.NONE), "whose place is none", code=True),
    "a function of a module in a module": Bomb(tree(wire.FUNCTION, text("zipfile"), text(f"{MODULE}.system")), "R113", code=True),
    "a class of a module in a module": Bomb(tree(wire.CLASS, named("zipfile", "struct.Struct")), "R113"),
}
