"""Reads a tree back into a value. Every length is checked against what is left before anything is made of it."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import codec_wire as wire
from .codec_classes import HEAP_TYPE, resolve, state_of
from .errors import CodecError

Accept = Callable[[str, str], bool]  # asked for every class, function and module: module, qualified name
Get = Callable[["Reader"], Any]
GetNode = Callable[["Reader", int], Any]

ATOMS: dict[int, Get] = {}
NODES: dict[int, GetNode] = {}
_FLAT = frozenset({str, int, float, bool, bytes, type(None)})
_OPEN = object()  # in the memo: an object that is not complete yet


def damaged(why: str) -> CodecError:
    return CodecError.of("R110", why=why)


class Frame:
    """A checked header: its tree and where each segment lies in the payload."""

    __slots__ = ("offsets", "sizes", "total", "tree")

    def __init__(self, header: bytes, limits: wire.Limits) -> None:
        size = len(header)
        if size < wire.FRAME.size:
            raise damaged("the header is too short")
        magic, version, order, zero, length, segments = wire.FRAME.unpack_from(header)
        if magic != wire.MAGIC or zero:
            raise damaged("it does not start as a header does")
        if (version, order) != (wire.FORMAT, wire.ORDER):
            raise CodecError.of("R111", theirs=f"{version}.{order}", ours=f"{wire.FORMAT}.{wire.ORDER}")
        if size > limits.max_header:
            raise CodecError.of("R112", what="the header", size=f"{size} bytes", limit=f"{limits.max_header} bytes")
        start = wire.FRAME.size + 8 * segments
        if length != size or start >= size:
            raise damaged("the header has another length than it says")
        sizes = array("Q")
        sizes.frombytes(header[wire.FRAME.size : start])
        offsets = []
        total = 0
        for nbytes in sizes:
            offsets.append(total)
            total += wire.padded(nbytes)
        if total > limits.max_payload:
            raise CodecError.of("R112", what="the payload", size=f"{total} bytes", limit=f"{limits.max_payload} bytes")
        self.sizes = sizes
        self.offsets = offsets
        self.total = total
        self.tree = header[start:]

    def lie_at(self, offsets: Sequence[int], nbytes: int) -> None:
        """The segments lie at these places of a payload of `nbytes`. CodecError when they don't fit."""
        if len(offsets) != len(self.sizes):
            raise damaged("the segments have other places than they are")
        for place, size in zip(offsets, self.sizes, strict=True):
            if place % wire.ALIGN or place + size > nbytes:
                raise damaged("a segment reaches out of the payload")
        self.offsets = list(offsets)


