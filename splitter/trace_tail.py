"""Tries on recorded samples which tails of a container of transforms the trainer can run after collating, with the same bits.

    Compose([Crop, Flip, ToTensor, Normalize])   ->   whole from [3], half of ToTensor at [2], in samples like "({}, None)"

What the worker would send is finished sample by sample, as the trainer does it with the samples of a batch; every bit of the results is
compared with the script's. Runs in the child process only.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from splitter.ir_cut import Tail, Tried
from splitter.trace_containers import elements
from splitter.trace_device import device_reason, same_bits
from splitter.trace_lines import User
from splitter.trace_mentions import Way, called_as, holders, used_alike
from splitter.trace_returns import passes_on

HALVED = "ToTensor"  # torchvision's; its first half is PILToTensor, its second splitter_runtime.ScaleToFloat


class _RefusedError(Exception):
    """The container isn't used in a way that can be parted."""


class _Kept:
    """Stands for an element, and keeps what it takes and gives."""

    def __init__(self, inner: Any, called: Callable[[], None] | None = None) -> None:
        self.inner, self.called = inner, called
        self.taken: list[Any] = []
        self.given: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or kwargs:
            raise _RefusedError
        if self.called is not None:
            self.called()
        given = self.inner(*args)
        self.taken.append(args[0])
        self.given.append(given)
        return given

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def try_tail(
    container: Any,
    tail: Tail,
    samples: Callable[[], Iterable[Callable[[], Any]]],
    user: User,
    root: Any,
    *,
    batched: bool = True,
) -> Tried | None:
    """Run the samples and compare; None when no tail can be parted. `samples` gives calls that make a sample each.

    `root`: the dataset, of whose objects some can call the container. `batched`: samples are collated before they cross.
    """
    before = elements(container) or {}
    if len(before) != len(tail.elements):
        return None
    own = sys._getframe().f_code
    known: set[tuple[tuple[types.CodeType, int], ...]] = set()

    def called() -> None:
        frame = _caller(container)
        way = tuple(_calls(frame, own))
        if way in known:
            return
        known.add(way)
        if not tail.links or frame is None:
            ways = holders(root, container, user)
        else:  # the text of the function that it is in has been looked at
            ways, frame = _reached(root, frame, user), frame.f_back
        if not passes_on(frame, own) or not used_alike(frame, own, user, ways):
            raise _RefusedError

    kept = [_Kept(element, called if not place else None) for place, element in enumerate(before.values())]
    store = container.transforms if tail.listed else container._modules
    store_elements(store, dict(zip(before, kept, strict=True)))
    made = []
    try:
        for sample in samples():
            made.append(sample())
    except _RefusedError:
        return None
    finally:
        store_elements(store, before)
    template = _template_of(made, kept)
    return None if template is None else _parted(kept, tail, template, batched)


def store_elements(store: Any, elements: Mapping[Any, Any]) -> None:
    """Put elements into the list or dict of a container."""
    for key, element in elements.items():
        store[key] = element


def _caller(container: Any) -> types.FrameType | None:
    """The frame that has called the container."""
    frame: types.FrameType | None = sys._getframe(1)
    found = None
    while frame is not None:
        if frame.f_locals.get("self") is container:
            found = frame.f_back
        frame = frame.f_back
    return found


def _reached(root: Any, frame: types.FrameType, user: User) -> frozenset[Way]:
    """How a function can be called, and its object be indexed."""
    own = holders(root, frame.f_locals["self"], user) if "self" in frame.f_locals else frozenset()
    return called_as(frame, user) | {replace(way, kind="items") for way in own}


def _calls(frame: types.FrameType | None, until: types.CodeType) -> Iterator[tuple[types.CodeType, int]]:
    """The calls that frames are in, from one outwards."""
    while frame is not None and frame.f_code is not until:
        yield frame.f_code, frame.f_lasti
        frame = frame.f_back


def _template_of(made: Sequence[Any], kept: Sequence[_Kept]) -> str | None:
    """The structure of all samples; None when they differ, or when what a sample's calls give isn't in it."""
    calls = len(kept[-1].given) // max(len(made), 1)
    if not calls or any(len(each.given) != calls * len(made) for each in kept):
        return None
    templates = {_template(sample, kept[-1].given[number * calls : (number + 1) * calls]) for number, sample in enumerate(made)}
    return templates.pop() if len(templates) == 1 else None


