"""The standard input of a script whose samples are run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from splitter.trace_input import terminal, unanswered

ASKING = """
import os, sys
print(*os.popen("stty size").read().split(), sys.stdin.isatty())
for _ in range(3):
    try:
        input()
    except EOFError:
        print("nobody")
"""


@pytest.mark.parametrize(("size", "said"), [((33, 111), "33 111 True"), (None, "False")])
def test_a_script_that_asks(size: tuple[int, int] | None, said: str) -> None:
    given = unanswered(size)
    ended = subprocess.run([sys.executable, "-c", ASKING], stdin=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    os.close(given)
    assert ended.stdout.decode().split("\n") == [said, "nobody", "nobody", "nobody", ""]


def test_no_terminal() -> None:
    code = "from splitter.trace_input import terminal; print(terminal())"
    ended = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60)
    assert ended.stdout == b"None\n"
    assert terminal() is None or len(terminal() or ()) == 2
