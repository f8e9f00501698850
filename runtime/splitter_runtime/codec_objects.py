"""Objects that hold state beside their attributes, in values that may hold code: generators, partial objects, patterns, loggers.

Each is a row: number on the wire, class, its parts, and the object of the parts. The global generators of random, numpy and torch are
sent as what they are, the global ones of the process that receives them.
"""

from __future__ import annotations

import functools
import io
import logging
import operator
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from . import codec_wire as wire
from .codec_plain import put_set
from .codec_reader import NODES as READ_NODE
from .codec_reader import Reader, damaged
from .codec_writer import NODES as WRITE_NODE
from .codec_writer import Put, Refusal, Writer, type_name
from .errors import CodecError

_MAKE: dict[int, Callable[[Reader, list[Any]], Any]] = {}
_PLAIN: set[int] = set()  # rows that may be in every value: they hold data only
_SEED_BITS = 1 << 16  # numpy takes 32 of them off again and again
_np_random: Any = np.random


def object_writer(number: int, take: Callable[[Any], tuple[Any, ...]], steps: tuple[str, ...] = (), plain: bool = False) -> Put:
    """The writer of a row; `steps` are how errors call the parts. One that is `plain` may be in values without code."""

    def put(w: Writer, value: Any) -> None:
        if not w.code and not plain:
            raise Refusal("R101", type=type_name(type(value)))
        slot = len(w.memo) - 1
        parts = take(value)
        w.keep.append(parts)  # they have numbers in the memo, which go by their place in memory
        w.out.append(wire.OBJECT)
        w.out.append(number)
        w.opened.add(slot)
        w.count(len(parts))
        for index, part in enumerate(parts):
            try:
                w.put(part)
            except Refusal as refusal:
                refusal.trail.append(steps[index] if index < len(steps) else "")
                raise
        w.depth -= 1
        w.opened.discard(slot)

    return put


def add_maker(number: int, make: Callable[[Reader, list[Any]], Any], plain: bool = False) -> None:
    """How the object of a row is made of its parts, which may be anything: it raises on what doesn't fit."""
    if number in _MAKE:
        raise ValueError(f"two rows with number {number}")
    _MAKE[number] = make
    if plain:
        _PLAIN.add(number)


def _get_object(r: Reader, slot: int) -> Any:
    number = r.buf[r.pos]
    r.pos += 1
    if number not in _PLAIN:
        r.need_code()
    return _MAKE[number](r, r.items())


READ_NODE[wire.OBJECT] = _get_object


def add_object(
    number: int, cls: Any, take: Callable[[Any], tuple[Any, ...]], make: Callable[..., Any], steps: tuple[str, ...] = ()
) -> None:
    """A row whose class is at hand."""
    WRITE_NODE[cls] = object_writer(number, take, steps)
    add_maker(number, lambda r, parts: make(*parts))


# --- the global generators, and others


def _global(name: str) -> Any:
    if name == "random":
        return random._inst
    if name == "numpy":
        return _np_random.mtrand._rand
    if name == "numpy bits":
        return _np_random.mtrand._rand._bit_generator
    if name == "torch":
        return torch.default_generator
    raise damaged("no such global generator")


def _or_global(name: str, put: Put) -> Put:
    """A writer of generators that knows the global one."""
    put_name = object_writer(0, lambda value: (name,))
    return lambda w, value: (put_name if value is _global(name) else put)(w, value)


def _torch_state(generator: torch.Generator) -> tuple[Any, ...]:
    if generator.device.type != "cpu":
        raise Refusal("R103", what=f"generator of {generator.device.type} or its")
    return (generator.get_state(),)


def _torch_generator(state: torch.Tensor) -> torch.Generator:
    return torch.Generator().set_state(state)


def _random(state: tuple[Any, ...]) -> random.Random:
    made = random.Random(0)
    made.setstate(state)
    return made


def _bits_state(bits: Any) -> tuple[Any, ...]:
    return type(bits).__name__, bits.state, bits.seed_seq


