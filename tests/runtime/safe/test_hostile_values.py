"""Headers that ask for more than their bytes, and what the fuzzer has kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import PIL.Image
import pytest
from fuzz_targets import TARGETS, join, split

from splitter_runtime.codec import decode, encode
from splitter_runtime.codec_classes import set_state, state_of
from splitter_runtime.errors import CodecError

HERE = Path(__file__).parent
PIL.Image.preinit()
CORPUS = sorted(HERE.joinpath("corpus").glob("*/*"))


def test_bombs_and_corpus_with_little_memory() -> None:
    """In a process of its own, which may take 256 MiB and must not crash."""
    ended = subprocess.run([sys.executable, str(HERE / "measure.py")], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, (ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.parametrize("path", [path for path in CORPUS if path.parent.name in ("value", "code")], ids=lambda path: str(path.name))
@pytest.mark.filterwarnings("ignore")
def test_the_corpus_is_of_values(path: Path) -> None:
    """What the fuzzer starts from, so that it begins inside of the readers."""
    header, payload = split(path.read_bytes())
    assert decode(header, payload, code=path.parent.name == "code") is not None
    assert split(join(header, bytes(payload)))[0] == header


def test_the_corpus_is_small() -> None:
    assert {path.parent.name for path in CORPUS} == set(TARGETS)
    assert sum(path.stat().st_size for path in CORPUS) < 16 << 10


class Slotted:
    __slots__ = ("x",)


class Guarded(Slotted):
    """Has a property in the place of a slot."""

    @property
    def x(self) -> int:
        raise AssertionError("code of the class runs")

    @x.setter
    def x(self, value: int) -> None:
        raise AssertionError("code of the class runs")


def test_no_property_runs_for_a_slot() -> None:
    made = Guarded()
    set_state(made, {"x": 5})
    assert state_of(made) == {"x": 5}
    encoded = encode(made)
    arrived = decode(encoded.header, bytearray(encoded.nbytes))
    assert state_of(arrived) == {"x": 5}


class Key:
    """Hashes what it holds, as a frozen dataclass does."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __hash__(self) -> int:
        return hash(self.held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.held == other.held


def test_keys_that_hold_keys_arrive() -> None:
    pair = ("a", (1, (2.5, None)))
    keys = {pair: 1, Key(pair): 2, frozenset({pair}): 3, (pair, pair): 4}
    encoded = encode([keys, {pair, Key(pair)}])
    assert decode(encoded.header, bytearray(encoded.nbytes)) == [keys, {pair, Key(pair)}]


def test_a_key_whose_attribute_is_deep() -> None:
    nested: object = ()
    chain = [nested := (nested,) for _ in range(3000)]
    encoded = encode([chain, Key(1)])
    with pytest.raises(CodecError, match=r"^R112: the depth"):
        # the same bytes with the last tuple as what the key holds: hashing it would go down 3000 levels
        header = bytearray(encode([chain, {Key(chain[-1])}]).header)
        decode(bytes(header), bytearray(0))
    assert isinstance(decode(encoded.header, bytearray(0)), list)
