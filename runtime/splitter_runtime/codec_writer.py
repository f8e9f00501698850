"""Walks a value and writes its tree; memory regions are collected and become segments at the end.

Regions are ranges of memory that belong to tensors and arrays. Ranges that overlap become one segment, so tensors that
share memory share it again on the other side; disjoint views of one storage share a segment too while the hull is at most
twice their sum.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, ItemsView
from typing import Any

import numpy as np

from . import codec_wire as wire
from .codec_classes import class_names
from .errors import CodecError

U32 = wire.U32.pack
_WIDEST = 16  # largest alignment of any dtype
Put = Callable[["Writer", Any], None]

ATOMS: dict[type, Put] = {}  # values without identity
NODES: dict[type, Put] = {}  # values with identity; both are filled by the modules of each family
FAMILIES: list[Callable[[type], tuple[Put, bool] | None]] = []  # asked in order for the other types; True: without identity


def find_writer(cls: type) -> tuple[Put, bool]:
    """The writer of a type that no table names, remembered in the tables."""
    for family in FAMILIES:
        found = family(cls)
        if found is not None:
            (ATOMS if found[1] else NODES)[cls] = found[0]
            return found
    raise Refusal("R101", type=type_name(cls))


def type_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


class Refusal(Exception):
    """A value can't be sent; `trail` grows from the inside out while it passes through the containers."""

    def __init__(self, code: str, **fields: object) -> None:
        super().__init__(code)
        self.code = code
        self.fields = fields
        self.trail: list[str] = []

    def error(self, name: str) -> CodecError:
        return CodecError.of(self.code, path=name + "".join(reversed(self.trail)), **self.fields)


class _Memory:
    """Lets numpy look at a range of memory and keeps its owner alive meanwhile."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}


def memory(address: int, nbytes: int, owner: object) -> memoryview:
    """Bytes [address, address + nbytes) as a view that keeps `owner` alive."""
    view: Any = np.asarray(_Memory(address, nbytes, owner))
    return memoryview(view)


class Region:
    """A range of memory that a tensor or array covers, and where in the tree its segment is to be written."""

    __slots__ = ("address", "base", "compact", "itemsize", "nbytes", "owner", "place")

    def __init__(
        self,
        address: int,
        nbytes: int,
        owner: object,
        place: int,
        base: int,
        itemsize: int,
        compact: Callable[[], Region] | None,
    ) -> None:
        self.address = address
        self.nbytes = nbytes
        self.owner = owner
        self.place = place  # of the segment number in the tree: u32 segment, u64 offset
        self.base = base  # address of the storage, as far as known
        self.itemsize = itemsize
        self.compact = compact  # makes a dense copy instead, worth it when the range has large gaps and nothing else shares it


class Writer:
    """State of one encode. `put` writes a node; families use `count`, `data`, `class_ref`, `region`."""

    __slots__ = ("blobs", "classes", "code", "depth", "keep", "limits", "memo", "nodes", "opened", "out", "pickled", "regions", "shared")

    def __init__(self, limits: wire.Limits, code: bool = False, pickled: bool = False) -> None:
        self.out = bytearray()
        self.code = code  # whether functions and what holds state beside its attributes may be in the value
        self.pickled = pickled  # whether instances are to arrive as out of pickle
        self.limits = limits
        self.memo: dict[int, int] = {}
        self.keep: list[object] = []
        self.opened: set[int] = set()
        self.classes: dict[type, int] = {}
        self.blobs: list[memoryview] = []
        self.regions: list[Region] = []
        self.shared: list[range] | None = None  # memory that processes share, once asked for
        self.depth = 0
        self.nodes = 0

    def put(self, value: object) -> None:
        """Write one value; Refusal when it can't be sent."""
        kind = type(value)
        atom = ATOMS.get(kind)
        if atom is not None:
            atom(self, value)
            return
        number = self.memo.get(id(value))
        if number is not None:
            if number in self.opened:
                raise Refusal("R105", type=kind.__name__)
            self.out.append(wire.REF)
            self.out += U32(number)
            return
        node = NODES.get(kind)
        if node is None:
            node, atomic = find_writer(kind)
            if atomic:
                node(self, value)
                return
        self.memo[id(value)] = len(self.memo)
        self.keep.append(value)
        node(self, value)

    def count(self, size: int) -> None:
        """Go one level down into a container of `size` children."""
        self.out += U32(size)
        self.depth += 1
        self.nodes += size
        if self.depth > self.limits.max_depth:
            raise Refusal("R104", what="its depth", size=self.depth, limit=self.limits.max_depth)
        if self.nodes > self.limits.max_nodes:
            raise Refusal("R104", what="its number of nodes", size=self.nodes, limit=self.limits.max_nodes)

    def data(self, raw: bytes | bytearray | memoryview) -> None:
        """Bytes, in the tree when short, else as a segment of their own."""
        size = len(raw)
        if size <= wire.INLINE:
            self.out += U32(size)
            self.out += raw
        else:
            self.out += U32(wire.NO_SEGMENT)
            self.out += U32(len(self.blobs))
            self.blobs.append(memoryview(raw))

    def text(self, text: str) -> None:
        self.data(text.encode("utf-8", "surrogatepass"))

    def items(self, values: Any, step: str = "[{}]") -> None:
        """A count and that many nodes."""
        self.count(len(values))
        index = 0
        put = self.put
        try:
            for index, value in enumerate(values):  # noqa: B007
                put(value)
        except Refusal as refusal:
            refusal.trail.append(step.format(index))
            raise
        self.depth -= 1

    def pairs(self, values: ItemsView[Any, Any], step: Callable[[Any], str] | None = None) -> None:
        """A count and that many keys and values, in order."""
        self.count(len(values))
        put = self.put
        key: Any = None
        try:
            for key, value in values:
                put(key)
                put(value)
        except Refusal as refusal:
            refusal.trail.append(step(key) if step else key_step(key))
            raise
        self.depth -= 1

    def class_ref(self, cls: type) -> None:
        """The number of a class; its names come with the first use."""
        number = self.classes.get(cls)
        if number is None:
            names = class_names(cls)
            if names is None:
                raise Refusal("R106", type=f"{cls.__module__}.{cls.__qualname__}")
            module, name = names
            number = self.classes[cls] = len(self.classes)
            self.out += U32(number)
            self.text(module)
            self.text(name)
        else:
            self.out += U32(number)

    def finish(self) -> tuple[bytes, tuple[memoryview, ...], int]:
        """Header, segments, payload bytes with padding."""
        segments = self.blobs
        if self.regions:
            lay_out(self.out, self.regions, segments)
        sizes = [view.nbytes for view in segments]
        length = wire.FRAME.size + 8 * len(segments) + len(self.out)
        total = sum(map(wire.padded, sizes))
        for what, size, limit in (
            ("its header", length, self.limits.max_header),
            ("its payload", total, self.limits.max_payload),
        ):
            if size > limit:
                raise Refusal("R104", what=what, size=f"{size} bytes", limit=f"{limit} bytes")
        head = wire.FRAME.pack(wire.MAGIC, wire.FORMAT, wire.ORDER, 0, length, len(segments))
        table = array("Q", sizes).tobytes()
        return head + table + bytes(self.out), tuple(segments), total


