"""Runs Python programs in processes forked from one that has imported torch, or splitter (see `programs/nursery`).

What a test says of how Python itself starts needs a new one: `Scratch.run_anew`.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

NURSERY = Path(__file__).parent / "programs" / "nursery.py"


@functools.cache
def nurseries() -> Any:
    """Those of this test process. By the file: another module may be called `programs` here."""
    spec = importlib.util.spec_from_file_location("programs_nursery", NURSERY)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Nurseries()
