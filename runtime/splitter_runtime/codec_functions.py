"""Functions, methods and modules by name, in values that may hold code: datasets on their way to a worker.

    transform.loader    -> ("torchvision.datasets.folder", "default_loader")
    self.augment        -> ("__main__", "Photos.augment") and the instance
    random.shuffle      -> the method of random's own global generator

A name is checked to lead back to the same object before it is sent, and is looked up only among modules that are already imported
where it arrives. Nothing is called. Lambdas and nested functions have no such name: R108.
"""

from __future__ import annotations

import functools
import os
import sys
import types
import typing
from typing import Any

import numpy as np

from . import codec_wire as wire
from .codec_classes import MAINS
from .codec_names import runs_things
from .codec_reader import ATOMS as READ_ATOM
from .codec_reader import Reader, damaged
from .codec_writer import ATOMS as WRITE_ATOM
from .codec_writer import FAMILIES, Put, Refusal, Writer, type_name
from .errors import CodecError

# where builtin functions are found that don't say so themselves
_HOMES = ("torch", "torch.nn.functional", "numpy", "numpy.random", "random", "math", "operator", "builtins")
# types whose methods, taken from an instance, may travel with it
_BUILTIN = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, functools._lru_cache_wrapper, np.ufunc, type(np.mean))
_CYTHON = ("cython_function_or_method", "fused_cython_function")
_SPECIAL_FORM: Any = type(typing.Optional)


def named(module: str, name: str) -> object:
    """What stands under a qualified name, or None; no `__getattr__` and no descriptor runs."""
    first, *rest = name.split(".")
    for candidate in MAINS if module in MAINS else (module,):
        home = sys.modules.get(candidate)
        found: object = vars(home).get(first) if isinstance(home, types.ModuleType) else None
        for part in rest:
            found = _member(found, part)
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        if found is not None:
            return found
    return None


def _member(owner: object, name: str) -> object:
    if not isinstance(owner, type):
        return None
    if name.startswith("__") and not name.endswith("__"):
        name = f"_{owner.__name__.lstrip('_')}{name}"
    return vars(owner).get(name)


def function_names(function: Any) -> tuple[str, str] | None:
    """Module and qualified name under which a function is found again, or None when it isn't."""
    home = getattr(function, "__module__", None)
    full = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    if not isinstance(full, str):
        return None
    if isinstance(home, str) and named(home, full) is function:
        return ("__main__" if home in MAINS else home), full
    if isinstance(function, types.FunctionType):
        # torch._dynamo, imported late, puts a wrapper of torch.random.manual_seed into torch, but not into torch.random.
        top = home.partition(".")[0] if isinstance(home, str) else ""
        return (top, full) if top not in ("", *MAINS) and named(top, full) is function else None
    short = full.rpartition(".")[2]
    return next(((place, short) for place in (home, *_HOMES) if isinstance(place, str) and named(place, short) is function), None)


def _put_function(w: Writer, function: Any) -> None:
    if not w.code:
        raise Refusal("R101", type=type_name(type(function)))
    names = function_names(function)
    if names is not None:
        _refuse(names)
        w.out.append(wire.FUNCTION)
        w.text(names[0])
        w.text(names[1])
        return
    owner = getattr(function, "__self__", None)
    if isinstance(function, types.BuiltinFunctionType) and type(owner) in _BUILTIN:
        w.out.append(wire.BUILTIN_METHOD)
        w.text(function.__name__)
        w.items((owner,), ".__self__")
        return
    raise Refusal("R108", what=_nameless(function))


def _refuse(names: tuple[str, str]) -> None:
    """Refusal for what no worker would accept."""
    if runs_things(*names):
        raise Refusal("R108", what=f"{'.'.join(filter(None, names))}, which does more than compute,")


def _nameless(function: Any) -> str:
    """A function that can't be found by name, as an error message calls it."""
    name = str(getattr(function, "__qualname__", getattr(function, "__name__", type(function).__name__)))
    code = getattr(function, "__code__", None)
    place = "" if code is None else f" ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
    last = name.rpartition(".")[2]
    if last == "<lambda>":
        return f"a lambda function{place}"
    if "<locals>" in name:
        return f"the function {last}{place}, which is defined inside another,"
    return f"the function {name}{place}, which is not what its module has under that name,"


