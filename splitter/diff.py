"""What changed in the script, as a unified diff.

--- train.py
+++ train_trainer.py
@@ -8,6 +8,10 @@
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text


def unified(old_name: str, old: str, new_name: str, new: str) -> str:
    """The diff of two texts, without times, so that it is the same each time; empty when they are equal."""
    parts = []
    for line in difflib.unified_diff(_lines(old), _lines(new), old_name, new_name):
        parts.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(parts)


def _lines(text: str) -> list[str]:
    """Lines as `patch` counts them: only a line feed ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def coloured(diff: str) -> Text:
    """The diff for a terminal."""
    from rich.text import Text

    styles = {"---": "bold", "+++": "bold", "@@": "cyan", "+": "green", "-": "red"}
    result = Text()
    for line in _lines(diff):
        style = next((style for start, style in styles.items() if line.startswith(start)), "")
        result.append(line, style)
    return result
