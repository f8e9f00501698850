"""What a copy in another process can't stand for: what is trained there and then, and memory that processes share."""

from __future__ import annotations

from typing import Any

import torch

from .codec_writer import Refusal, Writer

_SHARED = "memory that processes share"


def shared_memory() -> list[range]:
    """Addresses of this process that are mapped so that writes are seen by others; none where the kernel doesn't tell."""
    try:
        with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
            lines = [line.split(maxsplit=2)[:2] for line in maps]
    except OSError:
        return []
    bounds = [span.split("-") for span, access in lines if access.startswith("rw") and access.endswith("s")]
    return [range(int(start, 16), int(end, 16)) for start, end in bounds]


def refuse_shared(w: Writer, address: int) -> None:
    """Refusal when memory at `address` is shared with other processes, which see what one of them writes there."""
    if w.shared is None:
        w.shared = shared_memory()
    if any(address in part for part in w.shared):
        raise Refusal("R109", what=_SHARED)


def refuse_trained(tensor: torch.Tensor) -> None:
    """Refusal for a tensor that training changes."""
    if tensor.requires_grad or isinstance(tensor, torch.nn.Parameter):
        raise Refusal("R109", what="a parameter of a model")


def refuse_tensor(w: Writer, tensor: torch.Tensor) -> None:
    """Refusal for a tensor that can't go with a dataset."""
    refuse_trained(tensor)
    shared: Any = tensor.is_shared
    if tensor.numel():
        if shared():
            raise Refusal("R109", what=_SHARED)
        refuse_shared(w, tensor.data_ptr())
