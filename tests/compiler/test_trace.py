"""Step `trace`: graphs of real scripts, recorded in real child processes, and what it says when there is none.

Each child imports torch, so scripts hold several loaders, and tests look at one graph each.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from scratch import Scratch

from splitter.compile import compile_script
from splitter.graph import Graph
from splitter.trace import Traced, describe, trace
from splitter.trace_process import child, early

PIPELINES = (Path(__file__).parent / "trace_pipelines.py").read_text(encoding="utf-8")


def traced(script: Path, *arguments: str, **given: float) -> Traced:
    return trace(compile_script(script), script, arguments, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    folder = tmp_path_factory.mktemp("pipelines")
    (folder / "train.py").write_text(PIPELINES, encoding="utf-8")
    found = traced(folder / "train.py", seconds=60)
    assert not (folder / "trained").exists(), "training began"
    return found


def graph_of(found: Traced, name: str) -> Graph:
    assert found[name].reason is None
    graph = found[name].graph
    assert graph is not None
    return graph


def rows(graph: Graph) -> list[tuple[str, str, str]]:
    """Step, operation and traits of every operation."""
    return [(graph.steps[o.step].name, o.name.removeprefix("aten."), " ".join(sorted(o.traits))) for o in graph.operations]


def types(graph: Graph) -> list[str]:
    """The type of the first output of every operation."""
    values = {value.name: value for value in graph.values}
    return [values[operation.outputs[0]].type for operation in graph.operations]


# --- what a graph says


def test_imagenet(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = scratch.copy("imagenet")
    monkeypatch.chdir(folder)
    seen: list[tuple[str, int, int]] = []
    arguments = ("pictures", "--size", "224")
    found = trace(compile_script(Path("train.py")), Path("train.py"), arguments, seconds=60, progress=lambda *event: seen.append(event))
    train = graph_of(found, "train")
    assert rows(train) == [
        ("ImageFolder.__getitem__", "ImageFolder.__getitem__", "reads"),
        ("RandomResizedCrop", "RandomResizedCrop", "depends random unknown"),
        ("RandomHorizontalFlip", "RandomHorizontalFlip", "depends random unknown"),
        ("ToTensor", "ToTensor", "unknown"),
        ("ToTensor", "permute", "layout"),
        ("ToTensor", "clone", "layout pointwise"),
        ("ToTensor", "_to_copy", "pointwise"),
        ("ToTensor", "div.Tensor", "pointwise"),
        ("Normalize", "clone", "layout pointwise"),
        ("Normalize", "sub_.Tensor", "pointwise"),
        ("Normalize", "div_.Tensor", "pointwise"),
        ("default_collate", "default_collate", "unknown"),
    ]
    values = {value.name: value for value in train.values}
    assert [values[operation.outputs[0]].bytes for operation in train.operations[2:]] == [150528] * 4 + [602112] * 6
    assert [value.shape for value in train.values if value.constant] == [(3, 1, 1), (3, 1, 1)]
    assert values[train.operations[-1].outputs[0]].shape == (None, 3, 224, 224)
    lines = Path("train.py").read_text(encoding="utf-8").splitlines()
    for step in train.steps[1:5]:
        assert step.span is not None and ({"Normalize": "normalize"}.get(step.name, step.name)) in lines[step.span.line - 1]
        assert step.microseconds > 0
    assert [step.draws for step in train.steps] == [(), ("torch",), ("torch",), (), (), ()]
    assert graph_of(found, "val").samples == 15
    assert seen[0] == ("train", 1, 16) and seen[-1] == ("val", 15, 15)


def test_v2_compose(pipelines: Traced) -> None:
    graph = graph_of(pipelines, "photos")
    assert rows(graph) == [
        ("image = Image.fromarray(self.arrays[i])", "image = Image.fromarray(self.arrays[i])", "reads"),
        ("if i % 2:", "if i % 2:", "depends unknown"),
        ("RandomCrop", "RandomCrop", "depends random unknown"),
        ("ToImage", "ToImage", "unknown"),
        ("ToImage", "permute", "layout"),
        ("RandomHorizontalFlip", "RandomHorizontalFlip", "depends random unknown"),
        ("ToDtype", "_to_copy", "pointwise"),
        ("ToDtype", "mul_.Tensor", "pointwise"),
        ("Normalize", "sub.Tensor", "pointwise"),
        ("Normalize", "div_.Tensor", "pointwise"),
        ("return image, torch.tensor(i % 7)", "return image, torch.tensor(i % 7)", "reads"),
        ("default_collate", "default_collate", "unknown"),
    ]
    assert types(graph)[0] == "PIL RGB 50x?"


def test_sequential_statements_and_a_value_read_into_python(pipelines: Traced) -> None:
    graph = graph_of(pipelines, "vectors")
    assert rows(graph) == [
        ("x = self.data[i]", "x = self.data[i]", "reads"),
        ("x = (x - self.mean) / 3", "sub.Tensor", "pointwise"),
        ("x = (x - self.mean) / 3", "div.Tensor", "pointwise"),
        ("ReLU", "relu", "pointwise"),
        ("scale = x.max().item()", "max", "reduction"),
        ("scale = x.max().item()", "_local_scalar_dense", "depends"),
        ("scale = x.max().item()", "scale = x.max().item()", "unknown"),
        ("x = x / (scale + 1)", "x = x / (scale + 1)", "depends unknown"),
        ("label = i % 3", "label = i % 3", "reads"),
        ("x = x + torch.randn(x.shape)", "randn", "random"),
        ("x = x + torch.randn(x.shape)", "add.Tensor", "pointwise"),
        ("default_collate", "default_collate", "unknown"),
    ]
    mean = next(value for value in graph.values if value.constant)
    assert graph.operations[1].inputs[1] == mean.name
    label = graph.operations[8].outputs[0]
    assert graph.operations[-1].inputs == (graph.operations[-2].outputs[0], label)


def test_function_transforms_and_a_collate_function(pipelines: Traced) -> None:
    graph = graph_of(pipelines, "words")
    lengths = 'lengths = torch.tensor([one["length"] for one in batch])'
    assert rows(graph) == [
        ('text = "word " * (i + 1)', 'text = "word " * (i + 1)', "reads"),
        ("tokens = [ord(c) for c in text]", "tokens = [ord(c) for c in text]", "unknown"),
        ("x[: len(tokens)] = torch.tensor(tokens)", "x[: len(tokens)] = torch.tensor(tokens)", "depends unknown"),
        ("x = x - torch.tensor([0.5])", "sub.Tensor", "pointwise"),
        ("x = self.transform(x)", "x = self.transform(x)", "depends random unknown"),
        ('sample["length"] = len(tokens)', 'sample["length"] = len(tokens)', "unknown"),
        (lengths, lengths, "unknown"),
        ('images = torch.stack([one["x"] for one in batch]).half()', "stack", "unknown"),
        ('images = torch.stack([one["x"] for one in batch]).half()', "_to_copy", "pointwise"),
    ]
    made = {operation.name: operation for operation in graph.operations}
    tokens = made["tokens = [ord(c) for c in text]"].outputs
    assert made['sample["length"] = len(tokens)'].inputs == tokens, "the length doesn't depend on the vector"
    assert made[lengths].inputs == made['sample["length"] = len(tokens)'].outputs, "nor do the lengths depend on the vectors"
    assert [step.part for step in graph.steps] == ["read", *["sample"] * 5, "collate", "collate"]


def test_functions_of_the_users_that_a_library_calls(pipelines: Traced) -> None:
    graph = graph_of(pipelines, "folder")
    assert rows(graph)[:5] == [
        ("FakeData.__getitem__", "FakeData.__getitem__", "reads"),
        ("x = TF.pil_to_tensor(image)", "x = TF.pil_to_tensor(image)", "unknown"),
        ("x = TF.pil_to_tensor(image)", "permute", "layout"),
        ("x.float()", "_to_copy", "pointwise"),
        ("x / 255", "div.Tensor", "pointwise"),
    ]


def test_items_of_an_iterable_dataset(pipelines: Traced) -> None:
    graph = graph_of(pipelines, "stream")
    assert rows(graph) == [
        ("for n in items:", "for n in items:", "reads"),
        ("x = torch.full((10,), float(n))", "x = torch.full((10,), float(n))", "depends unknown"),
        ("yield x * 2", "mul.Tensor", "pointwise"),
        ("default_collate", "default_collate", "unknown"),
    ]


def test_the_text_is_the_same_in_every_run(pipelines: Traced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    (tmp_path / "train.py").write_text(PIPELINES, encoding="utf-8")
    again = traced(tmp_path / "train.py", seconds=60)
    assert {n: describe(g) for n, g in again.graphs.items()} == {n: describe(g) for n, g in pipelines.graphs.items()}


# --- what it says when there is no graph


TWO_LOADERS = """
import argparse, subprocess, sys, time

