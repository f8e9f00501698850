"""Random training programs: split, each prints what the script prints, or it is refused with a code.

What they print are digests of all batches, the states of all generators, and losses. `tools/programs.py` compares many more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from programs.compose import TABLES, Program, draw, text
from programs.judge import FAULTS, Verdict, judge, shrunk
from programs.nursery import Nursery

from splitter.diagnostics import CODES

PARTS = 4
PROGRAMS = 200


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


@st.composite
def programs(draw_one: st.DrawFn) -> Program:
    def choose(table: str, options: Sequence[str]) -> str:
        return draw_one(st.sampled_from(options))

    return draw(choose)


@pytest.mark.parametrize("part", range(PARTS))
def test_split_prints_what_the_script_prints(part: int, nursery: Nursery, tmp_path: Path) -> None:
    seen: dict[str, Verdict] = {}

    def verdict(program: Program) -> Verdict:
        script = text(program)
        if script not in seen:
            folder = tmp_path / str(len(seen))
            folder.mkdir()
            seen[script] = judge(script, folder, nursery)
        return seen[script]

    # No shrinking by hypothesis, which doesn't know which idioms are plain: `shrunk` asks for far fewer programs.
    @seed(part)
    @settings(
        max_examples=PROGRAMS // PARTS, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(programs())
    def each(program: Program) -> None:
        found = verdict(program)
        assert found.kind not in FAULTS, describe(shrunk(program, lambda plainer: verdict(plainer).kind == found.kind))
        assert found.kind == "identical" or (found.codes and set(found.codes) <= CODES.keys()), text(program)

    def describe(program: Program) -> str:
        return f"{dict(program)}\n{text(program)}\n{verdict(program).said}"

    each()
    kinds = Counter(found.kind for found in seen.values())
    assert kinds["identical"] > kinds["refused"], "too many programs are refused to say much"


def test_every_idiom_gives_python() -> None:
    for table, idioms in TABLES.items():
        for idiom in idioms:
            program = draw(lambda name, options, table=table, idiom=idiom: idiom if name == table and idiom in options else options[0])
            compile(text(program), f"{table} {idiom}", "exec")
