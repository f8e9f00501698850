"""`--finish-on device` from the command line: what is said, what is written down, and what `check` makes of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from scratch import FIXTURES, Scratch

SCRIPT = (FIXTURES / "cut_device_shared" / "train.py").read_text(encoding="utf-8")
OPTIONS = ("--samples", "4", "--price", "1000")
# What takes the place of the loop's first statement, and what is said of it.
ELSEWHERE = {
    "images = images.float().to(where)": "train.py:31 `images = images.float().to(where)` uses the batch, which no statement of its own",
    "images = images.to(torch.float64)": "train.py:31 `images = images.to(torch.float64)` uses the batch, which no statement of its own",
}


def plan_of(folder: Path) -> dict[str, dict[str, object]]:
    """What train_split.json says of how each feed is finished."""
    plan = json.loads((folder / "train_split.json").read_bytes())
    return {feed["name"]: feed["crossing"]["finish"] for feed in plan["feeds"]}


def test_it_is_written_down_and_checked(scratch: Scratch) -> None:
    folder = scratch.copy("cut_device_shared")
    ended = scratch.splitter("transform", "train.py", *OPTIONS, "--finish-on", "device", folder=folder)
    assert ended.returncode == 0, ended.stderr
    why = "sqrt is not known to give the same bits on every device (train.py:12)"
    assert f"splitter: note: rooted: finished on the CPU: {why}\n" in ended.stderr
    assert plan_of(folder) == {
        "scaled": {"on": "device", "why": None, "lines": [{"path": "train.py", "after": 31}]},
        "rooted": {"on": "cpu", "why": why, "lines": []},
        "plain": None,
    }
    there = (folder / "train_trainer.py").read_text()
    assert 'finish_on="device"' in there and "finish_on_device(images, loader, 0)" in there
    report = (folder / "train_split.md").read_text()
    assert "done on whole batches where they are, behind [train.py:31](train.py#L31)" in report and f"not on the device: {why}" in report
    assert scratch.splitter("check", "train.py", folder=folder).stdout == "train.py: the generated files are current\n"

    # On the CPU, from the samples that were recorded before: other programs, which don't fit together with those.
    began = os.stat(folder / "train_split.json").st_mtime_ns
    assert scratch.splitter("transform", "train.py", *OPTIONS, folder=folder).returncode == 0
    here = (folder / "train_trainer.py").read_text()
    assert os.stat(folder / "train_split.json").st_mtime_ns > began and "finish_on" not in here and "finish=(" in here
    assert here.split("digest=")[1][:30] != there.split("digest=")[1][:30]
    assert plan_of(folder)["rooted"] == {"on": "cpu", "why": None, "lines": []}
    assert scratch.splitter("check", "train.py", folder=folder).stdout == "train.py: the generated files are current\n"


@pytest.mark.parametrize("statement", ELSEWHERE)
def test_it_says_why_not(scratch: Scratch, statement: str) -> None:
    folder = scratch.folder / "script"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT.replace("images = images.to(where)", statement), encoding="utf-8")
    shown = scratch.splitter("show", "train.py", "--after", "cut", *OPTIONS, "--finish-on", "device", folder=folder)
    assert (
        shown.returncode == 0
        and f"scaled: finished on the CPU: its batches can't be finished on a device: {ELSEWHERE[statement]}" in shown.stderr
    )


def test_options(scratch: Scratch) -> None:
    folder = scratch.copy("cut_device_shared")
    for command in ("transform", "verify"):
        ended = scratch.splitter(command, "--static", "train.py", "--finish-on", "device", folder=folder)
        assert ended.returncode == 2 and "--finish-on device is checked on samples, and --static runs none" in ended.stderr
        ended = scratch.splitter(command, "train.py", "--finish-on", "gpu", folder=folder)
        assert ended.returncode == 2 and "gpu" in ended.stderr
