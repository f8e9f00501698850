"""The benchmarks' own arithmetic, and the pieces that run programs."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

TOOLS = Path(__file__).resolve().parent.parent / "tools"
sys.path.insert(0, str(TOOLS))

import bench_experiments as experiments  # noqa: E402
import bench_memory as memory  # noqa: E402
import bench_table as table  # noqa: E402
from bench_rounds import Complaints, measure  # noqa: E402
from bench_table import Compare, Row  # noqa: E402
from command import CommandError, Finished, kill_group, run_command, server, start  # noqa: E402

from splitter.compile import compile_script  # noqa: E402


def row(compare: Compare, target: float | None = None, metric: str = "GB/s") -> Row:
    return Row("key", "what", "torch", "torch DataLoader", metric, compare, target)


def rounds(*pairs: tuple[float, float], metric: str = "GB/s") -> list[dict[str, dict[str, float]]]:
    return [{"split": {metric: split}, "torch": {metric: other}} for split, other in pairs]


def test_derive() -> None:
    found = {"first": 103.5, "ready": 1.0, "batches": 10, "rows": 640, "bytes": 4e9, "seconds": 2.0, "cpu": 6.0}
    assert table.derive(found, 100.0) == {"first": 2.5, "batches/s": 5.0, "images/s": 320.0, "GB/s": 2.0, "CPU s/GB": 1.5}
    assert table.derive({"later": 0.25}, 100.0) == {"later": 0.25}
    assert table.derive({"bytes": 0.0, "seconds": 0.0, "cpu": 1.0}, 0.0) == {}


@pytest.mark.parametrize(
    ("compare", "target", "result", "met"),
    [
        (Compare.RATE, 2.0, 2.0, True),
        (Compare.RATE, 2.1, 2.0, False),
        (Compare.COST, 2.0, 2.0, True),
        (Compare.COST, 1.3, 2.0, False),
        (Compare.TIMES_SOONER, 0.5, 0.5, True),
        (Compare.TIMES_SOONER, 2.0, 0.5, False),
        (Compare.LATER, 2.0, 2.0, True),
        (Compare.LATER, 0.3, 2.0, False),
        (Compare.LATER, None, 2.0, None),
    ],
)
def test_result_and_target(compare: Compare, target: float | None, result: float, met: bool | None) -> None:
    done = table.outcome(row(compare, target), rounds((4.0, 2.0)))
    assert done is not None
    assert (done.result, done.met) == (result, met)


def test_result_is_the_median_of_ratios() -> None:
    done = table.outcome(row(Compare.RATE), rounds((1.0, 1.0), (9.0, 3.0), (4.0, 2.0)))
    assert done is not None
    assert (done.split, done.other, done.results) == (4.0, 2.0, (1.0, 2.0, 3.0))
    assert done.result == 2.0  # not 4.0 / 2.0 by chance alone: the median of the rounds' own ratios


def test_rounds_that_lack_a_contender_do_not_count() -> None:
    lacking = [{"split": {"GB/s": 5.0}}, {"torch": {"GB/s": 5.0}}, {}]
    assert table.outcome(row(Compare.RATE), lacking) is None
    done = table.outcome(row(Compare.RATE), [*lacking, *rounds((3.0, 2.0))])
    assert done is not None
    assert done.results == (1.5,)


def test_markdown() -> None:
    lines = [
        table.outcome(row(Compare.RATE, 2.5), rounds((2.0, 1.0), (3.0, 1.0), (2.6, 1.0))),
        table.outcome(row(Compare.LATER, 0.3, "first"), rounds((2.5, 2.0), metric="first")),
        table.outcome(row(Compare.COST, None, "peak"), rounds((1500.0, 2000.0), metric="peak")),
    ]
    text = table.markdown_table([line for line in lines if line is not None])
    assert text.splitlines() == [
        "| what | against | split | other | result | spread | target |",
        "|---|---|---:|---:|---:|---:|---:|",
        "| what | torch DataLoader | 2.60 GB/s | 1.00 GB/s | 2.60 | 2.00 to 3.00 | ≥ 2.5 |",
        "| what | torch DataLoader | 2.50 s | 2.00 s | +0.50 s | +0.50 s to +0.50 s | ≤ 0.3 s, missed |",
        "| what | torch DataLoader | 1,500 MiB | 2,000 MiB | 0.75 | 0.75 to 0.75 |  |",
    ]


def test_values_have_units() -> None:
    assert table.shown_value("later", 0.0123) == "12 ms"
    assert table.shown_value("batches/s", 29_900.4) == "29,900 batches/s"
    assert table.shown_value("images/s", 15.52) == "15.5 images/s"


def test_every_row_has_its_contender() -> None:
    for experiment in experiments.EVERYTHING:
        names = [contender.name for contender in experiment.contenders]
        assert names[0] == "split"
        assert len(set(names)) == len(names)
        assert {row.other for row in experiment.rows} == set(names[1:])
    keys = [{row.key for row in experiment.rows} for experiment in experiments.EVERYTHING]
    assert sum(map(len, keys)) == len(experiments.KEYS)


@pytest.mark.parametrize("script", sorted({experiment.script for experiment in experiments.EVERYTHING}))
def test_measured_scripts_are_split(script: str) -> None:
    plan = compile_script(TOOLS / "measured" / f"{script}.py")
    assert [(feed.status, feed.code) for feed in plan.feeds] == [("split", None)]


def test_descendants() -> None:
    parents = {1: 0, 10: 1, 11: 10, 12: 11, 13: 10, 20: 1, 21: 20}
    assert memory.descendants(parents, 10) == {10, 11, 12, 13}
    assert memory.descendants(parents, 21) == {21}
    assert memory.descendants({5: 5}, 5) == {5}


def test_proc_is_read() -> None:
    assert memory.parent_of("77 (a (b) c) S 12 77 77 0 -1") == 12
    assert memory.pss_kib("55f0-7ffe ---p 0 00:00 0 [rollup]\nRss:  900 kB\nPss:  321 kB\nPss_Dirty: 5 kB\n") == 321
    assert memory.read_parents()[os.getpid()] == os.getppid()
    assert memory.tree_mib(os.getpid()) > 1


def test_a_program_without_the_epoch_is_one_line(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "print('epoch 1')"]
    with pytest.raises(CommandError, match="too short to measure its memory in epoch 3"):
        memory.measure_memory(argv, folder=tmp_path, seconds=60, env=os.environ, epoch=3)
    argv = [sys.executable, "-c", "raise SystemExit('no space')"]
    with pytest.raises(CommandError, match="ended with status 1: no space"):
        memory.measure_memory(argv, folder=tmp_path, seconds=60, env=os.environ, epoch=3)


@pytest.mark.parametrize("stdout", ["", "hello\n", '["a"]\n', '{"a": "b"}\n'])
def test_no_numbers_is_one_line(stdout: str) -> None:
    with pytest.raises(CommandError, match=r"a\.py printed no line of JSON"):
        experiments.parse_numbers("a.py", Finished(stdout, ""))


def test_numbers_are_the_last_line() -> None:
    assert experiments.parse_numbers("a.py", Finished('hello\n{"a": 1}\n', "")) == {"a": 1.0}


def test_what_a_program_started_ends_with_it(tmp_path: Path) -> None:
    child = "print('here', flush=True); import time; time.sleep(600)"
    argv = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"]
    process = start(argv, folder=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    kill_group(process)
    assert process.stdout.read() == ""  # the child held it open


def test_a_program_that_takes_too_long_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="had not ended after 1 seconds"):
        run_command([sys.executable, "-c", "import time; time.sleep(600)"], folder=tmp_path, seconds=1)


def contender(name: str, *results: float) -> experiments.Contender:
    """One that gives these results, and fails when there are no more."""
    waiting = iter(results)

    def run(settings: experiments.Bench) -> dict[str, float]:
        for result in waiting:
            return {"GB/s": result}
        raise CommandError(f"{name} crashed")

    return experiments.Contender(name, run)


def test_a_contender_that_fails_is_left_out(tmp_path: Path) -> None:
    said = io.StringIO()
    console = Console(file=said, width=40)
    complaints = Complaints(console)
    found = experiments.Experiment("peers", "memory", (contender("split", 1, 2, 3), contender("ray", 1), contender("rpc", 4, 5, 6)), ())
    done = measure(experiments.Bench(tmp_path, quick=True), found, 3, console, complaints)
    assert [{name: numbers["GB/s"] for name, numbers in each.items()} for each in done] == [
        {"split": 1, "ray": 1, "rpc": 4},
        {"split": 2, "rpc": 5},
        {"split": 3, "rpc": 6},
    ]
    assert said.getvalue() == "bench: peers: ray left out: ray crashed\n"


def test_without_the_split_nothing_is_compared(tmp_path: Path) -> None:
    console = Console(file=io.StringIO())
    complaints = Complaints(console)
    found = experiments.Experiment("rows", "memory", (contender("split"), contender("torch", 1, 2)), ())
    assert measure(experiments.Bench(tmp_path, quick=True), found, 2, console, complaints) == [{"torch": {"GB/s": 1}}]
    assert complaints.needed


def test_bare_stream(tmp_path: Path) -> None:
    program = [sys.executable, str(TOOLS / "bare_stream.py"), "--message", "1000"]
    with server([*program, "serve"], folder=tmp_path, seconds=60) as address:
        ended = run_command([*program, "read", address, "--bytes", "10500"], folder=tmp_path, seconds=60)
    assert experiments.parse_numbers("bare_stream.py", ended)["bytes"] == 11_000


def test_a_server_that_ends_is_one_line(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "raise SystemExit('no such address')"]
    with pytest.raises(CommandError, match="ended with status 1: no such address"), server(argv, folder=tmp_path, seconds=60):
        pass
