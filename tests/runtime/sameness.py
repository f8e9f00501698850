"""Says where two values differ: types, bits, strides, identity and sharing of memory; None when they don't."""

from __future__ import annotations

import decimal
import enum
import struct
from typing import Any

import numpy as np
import torch


def difference(left: Any, right: Any) -> str | None:
    """The first difference with its path, or None."""
    walk = _Walk()
    return walk.compare(left, right, "value") or walk.compare_sharing()


# values that nothing can change; whether two of them are one object is not looked at
_VALUES = (str, bytes, int, float, complex, type, enum.Enum, type(None), np.generic, np.dtype, range, slice)
_VALUE_MODULES = ("datetime", "decimal", "fractions", "uuid", "pathlib", "zoneinfo", "torch")


class _Walk:
    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self.keep: list[object] = []
        self.memory: list[tuple[str, tuple[int, int], tuple[int, int]]] = []

    def compare(self, a: Any, b: Any, path: str) -> str | None:
        if type(a) is not type(b):
            return f"{path}: {type(a)} and {type(b)}"
        value = isinstance(a, _VALUES) or (type(a).__module__ in _VALUE_MODULES and not isinstance(a, torch.Tensor))
        if not value and a is not b:
            if id(a) in self.seen or id(b) in self.back:
                same = self.seen.get(id(a)) == id(b) and self.back.get(id(b)) == id(a)
                return None if same else f"{path}: other identity"
            self.seen[id(a)], self.back[id(b)] = id(b), id(a)
            self.keep += [a, b]
        return self.content(a, b, path) or (None if value else self.attributes(a, b, path))

    def content(self, a: Any, b: Any, path: str) -> str | None:
        if isinstance(a, torch.Tensor):
            return self.tensors(a, b, path)
        if isinstance(a, np.ndarray):
            return self.arrays(a, b, path)
        if isinstance(a, (float, complex)):
            return None if bits(a) == bits(b) else f"{path}: {a!r} and {b!r}"
        if isinstance(a, dict):
            if len(a) != len(b):
                return f"{path}: {len(a)} and {len(b)} items"
            for (k, v), (m, w) in zip(a.items(), b.items(), strict=True):
                found = self.compare(k, m, f"{path} key {k!r}") or self.compare(v, w, f"{path}[{k!r}]")
                if found:
                    return found
            factory = getattr(a, "default_factory", None)
            return None if factory is getattr(b, "default_factory", None) else f"{path}: other factory"
        if isinstance(a, (set, frozenset)):
            if len(a) != len(b):
                return f"{path}: {a!r} and {b!r}"
            # Tensors are equal to themselves alone.
            return None if a == b else self.compare(sorted(a, key=repr), sorted(b, key=repr), f"{path} in any order")
        if isinstance(a, (list, tuple)) or type(a).__name__ == "deque":
            if len(a) != len(b) or getattr(a, "maxlen", None) != getattr(b, "maxlen", None):
                return f"{path}: {len(a)} and {len(b)} items"
            for index, (v, w) in enumerate(zip(a, b, strict=True)):
                found = self.compare(v, w, f"{path}[{index}]")
                if found:
                    return found
            return None
        if isinstance(a, (np.generic, np.dtype)):
            same = np.asarray(a).tobytes() == np.asarray(b).tobytes() if isinstance(a, np.generic) else a == b
            return None if same and getattr(a, "dtype", 0) == getattr(b, "dtype", 0) else f"{path}: {a!r} and {b!r}"
        if type(a).__eq__ is object.__eq__ or type(a).__name__ == "SimpleNamespace" or hasattr(a, "__dataclass_fields__"):
            return None
        if isinstance(a, decimal.Decimal):
            return None if str(a) == str(b) else f"{path}: {a!r} and {b!r}"
        return None if a == b else f"{path}: {a!r} and {b!r}"

    def attributes(self, a: Any, b: Any, path: str) -> str | None:
        if isinstance(a, (type, enum.Enum)):
            return None if a is b else f"{path}: {a!r} and {b!r}"
        if type(a).__module__.startswith("PIL."):
            same = (a.mode, a.size, a.tobytes(), a.getpalette()) == (b.mode, b.size, b.tobytes(), b.getpalette())
            return None if same and a.info == b.info else f"{path}: other image"
        names = [name for base in type(a).__mro__ for name in vars(base).get("__slots__", ()) if type(name) is str]
        left = {**{n: getattr(a, n) for n in names if hasattr(a, n)}, **getattr(a, "__dict__", {})}
        right = {**{n: getattr(b, n) for n in names if hasattr(b, n)}, **getattr(b, "__dict__", {})}
        if left.keys() != right.keys():
            return f"{path}: attributes {list(left)} and {list(right)}"
        for name in left:
            found = self.compare(left[name], right[name], f"{path}.{name}")
            if found:
                return found
        return None

    def tensors(self, a: torch.Tensor, b: torch.Tensor, path: str) -> str | None:
        for name in ("dtype", "layout", "shape", "requires_grad", "is_quantized", "device"):
            if getattr(a, name) != getattr(b, name):
                return f"{path}: {name} {getattr(a, name)} and {getattr(b, name)}"
        a, b = a.detach(), b.detach()
        if a.layout is not torch.strided:
            return self.sparse(a, b, path)
        a, b = a.as_subclass(torch.Tensor), b.as_subclass(torch.Tensor)
        if a.stride() != b.stride() or a.is_conj() != b.is_conj() or a.is_neg() != b.is_neg():
            return f"{path}: strides {a.stride()} and {b.stride()}"
        if a.is_quantized and a.numel():
            if not torch.equal(a.dequantize(), b.dequantize()) or a.qscheme() != b.qscheme():
                return f"{path}: other quantized values"
        if elements(a) != elements(b):
            return f"{path}: other values"
        self.memory.append((path, extent(a), extent(b)))
        return None

    def sparse(self, a: torch.Tensor, b: torch.Tensor, path: str) -> str | None:
        if a.layout is torch.sparse_coo:
            if a.is_coalesced() != b.is_coalesced():
                return f"{path}: coalesced {a.is_coalesced()} and {b.is_coalesced()}"
            names = ["_indices", "_values"]
        elif a.layout in (torch.sparse_csr, torch.sparse_bsr):
            names = ["crow_indices", "col_indices", "values"]
        else:
            names = ["ccol_indices", "row_indices", "values"]
        for name in names:
            found = self.tensors(getattr(a, name)(), getattr(b, name)(), f"{path}.{name}")
            if found:
                return found
        return None

    def arrays(self, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], path: str) -> str | None:
        for name in ("dtype", "shape", "strides" if a.size and not a.dtype.hasobject else "ndim"):
            if getattr(a, name) != getattr(b, name):
                return f"{path}: {name} {getattr(a, name)} and {getattr(b, name)}"
        for name in ("writeable", "c_contiguous", "f_contiguous"):
            if a.size and getattr(a.flags, name) != getattr(b.flags, name):
                return f"{path}: {name} {getattr(a.flags, name)} and {getattr(b.flags, name)}"
        if a.dtype.hasobject:
            return self.compare(a.ravel().tolist(), b.ravel().tolist(), path)
        if a.tobytes() != b.tobytes():
            return f"{path}: other values"
        if a.size:
            self.memory.append((path, np_extent(a), np_extent(b)))
        return None

    def compare_sharing(self) -> str | None:
        """Every two pieces of memory overlap on both sides, at the same distance, or on neither."""
        for i, (path, left, right) in enumerate(self.memory):
            for other, left2, right2 in self.memory[:i]:
                overlap = left[0] < left2[1] and left2[0] < left[1]
                if overlap != (right[0] < right2[1] and right2[0] < right[1]):
                    return f"{other} and {path}: memory shared on one side"
                if overlap and left[0] - left2[0] != right[0] - right2[0]:
                    return f"{other} and {path}: memory shared in another place"
        return None


def bits(number: complex) -> bytes:
    if isinstance(number, complex):
        return struct.pack("<dd", number.real, number.imag)
    return struct.pack("<d", number)


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First and last address of a strided tensor; empty for one without elements."""
    if not tensor.numel():
        return (0, 0)
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + span * tensor.element_size()


def np_extent(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    low = high = array.__array_interface__["data"][0]
    for size, stride in zip(array.shape, array.strides, strict=True):
        low += min(0, (size - 1) * stride)
        high += max(0, (size - 1) * stride)
    return low, high + array.itemsize


def elements(tensor: torch.Tensor) -> bytes:
    """The bits of the elements in order, whatever the dtype."""
    if not tensor.numel():
        return b""
    carrier = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
    plain = torch.empty(0, dtype=carrier[tensor.element_size()])
    plain.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
    return plain.contiguous().numpy().tobytes()