if sys.argv[1:] == ["hang"]:
    subprocess.Popen(["sleep", "1000"])
    time.sleep(1000)

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("how")
args = parser.parse_args()
print("x" * 100)
if args.how == "exit":
    sys.exit("no data here")
if args.how == "fail":
    raise FileNotFoundError("no such folder: photos")
first = DataLoader(TensorDataset(torch.arange(12)), batch_size=2, num_workers=1)
for batch in first:
    open("trained", "w").close()
second = DataLoader(TensorDataset(torch.arange(9)), batch_size=2, num_workers=1)
for batch in second:
    pass
"""


@pytest.mark.parametrize(
    ("arguments", "first", "second"),
    [
        ((), "the script ended with exit status 2", None),
        (("exit",), "the script ended with exit status no data here", None),
        (("fail",), "the script failed: FileNotFoundError: no such folder: photos", None),
        (("train",), "", "the script did not come to this loader before it began to iterate one"),
        (("hang",), "running the script took more than 3 s", None),
    ],
)
def test_reasons(arguments: tuple[str, ...], first: str, second: str | None, scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    script = scratch.folder / "train.py"
    script.write_text(TWO_LOADERS, encoding="utf-8")
    monkeypatch.chdir(scratch.folder)
    monkeypatch.setenv("SPLITTER_TOKEN_FILE", "secret")
    found = traced(script, *arguments, seconds=3 if arguments == ("hang",) else 60)
    assert found["first"].reason == (first or None)
    assert found["second"].reason == (second or first)
    assert not Path("trained").exists()


FAILING = """
import os
import torch
from torch.utils.data import DataLoader, Dataset

