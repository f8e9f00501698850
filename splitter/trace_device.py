"""Tries on recorded samples whether a tail of transforms gives on a batch's device the bits that it gives on the CPU, sample by sample.

    [ScaleToFloat(), Normalize(...)]      ->  ""
    [ScaleToFloat(), gamma]               ->  "pow is not known to give the same bits on every device (train.py:31)"

No device is needed: what the tail does is looked up in the runtime's table (`splitter_runtime.exact`), under the mode that it runs in
there, and what comes out is compared. Runs in the child process only.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

Steps = Sequence[Callable[[Any], Any]]


def device_reason(sent: Sequence[torch.Tensor], steps: Steps, expected: Sequence[torch.Tensor], batched: bool) -> str:
    """Why the samples that are sent can't be finished on a device, as whole batches; "" when they can."""
    from splitter_runtime.errors import ConfigError
    from splitter_runtime.finish_device import whole

    if not batched:
        return "its loader doesn't make batches of samples"
    groups: dict[torch.Size, list[int]] = {}
    for number, sample in enumerate(sent):
        groups.setdefault(sample.shape, []).append(number)
    in_turn = _InTurn(steps)
    for group in groups.values():
        batch = torch.stack([sent[number].detach().as_subclass(torch.Tensor) for number in group])
        try:
            made = whole(in_turn, batch)
        except ConfigError as error:
            why = str(error.args[0]).removeprefix(f"{error.code}: the finish on the device: ").split(". Transform the script")[0]
            return f"{why} ({in_turn.place(error.__traceback__)})"
        except Exception as error:  # of the user's code, or of what torch.vmap can't follow
            first = str(error).strip().split("\n")[0].split(". ")[0]
            return f"it can't be called on a whole batch: {type(error).__name__}: {first} ({in_turn.place(error.__traceback__)})"
        if not same_bits(made, torch.stack([expected[number].detach().as_subclass(torch.Tensor) for number in group])):
            return "on the recorded samples it gives other bits on a whole batch"
    return ""


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same: type, dtype, shape and every bit."""
    if type(one) is not type(other) or (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    raw = [tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return torch.equal(*raw)


class _InTurn:
    """Steps, one after another, and the one that runs."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._running: Any = None

    def __call__(self, sample: Any) -> Any:
        for step in self._steps:
            self._running = step
            sample = step(sample)
        return sample

    def place(self, traceback: types.TracebackType | None) -> str:
        """The line of the script that an exception went through last, or the name of the transform."""
        home = os.path.dirname(os.path.realpath(getattr(sys.modules["__main__"], "__file__", None) or "."))
        libraries = (*map(os.path.realpath, {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib")}),)
        own = [os.path.dirname(os.path.realpath(path or ".")) for path in (__file__, sys.modules["splitter_runtime"].__file__)]
        found = ""
        while traceback is not None:
            path = os.path.realpath(traceback.tb_frame.f_code.co_filename)
            if not path.startswith((*libraries, *own)) and os.path.exists(path):
                found = f"{os.path.relpath(path, home)}:{traceback.tb_lineno}"
            traceback = traceback.tb_next
        return found or type(self._running).__name__