def _get_function(r: Reader) -> Any:
    r.need_code()
    module, name = r.names()
    found = named(module, name)
    if not callable(found) or isinstance(found, type):
        raise CodecError.of("R113", name=f"{module}.{name}")
    return found


def _put_method(w: Writer, method: types.MethodType) -> None:
    if not w.code:
        raise Refusal("R101", type=type_name(type(method)))
    names = _global_method(method)
    if names is not None:
        _refuse(names)
        w.out.append(wire.FUNCTION)
        w.text(names[0])
        w.text(names[1])
        return
    w.out.append(wire.METHOD)
    w.put(method.__func__)
    w.items((method.__self__,), ".__self__")


def _global_method(method: types.MethodType) -> tuple[str, str] | None:
    """Names of a method that a module offers as if it were a function, such as random.shuffle."""
    module, name = getattr(method, "__module__", None), getattr(method, "__name__", "")
    return (module, name) if isinstance(module, str) and named(module, name) is method else None


def _get_method(r: Reader) -> Any:
    r.need_code()
    function = r.get()
    (owner,) = r.items()
    if not isinstance(function, _FUNCTIONS) and type(function).__name__ not in _CYTHON:
        raise damaged("a method without a function")
    return types.MethodType(function, owner)


def _get_builtin_method(r: Reader) -> Any:
    r.need_code()
    name = r.text()
    (owner,) = r.items()
    method = getattr(owner, name) if type(owner) in _BUILTIN else None
    if not isinstance(method, types.BuiltinFunctionType):
        raise damaged("a method that is none")
    return method


# --- methods of builtin classes (str.lower), modules, typing.Any


def _put_descriptor(w: Writer, method: Any) -> None:
    if not w.code:
        raise Refusal("R101", type=type_name(type(method)))
    if vars(method.__objclass__).get(method.__name__) is not method:
        raise Refusal("R108", what=_nameless(method))
    w.out.append(wire.DESCRIPTOR)
    w.class_ref(method.__objclass__)
    w.text(method.__name__)


def _get_descriptor(r: Reader) -> Any:
    r.need_code()
    cls, name = r.class_ref(), r.text()
    found = vars(cls).get(name)
    if not isinstance(found, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        raise CodecError.of("R113", name=f"{cls.__qualname__}.{name}")
    return found


def _put_module(w: Writer, module: types.ModuleType) -> None:
    if not w.code or sys.modules.get(module.__name__) is not module or module.__name__ in MAINS:
        raise Refusal("R101", type="module")
    _refuse((module.__name__, ""))
    w.out.append(wire.MODULE)
    w.text(module.__name__)


def _get_module(r: Reader) -> Any:
    r.need_code()
    return r.library(r.text())


def _put_special(w: Writer, form: Any) -> None:
    name = form._name
    if not w.code or vars(typing).get(name) is not form:
        raise Refusal("R101", type=type_name(type(form)))
    w.out.append(wire.SPECIAL)
    w.text(name)


def _get_special(r: Reader) -> Any:
    r.need_code()
    found = vars(typing).get(r.text())
    if type(found) is not _SPECIAL_FORM:
        raise damaged("a form that typing doesn't have")
    return found


def _code_family(cls: type) -> tuple[Put, bool] | None:
    return (_put_function, True) if cls.__name__ in _CYTHON or issubclass(cls, np.ufunc) else None


for _cls in _FUNCTIONS:
    WRITE_ATOM[_cls] = _put_function
WRITE_ATOM[types.MethodType] = _put_method
WRITE_ATOM[types.MethodDescriptorType] = WRITE_ATOM[types.WrapperDescriptorType] = _put_descriptor
WRITE_ATOM[types.ModuleType] = _put_module
WRITE_ATOM[_SPECIAL_FORM] = _put_special
READ_ATOM[wire.FUNCTION] = _get_function
READ_ATOM[wire.METHOD] = _get_method
READ_ATOM[wire.BUILTIN_METHOD] = _get_builtin_method
READ_ATOM[wire.DESCRIPTOR] = _get_descriptor
READ_ATOM[wire.MODULE] = _get_module
READ_ATOM[wire.SPECIAL] = _get_special
FAMILIES.insert(0, _code_family)
