"""Tries on recorded samples which tails of a container of transforms the trainer can run after collating, with the same bits.

    Compose([Crop, Flip, ToTensor, Normalize])   ->   whole from [3], half of ToTensor at [2], in samples like "({}, None)"

What the worker would send is finished sample by sample, as the trainer does it with the samples of a batch; every bit of the results is
compared with the script's. Runs in the child process only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from splitter.ir import Tail, Tried

HALVED = "ToTensor"  # torchvision's; its first half is PILToTensor, its second splitter_runtime.ScaleToFloat


class _Refused(Exception):
    pass


class _Kept:
    """Stands for an element, and keeps what it takes and gives."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.taken: list[Any] = []
        self.given: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or kwargs:
            raise _Refused
        given = self.inner(*args)
        self.taken.append(args[0])
        self.given.append(given)
        return given

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def try_tail(container: Any, tail: Tail, samples: Callable[[], Iterable[Callable[[], Any]]], *, batched: bool = True) -> Tried | None:
    """Run the samples and compare; None when no tail can be parted. `samples` gives calls that make a sample each.

    `batched`: samples are collated before they cross.
    """
    elements = container.transforms
    if not isinstance(elements, list) or len(elements) != len(tail.elements):
        return None
    kept = [_Kept(element) for element in elements]
    made = []
    container.transforms = kept
    try:
        for sample in samples():
            made.append(sample())
    except _Refused:
        return None
    finally:
        container.transforms = elements
    if not made or any(len(each.given) != len(made) for each in kept):
        return None  # not once for each sample
    templates = {_template(sample, kept[-1].given[number]) for number, sample in enumerate(made)}
    template = templates.pop()
    if templates or template is None:
        return None
    return _parted(kept, tail, template, batched)


def _parted(kept: Sequence[_Kept], tail: Tail, template: str, batched: bool) -> Tried:
    from splitter_runtime import ScaleToFloat

    expected = kept[-1].given
    whole, half = [], []
    for first in range(len(kept) - 1, max(tail.movable, 0) - 1, -1):
        if not _same(kept[first].taken, [each.inner for each in kept[first:]], expected, batched):
            break
        whole.append(first)
    for place in tail.halves:
        element = kept[place]
        if type(element.inner).__name__ == HALVED and type(element.inner).__module__ == "torchvision.transforms.transforms":
            from torchvision.transforms import PILToTensor

            try:
                sent = [PILToTensor()(image) for image in element.taken]
            except TypeError:  # arrays
                continue
            if _same(sent, [ScaleToFloat(), *(each.inner for each in kept[place + 1 :])], expected, batched):
                half.append(place)
    return Tried(template, tuple(whole), tuple(half))


def _same(sent: Sequence[Any], tail: Sequence[Callable[[Any], Any]], expected: Sequence[Any], batched: bool) -> bool:
    """Whether these samples, finished, are what is expected, bit for bit, and can be collated where those can."""
    if not all(isinstance(one, torch.Tensor) and one.layout is torch.strided for one in (*sent, *expected)):
        return False
    shapes = {(one.shape, other.shape) for one, other in zip(sent, expected, strict=True)}
    if len({one.dtype for one in sent}) != 1 or len(shapes) > len({shape for _, shape in shapes}):
        return False
    return all(_finished_same(one, tail, other, batched) for one, other in zip(sent, expected, strict=True))


def _finished_same(sample: torch.Tensor, tail: Sequence[Callable[[Any], Any]], expected: torch.Tensor, batched: bool) -> bool:
    if batched:  # collating makes plain tensors, with samples that are contiguous
        sample, expected = sample.as_subclass(torch.Tensor).contiguous(), expected.as_subclass(torch.Tensor)
    made: Any = sample.clone()
    try:
        for element in tail:
            made = element(made)
    except Exception:  # whatever the user's code raises: it isn't what it gave before
        return False
    if not isinstance(made, torch.Tensor) or made.layout is not torch.strided or not (batched or made.stride() == expected.stride()):
        return False
    return same_bits(made, expected)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if type(one) is not type(other) or (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    raw = [tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return torch.equal(*raw)


def _template(sample: Any, result: Any) -> str | None:
    """The structure of a sample as an expression, "{}" in the one place where `result` is; None when that isn't so."""
    if not isinstance(result, torch.Tensor):
        return None
    text, count = _structure(sample, result)
    return text if count == 1 else None


def _structure(value: Any, result: Any) -> tuple[str, int]:
    if value is result:
        return "{}", 1
    if type(value) in (tuple, list):
        parts = [_structure(part, result) for part in value]
        inner = ", ".join(text for text, _ in parts)
        closed = f"[{inner}]" if type(value) is list else f"({inner}{',' if len(parts) == 1 else ''})"
        return _simple(closed, sum(count for _, count in parts))
    if type(value) is dict and all(type(key) is str for key in value):
        found = {key: _structure(part, result) for key, part in value.items()}
        text = ", ".join(f"{key!r}: {inner}" for key, (inner, _) in found.items()).replace("'", '"')
        return _simple("{{" + text + "}}", sum(count for _, count in found.values()))
    return "None", 0


def _simple(text: str, count: int) -> tuple[str, int]:
    """A part in which there is nothing to do is None as a whole."""
    return (text, count) if count else ("None", 0)
