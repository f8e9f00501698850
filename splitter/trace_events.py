"""What the record of one sample says: steps that begin and end, ATen calls, and the leaves that they take and give.

    Enter(RandomCrop, [PIL 256x192]), Call(aten.randint), Leave(RandomCrop, [PIL 224x224], draws torch)

Written by `trace_steps` and `trace_record`, read by `trace_replay`. Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from splitter.graph import Part, Trait
from splitter.ir import Span

Key = tuple[Any, ...]
READ = "read"  # the step that every sample begins with
LIBRARY = "collate:"  # how the names of steps begin that are a whole collate function


@dataclass(frozen=True)
class Leaf:
    """A tensor, an image, a number. `key` tells it apart within one sample; None for what can't be told apart (a small number).

    `storage`: the memory that a tensor shares with its views. `digest` stands for its bits, where these may be compared.
    """

    key: Key | None
    bytes: int
    type: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    storage: int | None = None
    digest: str | None = None


@dataclass(frozen=True)
class Result:
    """Something that a step gives, with the leaves that it may have been made from: None for all that the step takes.

    `fresh`: it is new, whatever was known by its key. `alias`: it is the same as this one, if that is known.
    """

    leaf: Leaf
    label: str
    near: tuple[Leaf, ...] | None = None
    fresh: bool = False
    alias: Leaf | None = None


@dataclass(frozen=True)
class Enter:
    """A step begins. `given`: it is called with `inputs`, so that the enclosing step has made them."""

    step: str
    inputs: tuple[Leaf, ...]
    given: bool


@dataclass(frozen=True)
class Call:
    """An ATen call. `near`: what a tensor among its inputs that nobody made may have been made from; `free`: from nothing of the sample."""

    name: str
    constants: str
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    traits: frozenset[Trait]
    microseconds: float
    writes: bool = False
    same: bool = False  # gives back what it takes
    near: tuple[Leaf, ...] | None = None
    free: bool = False


@dataclass(frozen=True)
class Leave:
    """A step ends. `changes`: it may have changed what it gives in place. `branches`: what runs next depends on what it reads.

    `microseconds` of its own Python code while it was recorded.
    """

    step: str
    results: tuple[Result, ...]
    changes: bool
    draws: tuple[str, ...] = ()
    opened: bool = False
    branches: bool = False
    microseconds: float = 0.0


Event = Enter | Call | Leave


@dataclass(frozen=True)
class Seen:
    """What is known of a step before it is timed."""

    name: str
    part: Part
    span: Span | None


@dataclass(frozen=True)
class Record:
    """All that one sample did, and the leaves of what came out."""

    events: tuple[Event, ...]
    returns: tuple[Leaf, ...]
