"""The comparison of `splitter verify`: values, ends and outputs, as tables."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from splitter.verify import Ending, Recording, compare, read_recording, without_clock


def ending(status: int = 0, stopped: bool = False, failure: str = "", output: str = "") -> Ending:
    return Ending(status, stopped, failure, output)


def batch(*lines: dict[str, Any], epoch: int = 0, number: int = 0, **states: str) -> dict[str, Any]:
    return {"event": "batch", "loader": 0, "epoch": epoch, "batch": number, "value": list(lines), "states": states}


def tensor(values: Any, dtype: str = "float32", **more: Any) -> dict[str, Any]:
    array = np.asarray(values, dtype)
    strides = [step // array.itemsize for step in array.strides]
    bits = base64.b64encode(array.tobytes()).decode()
    shape = list(array.shape)
    return {"path": "batch", "type": "torch.Tensor", "dtype": dtype, "shape": shape, "strides": strides, "bits": bits, **more}


def line(**fields: Any) -> dict[str, Any]:
    return {"path": "batch", "type": "list", **fields}


def big(*rows: str) -> dict[str, Any]:
    return {"path": "batch", "type": "torch.Tensor", "dtype": "uint8", "shape": [3, 9999], "strides": [9999, 1], "rows": list(rows)}


NAN = tensor([0]) | {"bits": base64.b64encode(bytes.fromhex("0100c07f")).decode()}
OTHER_NAN = tensor([0]) | {"bits": base64.b64encode(bytes.fromhex("0200c07f")).decode()}
BRAIN = {"path": "batch", "type": "torch.Tensor", "dtype": "bfloat16", "shape": [], "strides": []}

LINES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (tensor([[1, 2], [3, 4]]), tensor([[1, 2], [5, 4]]), "batch: float32 (2, 2): 1 of 4 values differs, first at [1, 0]: 3.0 and 5.0"),
    (tensor([0.0]), tensor([-0.0]), "batch: float32 (1,): 1 of 1 values differs, first at [0]: 0.0 and -0.0"),
    (tensor(7, "int64"), tensor(8, "int64"), "batch: int64 (): 7 and 8"),
    (NAN, OTHER_NAN, "batch: float32 (1,): 1 of 1 values differs, first at [0]: nan (0x7fc00001) and nan (0x7fc00002)"),
    (BRAIN | {"bits": "gD8="}, BRAIN | {"bits": "AEA="}, "batch: bfloat16 (): 1.0 and 2.0"),
    (tensor([1]), tensor([[1]]), "batch: shape (1,) and (1, 1)"),
    (tensor([1]), tensor([1], "float64"), "batch: dtype float32 and float64"),
    (tensor([[1, 2]]), tensor([[1, 2]]) | {"strides": [1, 1]}, "batch: float32 (1, 2): strides (2, 1) and (1, 1)"),
    (tensor([1], requires_grad=True), tensor([1]), "batch: float32 (1,): requires_grad True and not"),
    (tensor([1], memory=0), tensor([1]), "batch: shares memory (group 0) in the script, has memory of its own in the split"),
    (line(length=2), line(length=3), "batch: length 2 and 3"),
    (line(keys=["a"]), line(keys=["b"]), "batch: keys (a,) and (b,)"),
    (line(), line() | {"type": "tuple"}, "batch: list and tuple"),
    (line(**{"same as": "batch[0]"}), line(length=0), "batch: length not and 0"),
    (line(path="batch[1]"), line(path="batch[2]"), "batch[1]: the split has batch[2] in its place"),
    (line(type="int", value="1"), line(type="int", value="2"), "batch: int: 1 and 2"),
    (big("a", "b", "c"), big("a", "x", "y"), "batch: uint8 (3, 9999): 2 of 3 along the first dimension differ, first [1]"),
]


@pytest.mark.parametrize(("left", "right", "message"), LINES)
def test_differences_of_values(left: dict[str, Any], right: dict[str, Any], message: str) -> None:
    one = Recording(("loader",), ((batch(left),),), ending())
    other = Recording(("loader",), ((batch(right),),), ending())
    assert compare(one, other).loaders[0].difference == f"epoch 0 batch 0: {message}"
    assert compare(one, one).identical and compare(other, other).identical


def test_a_line_too_many_is_named() -> None:
    one = Recording(("loader",), ((batch(line(), line(path="batch.x")),),), ending())
    other = Recording(("loader",), ((batch(line()),),), ending())
    assert compare(one, other).loaders[0].difference == "epoch 0 batch 0: batch.x: only the script has it"
    assert compare(other, one).loaders[0].difference == "epoch 0 batch 0: batch.x: only the split has it"


def test_generators_are_compared_after_the_values() -> None:
    one = Recording(("loader",), ((batch(line(), torch="a", numpy="a", random="a"),),), ending())
    other = Recording(("loader",), ((batch(line(), torch="b", numpy="a", random="b"),),), ending())
    expected = "epoch 0 batch 0: torch's generator and the generator of random are in another state after it"
    assert compare(one, other).loaders[0].difference == expected


ENDINGS = [
    (ending(), ending(), None),
    (ending(stopped=True), ending(), "the script went on; the split ended"),
    (ending(1, failure="ValueError: x"), ending(1, failure="ValueError: x"), None),
    (
        ending(1, failure="ValueError: x"),
        ending(1, failure="ValueError: y"),
        "the script failed with exit status 1: ValueError: x; the split failed with exit status 1: ValueError: y",
    ),
    (ending(), ending(-9), "the script ended; the split was ended by SIGKILL"),
]


@pytest.mark.parametrize(("script", "split", "message"), ENDINGS)
def test_endings(script: Ending, split: Ending, message: str | None) -> None:
    assert compare(Recording((), (), script), Recording((), (), split)).ending == message


OUTPUTS = [
    ("a\nb\n", "a\nb\n", None),
    ("a\nloss 0.25\n", "a\nloss 0.5\n", "standard output line 2: 'loss 0.25' and 'loss 0.5'"),
    ("a\n", "a\nb\n", "standard output line 2: only the split prints 'b'"),
    ("a\n\n", "a\n", "standard output line 2: only the script prints ''"),
    ("epoch 1 took 3.25 s", "epoch 1 took 4 s", None),
    ("epoch 1 took 3.25 s", "epoch 2 took 3.25 s", "standard output line 1: 'epoch 1 took 3.25 s' and 'epoch 2 took 3.25 s'"),
]


@pytest.mark.parametrize(("script", "split", "message"), OUTPUTS)
def test_outputs(script: str, split: str, message: str | None) -> None:
    report = compare(Recording((), (), ending(output=script)), Recording((), (), ending(output=split)))
    assert report.output == message


def test_loaders_that_stay_in_the_trainer_are_named(tmp_path: Path) -> None:
    said = "splitter: loader train stays in the trainer: R108: a lock can't be sent"
    (tmp_path / "split.err").write_text(f"a warning\n  0%| | 0/5{said}\n{said}\n")
    (tmp_path / "split.out").write_text("")
    split = read_recording(tmp_path, "split", 0)
    report = compare(Recording((), (), ending()), split)
    assert str(report).splitlines()[1:] == [said]
    assert report.differences == ()


def test_outputs_of_programs_that_ended_differently_are_not_compared() -> None:
    one, other = ending(output="a"), ending(1, output="b")
    assert compare(Recording((), (), one), Recording((), (), other)).output is None


CLOCKS = [
    (
        "Epoch: [0][ 1/10]\tTime  0.123 ( 0.150)\tData  0.010 ( 0.020)\tLoss 6.9e+00 (7.0)",
        "Epoch: [0][ 1/10]\t<time>\t<time>\tLoss 6.9e+00 (7.0)",
    ),
    ("done in 0:01:23.5, 1,234.5 images/s", "done in <time>, <time>"),
    ("2024-02-29 12:00:03,947 [MainThread] INFO", "2024-02-29 <time> [MainThread] INFO"),
    ("saved/0229_120003/epoch1.pth, runs/20240229-120003", "saved/<time>/epoch1.pth, runs/<time>"),
    ("12.5 ms per step", "<time> per step"),
    ("Step: 1s926ms | Loss: 2.3   \b\b\b 1/2", "Step: <time><time> | Loss: 2.3 1/2"),
    ("Loss: 2.3   \b\b\b 1/2", "Loss: 2.3   \b\b\b 1/2"),
    ("loss 0.25 accuracy 97.5% of 360 samples", "loss 0.25 accuracy 97.5% of 360 samples"),
]


@pytest.mark.parametrize(("text", "expected"), CLOCKS)
def test_durations_are_not_compared(text: str, expected: str) -> None:
    assert without_clock(text) == expected
