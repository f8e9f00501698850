"""The bundle: which files there are, the report, the plan and the diff."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from plans import PHOTOS, Script, feed, photos, plan

from splitter.diff import coloured, unified
from splitter.emit import emit
from splitter.ir import Builder, Diagnostic, Feed, Plan, WorkerModule


def contents(made: Plan, folder: str | None = None) -> dict[str, str]:
    return {file.name: file.content.decode() for file in emit(made, folder).files}


def helper_plan() -> Plan:
    """A script whose loader is made in a package of its own."""
    script = Script('"""Doc."""\nimport torch\n\nfrom pkg.data import loaders\n\nfor x in loaders("d"):\n    pass\n')
    data = Script(
        "import os\n\nfrom torch.utils.data import DataLoader\n\n\ndef loaders(path):\n    return DataLoader(Data(path), 4)\n",
        "pkg.data",
        "pkg/data.py",
    )
    package = Script("x = 1\n", "pkg", "pkg/__init__.py")
    builder = Builder("dataset", "train", "train", ("path",), (), (), data.span("Data(path)"))
    return plan(
        script,
        (data, package),
        needs=("pkg/data.py",),
        worker=WorkerModule(builders=(builder,)),
        handles=(data.handle("Data(path)", environment=("path",)),),
        loaders=(data.loader("DataLoader(Data(path), 4)"),),
        feeds=(feed(data, "DataLoader(Data(path), 4)", origin=data.span("Data(path)"), residence="moved"),),
    )


def test_names() -> None:
    assert list(contents(photos())) == ["train_worker.py", "train_trainer.py", "train_split.md", "train_split.json"]


def test_nothing_when_no_loader_is_split() -> None:
    left = [replace(feed, status="left", code="S302", residence=None) for feed in photos().feeds]
    assert emit(photos(feeds=tuple(left))).files == ()


def test_the_same_plan_gives_the_same_bytes() -> None:
    assert emit(photos()) == emit(photos())


def test_diff_turns_the_script_into_the_trainer(tmp_path: Path) -> None:
    bundle = emit(photos())
    (tmp_path / "train.py").write_text(PHOTOS)
    subprocess.run(["patch", "train.py"], input=bundle.diff, cwd=tmp_path, text=True, check=True, capture_output=True)
    assert (tmp_path / "train.py").read_bytes() == bundle.files[1].content


@pytest.mark.parametrize("old", ["a\nb", "a\r\nb\r\n", "a\rb\n", "a\x0cb\n\x85c\n"])
def test_diff_applies_whatever_ends_the_lines(old: str, tmp_path: Path) -> None:
    new = old.replace("b", "c\nd")
    (tmp_path / "f").write_bytes(old.encode())
    text = unified("f", old, "g", new).encode()
    subprocess.run(["patch", "--binary", "f"], input=text, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "f").read_bytes() == new.encode()


def test_coloured_diff_has_the_same_text() -> None:
    diff = emit(photos()).diff
    assert coloured(diff).plain == diff


def test_patched_local_modules() -> None:
    files = contents(helper_plan())
    assert list(files)[2] == "train_split/pkg/data.py"
    assert files["train_trainer.py"].startswith(
        '"""Doc."""\n\nimport splitter_runtime\n\nsplitter_runtime.program(\n'
        '    "train_worker.py",\n    digest="sha256:52b0c4e1",\n    script="train.py",\n'
        '    modules={"pkg.data": "train_split/pkg/data.py"},\n)\n\nimport torch\n'
    )
    assert files["train_split/pkg/data.py"] == (
        "import os\n\nfrom torch.utils.data import DataLoader\n\nimport splitter_runtime\n\n\ndef loaders(path):\n"
        '    return splitter_runtime.DataLoader(splitter_runtime.RemoteDataset("train", {"path": path}), 4)\n'
    )
    assert "splitter_runtime.program" not in files["train_split/pkg/data.py"]
    diff = emit(helper_plan()).diff
    assert "--- pkg/data.py\n+++ train_split/pkg/data.py\n" in diff


def test_another_output_folder() -> None:
    files = contents(photos(), "../code")
    assert files["train_trainer.py"].startswith('"""Train on a folder of images."""\n\nimport splitter_runtime\n')
    assert 'script="../code/train.py"' in files["train_trainer.py"]
    assert 'os.path.join(os.path.dirname(__file__), "../code/train.py")' in files["train_worker.py"]
    assert 'script="train.py"' in files["train_worker.py"], "paths of lines are relative to the script's folder"
    assert "[train.py:23](../code/train.py#L23)" in files["train_split.md"]
    assert json.loads(files["train_split.json"])["script"] == "train.py"


def test_plan_as_json() -> None:
    found = Diagnostic("S401", photos().feeds[0].loader, (("what", "os.listdir(args.data)"),))
    nowhere = Diagnostic("S401", None, (("what", "glob"),))
    value = json.loads(contents(photos(diagnostics=(found, nowhere), needs=("data.py",)))["train_split.json"])
    assert value == {
        "version": 1,
        "script": "train.py",
        "digest": "sha256:52b0c4e1",
        "needs": ["data.py"],
        "feeds": [
            {
                "name": "train",
                "loader": {"path": "train.py", "line": 23, "column": 20},
                "origin": {"path": "train.py", "line": 18, "column": 21},
                "role": "train",
                "status": "split",
                "code": None,
                "why": [],
                "dataset": "moved",
                "stateless": True,
                "draws": [],
                "environment": ["args.data", "args.size"],
                "streams": "args.workers",
                "crossing": None,
                "uncut": None,
            }
        ],
        "profile": None,
        "diagnostics": [
            {
                "code": "S401",
                "severity": "warning",
                "path": "train.py",
                "line": 23,
                "column": 20,
                "message": "os.listdir(args.data) lists files in an order that another host may not have",
                "hint": "sort it: sorted(os.listdir(args.data))",
            },
            {
                "code": "S401",
                "severity": "warning",
                "path": None,
                "line": None,
                "column": None,
                "message": "glob lists files in an order that another host may not have",
                "hint": "sort it: sorted(glob)",
            },
        ],
    }


def test_report() -> None:
    assert contents(photos())["train_split.md"] == REPORT


REPORT = """\
# train.py, split

