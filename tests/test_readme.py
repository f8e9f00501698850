"""README.md and the code agree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted([*ROOT.glob("splitter/*.py"), *ROOT.glob("runtime/splitter_runtime/*.py")])


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_generated_parts_are_current() -> None:
    tool = ROOT / "tools" / "readme_tables.py"
    ended = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_every_environment_variable_has_its_row() -> None:
    read = {name for path in SOURCES for name in re.findall(r"\bSPLITTER_[A-Z_]+[A-Z]\b", path.read_text(encoding="utf-8"))}
    listed = set(re.findall(r"^\| `(SPLITTER_[A-Z_]+)` \|", readme(), re.MULTILINE))
    assert listed == read


def test_commands_are_make_targets() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:`|^    )make (\w+)", readme(), re.MULTILINE))
    assert named
    assert named <= targets
