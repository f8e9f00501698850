"""The halves of torchvision's ToTensor: together they give its bits, for every input that both take."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import PILToTensor, ToTensor

from splitter_runtime import ScaleToFloat, ToUnscaledTensor

VALUES = np.random.RandomState(0).randint(0, 256, (5, 7, 3), dtype=np.uint8)
INPUTS = {
    "RGB": Image.fromarray(VALUES),
    "RGBA": Image.fromarray(VALUES).convert("RGBA"),
    "L": Image.fromarray(VALUES[:, :, 0]),
    "P": Image.fromarray(VALUES).convert("P"),
    "array": VALUES,
    "grey array": VALUES[:, :, 0],
    "read backwards": VALUES[:, ::-1].copy(),
    "in Fortran's order": np.asfortranarray(VALUES),
}


@pytest.mark.parametrize("name", INPUTS)
def test_both_halves(name: str) -> None:
    half = ToUnscaledTensor()(INPUTS[name])
    assert half.dtype is torch.uint8
    made, wanted = ScaleToFloat()(half), ToTensor()(INPUTS[name])
    assert (made.dtype, made.shape, made.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
    assert torch.equal(made, wanted)


@pytest.mark.parametrize("name", ["RGB", "RGBA", "L", "P"])
def test_as_torchvisions_own(name: str) -> None:
    made, wanted = ToUnscaledTensor()(INPUTS[name]), PILToTensor()(INPUTS[name])
    assert made.stride() == wanted.stride()
    assert torch.equal(made, wanted)


def test_it_copies() -> None:
    values = VALUES.copy()
    made = ToUnscaledTensor()(Image.fromarray(values))
    values[:] = 0
    assert made.any()


def test_other_types_are_refused_by_the_second_half() -> None:
    from splitter_runtime.errors import ConfigError

    with pytest.raises(ConfigError, match="R604"):
        ScaleToFloat()(ToUnscaledTensor()(VALUES.astype(np.float32)))
