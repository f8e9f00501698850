"""`splitter verify`: tables for the comparison, real programs for the recording."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from splitter.verify import Ending, Recording, VerifyReport, compare, read_recording, verify, without_clock

PROGRAM = """
import random
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return {"x": torch.full((3,), index ** 2 / 4), "name": f"row {index}"}, index


def main():
    torch.manual_seed(3)
    train_loader = DataLoader(Squares(22), batch_size=4, shuffle=True, num_workers=WORKERS)
    loaders = {"val": DataLoader(Squares(8), batch_size=4, num_workers=0)}
    for epoch in range(3):
        for batch, labels in train_loader:
            noise = torch.randn(2) + random.random() + np.random.rand()
        for batch, labels in loaders["val"]:
            pass
        print("epoch", epoch, "noise", noise.tolist())
    print("done", sys.argv[1:])


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM.replace("WORKERS", "2"))
    return tmp_path


def edited(folder: Path, *changes: tuple[str, str]) -> Path:
    """A copy of the program with some of its text replaced."""
    text = (folder / "train.py").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "other.py").write_text(text)
    return folder / "other.py"


def run(folder: Path, other: Path, *args: str, batches: int = 8, epochs: int = 2) -> VerifyReport:
    return verify(folder / "train.py", other, args, batches=batches, epochs=epochs, workers=None, python=sys.executable)


# --- real programs


def test_a_program_is_identical_to_itself(folder: Path) -> None:
    report = run(folder, folder / "train.py", "--lr", "0.1")
    assert report.identical, str(report)
    assert [(loader.name, loader.epochs, loader.batches) for loader in report.loaders] == [
        ("train_loader", 2, 12),
        ("loaders['val']", 2, 4),
    ]
    assert str(report) == "train_loader: 12 batches in 2 epochs are identical\nloaders['val']: 4 batches in 2 epochs are identical"
    assert not [child for child in psutil.Process().children(recursive=True) if "record" in " ".join(child.cmdline())]


def test_a_program_that_was_in_the_way_of_the_other_runs_once_more(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second that comes finds the folder of the first, and takes it away; the third has a free place."""
    turn = "try:\n    os.mkdir('turn')\nexcept FileExistsError:\n    os.rmdir('turn')\n    raise\n"
    other = edited(folder, ("import random", "import os\nimport random"), ("\n\nclass", f"\n{turn}\n\nclass"))
    monkeypatch.chdir(folder)
    report = verify(other, other, (), batches=2, epochs=1, workers=None, python=sys.executable)
    assert report.identical, str(report)


def test_only_the_batches_asked_for_are_compared(folder: Path) -> None:
    report = run(folder, folder / "train.py", batches=2, epochs=1)
    assert [(loader.epochs, loader.batches) for loader in report.loaders] == [(1, 2), (1, 2)]


EDITS: dict[str, tuple[list[tuple[str, str]], str]] = {
    "value": (
        [
            (
                "return {",
                'if index == 5:\n            return {"x": torch.tensor([6.25, 0.5, 6.25]), "name": "row 5"}, index\n        return {',
            )
        ],
        r'train_loader epoch 0 batch \d: batch\[0\]\["x"\]: float32 \(4, 3\): 1 of 12 values differs, first at \[\d, 1\]: 6.25 and 0.5',
    ),
    "order": ([("manual_seed(3)", "manual_seed(4)")], "train_loader epoch 0: torch's generator is in another state at its beginning"),
    "order without seed": (
        [("shuffle=True", "sampler=list(range(21, -1, -1))")],
        "train_loader epoch 0: torch's generator is in another state at its beginning",
    ),
    "order of the evaluation": (
        [("DataLoader(Squares(8), batch_size=4", "DataLoader(Squares(8), batch_size=4, sampler=[1, 0, 2, 3, 4, 5, 6, 7]")],
        r"""loaders\['val'\] epoch 0 batch 0: batch\[0\]\["x"\]: float32 \(4, 3\): 6 of 12 values differ, """
        r"first at \[0, 0\]: 0.0 and 0.25",
    ),
    "extra draw": (
        [("noise = ", "np.random.rand() if epoch else 0; noise = ")],
        "train_loader epoch 1 batch 1: numpy's generator is in another state after it",
    ),
    "draw after the loop": (
        [("for batch, labels in loaders", "random.random()\n        for batch, labels in loaders")],
        "train_loader epoch 1: the generator of random is in another state at its beginning",
    ),
    "dtype": (
        [("}, index", "}, torch.tensor(index, dtype=torch.int32)")],
        r"train_loader epoch 0 batch 0: batch\[1\]: dtype int64 and int32",
    ),
    "missing last batch": (
        [("shuffle=True", "shuffle=True, drop_last=True")],
        "train_loader epoch 0 batch 5: the script gives batch 5, the split ends after 5 batches",
    ),
    "one batch more": (
        [("Squares(8)", "Squares(9)")],
        r"loaders\['val'\] epoch 0 batch 2: the script ends after 2 batches, the split gives batch 2",
    ),
    "key": ([('"name": f', '"title": f')], r"train_loader epoch 0 batch 0: batch\[0\]: keys \(\"x\", \"name\"\) and \(\"x\", \"title\"\)"),
    "text": (
        [("row {index}", "Row {index}")],
        r"""train_loader epoch 0 batch 0: batch\[0\]\["name"\]\[0\]: str: 'row \d+' and 'Row \d+'""",
    ),
    "exception": (
        [("return {", 'if index == 5:\n            raise ValueError("bad row")\n        return {')],
        r"train_loader epoch 0 batch \d: the script gives batch \d, the split fails after \d batches with ValueError: ValueError: bad row",
    ),
    "one loader less": (
        [('for batch, labels in loaders["val"]:', "for batch in []:")],
        r"loaders\['val'\] is iterated by the script, and not by the split",
    ),
    "left early": (
        [("noise = ", "if epoch:\n                break\n            noise = ")],
        "train_loader epoch 1 batch 1: the script gives batch 1, the split is left after 1 batches",
    ),
    "one epoch less": (
        [("range(3)", "range(1)")],
        "train_loader epoch 1: the script begins epoch 1, the split does not get there",
    ),
}


@pytest.mark.parametrize(("changes", "message"), EDITS.values(), ids=EDITS)
def test_the_first_difference_is_named(folder: Path, changes: list[tuple[str, str]], message: str) -> None:
    import re

    report = run(folder, edited(folder, *changes))
    assert not report.identical
    assert any(re.fullmatch(message, difference) for difference in report.differences), str(report)


def test_different_output_is_named(folder: Path) -> None:
    report = run(folder, edited(folder, ('"noise"', '"Noise"')), epochs=5)
    assert not report.identical and str(report.output).startswith("standard output line 1: 'epoch 0 noise ["), str(report)
    assert all(loader.difference is None for loader in report.loaders)


def test_the_same_failure_on_both_sides_is_no_difference(folder: Path) -> None:
    broken = ("return {", 'if index == 5:\n            raise ValueError("bad row")\n        return {')
    (folder / "train.py").write_text(edited(folder, broken).read_text())
    report = run(folder, folder / "train.py")
    assert report.identical, str(report)


def test_another_failure_is_a_difference(folder: Path) -> None:
    report = run(folder, edited(folder, ("    main()", "    main()\n    raise SystemExit('no more')")), epochs=9)
    assert report.ending == "the script ended; the split failed with exit status 1: no more"
    assert report.differences == (report.ending,)


def test_a_program_that_does_not_start_is_a_difference(folder: Path) -> None:
    (folder / "other.py").write_text("def broken(:\n")
    report = run(folder, folder / "other.py", epochs=9)
    assert "is iterated by the script, and not by the split" in str(report)
    assert str(report.ending).startswith("the script ended; the split failed with exit status 1: SyntaxError")


def test_nothing_to_compare_is_not_identical(folder: Path) -> None:
    (folder / "train.py").write_text("print('hello')\n")
    report = run(folder, folder / "train.py")
    assert not report.identical and str(report) == "no DataLoader was iterated: nothing to compare"


RECORDED = """
import os, random, sys
import numpy as np, torch
import neighbour
from torch.utils.data import DataLoader, TensorDataset
print(__name__, __file__, sys.argv, sys.path[0] == os.path.dirname(os.path.abspath(__file__)), neighbour.HERE)
print(sys.modules["__main__"].__dict__ is globals(), __builtins__.__name__)
torch.manual_seed(0); random.seed(0); np.random.seed(0)
loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=2, shuffle=True, num_workers=N, persistent_workers=N > 0)
seen = []
for epoch in range(3):
    for number, (batch,) in enumerate(loader):
        seen.append(batch.tolist())
        if epoch == 1 and number == 1:
            break
