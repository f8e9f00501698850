"""Tries on a recorded batch whether the start of a model's forward gives on the worker the bits that it gives in the model.

    forward's statements, `self` is the model, its device, all threads        int64 [16, 8], these bits
    the same statements, `self` has the constants as the worker makes them    int64 [16, 8], the same bits

What was computed is looked at as well: arithmetic on floating-point numbers isn't the same on every device. Runs in the child process only.
"""

from __future__ import annotations

import ast
import gc
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from splitter.knowledge_ops import EMPTY, EVERYWHERE, IEEE, INTEGER, PARTIAL, SAME, TRAITS
from splitter.prefix_types import WHOLE, Prefix, PrefixFeed, PrefixTried
from splitter.trace_device import same_bits

FILE = "<the start of forward>"


class _Differs(Exception):
    """The prefix can't move; carries why, and a line of the model's file."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.why, self.line = why, line


@dataclass(frozen=True)
class Recorded:
    """A batch of some samples, and the names that are there where its loader is made."""

    batch: Any
    samples: int
    globals: Mapping[str, Any]
    locals: Mapping[str, Any]


def try_prefix(prefix: Prefix, feed: PrefixFeed, path: str, recorded: Recorded) -> PrefixTried:
    """Run the start of forward both ways. `path` is the model's file."""
    threads = torch.get_num_threads()
    try:
        function, module = _function(prefix, path)
        found = list(_instances(getattr(module, prefix.owner, None)))
        if not found:
            raise _Differs("the model wasn't there yet when the first loop began")
        inputs = _inputs(feed, recorded.batch)
        kept = {name: tensor.clone() for name, tensor in inputs.items()}
        torch.set_num_threads(1)  # as in a worker
        constants = _constants(feed, module, recorded)
        with _Watch(device=feed.device):
            given = function(constants, **inputs)
        torch.set_num_threads(threads)
        for name, tensor in inputs.items():
            if not same_bits(tensor, kept[name]):
                raise _Differs(f"it changes its input `{name}`")
        for model in found:
            _same_constants(feed, _constants(feed, module, recorded), constants, model)
            _same(prefix, given, _in_model(function, model, kept))
    except _Differs as differs:
        return PrefixTried(reason=differs.why, where=differs.line)
    except Exception as error:
        return PrefixTried(reason=f"on a recorded batch it raised {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    finally:
        torch.set_num_threads(threads)
    replaced = [inputs[parameter] for _, parameter in prefix.results]
    return PrefixTried(_bytes(replaced) // recorded.samples, _bytes(given) // recorded.samples)


def _function(prefix: Prefix, path: str) -> tuple[Callable[..., tuple[Any, ...]], types.ModuleType]:
    """The statements as a function of `self` and the inputs, with the globals of the model's module."""
    with open(path, "rb") as stream:
        tree = ast.parse(stream.read(), path)
    owner = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == prefix.owner)
    forward = next(node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == "forward")
    first, last = prefix.statements
    results = ast.Tuple([ast.Name(name, ast.Load()) for name, _ in prefix.results], ast.Load())
    parameters = ", ".join([forward.args.args[0].arg, "*", *(name for name, _ in prefix.feeds[0].places)])
    made = ast.parse(f"def prefix({parameters}): pass")
    assert isinstance(made.body[0], ast.FunctionDef)
    made.body[0].body = [*forward.body[first:last], ast.Return(results)]
    module = sys.modules[prefix.module]
    space = dict(vars(module))
    exec(compile(ast.fix_missing_locations(made), FILE, "exec", dont_inherit=True), space)
    return space["prefix"], module


def _instances(owner: Any) -> Iterator[Any]:
    for thing in gc.get_objects():
        if type(thing) is owner:
            if "forward" in vars(thing) or thing._forward_hooks or thing._forward_pre_hooks:
                raise _Differs("the model has hooks, or a forward of its own")
            yield thing


def _inputs(feed: PrefixFeed, batch: Any) -> dict[str, torch.Tensor]:
    """The inputs in a batch. Its places are those of a list or a tuple, or of a dict, and of none of their subclasses."""
    whole = feed.places[0][1] == WHOLE
    if not whole and type(batch) not in ((dict,) if isinstance(feed.places[0][1], str) else (list, tuple)):
        raise _Differs(f"a batch is a {type(batch).__name__}")
    found = {}
    for name, key in feed.places:
        value = batch if whole else batch[key]
        if type(value) is not torch.Tensor or value.layout is not torch.strided or value.device.type != "cpu" or value.requires_grad:
            raise _Differs(f"its input `{name}` is no plain tensor")
        found[name] = value
    return found


def _constants(feed: PrefixFeed, module: types.ModuleType, recorded: Recorded) -> types.SimpleNamespace:
    """What stands for the model on the worker."""
    space = {**vars(module), **recorded.globals}
    names = dict(recorded.locals)
    return types.SimpleNamespace(**{constant.attribute: eval(constant.text, space, names) for constant in feed.constants})


def _same_constants(feed: PrefixFeed, made: Any, used: Any, model: Any) -> None:
    """The model has the values that the worker makes, and running does not change them."""
    for name in (constant.attribute for constant in feed.constants):
        values = [getattr(owner, name) for owner in (made, used, model)]
        values = [value.cpu() if isinstance(value, torch.Tensor) else value for value in values]
        for value in values[1:]:
            both = isinstance(value, torch.Tensor) and isinstance(values[0], torch.Tensor)
            if type(value) is not type(values[0]) or not (same_bits(value, values[0]) if both else value == values[0]):
                raise _Differs(f"`{name}` has another value in the model than where the loader is made")


def _in_model(function: Callable[..., tuple[Any, ...]], model: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[Any, ...]:
    held = next(iter([*model.parameters(), *model.buffers()]), None)
    device = torch.device("cpu") if held is None else held.device
    with torch.no_grad():
        return function(model, **{name: tensor.clone().to(device) for name, tensor in inputs.items()})


def _same(prefix: Prefix, given: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    for (name, _), one, other in zip(prefix.results, given, expected, strict=True):
        if type(one) is not torch.Tensor or one.layout is not torch.strided:
            raise _Differs(f"its result `{name}` is no plain tensor")
        if not isinstance(other, torch.Tensor) or one.stride() != other.stride() or not same_bits(one, other.cpu()):
            raise _Differs(f"its result `{name}` has other bits in the model than on the worker")


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operations whose bits may differ on a device, or with another number of threads."""

    def __init__(self, *, device: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if torch.Tag.nondeterministic_seeded in function.tags:
            raise _Differs(f"`{name}` draws random numbers", _line())
        given = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
        results = [value for value in tree_flatten(made)[0] if isinstance(value, torch.Tensor)]
        floats = any(value.is_floating_point() or value.is_complex() for value in (*given, *results))
        if name in EMPTY or (given and not self.same_everywhere(name, function, given, results, floats, args, kwargs or {})):
            what = "computes with floating-point numbers, which" if floats else "is an operation that"
            raise _Differs(f"`{name}` {what} may give other bits {'on a device' if self.device else 'on another thread or host'}", _line())
        return made

    def same_everywhere(
        self,
        name: str,
        function: Any,
        given: list[torch.Tensor],
        results: list[torch.Tensor],
        floats: bool,
        args: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> bool:
        if function.is_view or EVERYWHERE & {name, f"{name}.{function._overloadname}"} or name in SAME or "layout" in TRAITS.get(name, ()):
            return True
        if name in ("_to_copy", "copy_"):
            narrows = given[-1].is_floating_point() and not results[0].is_floating_point()
            return not (narrows and self.device)  # what doesn't fit becomes something else on each device
        if floats:
            return name in IEEE and not self.device and "alpha" not in options
        if name in PARTIAL and self.device and len(args) > 1 and isinstance(args[1], torch.Tensor) and args[1].dim():
            return False
        return torch.Tag.pointwise in function.tags or name in INTEGER


def _line() -> int:
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == FILE:
            return frame.f_lineno
        frame = frame.f_back
    return 0
