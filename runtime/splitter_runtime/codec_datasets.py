"""Datasets and tokenizers of Hugging Face, tables of Arrow, in values that may hold code.

The table travels as Arrow's own stream of bytes, and is read there without a copy; with it go the indices, features, format (a custom
transform by its name), split and fingerprint. Not kept: where the table was cached, and what its info says about files and sizes.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .codec_objects import add_maker, object_writer
from .codec_reader import Reader, damaged
from .codec_writer import FAMILIES, Put, Refusal

_TABLE, _DATASET, _FEATURES, _SCHEMA, _TOKENIZER, _TOKEN, _ENCODING = range(40, 47)
_LARGEST = 4 << 30  # bytes of a table, which is in memory several times while it is sent
_INFO = ("description", "citation", "homepage", "license")
_OWN = ("_info", "_split", "_indexes", "_data", "_indices", "_fingerprint")


def _stream(table: Any) -> np.ndarray[Any, Any]:
    if table.nbytes > _LARGEST:
        raise Refusal("R104", what="its table", size=f"{table.nbytes} bytes", limit=f"{_LARGEST} bytes")
    arrow = sys.modules["pyarrow"]
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return np.frombuffer(sink.getvalue(), np.uint8)


def _table(r: Reader, raw: Any) -> Any:
    arrow = r.library("pyarrow")
    if not isinstance(raw, np.ndarray) or raw.dtype != np.uint8:
        raise damaged("a table without bytes")
    try:
        return arrow.ipc.open_stream(arrow.py_buffer(raw)).read_all()
    except arrow.ArrowException as error:
        raise damaged(f"a table that is none: {error}") from error


def _schema_parts(schema: Any) -> tuple[Any, ...]:
    return (schema.serialize().to_pybytes(),)


def _schema(r: Reader, parts: list[Any]) -> Any:
    arrow = r.library("pyarrow")
    (raw,) = parts
    try:
        return arrow.ipc.read_schema(arrow.py_buffer(raw))
    except arrow.ArrowException as error:
        raise damaged(f"a schema that is none: {error}") from error


def _features(r: Reader, parts: list[Any]) -> Any:
    return r.library("datasets").Features.from_dict(*parts)


def _dataset_parts(dataset: Any) -> tuple[Any, ...]:
    if dataset._indexes:
        raise Refusal("R107", type="datasets.Dataset", why="it has a search index")
    info = {name: getattr(dataset._info, name) for name in _INFO}
    indices = None if dataset._indices is None else _stream(dataset._indices.table)
    state = {name: value for name, value in vars(dataset).items() if name not in _OWN}
    return _stream(dataset._data.table), indices, dataset._info.features, info, dataset._split, dataset._fingerprint, state


_STEPS = ("", "", ".features", ".info", ".split", "", "")


def _dataset(r: Reader, parts: list[Any]) -> Any:
    datasets = r.library("datasets")  # before Arrow, which it imports
    table, indices, features, info, split, fingerprint, state = parts
    if type(state) is not dict:
        raise damaged("a dataset without attributes")
    in_memory = datasets.table.InMemoryTable
    made = datasets.Dataset(
        in_memory(_table(r, table)),
        info=datasets.DatasetInfo(features=features, **{name: info[name] for name in _INFO}),
        split=split,
        indices_table=None if indices is None else in_memory(_table(r, indices)),
        fingerprint=fingerprint,
    )
    vars(made).update(state)
    return made


# --- tokenizers: as their own text, which holds all of their state

_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def _tokenizer(r: Reader, parts: list[Any]) -> Any:
    (text,) = parts
    try:
        return r.library("tokenizers").Tokenizer.from_str(text)
    except Exception as error:  # the library raises nothing more special
        raise damaged(f"a tokenizer that is none: {error}") from error


def _token(r: Reader, parts: list[Any]) -> Any:
    content, *flags = parts
    return r.library("tokenizers").AddedToken(content, **dict(zip(_TOKEN_FLAGS, flags, strict=True)))


def _encoding(r: Reader, parts: list[Any]) -> Any:
    """What a fast tokenizer has made of one text; it travels in batches too, as the text in its pickle."""
    (state,) = parts
    if type(state) is not bytes:
        raise damaged("an encoding without its text")
    made = r.library("tokenizers").Encoding()
    try:
        made.__setstate__(state)
    except Exception as error:  # the library raises nothing more special
        raise damaged(f"an encoding that is none: {error}") from error
    return made


def _tokenizer_family(cls: type) -> tuple[Put, bool] | None:
    library = sys.modules.get("tokenizers")
    if cls is getattr(library, "Tokenizer", None):
        return object_writer(_TOKENIZER, lambda v: (v.to_str(),)), False
    if cls is getattr(library, "AddedToken", None):
        return object_writer(_TOKEN, lambda v: (v.content, *(getattr(v, name) for name in _TOKEN_FLAGS))), False
    if cls is getattr(library, "Encoding", None):
        return object_writer(_ENCODING, lambda v: (v.__getstate__(),), plain=True), False
    return None


def _dataset_family(cls: type) -> tuple[Put, bool] | None:
    package = cls.__module__.partition(".")[0]
    if package not in ("pyarrow", "datasets"):
        return None
    if cls is getattr(sys.modules.get("pyarrow"), "Table", None):
        return object_writer(_TABLE, lambda v: (_stream(v),)), False
    if cls is getattr(sys.modules.get("pyarrow"), "Schema", None):
        return object_writer(_SCHEMA, _schema_parts), False
    if cls is getattr(sys.modules.get("datasets"), "Dataset", None):
        return object_writer(_DATASET, _dataset_parts, _STEPS), False
    if cls is getattr(sys.modules.get("datasets"), "Features", None):
        return object_writer(_FEATURES, lambda v: (v.to_dict(),)), False
    return None


add_maker(_TOKENIZER, _tokenizer)
add_maker(_TOKEN, _token)
add_maker(_ENCODING, _encoding, plain=True)
add_maker(_TABLE, lambda r, parts: _table(r, *parts))
add_maker(_DATASET, _dataset)
add_maker(_FEATURES, _features)
add_maker(_SCHEMA, _schema)
FAMILIES[:0] = [_dataset_family, _tokenizer_family]
