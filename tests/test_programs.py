"""Random training programs: split, each prints what the script prints, or it is refused with a code.

What they print are digests of all batches, the states of all generators, and losses. `tools/programs.py` compares many more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from programs.compose import TABLES, Program, draw, text
from programs.judge import FAULTS, Verdict, judge, shrunk
from programs.nursery import Nurseries

from splitter.diagnostics import CODES

PARTS = 4
PROGRAMS = 120


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nurseries]:
    with Nurseries() as made:
        yield made


@st.composite
def programs(draw_one: st.DrawFn) -> Program:
    def choose(table: str, options: Sequence[str]) -> str:
        return draw_one(st.sampled_from(options))

    return draw(choose)


@pytest.mark.parametrize("part", range(PARTS))
def test_split_prints_what_the_script_prints(part: int, nursery: Nurseries, tmp_path: Path) -> None:
    seen: dict[str, Verdict] = {}
    faults: list[Program] = []

    def verdict(program: Program) -> Verdict:
        script = text(program)
        if script not in seen:
            folder = tmp_path / str(len(seen))
            folder.mkdir()
            seen[script] = judge(script, folder, nursery)
        return seen[script]

    @seed(part)
    @settings(
        max_examples=PROGRAMS // PARTS, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(programs())
    def each(program: Program) -> None:
        found = verdict(program)
        assert set(found.codes) <= CODES.keys(), text(program)
        if found.kind in FAULTS:
            faults.append(program)

    each()
    kinds = Counter(found.kind for found in seen.values())
    assert not faults, report(faults, verdict)
    assert kinds["identical"] > kinds["refused"], "too many programs are refused to say much"


def report(faults: list[Program], verdict: Callable[[Program], Verdict]) -> str:
    """The choices of all programs with faults, and the first of them made plain."""
    kind = verdict(faults[0]).kind
    plain = shrunk(faults[0], lambda plainer: verdict(plainer).kind == kind)
    lines = [f"{verdict(program).kind}: {list(program.values())}" for program in faults]
    return "\n".join([*lines, f"the first, made plain, is {list(plain.values())}:", "", text(plain), verdict(plain).said])


def test_every_idiom_gives_python() -> None:
    for table, idioms in TABLES.items():
        for idiom in idioms:
            program = draw(lambda name, options, table=table, idiom=idiom: idiom if name == table and idiom in options else options[0])
            compile(text(program), f"{table} {idiom}", "exec")
