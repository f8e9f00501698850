"""Tables of pandas, in values that may hold code: column by column, through numpy's arrays.

Kept: dtypes, values, index, names, categories, time zones. Not kept: how the columns lie together in memory. Columns whose dtype an
extension defines are refused. pandas is not imported for it: the classes are looked up when a value has one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .codec_objects import add_maker, object_writer
from .codec_reader import Reader, damaged
from .codec_writer import FAMILIES, Put, Refusal

_SERIES, _FRAME, _INDEX, _RANGE, _MULTI, _TIMES, _CATEGORIES, _CATEGORICAL, _ZONED, _TEXTS, _MASKED = range(20, 31)
_MISSING, _STAMP, _PYTZ = range(31, 34)
_MASKED_ARRAYS = ("IntegerArray", "FloatingArray", "BooleanArray")
_TIME_INDEXES = ("DatetimeIndex", "TimedeltaIndex")


def _pandas() -> Any:
    return sys.modules["pandas"]


# --- values of a column or index: an array of numpy, a list of objects, or an array of pandas' own


def _content(values: Any) -> Any:
    """What is sent for the values of a Series or an Index."""
    dtype = values.dtype
    if not isinstance(dtype, np.dtype):
        return values.array
    return values.to_numpy().tolist() if dtype.kind == "O" else values.to_numpy()


def _writable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, which pandas may have handed out as one that can't be written to."""
    array.flags.writeable = True
    return array


def _values(content: Any) -> Any:
    """The content as pandas takes it."""
    if type(content) is list:
        made: np.ndarray[Any, Any] = np.empty(len(content), object)
        for place, item in enumerate(content):
            made[place] = item
        return made
    if isinstance(content, np.ndarray):
        return _writable(content)
    if not isinstance(content, _pandas().api.extensions.ExtensionArray):
        raise damaged("a column that is none")
    return content


def _series(content: Any, index: Any, name: Any, attributes: Any) -> Any:
    values = _values(content)
    made = _pandas().Series(values, index=index, name=name, dtype=values.dtype, copy=False)
    made.attrs.update(attributes)
    return made


# --- tables


def _frame_parts(frame: Any) -> tuple[Any, ...]:
    dtypes = set(frame.dtypes)
    one = len(dtypes) == 1 and all(isinstance(dtype, np.dtype) and dtype.kind != "O" for dtype in dtypes)
    columns = frame.to_numpy() if one else [_content(frame.iloc[:, place]) for place in range(frame.shape[1])]
    return columns, frame.index, frame.columns, dict(frame.attrs)


def _frame(columns: Any, index: Any, names: Any, attributes: Any) -> Any:
    pandas = _pandas()
    if isinstance(columns, np.ndarray):
        made = pandas.DataFrame(_writable(columns), index=index, columns=names, copy=False)
    else:
        parts = {place: _series(content, index, None, {}) for place, content in enumerate(columns)}
        made = pandas.DataFrame(parts, index=index, copy=False)
        made.columns = names
    made.attrs.update(attributes)
    return made


# --- indexes


def _index(content: Any, name: Any) -> Any:
    values = _values(content)
    return _pandas().Index(values, name=name, dtype=values.dtype)


def _times(kind: str, content: Any, frequency: Any, name: Any) -> Any:
    if kind not in _TIME_INDEXES:
        raise damaged("an index that is none")
    return getattr(_pandas(), kind)(_values(content), freq=frequency, name=name)


def _time_parts(index: Any) -> tuple[Any, ...]:
    return type(index).__name__, _content(index), index.freqstr, index.name


def _multi_parts(index: Any) -> tuple[Any, ...]:
    return list(index.levels), [np.asarray(codes) for codes in index.codes], list(index.names)


def _multi(levels: Any, codes: Any, names: Any) -> Any:
    return _pandas().MultiIndex(levels=levels, codes=codes, names=names)


# --- arrays of pandas' own


def _categorical(codes: Any, categories: Any, ordered: bool) -> Any:
    if not isinstance(categories, _pandas().Index):
        raise damaged("categories that are no index")
    return _pandas().Categorical.from_codes(codes, categories=categories, ordered=ordered)


def _zoned_parts(values: Any) -> tuple[Any, ...]:
    return values.tz_convert("UTC").tz_localize(None).to_numpy(), values.tz


def _zoned(times: Any, zone: Any) -> Any:
    return _pandas().DatetimeIndex(times).tz_localize("UTC").tz_convert(zone).array


def _text_parts(values: Any) -> tuple[Any, ...]:
    missing = np.asarray(values.isna())
    texts = ["" if gone else str(text) for text, gone in zip(values, missing.tolist(), strict=True)]
    return texts, missing, values.dtype.storage, values.dtype.na_value is _pandas().NA


