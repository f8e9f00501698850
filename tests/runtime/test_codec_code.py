"""Datasets on their way to a worker: functions by name, generators with their state, and what stays in the trainer."""

from __future__ import annotations

import functools
import io
import logging
import math
import multiprocessing
import operator
import random
import re
import sys
import threading
import typing
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sameness import difference
from test_codec_plain import packed
from torch.utils.data import ConcatDataset, Subset, TensorDataset
from torchvision import transforms as T
from torchvision.datasets import FakeData, ImageFolder
from torchvision.datasets.folder import default_loader
from torchvision.transforms import v2

from splitter_runtime.codec import Accept, decode, encode
from splitter_runtime.errors import CodecError

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def sent(value: object, accept: Accept | None = None) -> Any:
    encoded = encode(value, name="dataset", code=True)
    return decode(encoded.header, packed(encoded), code=True, accept=accept)


def double(x: Any) -> Any:
    return 2 * x


@functools.lru_cache(maxsize=4)
def cached(x: int) -> int:
    return x + 1


def nested() -> Callable[[Any], Any]:
    def inside(x: Any) -> Any:
        return x

    return inside


class Photos(torch.utils.data.Dataset[Any]):
    """Holds methods of its own, in every way in which a class can have them."""

    def __init__(self) -> None:
        self.steps = [self.__scale, self.named, self.fixed, double]
        self.rng = np.random.default_rng(3)

    def __scale(self, x: int) -> tuple[Photos, int]:
        return self, x

    @classmethod
    def named(cls) -> type:
        return cls

    @staticmethod
    def fixed() -> str:
        return "fixed"


class Inherits(Photos):
    pass


BY_NAME: list[Any] = [
    double,
    cached,
    Photos.fixed,
    default_loader,
    len,
    print,
    math.sqrt,
    operator.add,
    str.lower,
    dict.__contains__,
    torch.sin,
    torch.from_numpy,
    torch.Tensor.float,
    F.one_hot,
    F.pad,
    np.mean,
    np.log,
    np.array,
    np.random.seed,
    np.random.rand,
    random.random,
    random.uniform,
    random,
    np.random,
    typing.Optional,
    random.seed.__self__,  # type: ignore[attr-defined]
    np.random.mtrand._rand,
    torch.default_generator,
]


@pytest.mark.parametrize("value", BY_NAME, ids=range(len(BY_NAME)))
def test_what_has_a_name_is_found_again(value: Any) -> None:
    assert sent([value, value]) == [value, value] and sent(value) is value
    with pytest.raises(CodecError, match=r"^R101: batch"):
        encode(value, name="batch")


def test_methods_arrive_with_their_instance() -> None:
    there = sent(Inherits())
    assert there.steps[0](5) == (there, 5)
    assert (there.steps[1](), there.steps[2](), there.steps[3] is double) == (Inherits, "fixed", True)
    assert there.rng.random() == Inherits().rng.random()
    table = {"a": 1}
    again, get = sent([table, table.get])
    assert get("a") == 1 and get.__self__ is again


def test_functions_of_the_main_program_are_found_in_the_main_program(monkeypatch: pytest.MonkeyPatch) -> None:
    main = sys.modules["__main__"]
    for name in ("__main__", "__mp_main__"):
        monkeypatch.setattr(main, "pad", local := nested(), raising=False)
        monkeypatch.setattr(local, "__module__", name)
        monkeypatch.setattr(local, "__qualname__", "pad")
        encoded = encode(local, code=True)
        monkeypatch.setattr(main, "pad", double)
        assert decode(encoded.header, packed(encoded), code=True) is double