def key_step(key: object) -> str:
    """How a key of a dict is written in the path of an error."""
    if isinstance(key, str):
        return '["' + key.replace("\\", "\\\\").replace('"', '\\"') + '"]'
    return f"[{key!r}]" if isinstance(key, (int, float, bool, bytes, tuple)) or key is None else f"[<{type(key).__name__}>]"


def attribute_step(key: object) -> str:
    return f".{key}"


def lay_out(out: bytearray, regions: list[Region], segments: list[memoryview]) -> None:
    """Append the segments of `regions` and write their numbers and offsets into the tree, in the order of the tree: where in memory
    tensors lie changes nothing.
    """
    if len(regions) == 1:
        place_group(out, regions, segments)
        return
    groups: list[list[Region]] = []
    end = -1
    for region in sorted(regions, key=lambda region: region.address):
        if region.address < end:
            groups[-1].append(region)
            end = max(end, region.address + region.nbytes)
        else:
            groups.append([region])
            end = region.address + region.nbytes
    for group in sorted(join_storages(groups), key=lambda group: min(region.place for region in group)):
        place_group(out, group, segments)


def join_storages(groups: list[list[Region]]) -> list[list[Region]]:
    """Join the groups that lie in one storage when the bytes between them are no more than the bytes in them."""
    by_base: dict[int, list[list[Region]]] = {}
    for group in groups:
        by_base.setdefault(group[0].base, []).append(group)
    joined: list[list[Region]] = []
    for same in by_base.values():
        used = sum(span(group) for group in same)
        together = [region for group in same for region in group]
        if len(same) > 1 and span(together) <= 2 * used:
            joined.append(together)
        else:
            joined += same
    return joined


def span(group: list[Region]) -> int:
    return max(region.address + region.nbytes for region in group) - min(region.address for region in group)


def place_group(out: bytearray, group: list[Region], segments: list[memoryview]) -> None:
    """Make one segment of regions that share memory, lowest address first."""
    if len(group) == 1 and group[0].compact is not None:
        group = [group[0].compact()]
    start = group[0].address
    lead = 0
    if any((region.address - start) % region.itemsize for region in group):
        lead = start % _WIDEST  # types of different size overlap: a few bytes before align them all, at the price of a copy
    stray = [region for region in group if (region.address - start + lead) % region.itemsize]
    kept = [region for region in group if region not in stray]
    if kept:
        end = max(region.address + region.nbytes for region in kept)
        for region in kept:
            wire.SEGMENT_PLACE.pack_into(out, region.place, len(segments), region.address - start + lead)
        view = memory(start, end - start, [region.owner for region in kept])
        segments.append(memoryview(bytes(lead) + bytes(view)) if lead else view)
    for region in stray:
        wire.SEGMENT_PLACE.pack_into(out, region.place, len(segments), 0)
        segments.append(memory(region.address, region.nbytes, region.owner))
