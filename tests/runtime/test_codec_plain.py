"""Plain data, containers and values of the standard library."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import math
import pathlib
import struct
import uuid
import zoneinfo

import pytest
from sameness import difference

from splitter_runtime.codec import Encoded, Limits, decode, encode, payload_size
from splitter_runtime.errors import CodecError

NAN = struct.unpack("<d", bytes.fromhex("0100000000 00f87f".replace(" ", "")))[0]

VALUES = [
    None,
    True,
    False,
    ...,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    2**63,
    -(2**200),
    10**5000,
    0.0,
    -0.0,
    math.inf,
    NAN,
    5e-324,
    1 + 2j,
    complex(-0.0, NAN),
    "",
    "héllo 日本 \U0001f600",
    "\ud800 lone \udfff",
    "\ud83d\ude00",
    "x" * 100_000,
    b"",
    b"\x00\xff" * 5,
    bytes(range(256)) * 100,
    bytearray(b"abc"),
    bytearray(10_000),
    [],
    (),
    {},
    [1, "a", None],
    (1, (2, (3,))),
    list(range(1000)),
    tuple(range(9)),
    [2**70] * 20,
    [True] * 20,
    [1, 2.0] * 20,
    [0.5, NAN] * 600,
    tuple([-0.0] * 9),
    {"b": 1, "a": 2},
    {1: "x", "1": "y", (1, 2): "z", None: 0, 2.5: [], b"k": {}, frozenset({1}): set()},
    {1, 2, 3},
    frozenset({"a", "b"}),
    set(),
    range(3, 100, 7),
    slice(None, 5, 2),
    slice([1], None),
    collections.OrderedDict([("z", 1), ("a", 2)]),
    collections.defaultdict(list, {"a": [1]}),
    collections.defaultdict(None, {"a": 1}),
    collections.Counter("hello"),
    collections.Counter({"a": -3}),
    collections.deque([1, 2, 3], maxlen=5),
    collections.deque(),
    pathlib.Path("/data/été"),
    pathlib.PurePosixPath("a/b"),
    pathlib.PureWindowsPath("c:\\x\\y"),
    datetime.date(2024, 2, 29),
    datetime.time(1, 2, 3, 4, fold=1),
    datetime.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=datetime.timezone.utc, fold=1),
    datetime.datetime(2024, 2, 29, tzinfo=zoneinfo.ZoneInfo("UTC")),
    datetime.timedelta(days=-3, seconds=5, microseconds=7),
    datetime.timezone(datetime.timedelta(hours=2), "CEST"),
    decimal.Decimal("1.500"),
    decimal.Decimal("-Infinity"),
    fractions.Fraction(-3, 7),
    uuid.UUID(int=2**127 + 5),
]


def packed(encoded: Encoded) -> bytearray:
    payload = bytearray(payload_size(encoded.header))
    assert len(payload) == encoded.nbytes
    encoded.copy_into(payload)
    return payload


def through(value: object) -> object:
    encoded = encode(value)
    return decode(encoded.header, packed(encoded))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_arrive_as_they_were(value: object) -> None:
    assert difference(value, through(value)) is None
    assert difference([value, {"k": value}], through([value, {"k": value}])) is None


def test_order_of_an_ordered_dict_is_its_own() -> None:
    value = collections.OrderedDict.fromkeys("abc")
    value.move_to_end("a")
    assert list(through(value)) == ["b", "c", "a"]  # type: ignore[call-overload]


def test_objects_that_occur_twice_stay_one_object() -> None:
    shared: list[object] = [1]
    table = {"k": shared}
    left, right, both = through([shared, shared, (table, table)])  # type: ignore[misc]
    assert left is right and both[0] is both[1] and both[0]["k"] is left


def test_equal_objects_stay_two() -> None:
    left, right = through([[1], [1]])  # type: ignore[misc]
    assert left == right and left is not right


def test_lists_and_dicts_may_contain_themselves() -> None:
    value: list[object] = [1]
    table: dict[str, object] = {"list": value}
    value += [value, table]
    table["self"] = table
    arrived = through(value)
    assert arrived[1] is arrived and arrived[2]["list"] is arrived and arrived[2]["self"] is arrived[2]  # type: ignore[index]


def test_tuples_may_not_contain_themselves() -> None:
    value: list[object] = []
    pair = (value, 1)
    value.append(pair)
    with pytest.raises(CodecError, match=r'^R105: batch\["p"\]\[0\]\[0\]: a tuple that contains itself'):
        encode({"p": pair}, name="batch")


REFUSED = [
    (lambda: 0, r"R101: batch: function can't be sent"),
    ([open], r"R101: batch\[0\]: builtin_function_or_method can't"),
    ({"a": [0, {"x y": iter([])}]}, r'R101: batch\["a"\]\[1\]\["x y"\]: list_iterator can\'t'),
    ({(1, 2): object.__str__}, r"R101: batch\[\(1, 2\)\]: "),
    ({3: memoryview(b"")}, r"R101: batch\[3\]: memoryview can't"),
    (collections.defaultdict(lambda: 0), r"R107: batch: defaultdict can't be sent: its factory"),
    (ValueError("x"), r"R101: batch: ValueError can't"),
    (slice(0, iter([]), 1), r"R101: batch\[1\]: list_iterator"),
    ({iter([]): 1}, r"R101: batch\[<list_iterator>\]: list_iterator"),
]


@pytest.mark.parametrize(("value", "message"), REFUSED)
def test_refusals_name_the_place_and_the_type(value: object, message: str) -> None:
    with pytest.raises(CodecError, match="^" + message):
        encode(value, name="batch")


@pytest.mark.parametrize(
    ("value", "limits", "what"),
    [
        ([[[[1]]]], Limits(max_depth=3), "depth"),
        ([1, "a"] * 60, Limits(max_nodes=100), "number of nodes"),
        (b"x" * 10_000, Limits(max_payload=9_999), "payload"),
        (["x" * 4000], Limits(max_header=2000), "header"),
    ],
)
def test_limits_hold_on_both_sides(value: object, limits: Limits, what: str) -> None:
    with pytest.raises(CodecError, match=rf"^R104: batch.*: its {what} is "):
        encode(value, name="batch", limits=limits)
    encoded = encode(value)
    with pytest.raises(CodecError, match=rf"^R112: the {what} of the value received"):
        decode(encoded.header, packed(encoded), limits=limits)


def test_depth_beyond_the_limit_is_one_clear_error() -> None:
    value: list[object] = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(CodecError, match=r"^R104: value(\[0\])+: its depth is 101, above the limit of 100"):
        encode(value)
    with pytest.raises(CodecError, match=r"^R104"):
        encode(value, limits=Limits(max_depth=10**6))


def test_the_deepest_value_allowed_passes() -> None:
    value: list[object] = []
    for _ in range(99):
        value = [value]
    assert through(value) == value


def test_limits_check_themselves() -> None:
    with pytest.raises(ValueError, match="negative"):
        Limits(max_depth=-1)


def test_parts_are_the_payload() -> None:
    encoded = encode([b"a" * 5000, b"b" * 6000])
    assert b"".join(encoded.parts()) == bytes(packed(encoded))
    assert all(view.nbytes % 64 == 0 or len(view) < 64 or view.nbytes in (5000, 6000) for view in encoded.parts())


def test_a_read_only_payload_is_refused() -> None:
    encoded = encode(b"a" * 5000)
    with pytest.raises(CodecError, match=r"^R110: .*read-only"):
        decode(encoded.header, memoryview(bytes(packed(encoded))))
