"""Lines that finish batches, put into loops: in the block and behind the statement where they belong, whatever is around."""

from __future__ import annotations

import pytest

from splitter.emit_trainer import Edits, edit
from splitter.ir import SourceFile
from splitter.ir_cut import Insertion

LINE = "x = splitter_runtime.finish_on_device(x, loader, 0)"
MOVE = "for x in loader:\n    x = x.to(0)\n"
# The text, the line behind which the new one goes, its column, and what comes of the text.
CASES: dict[str, tuple[str, int, int, str]] = {
    "between": (MOVE + "    f(x)\n", 2, 4, MOVE + f"    {LINE}\n    f(x)\n"),
    "at the end of a loop": (MOVE + "g()\n", 2, 4, MOVE + f"    {LINE}\ng()\n"),
    "at the end of the file": (MOVE, 2, 4, MOVE + f"    {LINE}\n"),
    "without a line end": (MOVE.rstrip(), 2, 4, MOVE + f"    {LINE}"),
    "before a comment": (MOVE + "    # then\n    f(x)\n", 2, 4, MOVE + f"    {LINE}\n    # then\n    f(x)\n"),
    "before a blank line": (MOVE + "\n    f(x)\n", 2, 4, MOVE + f"    {LINE}\n\n    f(x)\n"),
    "before a last comment": (MOVE + "    # done\n\n\ng()\n", 2, 4, MOVE + f"    {LINE}\n    # done\n\n\ng()\n"),
    "behind a branch": (
        "for x in loader:\n    if a:\n        x = x.to(0)\n    f(x)\n",
        3,
        4,
        f"for x in loader:\n    if a:\n        x = x.to(0)\n    {LINE}\n    f(x)\n",
    ),
    "behind a branch with a comment": (
        "for x in loader:\n    if a:\n        x = x.to(0)\n        # there\n    f(x)\n",
        4,
        4,
        f"for x in loader:\n    if a:\n        x = x.to(0)\n        # there\n    {LINE}\n    f(x)\n",
    ),
    "behind two branches": (
        "for x in loader:\n    if a:\n        x = x.to(0)\n    else:\n        x = x.to(1)\n# end\n",
        5,
        4,
        f"for x in loader:\n    if a:\n        x = x.to(0)\n    else:\n        x = x.to(1)\n    {LINE}\n# end\n",
    ),
    "behind brackets": (
        "for x in loader:\n    x = x.to(\n        0,\n    )  # moved\n    f(x)\n",
        4,
        4,
        f"for x in loader:\n    x = x.to(\n        0,\n    )  # moved\n    {LINE}\n    f(x)\n",
    ),
    "tabs": (
        "def f():\n\tfor x in loader:\n\t\tx = x.to(0)\n\t\tg(x)\n",
        3,
        2,
        f"def f():\n\tfor x in loader:\n\t\tx = x.to(0)\n\t\t{LINE}\n\t\tg(x)\n",
    ),
    "other line ends": (MOVE.replace("\n", "\r\n") + "    f(x)\r\n", 2, 4, MOVE.replace("\n", "\r\n") + f"    {LINE}\r\n    f(x)\r\n"),
}


def edited(text: str, *lines: Insertion) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    made = edit(SourceFile("__main__", "train.py", f"import a{newline}{text}"), Edits(insertions=lines), None)
    return made.split("import splitter_runtime", 1)[1].lstrip("\r\n")


@pytest.mark.parametrize("case", CASES)
def test_one_line(case: str) -> None:
    text, after, column, expected = CASES[case]
    line = Insertion("__main__", after + 1, column, "x", "loader", (0,))
    assert edited(text, line) == expected


def test_several_lines_and_long_ones() -> None:
    place = 'batch["a rather long key of a batch"]'
    text = (
        f"while a:\n    for batch in loader:\n        y = 1\n        {place} = {place}.to(0)\n    for x in loader:\n        x = x.cuda()\n"
    )
    keys = ("a rather long key of a batch",)
    made = edited(text, Insertion("__main__", 5, 8, place, "loader", keys), Insertion("__main__", 7, 8, "x", "loader", ()))
    assert made == (
        f"while a:\n    for batch in loader:\n        y = 1\n        {place} = {place}.to(0)\n"
        f"        {place} = splitter_runtime.finish_on_device(\n            {place},\n            loader,\n"
        f'            "a rather long key of a batch",\n        )\n'
        "    for x in loader:\n        x = x.cuda()\n        x = splitter_runtime.finish_on_device(x, loader)\n"
    )
