"""The first difference between two events of a recording, in words.

{"event": "batch", "epoch": 1, "batch": 3, "value": [...]}      epoch 1 batch 3: batch[0]["x"]: float32 (64, 3): 2 of 192 values
{"event": "batch", "epoch": 1, "batch": 3, "value": [...]}  ->  differ, first at [0, 1]: 0.25 and 0.5
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from splitter.prefix_types import WHOLE

Event = Mapping[str, Any]
Line = Mapping[str, Any]

_GENERATORS = {"torch": "torch's generator", "numpy": "numpy's generator", "random": "the generator of random"}
_ENDS = {
    "finished": "ends after {} batches",
    "left": "is left after {} batches",
    "raised": "fails after {} batches with {}",
}


def first_difference(script: Event | None, split: Event | None) -> str | None:
    """Where two events of the same loader differ; None when they don't. None stands for no further event."""
    if script is None or split is None:
        present = script or split
        assert present is not None
        side, other = ("split", "script") if script is None else ("script", "split")
        return f"{place(present)}: the {side} {happening(present)}, the {other} does not get there"
    if (script["event"], script["epoch"]) != (split["event"], split["epoch"]):
        return f"{place(script)}: the script {happening(script)}, the split {happening(split)}"
    if script["event"] == "raised" or script.get("taken") != split.get("taken"):
        if (script.get("taken"), script.get("error")) != (split.get("taken"), split.get("error")):
            return f"{place(script)}: the script {happening(script)}, the split {happening(split)}"
    found = compare_values(script.get("value", ()), split.get("value", ()))
    if found is None:
        found = compare_states(script, split)
    return None if found is None else f"{place(script)}: {found}"


def without_places(event: Event, keys: Collection[int | str]) -> Event:
    """A batch without the values at some of its places, and without what it is itself, when there are any."""
    if not keys or "value" not in event:
        return event
    gone = tuple("batch" if key == WHOLE else f"batch{key_step(key)}" for key in keys)
    lines = [
        line
        for line in event["value"][1:]
        if not any(line["path"] == path or line["path"].startswith((f"{path}[", f"{path}.")) for path in gone)
    ]
    return {**event, "value": lines}


def key_step(key: int | str) -> str:
    """A place in a batch as the runtime's recorder writes it in paths."""
    return f"[{key}]" if isinstance(key, int) else '["' + key.replace("\\", "\\\\").replace('"', '\\"') + '"]'


def place(event: Event) -> str:
    """Epoch and batch of an event."""
    batch = event.get("batch", event.get("taken"))
    return f"epoch {event['epoch']}" if batch is None else f"epoch {event['epoch']} batch {batch}"


def happening(event: Event) -> str:
    """What an event is, as the end of a sentence."""
    if event["event"] == "begin":
        return f"begins epoch {event['epoch']}"
    if event["event"] == "batch":
        return f"gives batch {event['batch']}"
    return _ENDS[event["event"]].format(event["taken"], event.get("error"))


def compare_states(script: Event, split: Event) -> str | None:
    """The generators that are in another state."""
    left, right = script.get("states", {}), split.get("states", {})
    names = [text for name, text in _GENERATORS.items() if left.get(name) != right.get(name)]
    when = {"begin": "at its beginning", "batch": "after it"}.get(script["event"], "at the end of the epoch")
    if not names:
        return None
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} in another state {when}"


# --- values


def compare_values(script: Sequence[Line], split: Sequence[Line]) -> str | None:
    """The first difference of two described batches."""
    for left, right in zip(script, split, strict=False):
        if left != right:
            return compare_lines(left, right)
    if len(script) != len(split):
        side, lines, count = ("script", script, len(split)) if len(script) > len(split) else ("split", split, len(script))
        return f"{lines[count]['path']}: only the {side} has it"
    return None


def compare_lines(left: Line, right: Line) -> str:
    """How two lines differ."""
    path = left["path"]
    if path != right["path"]:
        return f"{path}: the split has {right['path']} in its place"
    if left["type"] != right["type"]:
        return f"{path}: {left['type']} and {right['type']}"
    for name in ("keys", "length", "attributes", "dtype", "shape", "device", "layout", "requires_grad", "quantizer", "strides"):
        if left.get(name) != right.get(name):
            return f"{path}: {label(left, name)}{name} {shown(left.get(name))} and {shown(right.get(name))}"
    if left.get("bits") != right.get("bits"):
        return f"{path}: {summary(left)}: {compare_bits(left, right)}"
    if left.get("rows") != right.get("rows"):
        return f"{path}: {summary(left)}: {compare_rows(left['rows'], right['rows'])}"
    if left.get("same as") != right.get("same as"):
        return f"{path}: {identity(left)} in the script, {identity(right)} in the split"
    if left.get("memory") != right.get("memory"):
        return f"{path}: {sharing(left)} in the script, {sharing(right)} in the split"
    return f"{path}: {left['type']}: {left.get('value')} and {right.get('value')}"


def label(line: Line, name: str) -> str:
    """What precedes the difference of a property of a tensor."""
    return f"{summary(line)}: " if name in ("device", "layout", "requires_grad", "quantizer", "strides") else ""


def summary(line: Line) -> str:
    """Dtype and shape, as float32 (64, 3)."""
    return f"{line['dtype']} {shown(line['shape'])}"


def shown(value: object) -> str:
    if isinstance(value, list):
        inner = ", ".join(map(str, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return "not" if value is None else str(value)


def identity(line: Line) -> str:
    return f"the same object as {line['same as']}" if "same as" in line else "an object of its own"


def sharing(line: Line) -> str:
    return f"shares memory (group {line['memory']})" if "memory" in line else "has memory of its own"


def compare_bits(left: Line, right: Line) -> str:
    """How many elements differ, and the first of them."""
    one, other = (base64.b64decode(line["bits"]) for line in (left, right))
    count = int(np.prod(left["shape"], dtype=np.int64))
    if not count or len(one) != len(other) or len(one) % count:
        return "other values"
    size = len(one) // count
    rows = np.frombuffer(one, np.uint8).reshape(count, size), np.frombuffer(other, np.uint8).reshape(count, size)
    differ = np.flatnonzero((rows[0] != rows[1]).any(axis=1))
    first = int(differ[0])
    where = [int(index) for index in np.unravel_index(first, left["shape"])] if left["shape"] else []
    span = slice(first * size, (first + 1) * size)
    values = f"{element(one[span], left['dtype'])} and {element(other[span], left['dtype'])}"
    if not where:
        return values
    verb = "differs" if len(differ) == 1 else "differ"
    return f"{len(differ)} of {count} values {verb}, first at {where}: {values}"


def element(raw: bytes, dtype: str) -> str:
    """One element as Python would print it; its bytes where numpy doesn't know the type."""
    if dtype == "bfloat16":
        raw, dtype = b"\0\0" + raw, "float32"
    try:
        array = np.frombuffer(raw, np.dtype(dtype))
    except (TypeError, ValueError):
        return f"0x{raw[::-1].hex()}"
    value = array[0].item()
    return f"nan (0x{raw[::-1].hex()})" if value != value else repr(value)


def compare_rows(left: Sequence[str], right: Sequence[str]) -> str:
    """Which part of a large tensor differs."""
    differ = [index for index, (one, other) in enumerate(zip(left, right, strict=True)) if one != other]
    if len(left) == 1:
        return "other values"
    verb = "differs" if len(differ) == 1 else "differ"
    return f"{len(differ)} of {len(left)} along the first dimension {verb}, first [{differ[0]}]"
