"""The picture of a cut and the table beside it: what they say, and that no name of a user's breaks them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from graphs import AUDIO, IMAGES, NOISE, TEXT, graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from splitter.cut import cut
from splitter.graph import Graph
from splitter.mermaid import HEAD, label, mermaid, size, table

IMAGES_DRAWN = """\
flowchart LR
  subgraph worker
    w0["ImageFolder<br>train.py:1 · 3 ms"]
    w1["RandomResizedCrop<br>train.py:2 · 2.1 ms · draws"]
    w2["RandomHorizontalFlip<br>train.py:3 · 0.02 ms · draws"]
    w3["ToTensor, first half<br>train.py:4 · 0.12 ms"]
    w4["mean<br>train.py:6 · 0.03 ms"]
  end
  subgraph trainer
    t3["ToTensor, second half<br>train.py:4 · 0.05 ms"]
    t5["Normalize<br>train.py:7 · 0.09 ms"]
    t6["collate<br>train.py:8"]
    t7["model<br>train.py:9"]
    loop["training loop"]
  end
  w0 -->|"PIL RGB 375x347, 391 KB"| w1
  w1 -->|"PIL RGB 224x224, 151 KB"| w2
  w2 -->|"PIL RGB 224x224, 151 KB"| w3
  w3 ==>|"uint8 3x224x224, 151 KB"| t3
  t3 -->|"float32 3x224x224, 602 KB"| t5
  t5 -->|"float32 3x224x224, 602 KB"| t6
  t6 -->|"float32 3x224x224, 602 KB"| t7
  t6 -->|"float32 3x224x224, 602 KB"| loop
"""


def test_images() -> None:
    assert mermaid(IMAGES, cut(IMAGES)) == IMAGES_DRAWN
    assert table(IMAGES, cut(IMAGES)) == (
        ("`bytes`", "`uint8 3x224x224`", "-", "151 KB", "-", "140"),
        ("`batch`", "`float32 3x224x224`", "602 KB", "-", "-", "-"),
        ("all", "", "602 KB", "151 KB", "-", "140"),
    )


def test_text() -> None:
    assert '  w3 ==>|"int64 256, 2 KB"| loop\n' in mermaid(TEXT, cut(TEXT))
    assert table(TEXT, cut(TEXT)) == (
        ("`lines`", "`list of str`", "2 KB", "-", "352", "-"),
        ("`padded`", "`int64 256`", "-", "2 KB", "-", "700"),
        ("all", "", "2 KB", "2 KB", "352", "700"),
    )


@pytest.mark.parametrize("unmoved", [AUDIO, NOISE])
def test_a_cut_that_moves_nothing(unmoved: Graph) -> None:
    drawn = mermaid(unmoved, cut(unmoved), loop="evaluation loop")
    assert '  subgraph trainer\n    loop["evaluation loop"]\n  end\n' in drawn
    assert drawn.count("==>") == 1
    assert all(row[2] == row[3] for row in table(unmoved, cut(unmoved)))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 KB"),
        (150_528, "151 KB"),
        (999_499, "999 KB"),
        (999_500, "1.0 MB"),
        (1_607_208, "1.6 MB"),
    ],
)
def test_size(number: int, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ImageFolder: read, decode", "ImageFolder: read, decode"),
        ('Lambda(x["a"] | 1)', "Lambda#40;x#91;#34;a#34;#93; #124; 1#41;"),
        ("a<br>\n`b`", "a#60;br#62; #96;b#96;"),
        ("style x:#fff;", "style x#58;#35;fff#59;"),
        ("1. crop", "#49;. crop"),
        ("- crop", "#45; crop"),
        ("%%{init: {}}%%", "#37;#37;#123;init: #123;#125;#125;#37;#37;"),
        ("Größe\x00\u202e", "Größe"),
        ("x" * 99, "x" * 57 + "..."),
    ],
)
def test_label(text: str, shown: str) -> None:
    assert label(text) == shown


NODE = re.compile(r'    (\w+)\["([^"]+)"\]')
EDGE = re.compile(r'  (\w+) (-->|==>)\|"([^"]+)"\| (\w+)')


@settings(max_examples=100, deadline=None)
@given(graphs(), st.text())
def test_no_text_of_a_user_breaks_the_picture(of: Graph, name: str) -> None:
    """Every line is a node, an edge, or one of four fixed ones; every edge has its two nodes; thick ones go from worker to trainer."""
    of = replace(of, steps=tuple(replace(step, name=name) for step in of.steps))
    try:
        found = cut(of)
    except ValueError:
        return
    lines = mermaid(of, found, loop=name).splitlines()
    nodes = [match for line in lines if (match := NODE.fullmatch(line))]
    edges = [match for line in lines if (match := EDGE.fullmatch(line))]
    assert len(nodes) + len(edges) + 5 == len(lines)
    known = {node[1]: node[1][0] if node[1] != "loop" else "t" for node in nodes}
    assert len(known) == len(nodes)
    for edge in edges:
        ends = known[edge[1]] + known[edge[4]]
        assert (edge[2], ends) in {("-->", "ww"), ("-->", "tt"), ("==>", "wt")}
    assert not set("`<>|#").intersection(re.sub(r"#\d+;|<br>", "", "".join(match[2] for match in nodes)))
    *rows, sums = table(of, found)
    assert len({name for name, *_ in rows}) == len(rows)
    assert sum(row[3] != "-" for row in rows) == len(found.crossing)
    assert sums[3] == size(found.bytes)


def chain(length: int, floats: int) -> Graph:
    """`length` transforms, the last `floats` of which pay on the trainer."""
    rows = [("read: read", "", "v0", "reads", 1.0)]
    rows += [
        (f"step {i}: sample", f"v{i - 1}", f"v{i}", "pointwise" if i > length - floats else "random", 1.0) for i in range(1, length + 1)
    ]
    sizes = {f"v{i}": (1_000_000 if i > length - floats else 1000, "x") for i in range(length + 1)}
    return graph(rows, sizes, f"v{length}")


@pytest.mark.parametrize(("length", "floats", "folded"), [(38, 3, []), (39, 3, [2]), (100, 3, [63]), (100, 97, [63]), (100, 60, [23, 41])])
def test_long_tails_are_folded(length: int, floats: int, folded: list[int]) -> None:
    of = chain(length, floats)
    drawn = mermaid(of, cut(of))
    nodes = [match for line in drawn.splitlines() if (match := NODE.fullmatch(line))]
    assert len(nodes) == min(length + 2, 40)
    assert re.findall(r"\.\.\. (\d+) more steps", drawn) == [str(number) for number in folded]
    assert len(EDGE.findall(drawn)) == len(nodes) - 1
    assert drawn.count("==>") == 1


def test_many_values_between_two_steps_are_one_edge() -> None:
    names = [f"v{i}" for i in range(4)]
    of = graph([("read: read", "", " ".join(names), "reads", 1.0)], {name: (1000, "x") for name in names}, " ".join(names))
    assert EDGE.findall(mermaid(of, cut(of))) == [("w0", "==>", "4 values, 4 KB", "loop")]


def test_cells_hold_what_would_end_them() -> None:
    of = graph([("read: read", "", "a|b`c", "reads", 1.0)], {"a|b`c": (1000, "x\n`` y")}, "a|b`c")
    assert table(of, cut(of))[0][:2] == ("`` a\\|b`c ``", "``` x `` y ```")
    assert len(HEAD) == len(table(of, cut(of))[0])
