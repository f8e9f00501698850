"""Compare what operations give on a device with what they give on the CPU, bit for bit: what `--finish-on device` stands on.

python tools/device_check.py [--device cuda] [--rounds 20] [--seed 0]

Every operation of the table in splitter_runtime/exact.py runs on random numbers of several types, with zeros of both signs, the largest and
smallest numbers and infinities among them: on the CPU as it is, on the device under the mode that finishing uses. Then tails of transforms
do, sample by sample on the CPU and on whole batches there. NaNs are compared as NaNs. Exit status: 0 when all is the same, 1 when something
isn't, 2 when there is no such device here. `--device cpu` checks the mode alone.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torchvision import transforms
from torchvision.transforms import v2

from splitter_runtime import ScaleToFloat
from splitter_runtime.errors import ConfigError
from splitter_runtime.exact import FLOATING, HALF, KNOWN, WHOLE, Exact, is_cast, short
from splitter_runtime.finish import Finish
from splitter_runtime.finish_device import whole

Tensor = torch.Tensor
NUMBERS = tuple(sorted((WHOLE | FLOATING) - {torch.bool}, key=str))
ANY = tuple(sorted(WHOLE | FLOATING | HALF, key=str))
SHAPE = (3, 5, 257)  # more than vectors and their rests
EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, float("inf"), float("-inf"), 1e-40, -1e-45, 3.4e38, 2.0**24 + 1, 1 / 3)
ATEN = torch.ops.aten


@dataclass(frozen=True)
class Case:
    """One operation, of as many random tensors as it takes, of these types each. `covers` is its name in the table."""

    covers: str
    run: Callable[..., Any]
    types: Sequence[torch.dtype]
    count: int = 1


def cases() -> Iterator[Case]:
    """Every operation of the table, and the forms in which transforms use them."""
    for name in ("add", "sub", "rsub", "mul", "div"):
        run = getattr(torch, name)
        yield Case(name, run, NUMBERS, 2)
        for number in (3, 0.1, 255, -2.5, 1 / 3, 1e-3):
            yield Case(name, lambda x, run=run, number=number: run(x, number), NUMBERS)
            yield Case(name, lambda x, run=run, number=number: run(x, torch.tensor(number)), NUMBERS)
            yield Case(name, lambda x, run=run, number=number: run(x, torch.tensor(number, dtype=torch.float64).view(1, 1, 1)), NUMBERS)
    for number in (3, 0.1, 255, 1 / 3):
        yield Case("div", lambda x, number=number: x.clone().div_(number), tuple(FLOATING))
        yield Case("mul", lambda x, number=number: x.clone().mul_(number).sub_(number).add_(1), tuple(FLOATING))
    yield Case("div", lambda x: x.div(255).sub(torch.tensor([0.4, 0.5, 0.6])[:, None, None]).div(torch.tensor([[[0.2]]])), (torch.uint8,))
    yield from _choosing()
    yield from _whole()
    yield from _moving()
    for dtype, to in itertools.product(ANY, ANY):
        yield Case("_to_copy", lambda x, to=to: _cast(x, to), (dtype,))
        yield Case("copy", lambda x, to=to: torch.empty(SHAPE, dtype=to, device=x.device).copy_(_castable(x, to)), (dtype,))


def _castable(x: Tensor, to: torch.dtype) -> Tensor:
    """The tensor, or an empty one where casting isn't in the table."""
    return x if is_cast(x.dtype, to) else torch.zeros(SHAPE, dtype=to, device=x.device)


def _cast(x: Tensor, to: torch.dtype) -> Tensor:
    return _castable(x, to).to(to)


def _choosing() -> Iterator[Case]:
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        run = getattr(torch, name)
        yield Case(name, run, NUMBERS, 2)
        yield Case(name, lambda x, run=run: run(x, 0.1), NUMBERS)
        yield Case(name, lambda x, run=run: run(x, 3), NUMBERS)
    for name in ("neg", "abs", "floor", "ceil", "trunc", "round", "relu"):
        yield Case(name, getattr(torch, name), NUMBERS)
    for name in ("isnan", "isinf", "logical_not"):
        yield Case(name, getattr(torch, name), NUMBERS)
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield Case(name, getattr(torch, name), NUMBERS, 2)
    yield Case("where", lambda x, y: torch.where(x > y, x, y), NUMBERS, 2)
    yield Case("where", lambda x: torch.where(x > 0, x, torch.zeros(())), tuple(FLOATING))
    yield Case("masked_fill", lambda x: x.masked_fill(x > 1, 3), NUMBERS)
    for low, high in ((0, 1), (-0.5, 0.25), (0.0, None), (None, -0.0), (None, 0.1)):
        yield Case("clamp", lambda x, low=low, high=high: x.clamp(low, high), NUMBERS)
    yield Case("clamp_min", lambda x: ATEN.clamp_min(x, 0), NUMBERS)
    yield Case("clamp_max", lambda x: ATEN.clamp_max(x, 0), NUMBERS)
    yield Case("clamp", lambda x: x.clone().clamp_(0, 1), NUMBERS)


