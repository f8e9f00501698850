"""Finish: the tail of the per-sample code that the cut leaves on the trainer, done there to each sample of a batch.

    finish = Finish((Compose([ScaleToFloat(), normalize]), None))     the form of one sample: a callable, or None where nothing is to do

    finish.batch([uint8 64x3x224x224, int64 64])   ->  [float32 64x3x224x224, the same int64 64]
    finish.sample((uint8 3x224x224, 7))            ->  (float32 3x224x224, 7)

The callable gets what it gets in the script, one sample, which stays in the cache between its operations; its results are written into one
new tensor, laid out as default_collate lays it out there: in a worker process in order, in the main process as torch.stack does.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import default_collate

from .errors import ConfigError
from .memory import SMALLEST, Buffers

Step: TypeAlias = "Callable[[Any], Any]"


_buffers = Buffers()  # of the batches that are made here


class ScaleToFloat:
    """The second half of torchvision's ToTensor, after PILToTensor: a uint8 tensor of any shape to the default dtype, between 0 and 1.

    ConfigError R604 for anything else: PIL images of modes with other dtypes are not scaled by ToTensor, or are scaled otherwise.
    """

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.Tensor) or tensor.dtype is not torch.uint8:
            found = f"a tensor of {tensor.dtype}" if isinstance(tensor, torch.Tensor) else f"a {type(tensor).__name__}"
            raise ConfigError.of("R604", what=f"{found} where ToTensor got one of torch.uint8")
        return tensor.contiguous().to(torch.get_default_dtype()).div_(255)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ToUnscaledTensor:
    """The first half of torchvision's ToTensor: what it makes of an array or a PIL image before it divides by 255.

    For images as PILToTensor, for arrays, of shape (H, W) or (H, W, C), contiguous as from ToTensor.
    """

    def __call__(self, image: Any) -> torch.Tensor:
        if isinstance(image, np.ndarray):
            return torch.from_numpy((image[:, :, None] if image.ndim == 2 else image).transpose((2, 0, 1))).contiguous()
        values = torch.from_numpy(np.array(image, copy=True))
        return values.view(image.size[1], image.size[0], len(image.getbands())).permute((2, 0, 1))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Finish:
    """What is to be done to the parts of a sample: tuples, lists and dicts as they are in it, callables and None at their ends."""

    def __init__(self, structure: Any, *, on_device: bool = False) -> None:
        """`on_device`: batches are finished in the loop that takes them (see `finish_device`). TypeError for another structure."""
        _check(structure)
        self.structure, self.on_device = structure, on_device

    def __repr__(self) -> str:
        return f"Finish({self.structure!r}{', on_device=True' if self.on_device else ''})"

    def sample(self, value: Any) -> Any:
        """One sample, finished; its lists and dicts are changed in place. What is one tensor in it stays one.

        Raises what the callables raise, and ConfigError R604 for a value of another form.
        """
        return _Walk(_one).go(self.structure, value, "sample")

    def batch(self, value: Any, *, in_main: bool = False) -> Any:
        """A batch that default_collate made, finished; its lists and dicts are changed in place.

        `in_main`: the script collates in its main process, else in worker processes.
        Raises what the callables raise, what collating their results raises, and ConfigError R604 for a value of another form.
        """
        return self.over(value, _each_in_main if in_main else _each)

    def over(self, value: Any, work: Callable[[Step, torch.Tensor], Any]) -> Any:
        """A value with what `work` makes of each part and its callable; its lists and dicts are changed in place. R604 as in `batch`."""
        return _Walk(work).go(self.structure, value, "batch")

    def same_as(self, other: Finish) -> bool:
        """Whether another one is certain to do the same, in the same place."""
        if self.on_device is not other.on_device:
            return False
        ours, theirs = self.structure, other.structure
        return ours is theirs or _identity(ours) == _identity(theirs) or _pickled(ours) == _pickled(theirs)


def _check(structure: Any) -> None:
    if type(structure) in (tuple, list, dict):
        for part in structure.values() if type(structure) is dict else structure:
            _check(part)
    elif structure is not None and not callable(structure):
        raise TypeError(f"finish has a {type(structure).__name__} where a callable or None should be")


def _identity(structure: Any) -> Any:
    """The structure with the identities of its callables."""
    if type(structure) is dict:
        return {key: _identity(part) for key, part in structure.items()}
    if type(structure) in (tuple, list):
        return type(structure)(_identity(part) for part in structure)
    return id(structure)


def _pickled(structure: Any) -> Any:
    """Equal for equal ones; unlike all others when it can't be pickled."""
    try:
        return pickle.dumps(structure)
    except Exception:  # whatever the user's __reduce__ raises
        return object()


