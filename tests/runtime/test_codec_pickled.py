"""Batches that torch's own loader pickles: instances arrive as they come out of pickle, or are refused."""

from __future__ import annotations

import collections
import copyreg
import dataclasses
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pairs import Pair, assert_same
from sameness import difference
from scratch import Scratch
from test_codec_plain import packed
from test_codec_types import VALUES, Frozen, with_state

from splitter_runtime.codec import decode, encode
from splitter_runtime.errors import CodecError


def arrived(value: object) -> Any:
    encoded = encode(value, name="batch", pickled=True)
    return decode(encoded.header, packed(encoded))


class Fields:
    """Its cache is not in its pickle."""

    def __init__(self, **data: Any) -> None:
        self.data = data
        self.cache = object.__new__(object)

    def __getstate__(self) -> Any:
        return {"data": self.data, "again": self.data, "sum": sum(len(part) for part in self.data.values())}


class Encoded(collections.UserDict):  # type: ignore[type-arg]
    def __getstate__(self) -> Any:
        return {"data": self.data}


class Empty(Fields):
    def __getstate__(self) -> Any:
        return None


class Table(dict):  # type: ignore[type-arg]
    def __getstate__(self) -> Any:
        return {"rows": len(self)}


class Tally(collections.Counter):  # type: ignore[type-arg]
    """Its attributes are not in its pickle, which is a call of the class."""


class Defaults(collections.defaultdict):  # type: ignore[type-arg]
    pass


@dataclasses.dataclass(frozen=True, slots=True)
class More(Frozen):
    more: Any = None


STATES: dict[str, Callable[[], Any]] = {
    "state": lambda: Fields(a=torch.ones(2), b=[1]),
    "user dictionary": lambda: with_state(Encoded({"x": [3]}), rows=2),
    "no state": Empty,
    "dictionary with a state": lambda: with_state(Table(a=torch.ones(2)), cache=[1]),
    "slots of a dataclass": lambda: More("key", (1,), torch.ones(1)),
    "tally": lambda: with_state(Tally("abca"), note="x"),
    "defaults": lambda: with_state(Defaults(list, {"a": [1]}), note="x"),
}


# a member of an enum that pickle can't find, and a __setitem__ that pickle would call
NOT_PICKLED = ("enum", "dict")


@pytest.mark.parametrize("make", [make for name, make in VALUES.items() if name not in NOT_PICKLED] + [*STATES.values()])
def test_as_out_of_pickle(make: Callable[[], Any]) -> None:
    value = make()
    expected = pickle.loads(pickle.dumps([value, {"again": value}]))
    assert difference(expected, arrived([value, {"again": value}])) is None


@pytest.mark.parametrize("name", ["state", "user dictionary", "no state"])
def test_whole_where_nothing_is_pickled(name: str) -> None:
    value = STATES[name]()
    value.__dict__.pop("cache", None)
    encoded = encode(value)
    assert difference(value, decode(encoded.header, packed(encoded))) is None


def test_known_pairs_of_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """As BatchEncoding of transformers has them."""
    library = types.ModuleType("transformers.tokenization_utils_base")
    monkeypatch.setitem(sys.modules, library.__name__, library)
    text = """
import collections

class BatchEncoding(collections.UserDict):
    def __getstate__(self):
        return {"data": self.data, "encodings": self._encodings}

    def __setstate__(self, state):
        self.data, self._encodings = state["data"], state["encodings"]
"""
    exec(text, vars(library))
    monkeypatch.setitem(sys.modules, "transformers", types.ModuleType("transformers"))
    value = with_state(vars(library)["BatchEncoding"]({"x": torch.ones(2)}), _encodings=None, _n_sequences=1)
    assert vars(arrived(value)).keys() == vars(pickle.loads(pickle.dumps(value))).keys() == {"data", "_encodings"}
    vars(library)["BatchEncoding"].__setstate__ = lambda self, state: None
    again = type("Other", (vars(library)["BatchEncoding"],), {"__module__": library.__name__})
    library.Other = again  # type: ignore[attr-defined]
    with pytest.raises(CodecError, match=r"R107: batch: .*Other can't be sent: its class has a __setstate__ of its own"):
        arrived(again())


class Restored(Fields):
    def __setstate__(self, state: Any) -> None:
        raise AssertionError


class Raising(Fields):
    def __getstate__(self) -> Any:
        raise KeyError("gone")


class Listing(Fields):
    def __getstate__(self) -> Any:
        return [1]


class SlotState:
    __slots__ = ("x",)

    def __getstate__(self) -> Any:
        return {"x": 1}


class ReducedTable(dict):  # type: ignore[type-arg]
    def __reduce__(self) -> Any:
        return ReducedTable, ()


class MadeTally(collections.Counter):  # type: ignore[type-arg]
    def __init__(self, *args: Any) -> None:
        raise AssertionError


class Registered:
    pass


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "setstate": (Restored, "its class has a __setstate__ of its own"),
    "error": (Raising, "its __getstate__ raises KeyError: 'gone'"),
    "list": (Listing, "what its __getstate__ returns is not a dict of attributes"),
    "slots": (SlotState, "its __getstate__ returns slots among the attributes"),
    "reduce of a dictionary": (ReducedTable, "its class has a __reduce__ of its own"),
    "called class": (lambda: MadeTally.__new__(MadeTally), "its class has an __init__ of its own, which pickle calls for a Counter"),
    "copyreg": (Registered, "copyreg has a function for its class"),
}


@pytest.mark.parametrize(("make", "why"), REFUSED.values(), ids=REFUSED)
def test_refused(make: Callable[[], Any], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(copyreg.dispatch_table, Registered, lambda value: (Registered, ()))
    with pytest.raises(CodecError, match=rf"^R107: batch\[0\]: test_codec_pickled\.\w+ can't be sent: {why}"):
        arrived([make()])


PAIR = """
class Pair(dict):
    def __init__(self, batch):
        super().__init__(x=torch.stack([x for x, _ in batch]))
        self.labels = [y for _, y in batch]

    def __getstate__(self):
        return {"count": len(self.labels)}
"""
MOVED = """
class Rows(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return torch.arange(2.0) + i, i
"""
BUILDERS = """
@splitter_runtime.dataset("train", stateless=True)
def train():
    return Rows()


@splitter_runtime.loader("train", stateless=True)
def train_loader():
    return splitter_runtime.Loader(collate_fn=Pair)
"""
BODY = """
for workers in (2, 0):
    for batch in DataLoader(Rows(), batch_size=2, num_workers=workers, collate_fn=Pair):
        print(type(batch), vars(batch), batch["x"].tolist())
"""


def test_loaders_with_worker_processes_pickle_and_the_others_do_not(scratch: Scratch) -> None:
    swaps = (("Rows()", 'splitter_runtime.RemoteDataset("train", {})'),)
    printed = assert_same(scratch, Pair(PAIR + MOVED, BUILDERS, PAIR + BODY, swaps))
    assert "{'count': 2}" in printed and "{'labels': [0, 1]}" in printed