OBJECTS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "random": (lambda: random.Random(4), lambda g: [g.gauss(0, 1), g.gauss(0, 1), g.random()]),
    "legacy": (lambda: np.random.RandomState(4), lambda g: [g.randn(), g.rand(), g._bit_generator.random_raw()]),
    "numpy": (lambda: np.random.default_rng(4), lambda g: [g.random(), g.spawn(1)[0].random()]),
    "philox": (lambda: np.random.Generator(np.random.Philox(3)), lambda g: g.random()),
    "mersenne": (lambda: np.random.Generator(np.random.MT19937(3)), lambda g: g.random()),
    "torch": (lambda: torch.Generator().manual_seed(4), lambda g: torch.rand(3, generator=g).tolist()),
    "partial": (lambda: functools.partial(int, base=2), lambda f: f("101")),
    "partial of a partial": (lambda: functools.partial(functools.partial(max, 1), 2), lambda f: (f(0), f.args)),
    "item": (lambda: operator.itemgetter(1, 0), lambda f: f("ab")),
    "attribute": (lambda: operator.attrgetter("real", "imag"), lambda f: f(1j)),
    "method": (lambda: operator.methodcaller("split", "a", maxsplit=1), lambda f: f("xaxax")),
    "pattern": (lambda: re.compile("A+", re.IGNORECASE), lambda p: (p.findall("xaab"), p.flags)),
    "logger": (lambda: logging.getLogger("a.b"), lambda v: v is logging.getLogger("a.b")),
    "root logger": (logging.getLogger, lambda v: v is logging.getLogger()),
    "bytes in memory": (lambda: io.BytesIO(b"abc"), lambda f: (f.tell(), f.read())),
    "text in memory": (lambda: io.StringIO("a\r\nb"), lambda f: (f.tell(), f.read())),
    "sets": (lambda: [{16, 8, 0}, frozenset({"a"}), set()], lambda v: [list(items) for items in v]),
    "rows": (lambda: [(f"{n}.png", n, n / 2) for n in range(20)], lambda v: v),
    "module with buffers": (lambda: torch.nn.BatchNorm1d(2, affine=False), lambda m: (m.running_var.tolist(), repr(m))),
    "compose": (lambda: T.Compose([T.Resize(4), T.ToTensor(), T.Normalize([0.5], [0.5])]), repr),
    "modules": (lambda: v2.Compose([v2.ToImage(), torch.nn.Sequential(v2.RandomCrop(3), v2.GaussianNoise())]), repr),
    "fake data": (lambda: FakeData(3, (3, 4, 4), transform=T.ToTensor()), lambda d: d[1][0].tolist()),
    "wrappers": (
        lambda: ConcatDataset([Subset(d := TensorDataset(torch.arange(6)), [1, 2]), d]),
        lambda d: [item[0].item() for item in d],
    ),
}


@pytest.mark.parametrize(("make", "look"), OBJECTS.values(), ids=OBJECTS)
def test_objects_arrive_in_their_state(make: Callable[[], Any], look: Callable[[Any], Any]) -> None:
    value = make()
    if hasattr(value, "standard_normal"):
        value.standard_normal(3)  # a legacy generator keeps the second of two
    first, second = sent([value, value])
    assert type(first) is type(value) and first is second
    assert look(first) == look(value)


def test_folders_of_images_arrive(tmp_path: Path) -> None:
    from PIL import Image

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(5):
            Image.new("RGB", (3, 3), (number, 0, 0)).save(tmp_path / name / f"{number}.png")
    value = ImageFolder(str(tmp_path), T.Compose([T.CenterCrop(2), T.ToTensor()]))
    there = sent(value)
    assert there.samples == value.samples and there.samples is there.imgs and there.loader is default_loader
    assert torch.equal(there[3][0], value[3][0])


def shared_array() -> Any:
    return np.frombuffer(multiprocessing.RawArray("f", 4), dtype=np.float32)


class Changed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.ModuleList([torch.nn.Linear(1, 1)])


STAY: dict[str, tuple[Callable[[], Any], str]] = {
    "lambda": (lambda: T.Compose([T.Lambda(lambda x: x)]), r"R108: dataset\.transforms\[0\]\.lambd: a lambda function \(test_codec_code"),
    "nested function": (lambda: [nested()], r"R108: dataset\[0\]: the function inside \(test_codec_code.py:\d+\), which is defined inside"),
    "in a partial": (lambda: functools.partial(max, key=nested()), r"R108: dataset\.keywords\[\"key\"\]: the function inside"),
    "bound to a model": (lambda: torch.nn.Linear(1, 1).forward, r"R109: dataset\.__self__\._parameters\[\"weight\"\]: a parameter"),
    "model": (Changed, r"R109: dataset\._modules\[.inner.\]\._modules\[.0.\]\._parameters\[.weight.\]: a parameter of a model"),
    "frozen parameter": (lambda: torch.nn.Parameter(torch.ones(1), requires_grad=False), "R109: dataset: a parameter"),
    "trained tensor": (lambda: torch.ones(2, requires_grad=True), "R109: dataset: a parameter"),
    "trained sparse tensor": (lambda: torch.eye(2).to_sparse().requires_grad_(), "R109: dataset: a parameter"),
    "shared tensor": (lambda: torch.ones(3).share_memory_()[1:], "R109: dataset: memory that processes share"),
    "shared array": (shared_array, "R109: dataset: memory that processes share"),
    "tensor of a shared array": (lambda: torch.from_numpy(shared_array()), "R109: dataset: memory that processes share"),
    "lock": (threading.Lock, "R10[17]: dataset: _thread.lock can't be sent"),
    "shared value": (lambda: multiprocessing.Value("i", 0), "R107: dataset: multiprocessing.sharedctypes.Synchronized can't be sent"),
    "archive": (lambda: zipfile.ZipFile(io.BytesIO(), "w"), "R107: dataset: zipfile.ZipFile can't be sent"),
    "iterator": (lambda: iter([]), "R101: dataset: list_iterator can't be sent"),
    "file": (lambda: sys.__stdout__, "R10[17]: dataset: .*TextIOWrapper can't be sent"),
}


