"""Graphs that tests of the cut are made of: a short way to write one, the typical pipelines, and random ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from hypothesis import strategies as st

from splitter.graph import Graph, Operation, Part, Side, Step, Trait, Value
from splitter.ir import Span

PARTS: tuple[Part, ...] = get_args(Part)
SIDES: tuple[Side, ...] = get_args(Side)
TRAITS: tuple[Trait, ...] = get_args(Trait)

Row = tuple[str, str, str, str, float]  # "step: part", "inputs", "outputs", "traits or pin", microseconds


def graph(rows: Sequence[Row], values: Mapping[str, tuple[int, str]], returns: str, together: tuple[tuple[int, ...], ...] = ()) -> Graph:
    """A graph with an operation for each row, and a step for each name. A value with no bytes is a constant."""
    steps: dict[str, Step] = {}
    operations = []
    for number, (place, inputs, outputs, words, microseconds) in enumerate(rows, start=1):
        name, part = place.split(": ")
        draws = ("torch",) if "random" in words else ()
        steps.setdefault(
            name, Step(name, next(known for known in PARTS if known == part), Span("train.py", number, 0, number, 9), microseconds, draws)
        )
        traits = frozenset(trait for trait in TRAITS if trait in words.split())
        pin = next((side for side in SIDES if side in words.split()), None)
        step = list(steps).index(name)
        operations.append(Operation(name, step, tuple(inputs.split()), tuple(outputs.split()), traits, microseconds, pin))
    described = tuple(Value(name, size, kind, constant=not size) for name, (size, kind) in values.items())
    return Graph("train", 16, tuple(steps.values()), tuple(operations), described, tuple(returns.split()), together)


IMAGE_VALUES = {
    "decoded": (391_000, "PIL RGB 375x347"),
    "cropped": (150_528, "PIL RGB 224x224"),
    "flipped": (150_528, "PIL RGB 224x224"),
    "bytes": (150_528, "uint8 3x224x224"),
    "floats": (602_112, "float32 3x224x224"),
    "mean": (0, "float32 3"),
    "normal": (602_112, "float32 3x224x224"),
    "batch": (602_112, "float32 3x224x224"),
}
IMAGE_ROWS: list[Row] = [
    ("ImageFolder: read", "", "decoded", "reads", 3000.0),
    ("RandomResizedCrop: sample", "decoded", "cropped", "random", 2100.0),
    ("RandomHorizontalFlip: sample", "cropped", "flipped", "random", 20.0),
    ("ToTensor: sample", "flipped", "bytes", "unknown", 120.0),
    ("ToTensor: sample", "bytes", "floats", "pointwise", 50.0),
    ("mean: sample", "", "mean", "", 30.0),
    ("Normalize: sample", "floats mean", "normal", "pointwise", 90.0),
    ("collate: collate", "normal", "batch", "layout", 0.0),
    ("model: loop", "batch", "", "trainer", 0.0),
]
IMAGES = graph(IMAGE_ROWS, IMAGE_VALUES, "batch")

# The same with noise behind Normalize: random numbers belong to the worker, and all that comes before them.
NOISE = graph(
    [*IMAGE_ROWS[:7], ("AddNoise: sample", "normal", "noisy", "random", 200.0), ("collate: collate", "noisy", "batch", "layout", 0.0)],
    {**IMAGE_VALUES, "noisy": (602_112, "float32 3x224x224")},
    "batch",
)

AUDIO = graph(
    [
        ("read: read", "", "wave", "reads", 900.0),
        ("stft: sample", "wave", "spectrum", "reduction", 1500.0),
        ("mel: sample", "spectrum bank", "mel", "reduction", 200.0),
        ("log: sample", "mel", "logmel", "pointwise", 15.0),
        ("collate: collate", "logmel", "batch", "layout", 1.0),
    ],
    {
        "wave": (640_000, "float32 160000"),
        "spectrum": (1_607_208, "complex64 201x1001"),
        "bank": (0, "float32 201x80"),
        "mel": (320_320, "float32 80x1001"),
        "logmel": (320_320, "float32 80x1001"),
        "batch": (320_320, "float32 80x1001"),
    },
    "batch",
)

TEXT = graph(
    [
        ("read: read", "", "line", "reads", 5.0),
        ("collate: collate", "line", "lines", "layout", 0.0),
        ("tokenize: loop", "lines", "ids", "", 340.0),
        ("pad: loop", "ids", "padded", "layout", 12.0),
        ("embed: loop", "padded", "", "trainer", 700.0),
    ],
    {"line": (1_900, "str"), "lines": (1_900, "list of str"), "ids": (1_024, "list of int64"), "padded": (2_048, "int64 256")},
    "padded",
)


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> Graph:
    """Random graphs, whose pins may contradict each other. Costs are few and round, so that many cuts cost the same.

    Bytes are whole 16ths of a KiB, microseconds whole tenths: at a price with one decimal, no capacity is rounded.
    """
    parts = draw(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4))
    steps = tuple(
        Step(f"step {i}", part, draw(st.none() | st.just(Span("train.py", i + 1, 0, i + 1, 4))), draw(_TENTHS))
        for i, part in enumerate(parts)
    )
    values = [Value(f"c{i}", draw(_BYTES), "float32", constant=True) for i in range(draw(st.integers(0, 2)))]
    operations = []
    for index in range(draw(st.sampled_from((most, *range(most))))):
        recent = [value.name for value in values[-5:]]
        inputs = draw(st.lists(st.sampled_from(recent), min_size=1, max_size=3)) if recent else []
        made = [_value(draw, f"v{index}.{i}") for i in range(draw(st.sampled_from((0, 1, 1, 1, 2))))]
        traits: frozenset[Trait] = draw(st.sampled_from(_TRAITS))
        pin: Side | None = draw(st.sampled_from((None,) * 16 + SIDES))
        step = draw(st.integers(0, len(steps) - 1))
        operations.append(Operation(f"op {index}", step, tuple(inputs), tuple(v.name for v in made), traits, draw(_TENTHS), pin))
        values += made
    names = [value.name for value in values]
    returns = draw(st.lists(st.sampled_from(names[-4:]), max_size=3)) + names[-1:] if names else []
    last = len(operations) - 1
    pairs = [(a, b) for a in range(last) for b in range(a + 1, min(a + 4, last + 1))]
    groups = st.lists(st.sampled_from(pairs), max_size=2) if pairs else st.just([])
    return Graph("train", 4, steps, tuple(operations), tuple(values), tuple(returns), tuple(draw(groups)))


_BYTES = st.sampled_from((0, 64, 640, 1024, 2048, 10240))
_TENTHS = st.sampled_from((0.0, 0.1, 1.0, 1.6, 3.2, 16.0))
_TRAITS: tuple[frozenset[Trait], ...] = (
    *(frozenset[Trait]({"pointwise"}) for _ in range(8)),
    frozenset({"layout"}),
    frozenset({"pointwise", "layout"}),
    frozenset({"pointwise", "random"}),
    frozenset({"reduction"}),
    frozenset({"layout", "reduction"}),
    frozenset({"reads"}),
    frozenset(),
)


def _value(draw: st.DrawFn, name: str) -> Value:
    shape = draw(st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3).map(tuple))
    dtype = draw(st.sampled_from((None, "float32")))
    return Value(name, draw(_BYTES), draw(st.text(max_size=8)), dtype, shape, constant=draw(st.integers(0, 9)) == 0)
