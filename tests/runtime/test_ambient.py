"""Settings of the process that go along with what is sent."""

from __future__ import annotations

import pytest
import torch

from splitter_runtime import ambient
from splitter_runtime.errors import ConfigError


def test_a_default_device_is_refused() -> None:
    assert ambient.settings(local=False)["default_dtype"] == "float32"
    torch.set_default_device("meta")
    try:
        with pytest.raises(ConfigError, match="R601: new tensors are made on meta by default"):
            ambient.settings(local=False)
    finally:
        torch.set_default_device(None)
