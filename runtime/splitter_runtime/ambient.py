"""What belongs to the whole process and must be the same on both sides: generator states, and settings such as the default dtype.

states()            {"numpy": bytes, "random": bytes, "torch": bytes}
set_states({...})   any of them
settings(local=True), apply_settings({...})
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from .errors import CodecError, ConfigError

_RANDOM = struct.Struct("<i625Iqd")  # version, internal state, has gauss_next, gauss_next
_NUMPY = struct.Struct("<iid")  # position, has_gauss, cached_gaussian; then 624 words


GENERATORS = ("numpy", "random", "torch")
LOCAL = ("folder",)  # settings of a machine


def states(names: Collection[str] = GENERATORS) -> dict[str, bytes]:
    """States of the generators that data loading code draws from, or of some of them."""
    return {name: _STATE_OF[name]() for name in names}


def _torch_state() -> bytes:
    return torch.get_rng_state().numpy().tobytes()


def _numpy_state() -> bytes:
    # A bit generator other than the default one has no state in this form; the assertion names it.
    name, keys, position, has_gauss, cached = np.random.get_state()
    assert name == "MT19937", f"numpy's global bit generator is {name}, only MT19937 can be carried over"
    return _NUMPY.pack(position, has_gauss, cached) + np.asarray(keys, "<u4").tobytes()


def _random_state() -> bytes:
    version, words, gauss = random.getstate()
    return _RANDOM.pack(version, *words, gauss is not None, gauss or 0.0)


_STATE_OF = {"torch": _torch_state, "numpy": _numpy_state, "random": _random_state}


def set_states(new: Mapping[str, bytes]) -> None:
    """Set the generators that are named, and no other."""
    if "torch" in new:
        torch.set_rng_state(torch.frombuffer(bytearray(new["torch"]), dtype=torch.uint8))
    if "numpy" in new:
        position, has_gauss, cached = _NUMPY.unpack_from(new["numpy"])
        keys = np.frombuffer(new["numpy"], "<u4", offset=_NUMPY.size)
        if not 0 <= position <= len(keys):  # numpy doesn't look, and would read behind its memory
            raise CodecError.of("R110", why="a state of numpy's generator whose place is none")
        np.random.set_state(("MT19937", keys, position, has_gauss, cached))
    if "random" in new:
        version, *words, has_gauss, gauss = _RANDOM.unpack(new["random"])
        random.setstate((version, tuple(words), gauss if has_gauss else None))


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What of `new` isn't the same in `old`."""
    return {name: value for name, value in new.items() if name not in old or old[name] != value}


def settings(*, local: bool) -> dict[str, Any]:
    """Settings of this process that can change what data loading code computes. With `local`, those of this machine too.

    ConfigError when new tensors are made on a device, which no worker has.
    """
    device = torch.empty(0).device  # torch.get_default_device, before 2.3
    if device.type != "cpu":
        what = f"new tensors are made on {device} by default (torch.set_default_device, set_default_tensor_type), and on workers on the CPU"
        raise ConfigError.of("R601", what=what)
    found: dict[str, Any] = {
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "grad": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
    }
    if local:
        found["folder"] = os.getcwd()
    return found


def apply_settings(new: Mapping[str, Any]) -> None:
    """Make this process's settings those. OSError when the folder isn't there."""
    here = settings(local="folder" in new)
    different = changes(here, new)
    if "default_dtype" in different:
        torch.set_default_dtype(getattr(torch, different["default_dtype"]))
    if "grad" in different:
        torch.set_grad_enabled(different["grad"])
    if "threads" in different:
        torch.set_num_threads(different["threads"])
    if "deterministic" in different or "deterministic_warn_only" in different:
        torch.use_deterministic_algorithms(new["deterministic"], warn_only=new["deterministic_warn_only"])
    if "folder" in different:
        os.chdir(different["folder"])