def _text_array(texts: Any, missing: Any, storage: str, masked: bool) -> Any:
    pandas = _pandas()
    values = _values(texts)
    values[missing] = pandas.NA
    dtype = pandas.StringDtype(storage) if masked else pandas.StringDtype(storage, na_value=np.nan)
    return pandas.array(values, dtype=dtype)


def _masked(kind: str, values: Any, missing: Any) -> Any:
    if kind not in _MASKED_ARRAYS:
        raise damaged("an array that is none")
    return getattr(_pandas().arrays, kind)(_writable(values), _writable(missing))


# --- single values


def _missing(name: str) -> Any:
    if name not in ("NA", "NaT"):
        raise damaged("an unknown missing value")
    return getattr(_pandas(), name)


def _stamp_parts(value: Any) -> tuple[Any, ...]:
    return type(value).__name__, value.asm8, getattr(value, "tz", None)


def _stamp(kind: str, value: Any, zone: Any) -> Any:
    if kind not in ("Timestamp", "Timedelta") or not isinstance(value, np.generic):
        raise damaged("a time that is none")
    made = getattr(_pandas(), kind)(value)
    return made if zone is None else made.tz_localize("UTC").tz_convert(zone)


def _pytz(name: Any) -> Any:
    return sys.modules["pytz"].timezone(name)


_ROWS: dict[str, tuple[int, Callable[[Any], tuple[Any, ...]], tuple[str, ...]]] = {
    "Series": (_SERIES, lambda v: (_content(v), v.index, v.name, dict(v.attrs)), ("", ".index", ".name", ".attrs")),
    "DataFrame": (_FRAME, _frame_parts, ("", ".index", ".columns", ".attrs")),
    "Index": (_INDEX, lambda v: (_content(v), v.name), ("", ".name")),
    "RangeIndex": (_RANGE, lambda v: (v.start, v.stop, v.step, v.name), ()),
    "MultiIndex": (_MULTI, _multi_parts, (".levels", ".codes", ".names")),
    "DatetimeIndex": (_TIMES, _time_parts, ()),
    "TimedeltaIndex": (_TIMES, _time_parts, ()),
    "CategoricalIndex": (_CATEGORIES, lambda v: (v.array, v.name), ()),
    "Categorical": (_CATEGORICAL, lambda v: (np.asarray(v.codes), v.categories, bool(v.ordered)), ("", ".categories", "")),
    "DatetimeArray": (_ZONED, _zoned_parts, ()),
    "Timestamp": (_STAMP, _stamp_parts, ()),
    "Timedelta": (_STAMP, _stamp_parts, ()),
    "NAType": (_MISSING, lambda v: ("NA",), ()),
    "NaTType": (_MISSING, lambda v: ("NaT",), ()),
}
for _name in ("StringArray", "ArrowStringArray", "ArrowStringArrayNumpySemantics", "StringArrayNumpySemantics"):
    _ROWS[_name] = (_TEXTS, _text_parts, ())
for _name in _MASKED_ARRAYS:
    _ROWS[_name] = (_MASKED, lambda v: (type(v).__name__, v._data, v._mask), ())
_MAKERS: dict[int, Callable[..., Any]] = {
    _SERIES: _series,
    _FRAME: _frame,
    _INDEX: _index,
    _RANGE: lambda start, stop, step, name: _pandas().RangeIndex(start, stop, step, name=name),
    _MULTI: _multi,
    _TIMES: _times,
    _CATEGORIES: lambda values, name: _pandas().CategoricalIndex(values, name=name),
    _CATEGORICAL: _categorical,
    _ZONED: _zoned,
    _TEXTS: _text_array,
    _MASKED: _masked,
    _MISSING: _missing,
    _STAMP: _stamp,
}


def _with_library(name: str, make: Callable[..., Any]) -> Callable[[Reader, list[Any]], Any]:
    def made(r: Reader, parts: list[Any]) -> Any:
        r.library(name)
        return make(*parts)

    return made


for _number, _make in _MAKERS.items():
    add_maker(_number, _with_library("pandas", _make))
add_maker(_PYTZ, _with_library("pytz", _pytz))


def _pandas_family(cls: type) -> tuple[Put, bool] | None:
    package = cls.__module__.partition(".")[0]
    if package == "pytz" and "zone" in dir(cls):
        return object_writer(_PYTZ, lambda v: (v.zone,)), False
    if package != "pandas":
        return None
    row = _ROWS.get(cls.__name__)
    if row is not None:
        return object_writer(*row), False
    if issubclass(cls, (_pandas().api.extensions.ExtensionArray, _pandas().Index)):
        raise Refusal("R107", type=f"pandas.{cls.__name__}", why="columns of this type are not known here")
    return None


FAMILIES.insert(0, _pandas_family)
