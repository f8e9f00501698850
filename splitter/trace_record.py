"""Records the ATen calls of one sample, as a torch.fx.Graph, and what the leaves of Python values are.

    x.permute(2, 0, 1).float() / 255    ->    %permute, %_to_copy, %div, each with the Call that `trace_merge` replays

Every call is seen by a dispatch mode, so libraries need no support. Tensors are told apart by where their elements are (memory, offset,
shape, strides, dtype), other objects by identity; all of them are kept alive while that matters. Runs in the child process only.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from splitter.graph import Trait
from splitter.knowledge_ops import EMPTY, SAME, TAGS, TRAITS
from splitter.trace_events import Call, Event, Key, Leaf

DIGESTED = 1 << 20  # bytes of a tensor that are compared with those of other samples
MOST_PARTS = 4  # of a tuple of plain values, before it is one leaf
SMALL = 64  # elements of a list whose sizes are added up one by one


def key_of(tensor: torch.Tensor) -> tuple[Key, int | None]:
    """What tells a tensor apart, and the memory that it shares with its views."""
    try:
        pointer = tensor.untyped_storage().data_ptr()
        where = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), str(tensor.dtype))
    except (RuntimeError, NotImplementedError):  # sparse, nested
        return ("o", id(tensor)), None
    return (("t", pointer, *where), pointer) if pointer else (("o", id(tensor)), None)


def _sizes(shape: Sequence[int]) -> str:
    return "x".join(str(size) for size in shape) or "scalar"


def tensor_leaf(tensor: torch.Tensor, digest: bool = False) -> Leaf:
    key, storage = key_of(tensor)
    dtype = str(tensor.dtype).removeprefix("torch.")
    size = tensor.numel() * tensor.element_size()
    bits = _digest(tensor) if digest and size <= DIGESTED and tensor.device.type == "cpu" else None
    return Leaf(key, size, f"{dtype} {_sizes(tensor.shape)}", dtype, tuple(tensor.shape), storage, bits)


def _digest(tensor: torch.Tensor) -> str | None:
    try:
        raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    except (RuntimeError, TypeError):
        return None
    return hashlib.blake2b(raw, digest_size=12, key=str((tensor.dtype, tuple(tensor.shape))).encode()[:64]).hexdigest()


def object_leaf(value: Any) -> Leaf:
    """The leaf of something that is no tensor. Small numbers can't be told apart: the same object stands for all equal ones."""
    kind = type(value)
    if value is None or isinstance(value, (bool, int, complex)):
        return Leaf(None, 8, kind.__name__)
    if isinstance(value, float):
        return Leaf(("o", id(value)), 8, "float")
    key = ("o", id(value))
    if isinstance(value, (str, bytes, bytearray)):
        text = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        return Leaf(key if len(value) > 1 else None, len(text), kind.__name__)
    module = kind.__module__.split(".")[0]
    if module == "PIL" and hasattr(value, "getbands"):
        width, height = value.size
        return Leaf(key, width * height * len(value.getbands()), f"PIL {value.mode} {width}x{height}")
    if module == "numpy" and hasattr(value, "nbytes"):
        shape = tuple(value.shape)
        return Leaf(key if shape else None, int(value.nbytes), f"numpy {value.dtype} {_sizes(shape)}", None, shape)
    return Leaf(key, _size(value), kind.__name__)


def _size(value: Any, depth: int = 0) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (list, tuple, set, frozenset)):
        some = list(value)[:SMALL] if len(value) <= SMALL or not isinstance(value, list) else value[:SMALL]
        return sum(_size(item, depth + 1) for item in some) * len(value) // len(some) if some and depth < 4 else 8 * len(value)
    if isinstance(value, Mapping):
        return sum(_size(item, depth + 1) for item in list(value.values())[:SMALL]) if depth < 4 else 8 * len(value)
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if hasattr(value, "nbytes") and isinstance(value.nbytes, int):
        return value.nbytes
    inner = getattr(value, "__dict__", None)
    return sum(_size(item, depth + 1) for item in list(inner.values())[:SMALL]) if inner and depth < 2 else 8