class Reader:
    """State of one decode. `get` reads a node."""

    __slots__ = (
        "accept",
        "bases",
        "buf",
        "classes",
        "code",
        "depth",
        "limits",
        "memo",
        "nodes",
        "offsets",
        "payload",
        "pos",
        "sizes",
        "spent",
    )

    def __init__(self, frame: Frame, payload: memoryview, limits: wire.Limits, code: bool = False, accept: Accept | None = None) -> None:
        self.buf = frame.tree
        self.code = code
        self.accept = accept
        self.pos = 0
        self.payload = payload
        self.offsets = frame.offsets
        self.sizes = frame.sizes
        self.limits = limits
        self.memo: list[Any] = []
        self.classes: list[type] = []
        self.bases: dict[int, torch.Tensor] = {}  # the tensor that owns each segment's storage
        self.depth = 0
        self.nodes = 0
        self.spent = 0  # bytes taken beside the payload

    def get(self) -> Any:
        """Read one value."""
        tag = self.buf[self.pos]
        self.pos += 1
        if tag < wire.NODE:
            return ATOMS[tag](self)
        node = NODES[tag]
        slot = len(self.memo)
        self.memo.append(_OPEN)
        value = node(self, slot)
        self.memo[slot] = value
        return value

    def u32(self) -> int:
        value: int = wire.U32.unpack_from(self.buf, self.pos)[0]
        self.pos += 4
        return value

    def count(self) -> int:
        """Go one level down; the number of children, each of which takes at least one byte."""
        size = self.u32()
        if size > len(self.buf) - self.pos:
            raise damaged("a container is longer than the header")
        self.depth += 1
        self.nodes += size
        if self.depth > self.limits.max_depth:
            raise CodecError.of("R112", what="the depth", size=self.depth, limit=self.limits.max_depth)
        if self.nodes > self.limits.max_nodes:
            raise CodecError.of("R112", what="the number of nodes", size=self.nodes, limit=self.limits.max_nodes)
        return size

    def items(self) -> list[Any]:
        get = self.get
        values = [get() for _ in range(self.count())]
        self.depth -= 1
        return values

    def pairs_into(self, store: Callable[[Any, Any], object]) -> None:
        get = self.get
        for _ in range(self.count()):
            key = get()
            if type(key) not in _FLAT:
                self.check_key(key)
            store(key, get())
        self.depth -= 1

    def keys(self) -> list[Any]:
        """Items that will be hashed."""
        values = self.items()
        for value in values:
            if type(value) not in _FLAT:
                self.check_key(value)
        return values

    def check_key(self, key: object) -> None:
        """CodecError for a value whose hash would take too long, or too much of the stack.

        References make tuples that are deeper than the tree and larger than its bytes: (x, x) of (y, y) of ... Every hash walks through
        all of it, in C, with no look at the depth.
        """
        waiting: list[tuple[object, int]] = [(key, self.depth)]
        while waiting:
            item, depth = waiting.pop()
            parts: list[object] = list(tuple.__iter__(item)) if isinstance(item, tuple) else []
            if type(type(item)) is type and type(item).__flags__ & HEAP_TYPE:
                parts += state_of(item).values()
            self.nodes += len(parts)
            if depth > self.limits.max_depth:
                raise CodecError.of("R112", what="the depth", size=depth, limit=self.limits.max_depth)
            if self.nodes > self.limits.max_nodes:
                raise CodecError.of("R112", what="the number of nodes", size=self.nodes, limit=self.limits.max_nodes)
            waiting += [(part, depth + 1) for part in parts if type(part) not in _FLAT]

    def data(self) -> bytes | memoryview:
        """Bytes of the tree, or a view of a segment."""
        size = self.u32()
        if size == wire.NO_SEGMENT:
            view = self.segment(self.u32())
            self.take(view.nbytes)  # the callers copy it, and many may name one segment
            return view
        end = self.pos + size
        if end > len(self.buf):
            raise damaged("bytes are longer than the header")
        raw = self.buf[self.pos : end]
        self.pos = end
        return raw

    def segment(self, number: int) -> memoryview:
        start = self.offsets[number]
        return self.payload[start : start + self.sizes[number]]

    def text(self) -> str:
        return str(self.data(), "utf-8", "surrogatepass")

    def take(self, nbytes: int) -> None:
        """Account for memory beside the payload before it is taken."""
        self.spent += nbytes
        if self.spent > self.limits.max_payload:
            raise CodecError.of("R112", what="the memory", size=f"{self.spent} bytes", limit=f"{self.limits.max_payload} bytes")

    def class_ref(self) -> type:
        number = self.u32()
        if number == len(self.classes):
            self.classes.append(resolve(*self.names()))
        return self.classes[number]

    def names(self) -> tuple[str, str]:
        """A module and a qualified name in it. CodecError when they are not accepted."""
        module, name = self.text(), self.text()
        self.check(module, name)
        return module, name

    def check(self, module: str, name: str) -> None:
        """CodecError R117 when a class, function or module isn't accepted."""
        if self.accept is not None and not self.accept(module, name):
            raise CodecError.of("R117", name=f"{module}.{name}" if name else module)

    def library(self, name: str) -> Any:
        """A module that is imported here. CodecError when it isn't, or isn't accepted."""
        self.check(name, "")
        module = sys.modules.get(name)
        if module is None:
            raise CodecError.of("R113", name=name)
        return module

    def need_code(self) -> None:
        """CodecError when only data may be in the value."""
        if not self.code:
            raise damaged("it holds functions, where only data belongs")


def get_ref(reader: Reader) -> Any:
    value = reader.memo[reader.u32()]
    if value is _OPEN:
        raise damaged("an object contains itself before it is complete")
    return value


ATOMS[wire.REF] = get_ref