def _whole() -> Iterator[Case]:
    kinds = tuple(dtype for dtype in NUMBERS if dtype in WHOLE)
    for name in ("minimum", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor"):
        yield Case(name, getattr(torch, name), kinds, 2)
    yield Case("bitwise_not", torch.bitwise_not, kinds)
    yield Case("any", lambda x: (x > 100).any(), kinds)
    yield Case("all", lambda x: (x > 100).all(-1), kinds)


def _moving() -> Iterator[Case]:
    runs: dict[str, Callable[[Tensor], Any]] = {
        "view": lambda x: x.view(-1, 257),
        "_unsafe_view": lambda x: ATEN._unsafe_view(x, [15, 257]),
        "_reshape_alias": lambda x: x.transpose(0, 1).reshape(5, -1),
        "permute": lambda x: x.permute(2, 0, 1),
        "transpose": lambda x: x.transpose(0, 2),
        "t": lambda x: x[0].t(),
        "slice": lambda x: x[:, 1:4, ::3],
        "select": lambda x: x[1],
        "expand": lambda x: x[:, None].expand(3, 2, 5, 257),
        "unsqueeze": lambda x: x.unsqueeze(0),
        "squeeze": lambda x: x[:1].squeeze(0),
        "flip": lambda x: x.flip(-1),
        "roll": lambda x: x.roll(2, 1),
        "repeat": lambda x: x.repeat(2, 1, 1),
        "cat": lambda x: torch.cat([x, x], 1),
        "stack": lambda x: torch.stack([x, x], -1),
        "unbind": lambda x: x.unbind(0)[2],
        "split": lambda x: torch.split(x, 2, 1)[2],
        "split_with_sizes": lambda x: torch.split(x, [2, 3], 1)[1],
        "unfold": lambda x: x.unfold(2, 16, 16),
        "clone": lambda x: x.clone(),
        "contiguous": lambda x: x.transpose(0, 1).contiguous(),
        "detach": lambda x: x.detach(),
        "alias": lambda x: ATEN.alias(x),
        "lift": lambda x: x + torch.tensor(0, dtype=x.dtype) if x.dtype in FLOATING else x,
        "lift_fresh": lambda x: torch.where(x == x, x, torch.tensor(1, dtype=x.dtype)) if x.dtype in FLOATING else x,
        "constant_pad_nd": lambda x: nn.functional.pad(x, (1, 2), value=1),
        "index": lambda x: x[[2, 1, 0]],
        "index_select": lambda x: x.index_select(1, torch.tensor([3, 0])),
        "empty": lambda x: torch.empty(SHAPE, dtype=x.dtype).fill_(1),
        "empty_like": lambda x: torch.empty_like(x).copy_(x),
        "empty_strided": lambda x: torch.empty_strided((2,), (1,), dtype=x.dtype).zero_(),
        "new_empty": lambda x: x.new_empty(SHAPE).copy_(x),
        "new_empty_strided": lambda x: x.new_empty_strided((2,), (1,)).zero_(),
        "zeros": lambda x: torch.zeros(3, dtype=x.dtype),
        "ones": lambda x: torch.ones(3, dtype=x.dtype),
        "full": lambda x: torch.full((3,), 1, dtype=x.dtype),
        "zeros_like": lambda x: torch.zeros_like(x),
        "ones_like": lambda x: torch.ones_like(x),
        "full_like": lambda x: torch.full_like(x, 1),
        "new_zeros": lambda x: x.new_zeros(3),
        "new_ones": lambda x: x.new_ones(3),
        "new_full": lambda x: x.new_full((3,), 1),
        "scalar_tensor": lambda x: torch.scalar_tensor(1, dtype=x.dtype),
        "fill": lambda x: x.clone().fill_(1),
        "zero": lambda x: x.clone().zero_(),
        "_local_scalar_dense": lambda x: torch.tensor(x[0, 0, 0].item()),
    }
    for name, run in runs.items():
        yield Case(name, run, ANY)


def numbers(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Random numbers of a type, of all sizes, with `EDGES` among those of floating-point types."""
    if dtype is torch.bool:
        return torch.randint(0, 2, tuple(shape), generator=generator).bool()
    if dtype in WHOLE:
        info = torch.iinfo(dtype)
        return torch.randint(max(info.min, -(2**40)), min(info.max, 2**40), tuple(shape), generator=generator).to(dtype)
    made = torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
    made = made * 2.0 ** torch.randint(-12, 12, tuple(shape), generator=generator)
    places = torch.randint(0, made.numel(), (made.numel() // 8,), generator=generator)
    made.view(-1)[places] = torch.tensor(EDGES, dtype=torch.float64).repeat(len(places) // len(EDGES) + 1)[: len(places)]
    return made.to(dtype)


def difference(one: Any, other: Any) -> str | None:
    """How two results differ; None when they have the same bits, but for those inside of NaNs."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return None if one == other else f"{one!r} and {other!r}"
    other = other.cpu()
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"{short(one.dtype)} {tuple(one.shape)} and {short(other.dtype)} {tuple(other.shape)}"
    raw = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
    unlike = one.contiguous().view(raw) != other.contiguous().view(raw)
    if one.is_floating_point():
        unlike &= ~(one.isnan() & other.isnan())
    if not unlike.any():
        return None
    first, second = one.contiguous()[unlike], other.contiguous()[unlike]
    return f"{len(first)} of {one.numel()} elements: {first.flatten()[0].item()!r} and {second.flatten()[0].item()!r}"


def check(case: Case, device: torch.device, generator: torch.Generator) -> Iterator[str]:
    """The differences of one operation on new numbers; there should be none."""
    for dtype in case.types:
        given = [numbers(SHAPE, dtype, generator) for _ in range(case.count)]
        try:
            expected = case.run(*(each.clone() for each in given))
        except (RuntimeError, NotImplementedError):
            continue  # not of this type, on the CPU either
        moved = [each.to(device) for each in given]
        try:
            with Exact(device):
                made = case.run(*moved)
        except ConfigError as error:
            found: str | None = str(error)
        else:
            found = difference(expected, made)
        if found is not None:
            yield f"{case.covers} of {short(dtype)}: {found}"


TAILS: dict[str, tuple[Callable[[Tensor], Tensor], torch.dtype]] = {
    "ImageNet": (transforms.Compose([ScaleToFloat(), transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]), torch.uint8),
    "v2": (v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)]), torch.uint8),
    "Sequential": (nn.Sequential(transforms.ConvertImageDtype(torch.float32), transforms.Normalize([0.1] * 3, [0.3] * 3)), torch.uint8),
    "function": (lambda x: ((x.float() / 127.5 - 1).clamp(-0.9, 0.9)).flip(0).permute(1, 2, 0), torch.uint8),
    "half": (lambda x: (x.float() / 255).half(), torch.uint8),
    "double": (lambda x: x.double() * 0.1 - 3, torch.int16),
}


def check_tail(name: str, device: torch.device, generator: torch.Generator) -> str | None:
    """How a tail of transforms differs on a batch; None when it doesn't."""
    step, dtype = TAILS[name]
    batch = numbers((7, 3, 33, 65), dtype, generator)
    found = difference(Finish(step).batch(batch.clone()), whole(step, batch.to(device)))
    return None if found is None else f"tail {name}: {found}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("no CUDA device here")
        return 2
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}")
    every = list(cases())
    uncovered = KNOWN - {case.covers for case in every}
    found = [f"{name} is in the table and not checked" for name in sorted(uncovered)]
    generator = torch.Generator().manual_seed(options.seed)
    for _ in range(options.rounds):
        found += [line for case in every for line in check(case, device, generator)]
        found += [line for name in TAILS if (line := check_tail(name, device, generator)) is not None]
    for line in list(dict.fromkeys(found))[:40]:
        print(line)
    print(f"{len(every)} operations and {len(TAILS)} tails, {options.rounds} rounds: {len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
