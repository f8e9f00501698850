"""Findings and tables as people see them."""

from __future__ import annotations

import io

import pytest
from plans import Script, photos

from splitter.console import explained, findings, known_codes, rendered, table
from splitter.diagnostics import CODES
from splitter.ir import Diagnostic


def shown(script: Script, marked: str, folder: str = "", colour: bool = False) -> str:
    found = Diagnostic("S308", script.span(marked))
    return rendered(found, {script.file.path: script.file}, folder, colour=colour)


def test_place_message_line_carets_and_hint() -> None:
    script = Script("import os\nloader = DataLoader(d, in_order=False)\n")
    assert shown(script, "in_order=False") == (
        "train.py:2:24: S308 in_order=False: the order of this loader's batches depends on timing, so no split can keep it\n"
        "    2 | loader = DataLoader(d, in_order=False)\n"
        "      |                        ^^^^^^^^^^^^^^\n"
        "  hint: remove in_order=False\n"
    )


def test_place_names_the_folder_as_it_was_given() -> None:
    assert shown(Script("x = 1\n"), "x", "code").startswith("code/train.py:1:1: S308 ")


@pytest.mark.parametrize(
    ("line", "marked", "carets"),
    [
        ("\tx = f(a)", "f(a)", "        ^^^^"),
        ("a\tx = f(a)", "f(a)", "        ^^^^"),
        ("'日本' + f(a)", "f(a)", "         ^^^^"),
        ("'e\u0301' + f(a)", "f(a)", "      ^^^^"),
        ("'\x1b[31m' + f(a)", "f(a)", "             ^^^^"),
        ("f('日本')", "f('日本')", "^^^^^^^^^"),
        ("f(1,\n  2)", "f(1,\n  2)", "^^^^"),
    ],
)
def test_carets_stand_below_their_text(line: str, marked: str, carets: str) -> None:
    text = shown(Script(line + "\n"), marked).split("\n")
    assert text[2].removeprefix("      | ") == carets
    assert "\x1b" not in text[1]


def test_colours_add_nothing_else() -> None:
    script = Script("x = 1\n")
    text = shown(script, "x", colour=True)
    assert "\x1b[1;31mS308\x1b[0m" in text
    for code in ("\x1b[1;31m", "\x1b[1m", "\x1b[0m"):
        text = text.replace(code, "")
    assert text == shown(script, "x")


def test_a_finding_without_a_place_or_a_source() -> None:
    assert rendered(Diagnostic("S101", None, (("path", "a\nb.py"),)), {}) == ("S101 there is no file a\\nb.py\n  hint: check the path\n")
    assert rendered(Diagnostic("S308", Script("x").span("x")), {}).count("\n") == 2


def test_a_loader_that_is_left_is_always_explained() -> None:
    from dataclasses import replace

    feed = replace(photos().feeds[0], status="left", code="S302", why=("x.cuda()",))
    text = findings(photos(feeds=(feed,)), "")
    assert text.startswith("train.py:23:20: S302 the dataset or collate function uses a device: x.cuda()\n")


def test_table_of_loaders() -> None:
    stream = io.StringIO()
    table(photos(), "code", stream)
    lines = [line.split() for line in stream.getvalue().splitlines()]
    assert lines == [
        ["loader", "where", "result", "dataset", "streams", "sent", "why"],
        ["train", "code/train.py:23", "split", "moved", "args.workers", "args.data,", "args.size"],
    ]


def test_every_code_is_explained() -> None:
    assert set(CODES) < set(known_codes())
    for code in known_codes():
        text = explained(code)
        assert text is not None and text.startswith(code) and "hint: " in text
    assert explained("S999") is None
