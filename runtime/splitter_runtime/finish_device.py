"""Finish on the batch's device: what `finish_on="device"` leaves to a line in the loop that takes the batches.

    for images, target in train_loader:
        images = images.to(device, non_blocking=True)                                    uint8, 4 times less to copy
        images = splitter_runtime.finish_on_device(images, train_loader, 0)              float32, with the bits of the CPU

A transform is called once, on a whole batch (`torch.vmap`), with operations that give the same bits everywhere (see `exact`). An iterator
notes the types of what it hands out, so that a batch which comes here as something else is an error and never another result.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from .errors import ConfigError
from .exact import Exact, short
from .finish import Finish

Keys = tuple[Any, ...]


class Rest:
    """What is left to do to the batches of a loader, and the types of the last one that it gave."""

    def __init__(self, finish: Finish, *, in_main: bool, collates: bool) -> None:
        """`in_main`: the script collates in its main process, else in worker processes."""
        self.finish, self.in_main, self.collates = finish, in_main, collates
        self.given: dict[Keys, torch.dtype] = {}

    def __repr__(self) -> str:
        return f"<Rest of {self.finish!r}, given {self.given}>"

    def note(self, batch: Any) -> None:
        """A batch is handed out."""
        self.given = {keys: part.dtype for keys, part in _parts(self.finish.structure, batch) if isinstance(part, torch.Tensor)}

    def done(self, value: Any, keys: Keys = ()) -> Any:
        """The part of a batch at `keys`, finished; lists and dicts are changed in place. Raises what `finish_on_device` does."""
        structure = self.finish.structure
        for key in keys:
            try:
                structure = None if structure is None else structure[key]
            except (LookupError, TypeError):
                raise ConfigError.of("R604", what=f"the part of a batch at {keys} is finished where it has none there") from None
        for place, part in _parts(structure, value, keys):
            given, found = self.given.get(place), part.dtype if isinstance(part, torch.Tensor) else None
            if given is not None and found is not given:
                said = type(part).__name__ if found is None else f"a tensor of {short(found)}"
                raise ConfigError.of("R606", path="batch" + "".join(f"[{key!r}]" for key in place), found=said, given=short(given))
        return Finish(structure).over(value, self._whole) if structure is not None else value

    def copied(self, batch: Any) -> Any:
        """A copy of a batch, finished; the batch stays as it is."""
        return self.done(copy.deepcopy(batch))

    def _whole(self, step: Callable[[Any], Any], part: torch.Tensor) -> Any:
        return whole(step, part, in_main=self.in_main) if self.collates else alone(step, part)


def finish_on_device(value: Any, loader: Any, *keys: Any) -> Any:
    """The part of a batch of `loader` at `keys`, finished on the device where it is; without keys the whole batch.

    As it is when nothing of it is left to do, as for another loader that runs through the same loop. Raises what the transforms raise, and
    ConfigError R605 for an operation that may give other bits there, R606 when the part is not what the loader gave, R604 when it has
    another form.
    """
    rest: Rest | None = getattr(loader, "_rest", None)
    return value if rest is None else rest.done(value, keys)


def whole(step: Callable[[Any], Any], batch: torch.Tensor, *, in_main: bool = False) -> torch.Tensor:
    """A batch, finished at once: what default_collate makes of the finished samples, on the batch's device. Raises as finish_on_device."""
    if not batch.dim() or not len(batch):
        raise ConfigError.of("R604", what=f"a batch is a tensor of shape {tuple(batch.shape)}")
    first = batch[0].clone() if in_main else None  # a transform may work in place
    made = _plain(_ran(torch.vmap(step), batch))
    strides = _contiguous(made.shape) if first is None else _strides(_plain(_ran(step, first)), len(batch))
    if made.stride() == strides:
        return made
    return torch.empty_strided(made.shape, strides, dtype=made.dtype, device=made.device).copy_(made)


def alone(step: Callable[[Any], Any], sample: torch.Tensor) -> torch.Tensor:
    """One sample, finished."""
    return _plain(_ran(step, sample))


def _ran(step: Callable[[Any], Any], part: torch.Tensor) -> Any:
    # A thread that finishes on the CPU knows neither of these contexts of the loop.
    with torch.inference_mode(part.is_inference()), torch.autocast(part.device.type, enabled=False), Exact(part.device):
        return step(part)


def _plain(made: Any) -> torch.Tensor:
    if not isinstance(made, torch.Tensor) or made.layout is not torch.strided or made.is_nested:
        raise ConfigError.of("R604", what=f"a transform gives a {type(made).__name__} where a tensor was")
    if made.requires_grad:
        raise ConfigError.of("R605", what="a transform that has parameters is not the same for a batch and for its samples")
    return made.as_subclass(torch.Tensor)


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    return torch.empty(shape, device="meta").stride()


def _strides(first: torch.Tensor, count: int) -> tuple[int, ...]:
    """Those of so many samples like the first, which torch.stack has put together in the main process."""
    return torch.stack([torch.empty_strided(first.shape, first.stride(), dtype=first.dtype, device="meta")] * count).stride()


def _parts(structure: Any, value: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """The parts of a value that are to be finished, with their keys, as far as it has the form."""
    if callable(structure):
        yield keys, value
    elif isinstance(structure, dict) and isinstance(value, Mapping):
        for key, part in structure.items():
            yield from _parts(part, value[key], (*keys, key)) if key in value else ()
    elif isinstance(structure, (tuple, list)) and isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for place, (part, inner) in enumerate(zip(structure, value, strict=False)):
            yield from _parts(part, inner, (*keys, place))
