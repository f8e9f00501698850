"""Instances of classes, by name and without running their code."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import enum
import importlib
import sqlite3
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from sameness import difference
from test_codec_plain import packed, through
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence
from torch.utils import _pytree as pytree
from torchvision import tv_tensors

from splitter_runtime.codec import decode, encode
from splitter_runtime.errors import CodecError


class Point(NamedTuple):
    x: Any
    y: Any = 0


Old = collections.namedtuple("Old", "a b")


@dataclasses.dataclass
class Sample:
    image: Any
    label: int = 0

    def __post_init__(self) -> None:
        self.cached = "set by __post_init__"


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    key: str
    others: tuple[Any, ...] = ()


class Slotted:
    __slots__ = ("__hidden", "here", "unset")

    def __init__(self, here: Any) -> None:
        self.here = here
        self.__hidden = "private"


class SlottedChild(Slotted):
    """With a dictionary beside the slots of its base."""


class Hooked:
    """Every hook that must not run when an instance is sent or received."""

    armed = False

    def __new__(cls, *args: Any) -> Hooked:
        assert not Hooked.armed
        return super().__new__(cls)

    def __init__(self, value: Any) -> None:
        assert not Hooked.armed
        object.__setattr__(self, "value", value)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError(name)

    def __getstate__(self) -> Any:
        raise AssertionError("__getstate__")

    def __setstate__(self, state: Any) -> None:
        raise AssertionError("__setstate__")


class Table(dict):  # type: ignore[type-arg]
    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, ("set", value))


class Rows(list):  # type: ignore[type-arg]
    pass


class Pair(tuple):  # type: ignore[type-arg]
    pass


class Name(str):
    def __str__(self) -> str:
        return "something else"


class Count(int):
    pass


class Weight(float):
    pass


class Raw(bytes):
    pass


class Bag(set):  # type: ignore[type-arg]
    pass


class Ordered(collections.OrderedDict):  # type: ignore[type-arg]
    pass


class Defaults(collections.defaultdict):  # type: ignore[type-arg]
    pass


class Tally(collections.Counter):  # type: ignore[type-arg]
    pass


class Ring(collections.deque):  # type: ignore[type-arg]
    pass


class Color(enum.Enum):
    RED = "r"
    CRIMSON = "r"
    BLUE = object()


class Level(enum.IntEnum):
    LOW = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Labelled(torch.Tensor):
    pass


class Outer:
    class Inner:
        pass


class Registered:
    def __init__(self, left: Any, right: Any, note: str) -> None:
        self.parts = (left, right)
        self.note = note
        self.handle = sqlite3.connect(":memory:")


pytree.register_pytree_node(Registered, lambda value: (list(value.parts), value.note), lambda parts, note: Registered(*parts, note))


def with_state(value: Any, **state: Any) -> Any:
    value.__dict__.update(state)
    return value


def inner() -> Outer.Inner:
    return with_state(Outer.Inner(), a=[1])  # type: ignore[no-any-return]


VALUES: dict[str, Callable[[], Any]] = {
    "named tuple": lambda: Point(torch.ones(2), [1]),
    "collections' named tuple": lambda: Old(1, Old(2, 3)),
    "dataclass": lambda: with_state(Sample(torch.ones(2), 3), extra=1),
    "frozen dataclass with slots": lambda: Frozen("k", (1, Frozen("j"))),
    "slots": lambda: Slotted([1]),
    "slots and dictionary": lambda: with_state(SlottedChild(1), more={"a": 1}),
    "nested class": inner,
    "namespace": lambda: types.SimpleNamespace(a=1, b=[torch.ones(1)]),
    "arguments": lambda: argparse.Namespace(lr=0.1, data="/data"),
    "dict": lambda: with_state(Table({"a": torch.ones(1)}), extra=[1]),
    "list": lambda: with_state(Rows([1, 2]), extra=[1]),
    "tuple": lambda: with_state(Pair((1, [2])), extra=[1]),
    "int": lambda: with_state(Count(5), extra=[1]),
    "float": lambda: Weight(0.5),
    "bytes": lambda: Raw(b"abc"),
    "set": lambda: with_state(Bag({1, 2}), extra=[1]),
    "ordered": lambda: Ordered(b=1, a=2),
    "defaults": lambda: Defaults(list, {"a": [1]}),
    "tally": lambda: Tally("abca"),
    "ring": lambda: Ring([1, 2], 2),
    "enum": lambda: [Color.RED, Color.CRIMSON, Color.BLUE, Level.LOW],
    "flags": lambda: [Access.READ, Access.READ | Access.WRITE, Access(0)],
    "classes": lambda: [int, Sample, Outer.Inner, torch.Tensor, Color, type],
    "packed sequence": lambda: pack_sequence([torch.ones(3), torch.ones(2)]),
    "unsorted packed sequence": lambda: pack_padded_sequence(torch.ones(3, 2), [1, 3], enforce_sorted=False),
    "return types": lambda: torch.tensor([3.0, 1.0]).sort(),
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "frozen parameter": lambda: torch.nn.Parameter(torch.ones(3), requires_grad=False),
    "tensor with attributes": lambda: with_state(torch.ones(3), note=["x"]),
    "tensor class": lambda: with_state(torch.ones(3).as_subclass(Labelled), names=["a"]),
    "image": lambda: tv_tensors.Image(torch.ones(3, 4, 4)),
    "mask": lambda: tv_tensors.Mask(torch.ones(4, 4, dtype=torch.uint8)),
    "boxes": lambda: tv_tensors.BoundingBoxes(torch.ones(2, 4), format="XYWH", canvas_size=(5, 6)),
    "video": lambda: tv_tensors.Video(torch.ones(2, 3, 4, 4)),
}


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES)
def test_instances_arrive(make: Callable[[], Any]) -> None:
    value = make()
    assert difference([value, value, make()], through([value, value, make()])) is None


def test_text_of_a_subclass_is_its_own() -> None:
    arrived: Any = through(with_state(Name("name"), tag=1))
    assert type(arrived) is Name and arrived[:] == "name" and arrived.tag == 1


def test_no_hook_of_a_class_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    value = Hooked([1])
    encoded = encode([value, value])
    payload = packed(encoded)
    monkeypatch.setattr(Hooked, "armed", True)
    arrived: Any = decode(encoded.header, payload)
    assert type(arrived[0]) is Hooked and arrived[0] is arrived[1] and arrived[0].value == [1]


def test_registered_types_travel_by_their_registration() -> None:
    arrived: Any = through([Registered(torch.ones(2), [3], "note")])
    assert arrived[0].note == "note" and arrived[0].parts[1] == [3] and arrived[0].handle is not None


def test_a_missing_registration_is_named() -> None:
    encoded = encode(Registered(1, 2, "note"))
    node = pytree.SUPPORTED_NODES.pop(Registered)
    try:
        with pytest.raises(CodecError, match=r"^R115: no registration .*Registered here"):
            decode(encoded.header, packed(encoded))
    finally:
        pytree.SUPPORTED_NODES[Registered] = node


def test_instances_may_contain_themselves() -> None:
    value = with_state(Outer.Inner())
    value.me = [value]
    arrived: Any = through(value)
    assert arrived.me[0] is arrived
    row = with_state(Rows())
    row.append(row)
    assert (again := through(row))[0] is again  # type: ignore[index]


def test_classes_of_the_main_program_are_found_in_the_main_program(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("__main__", "__mp_main__"):
        cls = type("Local", (), {"__module__": name})
        monkeypatch.setattr(sys.modules["__main__"], "Local", cls, raising=False)
        encoded = encode(cls())
        there = type("Local", (), {"__module__": "__main__"})
        monkeypatch.setattr(sys.modules["__main__"], "Local", there)
        assert type(decode(encoded.header, packed(encoded))) is there


def test_modules_are_never_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("made_up_module")
    module.Thing = type("Thing", (), {"__module__": "made_up_module"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_up_module", module)
    encoded = encode([module.Thing()])  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "made_up_module")
    with pytest.raises(CodecError, match=r"^R113: the class made_up_module.Thing of the value received is not known"):
        decode(encoded.header, packed(encoded))


def test_libraries_of_options_are_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "munch.py").write_text("class Munch(dict):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    encoded = encode(importlib.import_module("munch").Munch(a=1))
    monkeypatch.delitem(sys.modules, "munch")
    arrived: Any = decode(encoded.header, packed(encoded))
    assert arrived == {"a": 1} and type(arrived) is sys.modules["munch"].Munch
    monkeypatch.delitem(sys.modules, "munch")


class Finalised:
    def __del__(self) -> None:
        pass


class Reduced:
    def __reduce__(self) -> Any:
        return Reduced, ()


class Dispatched(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, *args: Any) -> Any:
        raise AssertionError


def local() -> object:
    class Local:
        pass

    return Local()


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "connection": (lambda: sqlite3.connect(":memory:"), r"R107: batch\[0\].x: sqlite3.Connection can't be sent: its memory"),
    "finaliser": (Finalised, r"R107: batch\[0\].x: test_codec_types.Finalised can't be sent: its class has a __del__"),
    "reduce": (Reduced, r"R107: batch\[0\].x: test_codec_types.Reduced can't be sent: its class has a __reduce__"),
    "local class": (local, r"R106: batch\[0\].x: the class test_codec_types.local.<locals>.Local can't be found"),
    "file": (lambda: sys.stdout.buffer, r"R10[17]: batch\[0\].x: .* can't be sent"),
    "generator": (lambda: torch.Generator(), r"R101: batch\[0\].x: torch._C.Generator can't be sent"),
    "dispatch": (lambda: torch.ones(2).as_subclass(Dispatched), r"R107: batch\[0\].x: Dispatched can't be sent: .*dispatch"),
    "exception": (lambda: ValueError(1), r"R101: batch\[0\].x: ValueError can't be sent"),
    "module": (lambda: sys, r"R101: batch\[0\].x: module can't be sent"),
    "state": (lambda: with_state(Rows(), f=iter([])), r"R101: batch\[0\].x.f: list_iterator can't be sent"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_instances_that_cannot_be_sent(make: Callable[[], Any], message: str) -> None:
    value = make()
    try:
        with pytest.raises(CodecError, match="^" + message):
            encode([types.SimpleNamespace(x=value)], name="batch")
    finally:
        if isinstance(value, sqlite3.Connection):
            value.close()