def _misfit(path: str, value: Any, wanted: str) -> ConfigError:
    return ConfigError.of("R604", what=f"{path} is a {type(value).__name__} where {wanted} was")


class _Walk:
    """One pass over a value along a structure."""

    def __init__(self, work: Callable[[Step, torch.Tensor], Any]) -> None:
        self._work = work
        self._tensors: dict[tuple[int, int], tuple[torch.Tensor, Any]] = {}  # with what they were, so that no id is given again
        self._containers: dict[int, tuple[Any, Any]] = {}

    def go(self, structure: Any, value: Any, path: str) -> Any:
        """The value, finished."""
        if structure is None:
            return value
        if type(structure) not in (tuple, list, dict):
            return self._finished(structure, value, path)
        if id(value) not in self._containers:
            fill = self._mapping if type(structure) is dict else self._sequence
            self._containers[id(value)] = value, fill(structure, value, path)
        return self._containers[id(value)][1]

    def _finished(self, step: Step, value: Any, path: str) -> Any:
        if not isinstance(value, torch.Tensor):
            raise _misfit(path, value, "a tensor")
        key = id(value), id(step)
        if key not in self._tensors:
            self._tensors[key] = value, self._work(step, value)
        return self._tensors[key][1]

    def _mapping(self, structure: dict[Any, Any], value: Any, path: str) -> Any:
        if not isinstance(value, Mapping) or value.keys() != structure.keys():
            raise _misfit(path, value, f"a dict of {', '.join(map(repr, structure))}")
        made = {key: self.go(part, value[key], f"{path}[{key!r}]") for key, part in structure.items() if part is not None}
        if not isinstance(value, MutableMapping):
            return type(value)({**value, **made})  # type: ignore[call-arg]
        value.update(made)
        return value

    def _sequence(self, structure: Sequence[Any], value: Any, path: str) -> Any:
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)) or len(value) != len(structure):
            raise _misfit(path, value, f"a sequence of {len(structure)}")
        made = [self.go(part, value[place], f"{path}[{place}]") for place, part in enumerate(structure)]
        if isinstance(value, MutableSequence):
            for place, part in enumerate(structure):
                if part is not None:
                    value[place] = made[place]
            return value
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*made)
        return type(value)(made)  # type: ignore[call-arg]


def _one(step: Step, sample: torch.Tensor) -> Any:
    return step(sample)


def _each(step: Step, batch: torch.Tensor) -> Any:
    return _finish_each(step, batch, False)


def _each_in_main(step: Step, batch: torch.Tensor) -> Any:
    return _finish_each(step, batch, True)


def _finish_each(step: Step, batch: torch.Tensor, in_main: bool) -> Any:
    if not batch.dim() or not len(batch):
        raise ConfigError.of("R604", what=f"a batch is a tensor of shape {tuple(batch.shape)}")
    count = len(batch)
    first = step(batch[0])
    if not _is_plain(first):
        return _collated([first, *(step(batch[place]) for place in range(1, count))], in_main)
    shape, dtype = first.shape, first.dtype
    out = _room(first, count, in_main)
    out[0].copy_(first)
    for place in range(1, count):
        made = step(batch[place])
        if not _is_plain(made) or made.shape != shape or made.dtype is not dtype:
            rest = (step(batch[later]) for later in range(place + 1, count))
            return _collated([*out[:place].unbind(), made, *rest], in_main)
        out[place].copy_(made)
    return out


def _is_plain(value: Any) -> bool:
    """Whether copying it is all that torch.stack does."""
    if type(value) is not torch.Tensor or value.layout is not torch.strided or value.device.type != "cpu":
        return False
    return not (value.is_quantized or value.requires_grad or value.is_nested)


def _room(first: torch.Tensor, count: int, in_main: bool) -> torch.Tensor:
    """An empty tensor for so many results like the first."""
    shape, size = (count, *first.shape), count * first.nbytes
    if in_main:
        pattern = torch.stack([first.to("meta")] * count)
        if not pattern.is_contiguous():
            return torch.empty_strided(pattern.shape, pattern.stride(), dtype=first.dtype, device="cpu")
    if size < SMALLEST:
        return torch.empty(shape, dtype=first.dtype, device="cpu")
    return torch.frombuffer(_buffers.take(size), dtype=torch.uint8).view(first.dtype).view(shape)


def _collated(results: list[Any], in_main: bool) -> Any:
    """What default_collate makes of results that are not all alike, or raises for them."""
    first = results[0]
    if in_main or not isinstance(first, torch.Tensor) or first.layout is not torch.strided or first.is_nested:
        return default_collate(results)
    return torch.stack(results, 0, out=first.detach().new_empty((len(results), *first.shape)))
