"""numpy arrays, scalars and dtypes; images."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sameness import difference
from test_codec_plain import through

from splitter_runtime.codec import encode
from splitter_runtime.errors import CodecError

RECORD = np.dtype([("x", "<f4"), ("y", ">i8", (2, 3)), ("name", "S5")])
ALIGNED = np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"], "titles": ["first", None]}, align=True)
SPARSE_RECORD = np.dtype({"names": ["a"], "formats": ["i2"], "offsets": [6], "itemsize": 16})


def frozen() -> np.ndarray[Any, Any]:
    array = np.arange(5)
    array.flags.writeable = False
    return array


def box(*items: object) -> np.ndarray[Any, Any]:
    array = np.empty(len(items), object)
    array[:] = items
    return array


def masked(**keywords: Any) -> Any:
    return np.ma.MaskedArray([1, 2, 3], **keywords)


ARRAYS = [
    *[np.arange(6).astype(kind) for kind in "?bBhHiIqQefdgFDG"],
    np.arange(6, dtype=">i4"),
    np.arange(24).reshape(2, 3, 4),
    np.asfortranarray(np.arange(12).reshape(3, 4)),
    np.arange(24).reshape(2, 3, 4)[:, ::-1, 1::2],
    np.arange(10)[::-1],
    np.arange(120_000).reshape(300, 400)[::7, ::-9],
    np.broadcast_to(np.arange(3), (4, 3)),
    np.array(5),
    np.empty((0, 3)),
    np.zeros((2, 2), "V0"),
    np.array(["a", "bcd", "日本"]),
    np.array([b"a", b"bcd"]),
    np.array(["2024-02-29", "NaT"], "datetime64[ns]"),
    np.array([1, 2], "timedelta64[25s]"),
    np.zeros(3, RECORD),
    np.zeros(3, RECORD)["y"],
    np.zeros(3, ALIGNED),
    np.ones(3, SPARSE_RECORD),
    np.zeros(2, "V7"),
    frozen(),
    box(1, "a", None, [1, 2], np.arange(3)),
    box(1, 2, 3, 4).reshape(2, 2),
    np.asfortranarray(box(1, 2, 3, 4, 5, 6).reshape(2, 3)),
    np.matrix([[1, 2], [3, 4]]),
    np.zeros(3, RECORD).view(np.recarray),
]

SCALARS = [
    *[np.dtype(kind).type(3) for kind in "?bBhHiIlLefdgFDG"],
    np.float64("nan"),
    np.str_("héllo"),
    np.str_(""),
    np.bytes_(b"abc"),
    np.datetime64("2024-02-29"),
    np.timedelta64(5, "h"),
    np.zeros(1, RECORD)[0],
    np.void(b"abc"),
]

DTYPES = [np.dtype("f4"), np.dtype(">i8"), np.dtype("U5"), RECORD, ALIGNED, SPARSE_RECORD, np.dtype(object), np.float32, int]
DTYPES += [np.dtype("M8[us]"), np.dtype(("f4", (2, 3))), np.dtype((np.record, RECORD))]


@pytest.mark.parametrize("value", [*ARRAYS, *SCALARS, *DTYPES], ids=lambda value: str(getattr(value, "dtype", value))[:30])
def test_arrays_scalars_and_dtypes_arrive(value: object) -> None:
    assert difference([value], through([value])) is None


@pytest.mark.parametrize("value", [masked(), masked(mask=[0, 1, 0]), masked(mask=[0, 0, 1], fill_value=7, hard_mask=True)], ids=str)
def test_masked_arrays_arrive(value: Any) -> None:
    arrived: Any = through(value)
    assert type(arrived) is type(value) and arrived.dtype == value.dtype and arrived.hardmask == value.hardmask
    assert difference(value.data, arrived.data) is None and difference(value.mask, arrived.mask) is None
    assert arrived.fill_value == value.fill_value


def test_views_of_one_array_share_memory() -> None:
    whole = np.zeros(20, RECORD)
    value = [whole, whole["x"], whole[3:5]["y"]]
    assert difference(value, through(value)) is None


def test_a_large_array_is_not_copied() -> None:
    array = np.zeros((1000, 1000))
    assert np.asarray(encode(array).buffers[0]).ctypes.data == array.ctypes.data


def test_an_array_that_contains_itself_is_refused() -> None:
    array = box(1, 2)
    array[1] = array
    with pytest.raises(CodecError, match=r"^R105: value\[1\]: a ndarray that contains itself"):
        encode(array)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (box(1, iter([])), r"R101: value\[1\]: list_iterator"),
        (np.zeros(2, [("a", object)]), r"R101: value: numpy dtype \[\('a', 'O'\)\]"),
    ],
)
def test_arrays_that_cannot_be_sent(value: object, message: str) -> None:
    with pytest.raises(CodecError, match="^" + message):
        encode(value)


def image(mode: str, size: tuple[int, int] = (5, 3)) -> Image.Image:
    picture = Image.new(mode, size)
    picture.frombytes(bytes(index * 7 % 256 for index in range(len(picture.tobytes()))))
    return picture


MODES = ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "La", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "I;16"]


@pytest.mark.parametrize("mode", MODES)
def test_images_arrive(mode: str) -> None:
    picture = image(mode)
    assert difference([picture], through([picture])) is None
    empty = Image.new(mode, (0, 3))
    assert through(empty).size == (0, 3)  # type: ignore[attr-defined]


def test_the_palette_and_the_info_arrive() -> None:
    picture = image("RGB", (8, 8)).quantize(16)
    picture.info = {"transparency": 3, "dpi": (72, 72), "icc": b"x", "opened": object()}
    arrived: Any = through(picture)
    assert arrived.convert("RGB").tobytes() == picture.convert("RGB").tobytes()
    assert arrived.info == {"transparency": 3, "dpi": (72, 72), "icc": b"x"}
    palette = image("P")
    palette.putpalette(bytes(range(256)) * 4, "RGBA")
    assert through(palette).convert("RGBA").tobytes() == palette.convert("RGBA").tobytes()  # type: ignore[attr-defined]


def test_an_opened_file_arrives_as_its_class() -> None:
    buffer = io.BytesIO()
    image("RGB", (16, 16)).save(buffer, "JPEG")
    picture = Image.open(buffer)
    arrived: Any = through(picture)
    assert type(arrived) is type(picture) and arrived.format == "JPEG"
    assert arrived.tobytes() == picture.tobytes() and arrived.resize((4, 4)).tobytes() == picture.resize((4, 4)).tobytes()