_BITS: dict[str, Any] = {name: getattr(np.random, name) for name in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")}


def _bits(name: str, state: dict[str, Any], seed: Any) -> Any:
    if not isinstance(seed, (np.random.SeedSequence, type(None))):
        raise damaged("a bit generator without a seed")
    place, places = {"MT19937": (state["state"].get("pos", 0), 625), "Philox": (state.get("buffer_pos", 0), 5)}.get(name, (0, 1))
    if type(place) is not int or not 0 <= place < places:  # numpy doesn't look, and would read behind its memory
        raise damaged("a bit generator whose place is none")
    made = _BITS[name](0 if seed is None else seed)  # one that was seeded the old way has no sequence
    made.state = state
    return made


def _seed_state(seed: Any) -> tuple[Any, ...]:
    return seed.entropy, tuple(seed.spawn_key), seed.pool_size, seed.n_children_spawned


def _seed(entropy: Any, spawn_key: tuple[Any, ...], pool_size: int, spawned: int) -> Any:
    if type(pool_size) is not int or not 4 <= pool_size <= 64:
        raise damaged("a seed with an unusual pool")
    if any(type(part) is int and part.bit_length() > _SEED_BITS for part in (entropy, *spawn_key)):
        raise damaged("a seed of an unusual length")
    return np.random.SeedSequence(entropy, spawn_key=spawn_key, pool_size=pool_size, n_children_spawned=spawned)


def _legacy_state(generator: Any) -> tuple[Any, ...]:
    state = generator.get_state(legacy=False)
    return generator._bit_generator, state["has_gauss"], state["gauss"]


def _legacy(bits: Any, has_gauss: int, gauss: float) -> Any:
    made: Any = np.random.RandomState(_checked_bits(bits))
    made.set_state({**bits.state, "has_gauss": has_gauss, "gauss": gauss})
    return made


def _checked_bits(bits: Any) -> Any:
    if type(bits) not in _BITS.values():
        raise damaged("a generator without bits")
    return bits


add_maker(0, lambda r, parts: _global(*parts))
add_object(1, torch.Generator, _torch_state, _torch_generator)
add_object(2, random.Random, lambda v: (v.getstate(),), _random)
for _cls in _BITS.values():
    WRITE_NODE[_cls] = object_writer(3, _bits_state)
add_maker(3, lambda r, parts: _bits(*parts))
add_object(4, np.random.SeedSequence, _seed_state, _seed)
add_object(5, np.random.Generator, lambda v: (v.bit_generator,), lambda bits: np.random.Generator(_checked_bits(bits)))
add_object(6, np.random.RandomState, _legacy_state, _legacy)
for _name, _cls in (
    ("torch", torch.Generator),
    ("random", random.Random),
    ("numpy", np.random.RandomState),
    ("numpy bits", _BITS["MT19937"]),
):
    WRITE_NODE[_cls] = _or_global(_name, WRITE_NODE[_cls])


# --- callables of functools and operator, patterns, loggers, files in memory


def _partial(function: Any, args: Any, keywords: Any, state: Any) -> Any:
    if not callable(function) or type(args) is not tuple or type(keywords) is not dict or type(state) not in (dict, type(None)):
        raise damaged("a partial object without a function")
    made: Any = functools.partial(print)
    made.__setstate__((function, args, keywords, state))
    return made


def _getter_parts(value: Any) -> tuple[Any, ...]:
    """As pickle takes it apart; a methodcaller with keywords is a call of a partial object there."""
    cls, args = value.__reduce__()
    args, keywords = (args, {}) if cls is type(value) else (cls.args + args, cls.keywords)
    if any(type(name) is str and "__" in name for name in (args if type(value) is operator.attrgetter else args[:1])):
        raise Refusal("R107", type=type_name(type(value)), why="it reaches for an attribute with two underscores")
    return args, keywords


def _attributes(names: Any, _: Any) -> Any:
    """Attributes with two underscores lead from any object to the modules of its class."""
    if any(type(name) is not str or "__" in name for name in names):
        raise damaged("an attrgetter that reaches for what no script does")
    return operator.attrgetter(*names)


def _caller(args: Any, keywords: Any) -> Any:
    if not args or type(args[0]) is not str or "__" in args[0]:
        raise damaged("a methodcaller without a name, or of a method with two underscores")
    return operator.methodcaller(*args, **keywords)


def _pattern(pattern: Any, flags: int) -> Any:
    if type(pattern) not in (str, bytes) or type(flags) is not int:
        raise damaged("a pattern without text")
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise damaged(f"a pattern that is none: {error}") from error


def _logger(name: Any) -> Any:
    if type(name) is not str or len(name) > 1000:  # logging keeps every part of it that ends before a dot
        raise damaged("a logger without a name")
    return logging.getLogger(name)


def _text_file(text: str, place: int) -> io.StringIO:
    made = io.StringIO(text, newline="\n")
    made.seek(place)
    return made


def _bytes_file(content: bytes, place: int) -> io.BytesIO:
    made = io.BytesIO(content)
    made.seek(place)
    return made


_PARTIAL = (".func", ".args", ".keywords", "")
add_object(7, functools.partial, lambda v: (v.func, v.args, dict(v.keywords), v.__dict__ or None), _partial, _PARTIAL)
add_object(8, operator.itemgetter, lambda v: (v.__reduce__()[1], {}), lambda args, _: operator.itemgetter(*args))
add_object(9, operator.attrgetter, _getter_parts, _attributes)
add_object(10, operator.methodcaller, _getter_parts, _caller)
add_object(11, re.Pattern, lambda v: (v.pattern, v.flags), _pattern)
add_object(12, logging.Logger, lambda v: (v.name,), _logger)
add_object(13, logging.RootLogger, lambda v: ("root",), _logger)
add_object(14, io.BytesIO, lambda v: (v.getvalue(), v.tell()), _bytes_file)
add_object(15, io.StringIO, lambda v: (v.getvalue(), v.tell()), _text_file)


# --- sets, whose order a dataset may see


def _put_any_set(w: Writer, values: Any) -> None:
    (_put_sent_set if w.code else put_set)(w, values)


_put_sent_set = object_writer(16, lambda v: (type(v) is frozenset, tuple(v)))


def _sent_set(r: Reader, frozen: bool, items: tuple[Any, ...]) -> Any:
    """A set in the order in which it was: the trainer may have numbered by it what the dataset numbers again."""
    for item in items:
        r.check_key(item)
    made: Any = frozenset(items) if frozen else set(items)
    if any(a is not b and a != b for a, b in zip(made, items, strict=True)):
        raise CodecError.of("R118", size=len(items))
    return made


WRITE_NODE[set] = WRITE_NODE[frozenset] = _put_any_set
add_maker(16, lambda r, parts: _sent_set(r, *parts))