assert not [name for name in os.environ if name.startswith("SPLITTER_TOKEN")]

class Broken(Dataset):
    def __len__(self):
        return 5
    def __getitem__(self, i):
        raise ValueError(f"sample {i} is broken")

class One(Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, i):
        return torch.zeros(3)

broken = DataLoader(Broken(), num_workers=1)
one = DataLoader(One(), num_workers=1)
"""


def test_datasets_that_fail(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    script = scratch.folder / "train.py"
    script.write_text(FAILING, encoding="utf-8")
    monkeypatch.setenv("SPLITTER_TOKEN_FILE", "secret")
    found = traced(script, seconds=60)
    assert found.reasons == {
        "broken": "running a sample failed: ValueError: sample 0 is broken",
        "one": "the dataset has fewer than 2 samples",
    }


def test_an_interrupt_leaves_nothing(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    script = scratch.folder / "train.py"
    script.write_text(TWO_LOADERS, encoding="utf-8")
    monkeypatch.chdir(scratch.folder)

    def interrupt(feed: str, done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trace(compile_script(script), script, ("train",), seconds=60, progress=interrupt)
    scratch.assert_nothing_left()


RUNS = "import torch\nopen('ran', 'w').close()\n"


def test_a_child_without_a_task_runs_nothing(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scratch.folder)
    Path("train.py").write_text(RUNS, encoding="utf-8")
    with child(Path("train.py"), ()) as waiting:
        assert waiting.process.poll() is None
        if waiting.process.stdin is not None:
            waiting.process.stdin.close()
        assert waiting.how() == "ended with exit status 0"
    with child(Path("train.py"), ()) as waiting:
        pass
    assert waiting.process.returncode == -signal.SIGKILL
    assert not Path("ran").exists()
    scratch.assert_nothing_left()


def test_a_child_that_dies_while_it_waits(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scratch.folder)
    Path("train.py").write_text(FAILING, encoding="utf-8")
    with child(Path("train.py"), ()) as waiting:
        waiting.process.kill()
        waiting.process.wait()
        found = trace(compile_script(Path("train.py")), Path("train.py"), (), seconds=60, waiting=waiting)
    assert set(found.reasons.values()) == {"the script was ended by SIGKILL"}


@pytest.mark.parametrize(("again", "wanted", "split", "begun"), [(0, 1, 0, True), (0, 1, 1, False), (1, 1, 1, True), (1, 0, 0, False)])
def test_when_a_child_is_started_early(again: int, wanted: int, split: int, begun: bool, scratch: Scratch) -> None:
    script = scratch.folder / "train.py"
    script.write_text(RUNS, encoding="utf-8")
    if split:
        (scratch.folder / "train_split.json").touch()
    with early(script, (), scratch.folder, bool(wanted), bool(again)) as waiting:
        assert (waiting is not None) == begun
    with early(scratch.folder / "missing.py", (), scratch.folder) as waiting:
        assert waiting is None


def test_a_script_with_nothing_to_split_is_not_run(scratch: Scratch) -> None:
    for text, status in ((RUNS, 3), (RUNS + "x =", 2)):
        (scratch.folder / "train.py").write_text(text, encoding="utf-8")
        ended = scratch.splitter("transform", "train.py", "--samples", "4", folder=scratch.folder)
        assert ended.returncode == status, ended.stderr
        scratch.assert_nothing_left()
    assert not (scratch.folder / "ran").exists()


def test_this_process_imports_no_torch(scratch: Scratch) -> None:
    code = "import sys, splitter.trace; print('torch' in sys.modules)"
    ended = scratch.run([sys.executable, "-c", code], scratch.folder)
    assert ended.stdout == "False\n", ended.stderr
