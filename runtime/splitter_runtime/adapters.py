"""Libraries that take a loader apart and construct another of its parts: that one gets its batches from where the first one did.

    loader = DataLoader(data, collate_fn=pad, feed="train")
    loader = accelerator.prepare(loader)        DataLoader(loader.dataset, batch_sampler=..., collate_fn=loader.collate_fn, ...)

Accelerate constructs it through the name DataLoader of its module, so that name is given another meaning there, as soon as that module is
imported. Which loader it was is told by its dataset and functions, which are the same objects. Lightning saves loaders that have
state_dict, and goes on in the middle of an epoch; the script's loader has none, so it isn't shown that of ours. Imports no torch.
"""

from __future__ import annotations

import importlib.machinery
import sys
import weakref
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .data_loader import RemoteLoader

MODULES = frozenset(
    {"accelerate.data_loader"}
    | {
        f"{name}.{module}"
        for name in ("lightning.pytorch", "pytorch_lightning")
        for module in ("utilities.combined_loader", "loops.training_epoch_loop")
    }
)
_SAME = ("dataset", "collate_fn", "worker_init_fn")
_loaders: list[weakref.ref[Any]] = []  # those whose batches come from elsewhere, the newest last


def remember(loader: RemoteLoader) -> None:
    """Know a loader again when a library has taken it apart."""
    if loader._site is not None:
        _loaders.append(weakref.ref(loader, _loaders.remove))


def construct(dataset: Any, *args: Any, **kwargs: Any) -> Any:
    """What a library's DataLoader(...) gives: torch's own, or one whose batches come from where those of its origin do."""
    import torch.utils.data

    made: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(dataset, *args, **kwargs)
    origin = next((known for reference in reversed(_loaders) if (known := reference()) is not None and _same(known, made)), None)
    return made if origin is None else origin.rebuilt(dataset, *args, **kwargs)


def _same(known: Any, made: Any) -> bool:
    return all(getattr(known, name) is getattr(made, name) for name in _SAME) and known.num_workers == made.num_workers


class AfterImport:
    """A finder that changes nothing but what a module's own DataLoader means, once it has run."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if name not in MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            _patch_after(spec.loader)
        return spec


def _patch_after(loader: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        _patch(module)

    loader.exec_module = exec_module


def _patch(module: Any) -> None:
    if module.__name__ == "accelerate.data_loader":
        if hasattr(module, "DataLoader"):
            module.DataLoader = construct
    elif isinstance(getattr(module, "_Stateful", None), type) and not issubclass(module._Stateful, _Others):
        module._Stateful = _others(module._Stateful)


class _Others:
    """Marks what stands for Lightning's _Stateful."""


def _others(stateful: Any) -> type:
    """What Lightning saves and goes on with by itself: as in the script, not a loader of ours, which the script saves when it wants to."""

    class Meta(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            from .data_loader import RemoteLoader

            return isinstance(instance, stateful) and not isinstance(instance, RemoteLoader)

    return Meta("_Stateful", (_Others,), {})


def install() -> None:
    """Meet the libraries that are imported, and those that will be."""
    for name in MODULES & sys.modules.keys():
        _patch(sys.modules[name])
    if not any(isinstance(finder, AfterImport) for finder in sys.meta_path):
        finder: Any = AfterImport()
        sys.meta_path.insert(0, finder)