print(seen, torch.rand(1).item(), random.random(), np.random.rand(), type(iter(loader)).__name__)
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_recording_does_not_change_the_program(tmp_path: Path, workers: int) -> None:
    import subprocess

    (tmp_path / "neighbour.py").write_text("HERE = 'neighbour'\n")
    (tmp_path / "program.py").write_text(f"N = {workers}\n" + RECORDED)
    plain = [sys.executable, "program.py", "--out", "x", "--", "y"]
    recorded = [sys.executable, "-m", "splitter_runtime.record", "--out", "r.jsonl", "--epochs", "9", *plain[1:]]
    outputs = [subprocess.run(command, cwd=tmp_path, capture_output=True, text=True) for command in (plain, recorded)]
    assert outputs[0].stdout == outputs[1].stdout and outputs[0].stdout
    assert [output.returncode for output in outputs] == [0, 0] and outputs[1].stderr == ""


def test_a_program_that_catches_exits_is_stopped_all_the_same(folder: Path) -> None:
    (folder / "train.py").write_text(
        """
import torch
from torch.utils.data import DataLoader
loader = DataLoader(torch.arange(8), batch_size=2, num_workers=1)
while True:
    try:
        for batch in loader:
            pass
    except BaseException:
        continue
"""
    )
    report = run(folder, folder / "train.py")
    assert report.identical and report.loaders[0].batches == 8, str(report)


def test_a_traceback_starts_in_the_program(tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "program.py").write_text("import torch.utils.data\n\ndef fail():\n    raise KeyError('x')\n\nfail()\n")
    command = [sys.executable, "-m", "splitter_runtime.record", "--out", "r", "program.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1 and "record.py" not in ended.stderr
    assert ended.stderr.splitlines()[1].strip() == f'File "{tmp_path}/program.py", line 6, in <module>'


# --- tables


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


def test_a_recording_checks_itself() -> None:
    with pytest.raises(ValueError, match="events of every loader"):
        Recording(("a",), (), ending())


def test_the_environment_of_the_script_has_no_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os\nprint(os.environ.get('SPLITTER_WORKERS'), os.environ['PYTHONHASHSEED'])\n")
    monkeypatch.setitem(os.environ, "SPLITTER_WORKERS", "local:1")
    report = verify(program, program, (), batches=1, epochs=1, workers="local:2", python=sys.executable)
    assert report.output == "standard output line 1: 'None 0' and 'local:2 0'"
