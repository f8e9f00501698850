"""`splitter verify` on real programs: what is recorded, and what is said of differences."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from splitter.verify import Ending, Recording, VerifyReport, verify

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


def test_a_recording_checks_itself() -> None:
    with pytest.raises(ValueError, match="events of every loader"):
        Recording(("a",), (), Ending(0, False, "", ""))


def test_the_environment_of_the_script_has_no_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os\nprint(os.environ.get('SPLITTER_WORKERS'), os.environ['PYTHONHASHSEED'])\n")
    monkeypatch.setitem(os.environ, "SPLITTER_WORKERS", "local:1")
    report = verify(program, program, (), batches=1, epochs=1, workers="local:2", python=sys.executable)
    assert report.output == "standard output line 1: 'None 0' and 'local:2 0'"
