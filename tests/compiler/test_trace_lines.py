"""Statements of functions, by line, and what they read and give."""

from __future__ import annotations

import ast

import pytest

from splitter.trace_lines import Lines, pairs, parts_read, unzipped

FUNCTION = '''
def get(self, i):
    """A docstring."""
    path, label = self.items[i]
    with open(path) as file:
        text = file.read(
            100)
    if self.transform:
        text = self.transform(text)
    for word in text:
        label += len(word)
    sample["text"] = text
    random.shuffle(text)
    return text, label
'''


def lines(whole: frozenset[int] = frozenset()) -> Lines:
    return Lines(FUNCTION, ast.parse(FUNCTION).body[0], whole)


@pytest.mark.parametrize(
    ("line", "text", "reads", "gives", "changes"),
    [
        (4, "path, label = self.items[i]", ("self", "i"), ("path", "label"), ()),
        (5, "with open(path) as file:", ("open", "path"), ("file",), ()),
        (7, "text = file.read(", ("file",), ("text",), ()),
        (8, "if self.transform:", ("self",), (), ()),
        (9, "text = self.transform(text)", ("self", "text"), ("text",), ()),
        (11, "for word in text:", ("text", "len", "word", "label"), ("word", "label"), ("label",)),
        (12, 'sample["text"] = text', ("text", "sample"), ("sample",), ("sample",)),
        (13, "random.shuffle(text)", ("text", "random"), ("text", "random"), ("text", "random")),
        (14, "return text, label", ("text", "label"), (), ()),
    ],
)
def test_statements(line: int, text: str, reads: tuple[str, ...], gives: tuple[str, ...], changes: tuple[str, ...]) -> None:
    found = lines().by_line[line]
    assert (found.text, set(found.reads), set(found.gives), set(found.changes)) == (text, set(reads), set(gives), set(changes))


def test_compound_statements() -> None:
    assert lines().by_line[8].branches and lines().by_line[9].outer == 8
    whole = lines(frozenset({8}))
    assert whole.by_line[9] is whole.by_line[8] and not whole.by_line[8].branches


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("torch.stack([one['x'] for one in batch])", {"x"}),
        ("[one[1] for one in batch if one[2]]", {1, 2}),
        ("[y for x, y in batch]", {1}),
        ("[one for one in batch]", None),
        ("[one[0] for one in batch] + batch", None),
        ("[f(one) for one in batch]", None),
    ],
)
def test_parts_of_a_batch(expression: str, parts: set[object] | None) -> None:
    assert parts_read(ast.parse(expression, mode="eval").body, "batch") == parts


def test_parts_of_what_is_returned() -> None:
    expression = ast.parse("{'a': (x, f(y)), 'b': z}", mode="eval").body
    found = pairs(expression, {"a": (1, 2), "b": 3})
    assert [(ast.unparse(part), value) for part, value in found] == [("x", 1), ("f(y)", 2), ("z", 3)]
    assert [ast.unparse(part) for part, _ in pairs(expression, {"a": 1})] == ["{'a': (x, f(y)), 'b': z}"]


def test_unzipped() -> None:
    text = "def collate(batch):\n    xs, ys = zip(*batch)\n"
    statement = Lines(text, ast.parse(text).body[0], frozenset()).by_line[2]
    assert unzipped(statement, "ys") == ("batch", 1)
    assert unzipped(statement, "zs") is None