def is_leaf(value: Any) -> bool:
    """A long list, or one of plain values alone, is one leaf: its length differs from sample to sample."""
    if isinstance(value, list):
        return len(value) > SMALL or all(_plain(item, 2) for item in value)
    return isinstance(value, tuple) and len(value) > MOST_PARTS and all(_plain(item, 2) for item in value)


def _plain(value: Any, depth: int) -> bool:
    if isinstance(value, (list, tuple)):
        return depth > 0 and len(value) <= SMALL and all(_plain(item, depth - 1) for item in value)
    return value is None or isinstance(value, (int, float, str, bytes, complex))


def leaves_of(value: Any, keep: list[Any], digest: bool = False) -> list[Leaf]:
    """The leaves of a Python value, in order; they are put into `keep`, so that no identity is used twice."""
    found = []
    with torch._C.DisableTorchFunctionSubclass():
        for item in tree_leaves(value, is_leaf=is_leaf):
            keep.append(item)
            found.append(tensor_leaf(item, digest) if isinstance(item, torch.Tensor) else object_leaf(item))
    return found


def traits_of(function: Any) -> frozenset[Trait]:
    """What an ATen operation does, from torch's tags and the table."""
    name = function.overloadpacket.__name__
    traits = {TAGS[tag.name] for tag in function.tags if tag.name in TAGS} | TRAITS.get(name, TRAITS.get(name.rstrip("_"), frozenset()))
    if function.is_view:
        traits.add("layout")
    return frozenset(traits or {"unknown"})


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every ATen call while it is on. `near` gives the leaves that the code now running reads, or None."""

    def __init__(self, keep: list[Any], near: Callable[[], tuple[tuple[Leaf, ...] | None, bool]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = torch.fx.Graph()
        self.nodes: dict[Key | None, torch.fx.Node] = {}
        self.keep = keep  # what no call made, while all samples are compared
        self.alive: list[Any] = []
        self.near = near
        self.escaped = False  # a value got from a tensor into Python
        self.muted = True  # while what runs is not the user's
        self.spent = 0  # nanoseconds in the calls and in here

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.muted:
            return function(*args, **kwargs)
        began = time.thread_time_ns()
        name = function.overloadpacket.__name__
        inputs = []

        def node(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                inputs.append(self.input(value))
                return self.nodes[inputs[-1].key]
            return "generator" if isinstance(value, torch.Generator) else value

        arguments, options = tree_map(node, (tuple(args), kwargs))
        called = time.thread_time_ns()
        made = function(*args, **kwargs)
        took = time.thread_time_ns() - called
        outputs = [tensor_leaf(item) if isinstance(item, torch.Tensor) else object_leaf(item) for item in tree_leaves(made)]
        self.alive.append(made)
        entry = self.graph.call_function(function, arguments, options)
        for leaf in outputs:
            if leaf.key is not None:
                self.nodes[leaf.key] = entry
        constants = str(tree_map(lambda value: "%" if isinstance(value, torch.fx.Node) else value, (arguments, options)))
        writes = function._schema.is_mutable and not name.startswith("_local")
        traits = traits_of(function)
        near, free = self.near()
        short = str(function).removesuffix(".default")
        entry.meta["event"] = Call(
            short, constants, tuple(inputs), tuple(outputs), traits, took / 1000, writes or name in EMPTY, name in SAME, near, free
        )
        self.spent += time.thread_time_ns() - began
        return made

    def input(self, tensor: torch.Tensor) -> Leaf:
        leaf = tensor_leaf(tensor)
        if leaf.key not in self.nodes:
            if not self.escaped:
                leaf = tensor_leaf(tensor, digest=True)
            self.keep.append(tensor)
            self.nodes[leaf.key] = self.graph.placeholder(f"made_{len(self.nodes)}")
        return leaf

    def mark(self, event: Event) -> None:
        """A step begins or ends."""
        self.graph.call_function(_mark, (type(event).__name__, event.step if not isinstance(event, Call) else "")).meta["event"] = event

    def events(self) -> tuple[Event, ...]:
        """All that was recorded, in order."""
        return tuple(node.meta["event"] for node in self.graph.nodes if "event" in node.meta)


def _mark(kind: str, step: str) -> None:
    """Stands in the graph where a step begins or ends."""