def _parted(kept: Sequence[_Kept], tail: Tail, template: str, batched: bool) -> Tried:
    from splitter_runtime import ScaleToFloat

    expected = kept[-1].given
    whole, half = [], []
    for first in range(len(kept) - 1, max(tail.movable, 0) - 1, -1):
        if not _same(kept[first].taken, [each.inner for each in kept[first:]], expected, batched):
            break
        whole.append(first)
    arrays = False
    device = [(first, False, device_reason(kept[first].taken, [e.inner for e in kept[first:]], expected, batched)) for first in whole]
    for place in tail.halves:
        sent = _first_halves(kept[place])
        steps = [ScaleToFloat(), *(each.inner for each in kept[place + 1 :])]
        if sent and _same(sent, steps, expected, batched):
            half.append(place)
            arrays = isinstance(kept[place].taken[0], np.ndarray)
            device.append((place + 1, True, device_reason(sent, steps, expected, batched)))
    return Tried(template, tuple(whole), tuple(half), arrays, tuple(device))


def _first_halves(element: _Kept) -> list[torch.Tensor]:
    """What the worker would send of a ToTensor; nothing when it is another, or takes images as well as arrays."""
    from torchvision.transforms import PILToTensor

    from splitter_runtime import ToUnscaledTensor

    if type(element.inner).__name__ != HALVED or type(element.inner).__module__ != "torchvision.transforms.transforms":
        return []
    if len({isinstance(image, np.ndarray) for image in element.taken}) != 1:
        return []
    sent = [ToUnscaledTensor()(image) for image in element.taken]
    if not isinstance(element.taken[0], np.ndarray):
        by_name = [PILToTensor()(image) for image in element.taken]
        if not all(map(same_bits, sent, by_name)):
            return []
    return sent


def _same(sent: Sequence[Any], tail: Sequence[Callable[[Any], Any]], expected: Sequence[Any], batched: bool) -> bool:
    """Whether these samples, finished, are what is expected, bit for bit, and can be collated where those can."""
    if not all(isinstance(one, torch.Tensor) and one.layout is torch.strided for one in (*sent, *expected)):
        return False
    shapes = {(one.shape, other.shape) for one, other in zip(sent, expected, strict=True)}
    if len({one.dtype for one in sent}) != 1 or len(shapes) > len({shape for _, shape in shapes}) or _evens_out(sent[0], tail):
        return False
    return all(_finished_same(one, tail, other, batched) for one, other in zip(sent, expected, strict=True))


def _evens_out(sample: torch.Tensor, tail: Sequence[Callable[[Any], Any]]) -> bool:
    """Whether a larger sample would come out in the same shape, as of a crop: then some could be collated finished that can't be before."""
    shape = _shape_of(sample, tail)
    for dimension, size in enumerate(sample.shape):
        for other in (size + 1, 2 * size, 3 * size):
            larger = sample.repeat_interleave(3, dimension).narrow(dimension, 0, other)
            if _shape_of(larger, tail) == shape is not None:
                return True
    return False


def _shape_of(sample: torch.Tensor, tail: Sequence[Callable[[Any], Any]]) -> torch.Size | None:
    """The shape in which a sample comes out; None when it can't be finished."""
    made = _finished(sample, tail)
    return made.shape if isinstance(made, torch.Tensor) else None


def _finished(sample: torch.Tensor, tail: Sequence[Callable[[Any], Any]]) -> Any:
    made: Any = sample.clone()
    try:
        for element in tail:
            made = element(made)
    except Exception:  # whatever the user's code raises: it isn't what it gave before
        return None
    return made


def _finished_same(sample: torch.Tensor, tail: Sequence[Callable[[Any], Any]], expected: torch.Tensor, batched: bool) -> bool:
    if batched:  # collating makes plain tensors, with samples that are contiguous
        sample, expected = sample.as_subclass(torch.Tensor).contiguous(), expected.as_subclass(torch.Tensor)
    made = _finished(sample, tail)
    if not isinstance(made, torch.Tensor) or made.layout is not torch.strided or not (batched or made.stride() == expected.stride()):
        return False
    return same_bits(made, expected)


def _template(sample: Any, results: Sequence[Any]) -> str | None:
    """The structure of a sample as an expression, "{0}" where results are; None unless each of them is in one place."""
    if not all(isinstance(result, torch.Tensor) for result in results):
        return None
    found: list[int] = []
    text = _structure(sample, {id(result) for result in results}, found)
    return text if len(found) == len(set(found)) == len(results) else None


def _structure(value: Any, results: Set[int], found: list[int]) -> str:
    """ "None" for a part in which there is nothing to do."""
    if id(value) in results:
        found.append(id(value))
        return "{0}"
    count = len(found)
    text = "None"
    if type(value) in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        inner = ", ".join(_structure(part, results, found) for part in value)
        text = f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    elif type(value) is dict and all(type(key) is str for key in value):
        entries = [f"{json.dumps(key)}: {_structure(part, results, found)}" for key, part in value.items()]
        text = "{{" + ", ".join(entries) + "}}"
    return text if len(found) > count else "None"
