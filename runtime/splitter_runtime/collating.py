"""default_collate in streams: the same bits as torch's, written where the reader can map them.

torch's collates into a new shared-memory file for every tensor of every batch. Here a large batch is collated into a segment that is used
again (see `segments`), and a small one into plain memory; and samples that are tuples of tensors and numbers, as most are, take a shorter
way to the same functions. Everything else, errors included, is torch's.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data._utils import collate

from .errors import ConfigError
from .segments import SMALLEST, Arena

_LARGE = 16 << 10  # bytes of a sample; above it a copy for each sample is faster than torch.stack


def collate_into(arena: Arena) -> None:
    """Have this process's default_collate use `arena` from now on."""
    original = collate.collate_tensor_fn

    def collate_tensor(batch: Any, *, collate_fn_map: Any = None) -> Any:
        first = batch[0]
        if type(first) is not torch.Tensor or first.layout is not torch.strided or first.is_quantized or first.device.type != "cpu":
            return original(batch, collate_fn_map=collate_fn_map)
        shape, dtype = (len(batch), *first.shape), first.dtype
        out = arena.empty(shape, dtype) if len(batch) * first.nbytes >= SMALLEST else None
        if out is None:
            return torch.stack(batch, 0, out=torch.empty(shape, dtype=dtype))
        if first.nbytes < _LARGE or not all(_plain(sample, first.shape, dtype) for sample in batch):
            return torch.stack(batch, 0, out=out)
        for place, sample in zip(out, batch, strict=True):
            place.copy_(sample)
        return out

    # The table is public (torch.utils.data.default_collate documents it); a type that the user has put there stays.
    if collate.default_collate_fn_map.get(torch.Tensor) is original:
        collate.default_collate_fn_map[torch.Tensor] = collate_tensor


def shortened(default: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """torch's default_collate for the lists of samples that a loader makes, of which nobody but the loader sees what comes out."""
    table: Any = collate.default_collate_fn_map
    if {default.__module__, *(function.__module__ for function in table.values())} - {collate.__name__, __name__}:
        return default  # the user's
    known = dict(table)

    def column(values: Any) -> Any:
        kinds = set(map(type, values))
        if kinds == {int}:
            return torch.frombuffer(array("q", values), dtype=torch.int64)
        if kinds == {float}:
            return torch.frombuffer(array("d", values), dtype=torch.float64)
        if kinds == {torch.Tensor}:
            return table[torch.Tensor](values, collate_fn_map=table)
        return default(values)

    def collate_samples(batch: Any) -> Any:
        if table == known:
            try:
                if set(map(type, batch)) == {tuple}:
                    return [column(values) for values in zip(*batch, strict=True)]
                return column(batch)
            except (OverflowError, RuntimeError, ValueError):
                pass  # it is raised again, by torch
        return default(batch)

    return collate_samples


def _plain(sample: Any, shape: torch.Size, dtype: torch.dtype) -> bool:
    return type(sample) is torch.Tensor and sample.shape == shape and sample.dtype is dtype and not sample.requires_grad


def alike(default: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """torch's default_collate for samples that are to be finished: ConfigError R604 for tensors of several types in one place."""

    def collate(samples: Any) -> Any:
        if isinstance(samples, list):
            _check_alike(samples)
        return default(samples)

    return collate


def _check_alike(values: Sequence[Any]) -> None:
    first = values[0]
    if isinstance(first, torch.Tensor):
        types = {value.dtype for value in values if isinstance(value, torch.Tensor)}
        if len(types) > 1:
            raise ConfigError.of("R604", what=f"tensors of {' and '.join(sorted(map(str, types)))} in one batch")
    elif isinstance(first, Mapping):
        for key in first:
            _check_alike([value[key] for value in values if isinstance(value, Mapping) and key in value])
    elif isinstance(first, (tuple, list)):
        for column in zip(*(value for value in values if isinstance(value, (tuple, list))), strict=False):
            _check_alike(column)
