"""Modules that these tests take from other folders."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE.parent, HERE.parents[2] / "tools"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
