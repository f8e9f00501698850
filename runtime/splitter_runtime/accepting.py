"""What a worker accepts of a dataset that the trainer sends.

    accepts=("Photos", "data.Flip", "torchvision.*")      classes and functions of the worker program, of the script's module data, and
                                                          whatever is in an installed package, which is imported when it is first named

Of the script's own code nothing else: the compiler has looked at those. Of packages that are imported anyway everything is accepted.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import site
import sys
import sysconfig
from collections.abc import Callable
from typing import Any

from .codec import decode

# libraries that give loaders a function of their own, which then comes with it: for the seeds of workers
DRIVERS = frozenset({"lightning.*", "pytorch_lightning.*", "lightning_fabric.*"})


def unpack(header: bytes, payload: Any, accepts: frozenset[str]) -> dict[str, Any]:
    """In the template: the parts of a loader. CodecError for a class or function of the script that isn't in `accepts`."""
    value: Any = decode(header, memoryview(payload), code=True, accept=_accepting(accepts | DRIVERS))
    return dict(value)


def load(names: frozenset[str]) -> None:
    """Import the script's modules that accepted names are in, so that the codec finds them."""
    for name in sorted(names):
        module, _, last = name.rpartition(".")
        if module != "__main__" and last != "*":
            importlib.import_module(module)


def _accepting(names: frozenset[str]) -> Callable[[str, str], bool]:
    def accept(module: str, name: str) -> bool:
        top = name.split(".")[0]
        if f"{module}.{top}" in names:
            return True
        if module not in sys.modules and f"{module.split('.')[0]}.*" in names:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        return _is_library(module)

    return accept


def _is_library(name: str) -> bool:
    """Whether a module is installed, or Python's own: not one of the script's."""
    if name in ("__main__", "__mp_main__"):
        return False
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None:
        return name in sys.builtin_module_names or name in sys.stdlib_module_names
    place = os.path.realpath(file)
    return any(place.startswith(root + os.sep) for root in _installed())


def _installed() -> set[str]:
    """Folders of installed packages and of the standard library."""
    paths = sysconfig.get_paths()
    found = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")} | set(site.getsitepackages())
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__:
        found.add(os.path.dirname(os.path.dirname(torch.__file__)))
    return {os.path.realpath(path) for path in found}
