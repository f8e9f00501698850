"""What writer and reader of values agree on: tags, structures, limits.

A header is

    magic "SPLv" | u8 format | u8 byte order (1 little) | u16 zero | u32 header bytes | u32 segments
    | u64 bytes of each segment ... | tree

and the tree is one node. A node is a tag byte and what the tag asks for; numbers are little-endian and unaligned.
Tags below NODE are values without identity. Tags from NODE on take the next number of the memo when they begin, and REF
names such a number, so that an object which occurs twice is one object again. Raw memory (tensors, arrays, long bytes)
is not in the header: it is a segment of the payload, named by its number; segments lie one after another, each padded
to 64 bytes.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass

MAGIC = b"SPLv"
FORMAT = 2
ORDER = int(sys.byteorder == "little")
ALIGN = 64
INLINE = 4096  # bytes and packed numbers up to this size stay in the header
NO_SEGMENT = 0xFFFFFFFF

FRAME = struct.Struct("<4sBBHII")
U32 = struct.Struct("<I")
I64 = struct.Struct("<q")
F64 = struct.Struct("<d")
TENSOR_HEAD = struct.Struct("<BBBxIQ")  # dtype, flags, dimensions, segment, offset in bytes
SEGMENT_PLACE = struct.Struct("<IQ")

# without identity
NONE, TRUE, FALSE, ELLIPSIS, INT, BIGINT, FLOAT, STR, BYTES, REF, BUILT, CLASS, ENUM, CONSTANT, SCALAR, DTYPE, FLAG = range(17)
# the same, in values that may hold code
FUNCTION, METHOD, BUILTIN_METHOD, DESCRIPTOR, MODULE, SPECIAL = range(17, 23)
# with identity
NODE = 64
LIST, TUPLE, DICT, SET, FROZENSET, BYTEARRAY, INTS, FLOATS, TUPLE_INTS, TUPLE_FLOATS = range(NODE, NODE + 10)
ORDERED, DEFAULT, COUNTER, DEQUE, SUBCLASS, INSTANCE, PYTREE, STRUCTSEQ = range(NODE + 10, NODE + 18)
TENSOR, SUBTENSOR, SPARSE_COO, SPARSE_COMPRESSED, ARRAY, OBJECT_ARRAY, SUBARRAY, IMAGE = range(NODE + 18, NODE + 26)
TEXTS, ROWS, OBJECT = range(NODE + 26, NODE + 29)


@dataclass(frozen=True)
class Limits:
    """Bounds that are checked before memory is taken; bytes, bytes, levels, nodes."""

    max_payload: int = 16 << 30
    max_header: int = 64 << 20
    max_depth: int = 100
    max_nodes: int = 8_000_000

    def __post_init__(self) -> None:
        if min(self.max_payload, self.max_header, self.max_depth, self.max_nodes) < 0:
            raise ValueError("limits must not be negative")


DEFAULT_LIMITS = Limits()
SENT_LIMITS = Limits(max_header=2 << 30, max_depth=200, max_nodes=200_000_000)  # of a whole dataset: millions of file names


def padded(nbytes: int) -> int:
    """`nbytes` rounded up to the alignment of segments."""
    return (nbytes + ALIGN - 1) & -ALIGN
