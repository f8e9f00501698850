"""The start of a model's forward on the worker: every folder of tests/prefix is a case, `refuse_*` those where it must stay.

`expected/` holds the worker program and what changes in the script; `pytest --update` rewrites it. The place of a refusal has a comment:
`# expect: S421`.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from scratch import Scratch, files_below

from splitter.compile import Weighing, compile_script, weigh
from splitter.diagnostics import severity

CASES = Path(__file__).parent / "prefix"
MOVED = sorted(folder.name for folder in CASES.iterdir() if not folder.name.startswith("refuse_"))
REFUSED = sorted(folder.name for folder in CASES.iterdir() if folder.name.startswith("refuse_"))
MARK = re.compile(r"# expect: (S\d{3})$", re.MULTILINE)
OPTIONS = ("--model-prefix", "--samples", "8")


def copied(scratch: Scratch, case: str, name: str) -> Path:
    return Path(shutil.copytree(CASES / case, scratch.folder / name, ignore=shutil.ignore_patterns("expected", "__pycache__")))


@pytest.mark.parametrize("case", MOVED)
def test_generated_files(case: str, scratch: Scratch, update: bool) -> None:
    folder = copied(scratch, case, "split")
    ended = scratch.splitter("transform", "train.py", *OPTIONS, "--diff", folder=folder)
    assert ended.returncode == 0, ended.stderr
    texts = {"train_worker.py": (folder / "train_worker.py").read_text(), "train_trainer.diff": ended.stdout}
    expected = CASES / case / "expected"
    if update:
        expected.mkdir(exist_ok=True)
        for name, text in texts.items():
            (expected / name).write_text(text)
    assert texts == {name: content.decode() for name, content in files_below(expected).items()}

    plan = json.loads((folder / "train_split.json").read_text())
    moved = plan["model_prefix"]
    assert all(feed["bytes_per_sample"] > 0 for feed in moved["feeds"].values())
    report = (folder / "train_split.md").read_text()
    assert f"The start of `{moved['model']}.forward`" in report

    before = files_below(folder)
    ended = scratch.splitter("check", "train.py", folder=folder)
    assert ended.returncode == 0, ended.stdout
    ended = scratch.splitter("transform", "train.py", *OPTIONS, folder=folder)
    assert ended.returncode == 0, ended.stderr
    assert files_below(folder) == before


@pytest.mark.parametrize("case", MOVED)
def test_same_output_as_the_script(case: str, scratch: Scratch) -> None:
    script, split = copied(scratch, case, "script"), copied(scratch, case, "split")
    plain = scratch.run([sys.executable, "train.py"], script)
    assert plain.returncode == 0, plain.stderr
    assert scratch.splitter("transform", "train.py", *OPTIONS, folder=split).returncode == 0
    trained = scratch.run([sys.executable, "train_trainer.py"], split)
    assert (trained.stdout, trained.returncode) == (plain.stdout, plain.returncode), trained.stderr
    scratch.assert_nothing_left()


@pytest.mark.parametrize("case", MOVED)
def test_verify(case: str, scratch: Scratch) -> None:
    """All of a batch but the places that hold something else now, the generators, and what is printed."""
    folder = copied(scratch, case, "script")
    ended = scratch.splitter("verify", "train.py", *OPTIONS, "--epochs", "9", "--batches", "99", folder=folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "runs on the worker" in ended.stderr
    scratch.assert_nothing_left()


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, tmp_path: Path) -> None:
    """The loaders are split all the same, and a note says why forward stays as it is."""
    script = CASES / case / "train.py"
    plan = compile_script(script, model_prefix=True)
    if case in ("refuse_floats", "refuse_finish"):  # seen when samples run
        assert plan.prefix is not None
        plan = weigh(plan, script, (), Weighing(samples=8, price=1000), tmp_path, lambda *_: None)
    text = script.read_text()
    wanted = [(match[1], text.count("\n", 0, match.start()) + 1) for match in MARK.finditer(text)]
    assert [(found.code, found.span and found.span.line) for found in plan.diagnostics] == wanted
    assert {severity(found) for found in plan.diagnostics} == {"note"}
    assert [feed.status for feed in plan.feeds] == ["split"]
    assert plan.prefix is None and not plan.removals and not plan.renames


def test_a_refusal_is_told(scratch: Scratch) -> None:
    folder = copied(scratch, "refuse_floats", "script")
    ended = scratch.splitter("transform", "train.py", *OPTIONS, "--diff", folder=folder)
    assert ended.returncode == 0, ended.stderr
    assert "S425 what forward does from here on stays in the model: `log1p` computes with floating-point numbers" in ended.stderr
    assert "forward" not in ended.stdout
    assert json.loads((folder / "train_split.json").read_text())["model_prefix"] is None
    assert "S425" in (folder / "train_split.md").read_text()
    assert scratch.splitter("check", "train.py", folder=folder).returncode == 0
    ended = scratch.splitter("transform", "train.py", "--model-prefix", folder=folder)  # and --static
    assert ended.returncode == 2
    assert "--model-prefix is checked on samples" in ended.stderr
