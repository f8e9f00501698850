"""Operations that give the same bits on every device, and a mode that lets no other one run.

    with Exact(batch.device):             uint8 on cuda:0
        x = batch.float() / 255           a cast; and a division by a tensor on cuda:0, which IEEE 754 rounds as on the CPU
        x.sub_(MEAN)                      MEAN is a tensor on the CPU, so a copy of it on cuda:0
        x.pow(0.45)                       ConfigError R605

CUDA divides by a number by multiplying by its reciprocal, which is another result in the last bit; by a tensor it divides. What `clamp` and
`relu` make of a zero's sign is not the same in all kernels, so they are done by comparing, which gives what the CPU's give. Single
additions, subtractions, multiplications and divisions of float32 and float64 are rounded once, everywhere, and so are casts to a smaller
type; what moves, compares or chooses rounds nothing. The bits inside of a NaN are the exception: devices make different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from .errors import ConfigError

WHOLE = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
FLOATING = frozenset({torch.float32, torch.float64})
HALF = frozenset({torch.float16, torch.bfloat16})
_SMALL = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16})  # each of these is a half after one rounding
_LARGEST = 2**53  # beyond it not every whole number is a float64

# The table. Names are without the overload and without the underscore of what works in place: `div` stands for aten.div_.Tensor too.
# Elements are moved, or made of plain numbers, or read into Python.
LAYOUT = frozenset(
    """
view _unsafe_view _reshape_alias permute transpose t slice select expand unsqueeze squeeze flip roll repeat cat stack unbind split
split_with_sizes unfold clone contiguous detach alias lift lift_fresh constant_pad_nd index index_select
empty empty_like empty_strided new_empty new_empty_strided zeros ones full zeros_like ones_like full_like new_zeros new_ones
new_full scalar_tensor fill zero _local_scalar_dense
""".split()
)
CASTS = frozenset({"_to_copy", "copy"})
# Of float32 and float64 rounded once; of whole numbers exact, but for the division.
ARITHMETIC = frozenset({"add", "sub", "rsub", "mul", "div"})
# Nothing is rounded, or to a whole number.
CHOICE = frozenset(
    """
neg abs floor ceil trunc round eq ne lt le gt ge isnan isinf logical_and logical_or logical_xor logical_not where masked_fill
clamp clamp_min clamp_max relu
""".split()
)
# Of whole numbers alone: of two zeros with different signs any may come first.
WHOLE_NUMBERS = frozenset("minimum maximum bitwise_and bitwise_or bitwise_xor bitwise_not any all".split())

KNOWN = LAYOUT | CASTS | ARITHMETIC | CHOICE | WHOLE_NUMBERS
_UNKNOWN = "is not known to give the same bits on every device"


def objection(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Why an ATen operation may give other bits on another device; None when it can't."""
    name = name_of(function)
    if function.namespace != "aten" or name not in KNOWN or "out" in kwargs or torch.Tag.nondeterministic_seeded in function.tags:
        return _UNKNOWN
    leaves = tree_leaves((tuple(args), dict(kwargs)))
    types = [item.dtype for item in leaves if isinstance(item, torch.Tensor)]
    if name in CASTS:
        return _casts(types, types[0] if name == "copy" else kwargs.get("dtype") or types[0])
    if name in LAYOUT:
        if name not in ("index", "index_select") and len(set(types)) > 1 and not WHOLE | FLOATING >= set(types):
            return f"of several types {_UNKNOWN}"
        return _casts(types, kwargs["dtype"]) if kwargs.get("dtype") is not None else None
    if any(
        isinstance(item, complex) or (isinstance(item, int) and abs(item) > _LARGEST) or item != item for item in leaves if _plain(item)
    ):
        return f"with such a number {_UNKNOWN}"
    odd = next((dtype for dtype in types if dtype not in (WHOLE if name in WHOLE_NUMBERS else WHOLE | FLOATING)), None)
    if odd is not None:
        return f"of {short(odd)} {_UNKNOWN}"
    return _variant(function, name, args, kwargs)


def _plain(item: Any) -> bool:
    return isinstance(item, (int, float, complex))


