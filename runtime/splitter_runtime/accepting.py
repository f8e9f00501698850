"""What a worker accepts of a dataset that the trainer sends.

    accepts=("Photos", "data.Flip", "torchvision.*")      classes and functions of the worker program, of the script's module data, and
                                                          whatever is in an installed package, which is imported when it is first named

Of the script's own code nothing else: the compiler has looked at those. Of packages that are imported anyway everything is accepted that
only computes (see `codec_names`).

Values of an environment are plain data, made without running code of their classes; where such a class (a member of an enum, options)
is in an installed package, that is imported too: see `from_trainer`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Callable
from typing import Any

from . import ambient
from .codec import decode
from .codec_names import runs_things
from .errors import CodecError

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
        if runs_things(module, name):
            return False
        if f"{module.split('.')[0]}.*" in names:
            _import(module)
        return _is_library(module)

    return accept


def from_trainer(module: str, name: str) -> bool:
    """Accepts whatever class a value of the trainer names, and imports the installed package that it is in. CodecError when that fails.

    In the template only. The trainer holds this worker's token, so it may have the worker program's own code run on its data anyway, and
    an installed package is what the operator of this host has put there: naming it runs nothing but its import. A module of the script
    is never imported by name, since the compiler decides what of the script runs here. And a trainer imports nothing because a worker
    names it: see `codec_classes`. What does more than compute is not accepted at all: see `codec_names`.
    """
    if runs_things(module, name):
        return False
    if _is_installed(module.partition(".")[0]):
        _import(module)
    return True


def _import(module: str) -> None:
    """Import a module unless it is here. What its import draws is not drawn by the script's own process at this place."""
    if module in sys.modules:
        return
    states = ambient.states()
    try:
        importlib.import_module(module)
    except Exception as error:  # whatever the library raises
        raise CodecError.of("R119", name=module, why=f"{type(error).__name__}: {error}") from error
    finally:
        ambient.set_states(states)


def _is_installed(package: str) -> bool:
    """Whether a top-level name leads to an installed package or one of Python's own, without importing anything."""
    if package in sys.modules:
        return _is_library(package)
    if package in sys.stdlib_module_names:
        return True
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.has_location and _is_in_library(spec.origin or "")


def _is_library(name: str) -> bool:
    """Whether a module is installed, or Python's own: not one of the script's."""
    if name in ("__main__", "__mp_main__"):
        return False
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None:
        return name in sys.builtin_module_names or name in sys.stdlib_module_names
    return _is_in_library(file)


def _is_in_library(file: str) -> bool:
    place = os.path.realpath(file)
    return any(place.startswith(root + os.sep) for root in _installed())


def _installed() -> set[str]:
    """Folders of installed packages and of the standard library."""
    paths = sysconfig.get_paths()
    found = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")} | set(site.getsitepackages())
    if site.ENABLE_USER_SITE:
        found.add(site.getusersitepackages())
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__:
        found.add(os.path.dirname(os.path.dirname(torch.__file__)))
    return {os.path.realpath(path) for path in found}
