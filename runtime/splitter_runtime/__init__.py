"""Runtime of split programs: what the two programs that `splitter transform` writes import.

Importing this imports neither torch nor gRPC; scripts set environment variables before they import those. Names are
resolved on first use.

In a worker program: dataset, loader, Loader, roots, serve, ToUnscaledTensor. In a trainer program: program, RemoteDataset, replicated,
DataLoader, ScaleToFloat, finish_on_device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bootstrap import program as program
    from .builders import Loader as Loader
    from .builders import dataset as dataset
    from .builders import loader as loader
    from .data_loader import DataLoader as DataLoader
    from .finish import ScaleToFloat as ScaleToFloat
    from .finish import ToUnscaledTensor as ToUnscaledTensor
    from .finish_device import finish_on_device as finish_on_device
    from .local_modules import roots as roots
    from .remote_dataset import RemoteDataset as RemoteDataset
    from .remote_dataset import replicated as replicated
    from .serving import serve as serve

__version__ = "0.1.0"

_HOMES = {
    "program": "bootstrap",
    "dataset": "builders",
    "loader": "builders",
    "Loader": "builders",
    "roots": "local_modules",
    "serve": "serving",
    "RemoteDataset": "remote_dataset",
    "replicated": "remote_dataset",
    "DataLoader": "data_loader",
    "ScaleToFloat": "finish",
    "ToUnscaledTensor": "finish",
    "finish_on_device": "finish_device",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