def _variant(function: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """What speaks against a variant of an operation whose usual form is in the table."""
    alpha = kwargs.get("alpha", args[2] if name in ("add", "sub", "rsub") and len(args) > 2 else 1)
    if alpha != 1:
        return f"with alpha={alpha} {_UNKNOWN}"
    if kwargs.get("rounding_mode") is not None or kwargs.get("dtype") is not None or function._overloadname in ("decimals", "Tensor_mode"):
        return f"in this form {_UNKNOWN}"
    if name.startswith("clamp") and function._overloadname.startswith("Tensor"):
        return f"with tensors as limits {_UNKNOWN}"
    return None


def _casts(types: Sequence[torch.dtype], to: torch.dtype) -> str | None:
    odd = next((dtype for dtype in types if not is_cast(dtype, to)), None)
    return None if odd is None else f"from {short(odd)} to {short(to)} {_UNKNOWN}"


def is_cast(dtype: torch.dtype, to: torch.dtype) -> bool:
    """Whether a cast gives the same everywhere: nothing is rounded, or once; a number that the type doesn't have is undefined."""
    if dtype in WHOLE:
        return to in WHOLE | FLOATING or (dtype in _SMALL and to in HALF)
    if dtype in FLOATING:
        return to in FLOATING or to is torch.bool or (dtype is torch.float32 and to in HALF)
    return dtype is to or (dtype in HALF and to in FLOATING)


def name_of(function: Any) -> str:
    """The name of an ATen operation in the table."""
    name: str = function.overloadpacket.__name__
    return name.rstrip("_")


def short(dtype: torch.dtype) -> str:
    """`float32`"""
    return str(dtype).removeprefix("torch.")


class Exact(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is on, operations give on `device` the bits that they give on the CPU.

    ConfigError R605 for one of which that isn't known, and for one that takes something away from the device.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
        if not self._is_constant(function, given, kwargs):
            if name_of(function) not in KNOWN:
                with self:  # in inference mode operations come here before they are taken apart
                    made = function.decompose(*args, **kwargs)
                if made is not NotImplemented:
                    return made
            why = objection(function, args, kwargs) or self._elsewhere(function, given, kwargs)
            if why is not None:
                raise ConfigError.of("R605", what=f"{name_of(function)} {why}")
            args, kwargs = tree_map(self._brought, (args, kwargs))
            rewritten = _REWRITTEN.get(name_of(function))
            if rewritten is not None:
                return rewritten(function, args, kwargs)
        return function(*args, **kwargs)

    def _is_constant(self, function: Any, given: list[torch.Tensor], kwargs: Mapping[str, Any]) -> bool:
        """Whether it computes on the CPU, while the batch is elsewhere: the script does that there, too."""
        if self._device.type == "cpu" or torch.Tag.nondeterministic_seeded in function.tags:
            return False
        to = kwargs.get("device")
        return all(tensor.device.type == "cpu" for tensor in given) and (to is None or torch.device(to).type == "cpu")

    def _elsewhere(self, function: Any, given: list[torch.Tensor], kwargs: Mapping[str, Any]) -> str | None:
        to = kwargs.get("device")
        if name_of(function) == "_to_copy" and to is not None and torch.device(to).type != self._device.type:
            return f"takes what it is given to {to}"
        changed = given[0] if function._schema.is_mutable and given else None
        return None if changed is None or changed.device == self._device else f"changes a tensor on {changed.device}"

    def _brought(self, value: Any) -> Any:
        """A tensor on the CPU, here; other values as they are."""
        if not isinstance(value, torch.Tensor) or value.device == self._device:
            return value
        version = 0 if value.is_inference() else value._version
        kept = _constants.setdefault(value, {})
        if kept.get(self._device, (None, None))[0] != version:
            kept[self._device] = version, value.to(self._device)
        return kept[self._device][1]


# Of constants that are on the CPU: for each device the copy there, and the version of which it is one.
_constants: Any = WeakTensorKeyDictionary()


def _divided(function: Any, args: Any, kwargs: Any) -> Any:
    """A division by a number, with a tensor in its place."""
    one, other, *rest = args
    if not isinstance(other, torch.Tensor):
        common = torch.result_type(one, other)
        dtype = common if common.is_floating_point else torch.get_default_dtype()
        other = torch.full((), other, dtype=dtype, device=one.device)
        function = (torch.ops.aten.div_ if function._schema.is_mutable else torch.ops.aten.div).Tensor
    return function(one, other, *rest, **kwargs)


def _chosen(function: Any, args: Any, kwargs: Any) -> Any:
    """clamp, clamp_min, clamp_max and relu of floating-point numbers: an element stays unless it is beyond a limit."""
    one, *limits = args
    if not one.is_floating_point():
        return function(*args, **kwargs)
    names = {"clamp": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",), "relu": ()}[name_of(function)]
    given = {**dict(zip(names, limits, strict=False)), **kwargs, **({} if names else {"min": 0})}
    made = one
    for name, beyond in (("min", torch.lt), ("max", torch.gt)):
        if given.get(name) is not None:
            limit = torch.full((), given[name], dtype=one.dtype, device=one.device)
            made = torch.where(beyond(made, limit), limit, made)
    return one.copy_(made) if function._schema.is_mutable else made


_REWRITTEN: dict[str, Callable[[Any, Any, Any], Any]] = {
    "div": _divided,
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "relu"), _chosen),
}