1 of 1 loaders split.

| loader | where | dataset | streams | stateless | draws |
|---|---|---|---|---|---|
| `train` | [train.py:23](train.py#L23) | moved | `args.workers` | yes | nothing |

```mermaid
flowchart LR
  subgraph worker
    dataset["datasets.ImageFolder<br>train.py:18-21"]
  end
  subgraph trainer
    sampler["train: sampler<br>train.py:23-25"]
    loop["training loop"]
  end
  sampler -->|"indices"| dataset
  dataset ==>|"batches"| loop
```

## What moved

- `train`: [train.py:16](train.py#L16), [train.py:18-21](train.py#L18-L21), to train_worker.py. \
Sent when the loader opens: `args.data`, `args.size`.

## What stayed, and why

| where | why |
|---|---|
| [train.py:26](train.py#L26) `for x in train_loader` | the loop stays |
| shuffling | samplers always stay with the trainer |

## What was checked

- Text: with its edits taken back train_trainer.py is train.py again, character for character; both programs parse.
- Digest: `sha256:52b0c4e1`, of train.py and the local modules that it imports. Trainer and workers compare it when they connect; \
`splitter check train.py` compares these files with the script.
- `train`: what runs on the worker draws no random numbers; it keeps no state from batch to batch.
- Refused: nothing.
- Not run yet: `splitter verify train.py -- ARGS` runs script and split side by side and compares batches and random-number \
generators, bit for bit.

## Run it

    python train_worker.py --listen 0.0.0.0:7077 --token-file token                              # on each CPU host
    SPLITTER_WORKERS=cpu1:7077,cpu2:7077 SPLITTER_TOKEN_FILE=token python train_trainer.py ARGS  # on the GPU host
    python train_trainer.py ARGS                                                                 # all on one machine

After a change of train.py, run `splitter transform train.py` again.

## Go back

Run train.py: it is as it was. train_worker.py, train_trainer.py, train_split.md and train_split.json can be deleted.

Written by splitter 0.1.0.
"""


def test_report_of_a_dataset_that_is_sent() -> None:
    moved = photos()
    feed = replace(moved.feeds[0], residence="sent", stateless=None, draws=("torch",))
    loaders = (replace(moved.loaders[0], send=("dataset", "collate_fn")), *moved.loaders[1:])
    builder = Builder("loader", "train", "train_loader", (), (), (), accepts=("Photos", "torchvision.*"))
    text = contents(photos(feeds=(feed,), loaders=loaders, handles=(), worker=WorkerModule(builders=(builder,))))["train_split.md"]
    assert SENT in text
    assert "draws from torch, with the seeds of the script's own; it may keep state" in text
    assert "the worker accepts `Photos`, `torchvision.*` and what packages" in text


SENT = """\
flowchart LR
  subgraph worker
    copy["train: a copy for each iterator<br>with collate_fn"]
  end
  subgraph trainer
    dataset["datasets.ImageFolder<br>train.py:18-21"]
    sampler["train: sampler<br>train.py:23-25"]
    loop["training loop"]
  end
  dataset -->|"sent with each iterator"| copy
  sampler -->|"indices"| copy
  copy ==>|"batches"| loop
"""


def test_report_of_what_is_left() -> None:
    split = photos().feeds[0]
    left = Feed("val", split.loader, None, "eval", "left", "S302", ("x.cuda()",))
    found = Diagnostic("S302", split.loader, (("what", "x | y"),))
    warning = Diagnostic("S401", split.loader, (("what", "os.listdir"),))
    text = contents(photos(feeds=(split, left), diagnostics=(found, warning), needs=("data.py",)))["train_split.md"]
    assert "1 of 2 loaders split." in text
    assert "| `val` | [train.py:23](train.py#L23) | left: S302 | - | - | - |" in text
    assert (
        "| [train.py:23](train.py#L23) loader `val` | S302: the dataset or collate function uses a device: x \\| y. "
        "To split it: keep the data on the CPU there and move the batch in the training loop |" in text
    )
    assert "\n- [train.py:23](train.py#L23) S401: os.listdir lists files" in text
    assert "copy them with it: `data.py`." in text


def test_generated_programs_are_what_python_reads(tmp_path: Path) -> None:
    for made in (photos(), helper_plan()):
        for name, text in contents(made).items():
            if name.endswith(".py"):
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                subprocess.run([sys.executable, "-m", "py_compile", str(path)], check=True)