@pytest.mark.parametrize(("make", "message"), STAY.values(), ids=STAY)
def test_what_stays_in_the_trainer(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(CodecError, match="^" + message):
        encode(make(), name="dataset", code=True)


def test_a_function_that_is_no_longer_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    old = double
    monkeypatch.setattr(sys.modules[__name__], "double", cached)
    with pytest.raises(CodecError, match=r"^R108: dataset: the function double \(.*which is not what its module has"):
        encode(old, name="dataset", code=True)


def test_a_function_that_its_package_has_in_the_place_of_its_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch.manual_seed is once torch._dynamo has been imported."""

    @functools.wraps(torch.random.manual_seed)
    def manual_seed(seed: int) -> torch.Generator:
        return torch.random.manual_seed(seed)

    with pytest.raises(CodecError, match=r"^R108: dataset: the function manual_seed \(.*which is not what its module has"):
        encode(manual_seed, name="dataset", code=True)
    monkeypatch.setattr(torch, "manual_seed", manual_seed)
    assert sent(manual_seed) is manual_seed


def test_only_what_is_accepted_arrives() -> None:
    asked = []

    def accept(module: str, name: str) -> bool:
        asked.append((module, name))
        return (module, name) != (__name__, "double")

    with pytest.raises(CodecError, match=r"^R117: test_codec_code\.double is not one of"):
        sent(Photos(), accept)
    assert asked[:2] == [(__name__, "Photos"), (__name__, "Photos.__scale")]
    with pytest.raises(CodecError, match=r"^R117: math is not one of"):
        sent([math], lambda module, name: False)


@pytest.mark.parametrize("value", [double, Photos().named, random.Random(1), math, {"a": 1}.get, str.lower])
def test_code_is_refused_where_data_belongs(value: Any) -> None:
    encoded = encode(value, code=True)
    with pytest.raises(CodecError, match=r"^R110: .*holds functions"):
        decode(encoded.header, packed(encoded))


def test_a_set_that_would_have_another_order_is_refused() -> None:
    shrunk = set(range(0, 4096, 64))
    for item in range(192, 4096, 64):
        shrunk.discard(item)
    assert list(shrunk) != list(set(shrunk))
    with pytest.raises(CodecError, match=r"^R118: a set of 3 items"):
        sent(shrunk)


FUNCTIONS = st.sampled_from([double, len, torch.sin, np.mean, str.lower, random.random, random.shuffle, Photos().named])
CALLABLES = st.recursive(
    FUNCTIONS,
    lambda inner: st.builds(functools.partial, inner, st.lists(st.integers()), key=inner),
    max_leaves=5,
)
TEXT = st.text(st.characters(exclude_categories=()), max_size=9)
ROW_KINDS = st.sampled_from([(st.integers(-(2**70), 2**70), TEXT), (TEXT, st.floats(), TEXT), (st.integers(),), (TEXT, st.none())])


@QUICK
@given(ROW_KINDS.flatmap(lambda kinds: st.lists(st.tuples(*kinds), min_size=6, max_size=30)))
def test_rows_arrive(rows: list[Any]) -> None:
    assert difference(list(map(list, rows)), list(map(list, sent(rows)))) is None and set(map(type, sent(rows))) <= {tuple}


@QUICK
@given(st.lists(TEXT, min_size=8))
def test_texts_arrive(texts: list[str]) -> None:
    assert difference([texts, texts], sent([texts, texts])) is None


def shape(value: Any) -> Any:
    """A callable as plain data."""
    return (value.func, value.args, {k: shape(v) for k, v in value.keywords.items()}) if type(value) is functools.partial else value


@QUICK
@given(CALLABLES)
def test_callables_arrive(value: Any) -> None:
    assert shape(sent(value)) == shape(value)


@QUICK
@given(st.sampled_from([random.Random, np.random.RandomState, np.random.default_rng]), st.integers(0, 2**32 - 1), st.integers(0, 700))
def test_generators_arrive_in_any_state(make: Callable[[int], Any], seed: int, drawn: int) -> None:
    generator = make(seed)
    for _ in range(drawn):
        generator.random()
    there = sent(generator)
    assert [there.random() for _ in range(5)] == [generator.random() for _ in range(5)]


SAMPLES = [
    (encoded.header, bytes(packed(encoded)))
    for encoded in (
        encode(value, code=True)
        for value in (
            [double, Photos().steps, {"a": 1}.get, str.lower, math, typing.Optional, random.shuffle],
            [make() for name, (make, _) in OBJECTS.items() if name not in ("random", "legacy", "torch")],
            [random.Random(1), {1, 2}, frozenset("a")],
        )
    )
]


@pytest.mark.filterwarnings("ignore")
@settings(QUICK, max_examples=300)
@given(st.sampled_from(SAMPLES), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_raise_nothing_else(sample: tuple[bytes, bytes], changes: list[tuple[float, int]]) -> None:
    header, payload = bytearray(sample[0]), sample[1]
    for place, byte in changes:
        header[24 + int(place * (len(header) - 24))] = byte
    try:
        decode(bytes(header), bytearray(payload), code=True)
    except CodecError as error:
        assert str(error).startswith("R1")
