"""Describes a batch as a list of plain lines, so that two batches can be compared by another process.

Every container and every leaf gives one line, in order: its path, its type, and what is to be compared: of tensors and arrays
dtype, shape, strides, bits; of containers their keys or length; of everything else the value. A line of an object seen before
says "same as"; tensors and arrays that lie in the same memory have the same number under "memory".
"""

from __future__ import annotations

import base64
import enum
import hashlib
import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from .codec_classes import state_of
from .codec_writer import key_step

Line = dict[str, Any]

WHOLE = 4096  # elements up to which the bits themselves are recorded
ROWS = 4096  # longer ones are recorded by the digest of each of their first dimension, up to this many
_TEXT = 2000  # characters of a text that are recorded
_DEPTH = 100
_CARRIER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
_VALUES = (bool, int, float, complex, str, bytes, type(None))


def describe(value: object, name: str = "batch") -> list[Line]:
    """The lines of a value."""
    walk = _Walk()
    walk.visit(value, name, 0)
    walk.number_memory()
    return walk.lines


class _Walk:
    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.seen: dict[int, str] = {}
        self.keep: list[object] = []
        self.memory: list[tuple[int, int, Line]] = []  # first and last address of what a line describes

    def visit(self, value: Any, path: str, depth: int) -> None:
        line: Line = {"path": path, "type": type_name(type(value))}
        self.lines.append(line)
        if isinstance(value, (enum.Enum, np.generic, *_VALUES)) or depth > _DEPTH:
            line |= plain(value)
            return
        if has_identity(value):
            if id(value) in self.seen:
                line["same as"] = self.seen[id(value)]
                return
            self.seen[id(value)] = path
            self.keep.append(value)
        if isinstance(value, torch.Tensor):
            self.tensor(value, line, path, depth)
        elif isinstance(value, np.ndarray):
            self.array(value, line, path, depth)
        else:
            self.container(value, line, path, depth)

    def container(self, value: Any, line: Line, path: str, depth: int) -> None:
        if isinstance(value, Mapping):
            line["keys"] = [key_step(key)[1:-1] for key in value]
            for key, item in value.items():
                self.visit(item, path + key_step(key), depth + 1)
        elif isinstance(value, (list, tuple, deque)):
            line["length"] = len(value)
            for index, item in enumerate(value):
                self.visit(item, f"{path}[{index}]", depth + 1)
        else:
            state = {} if isinstance(value, type) else state_of(value)
            line |= {"attributes": list(state)} if state else plain(value)
        if has_identity(value):
            self.attributes(value, path, depth)

    def attributes(self, value: Any, path: str, depth: int) -> None:
        for name, item in state_of(value).items():
            self.visit(item, f"{path}.{name}", depth + 1)

    def tensor(self, value: torch.Tensor, line: Line, path: str, depth: int) -> None:
        state = state_of(value)
        with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
            plain_tensor = value.detach()
            line |= {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
            if value.device.type != "cpu":
                line["device"] = str(value.device)
            if value.requires_grad:
                line["requires_grad"] = True
            if value.layout is torch.strided:
                self.strided(plain_tensor, line)
            else:
                line["layout"] = str(value.layout)
                parts = sparse_parts(plain_tensor)
                for name, part in parts.items():
                    self.visit(part, f"{path}.{name}()", depth + 1)
            if value.is_quantized:
                line["quantizer"] = quantizer(plain_tensor)
        for name, item in state.items():
            self.visit(item, f"{path}.{name}", depth + 1)

    def strided(self, value: torch.Tensor, line: Line) -> None:
        line["strides"] = list(value.stride())
        if value.numel() and value.device.type == "cpu":
            span = 1 + sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
            start = value.data_ptr()
            self.memory.append((start, start + span * value.element_size(), line))
        elif value.device.type not in ("cpu", "meta"):
            value = value.cpu()
        if value.device.type == "meta":
            return
        value = value.resolve_conj().resolve_neg()
        carrier: Any = torch.empty(0, dtype=_CARRIER[value.element_size()], device="cpu")
        if value.numel():
            carrier.set_(value.untyped_storage(), value.storage_offset(), value.shape, value.stride())
        line |= bits(carrier.contiguous().numpy() if value.numel() else np.empty(value.shape))

    def array(self, value: np.ndarray[Any, Any], line: Line, path: str, depth: int) -> None:
        line |= {"dtype": str(value.dtype), "shape": list(value.shape), "strides": list(value.strides)}
        if value.dtype.hasobject:
            for index in np.ndindex(value.shape):
                self.visit(value[index], f"{path}{list(index)}", depth + 1)
            return
        if value.size:
            start = value.__array_interface__["data"][0]
            low = sum(min(0, (size - 1) * step) for size, step in zip(value.shape, value.strides, strict=True))
            high = sum(max(0, (size - 1) * step) for size, step in zip(value.shape, value.strides, strict=True))
            self.memory.append((start + low, start + high + value.itemsize, line))
        line |= bits(np.ascontiguousarray(value))
        if isinstance(value, np.ma.MaskedArray):
            self.visit(value.mask, f"{path}.mask", depth + 1)

    def number_memory(self) -> None:
        """Give what overlaps the same number, in order of first occurrence."""
        groups: list[list[Line]] = []
        end = -1
        for start, stop, line in sorted(self.memory, key=lambda entry: entry[:2]):
            if start < end:
                groups[-1].append(line)
            else:
                groups.append([line])
            end = max(end, stop)
        shared = {id(line): group for group in groups if len(group) > 1 for line in group}
        numbers: dict[int, int] = {}
        for line in self.lines:
            group = shared.get(id(line))
            if group is not None:
                line["memory"] = numbers.setdefault(id(group), len(numbers))


def has_identity(value: object) -> bool:
    """Whether it can be seen that two places hold one object: not so for values that nobody can change."""
    if isinstance(value, (type, torch.Size)):
        return False
    mutable = (torch.Tensor, np.ndarray, Mapping, list, set, deque, bytearray)
    return isinstance(value, mutable) or bool(isinstance(value, tuple) and value) or bool(state_of(value))


def bits(array: np.ndarray[Any, Any]) -> Line:
    """The bytes of the elements in order: themselves when few, else a digest of each row."""
    if array.size <= WHOLE:
        return {"bits": base64.b64encode(array.tobytes()).decode("ascii")}
    rows = array if 1 < len(array) <= ROWS else array.reshape(1, -1)
    digests = [hashlib.sha256(row.tobytes()).hexdigest()[:32] for row in rows]
    return {"rows": digests}


def plain(value: object) -> Line:
    """The value of a leaf as text that tells different values apart; no text when it would hold an address."""
    if isinstance(value, float) and math.isnan(value):
        return {"value": f"nan {np.float64(value).tobytes().hex()}"}
    if isinstance(value, np.generic):
        return {"value": f"{value!r} {value.tobytes().hex()}"}
    if isinstance(value, (str, bytes, bytearray)):
        digest = hashlib.sha256(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value).hexdigest()
        return {"value": ascii(value)} if len(value) <= _TEXT else {"value": f"{value[:60]!a}...", "sha256": digest}
    if type(value).__module__.startswith("PIL."):
        image: Any = value
        return {"value": f"{image.mode} {image.size} {hashlib.sha256(image.tobytes()).hexdigest()}"}
    if isinstance(value, (set, frozenset)):
        return {"value": ", ".join(sorted(map(ascii, value)))}
    text = ascii(value) if not isinstance(value, int) or abs(value) < 1 << 1000 else hex(value)
    return {} if " at 0x" in text else {"value": text}


def sparse_parts(value: torch.Tensor) -> dict[str, torch.Tensor]:
    """The dense tensors that a sparse one consists of."""
    if value.layout is torch.sparse_coo:
        return {"_indices": value._indices(), "_values": value._values()}
    if value.layout in (torch.sparse_csr, torch.sparse_bsr):
        return {"crow_indices": value.crow_indices(), "col_indices": value.col_indices(), "values": value.values()}
    if value.layout in (torch.sparse_csc, torch.sparse_bsc):
        return {"ccol_indices": value.ccol_indices(), "row_indices": value.row_indices(), "values": value.values()}
    return {}


def quantizer(value: torch.Tensor) -> str:
    """Scheme, scales and zero points of a quantized tensor."""
    scheme = value.qscheme()
    if scheme is torch.per_tensor_affine:
        return f"{scheme} {value.q_scale()!r} {value.q_zero_point()}"
    scales, zeros = value.q_per_channel_scales().tolist(), value.q_per_channel_zero_points().tolist()
    return f"{scheme} {scales} {zeros} {value.q_per_channel_axis()}"


def type_name(cls: type) -> str:
    """Module and name; classes of the program itself by their name alone, whichever program it is."""
    if cls.__module__ in ("builtins", "__main__", "__mp_main__"):
        return cls.__qualname__
    return f"{cls.__module__}.{cls.__qualname__}"


def generator_states() -> dict[str, str]:
    """Digests of the states of this process's random-number generators; reading them changes nothing."""
    import random

    found = {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": _flat(np.random.get_state(legacy=False)),
        "random": repr(random.getstate()).encode(),
    }
    return {name: hashlib.sha256(state).hexdigest()[:16] for name, state in found.items()}


def _flat(state: Any) -> bytes:
    """The bytes of a state of numpy's, which is a dictionary of numbers, texts and arrays."""
    if isinstance(state, Mapping):
        return b"".join(key.encode() + _flat(item) for key, item in state.items())
    return state.tobytes() if isinstance(state, np.ndarray) else repr(state).encode()
