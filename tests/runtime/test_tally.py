"""The line after an epoch: what it says, when it comes, and where it goes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import timeit

import pytest
from scratch import python_environment

from splitter_runtime.errors import ConfigError
from splitter_runtime.notices import threshold
from splitter_runtime.tally import Epoch, Pace, Tally, line

EPOCH = """
import logging, os, sys
from splitter_runtime.tally import Tally

def epoch(tally, batches=3):
    tally.begin()
    for _ in range(batches):
        tally.took("local", 1000, 0.0)
    tally.end()

"""
SET_UP = "logging.basicConfig(level=logging.INFO, stream=sys.stdout, format='mine %(name)s %(message)s')\n"


def run(text: str, **environment: str) -> tuple[str, list[str]]:
    """Standard output, and the lines of standard error without their numbers."""
    ended = subprocess.run([sys.executable, "-c", EPOCH + text], capture_output=True, text=True, env=python_environment(**environment))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, [said.split(" in ")[0] for said in ended.stderr.splitlines()]


def test_what_a_line_says() -> None:
    epoch = Epoch(batches=391, nbytes=4_000_000_000, waited=0.5, seconds=12.5, moves={"lost": 2, "joined": 1})
    expected = "train: 391 batches in 12.5 s, 4% of it waiting for data, 320.0 MB/s, 2 workers, 3 moves (1 joined, 2 lost)"
    assert line("train", epoch, 2) == expected
    one = Epoch(1, 0, 0.0, 0.0)
    assert line("val", one, 1) == "val: 1 batch in 0.000 s, 0% of it waiting for data, 0.0 MB/s, 1 worker"
    assert line("val", one + one, 1).startswith("val: 2 epochs, 2 batches in ")


def test_short_epochs_are_summed_up() -> None:
    pace = Pace()
    epoch = Epoch(batches=2, nbytes=10, waited=0.0, seconds=0.25, moves={"lost": 1})
    told = [pace.add(epoch, number * 0.25) for number in range(1, 25)]
    assert [one.count for one in told if one is not None] == [1, 4, 8]  # after 1 s, then 2
    assert told[4] is not None and (told[4].batches, told[4].seconds, told[4].moves) == (8, 1.0, {"lost": 4})
    rest = pace.rest(100.0)
    assert rest is not None and rest.count == 11
    assert pace.rest(101.0) is None


def test_long_epochs_all_have_their_line() -> None:
    pace = Pace()
    epoch = Epoch(batches=2, nbytes=10, waited=0.0, seconds=5.0)
    assert all(pace.add(epoch, number * 5.0) == epoch for number in range(20))


def test_the_time_between_lines_has_a_limit() -> None:
    pace = Pace()
    epoch = Epoch(batches=1, nbytes=1, waited=0.0, seconds=0.5)
    times = [number for number in range(2000) if pace.add(epoch, number * 0.5) is not None]
    assert max(after - before for before, after in itertools.pairwise(times)) == 120


def test_goes_to_standard_error_by_default() -> None:
    assert run('epoch(Tally.of("train", lambda: 1))') == ("", ["splitter: train: 3 batches"])


def test_an_epoch_that_is_left_and_those_held_back_are_told_in_the_end() -> None:
    text = 'tally = Tally.of("train", lambda: 1)\nepoch(tally)\nepoch(tally)\ntally.begin()\ntally.took("local", 1, 0.0)\n'
    assert run(text) == ("", ["splitter: train: 3 batches", "splitter: train: 2 epochs, 4 batches"])


def test_empty_epochs_are_not_told() -> None:
    assert run('epoch(Tally.of("train", lambda: 1), 0)') == ("", [])


def test_loaders_of_one_name_share_their_pace() -> None:
    text = 'for _ in range(5):\n    epoch(Tally.of("train", lambda: 1))\n'
    assert run(text) == ("", ["splitter: train: 3 batches", "splitter: train: 4 epochs, 12 batches"])


def test_goes_to_the_user_s_handlers() -> None:
    out, errors = run(SET_UP + 'epoch(Tally.of("train", lambda: 1))')
    assert out.startswith("mine splitter_runtime train: 3 batches in ") and errors == []


@pytest.mark.parametrize(
    "set_up",
    [
        "logging.warning('x') if False else None",
        "logging.basicConfig(handlers=[logging.NullHandler()], level=logging.INFO)",
        "logging.basicConfig(level=logging.WARNING, stream=sys.stdout)",
        "handler = logging.StreamHandler(sys.stdout); handler.setLevel(logging.ERROR); logging.basicConfig(handlers=[handler], level=1)",
    ],
    ids=["nothing", "null handler", "a level for warnings", "a handler for errors"],
)
def test_goes_to_standard_error_when_no_handler_would_show_it(set_up: str) -> None:
    assert run(f'{set_up}\nepoch(Tally.of("train", lambda: 1))') == ("", ["splitter: train: 3 batches"])


@pytest.mark.parametrize(
    "quiet",
    [
        "logging.getLogger('splitter_runtime').setLevel(logging.WARNING)",
        "logging.getLogger('splitter_runtime').disabled = True",
        "logging.getLogger('splitter_runtime').propagate = False",
        "logging.disable(logging.INFO)",
        "sys.__stderr__ = None",
    ],
)
def test_can_be_quietened_in_the_script(quiet: str) -> None:
    assert run(f'{quiet}\nepoch(Tally.of("train", lambda: 1))') == ("", [])


@pytest.mark.parametrize("word", ["warning", "off"])
def test_can_be_quietened_in_the_environment(word: str) -> None:
    assert run('epoch(Tally.of("train", lambda: 1))', SPLITTER_LOG=word) == ("", [])


def test_a_word_that_is_none() -> None:
    with pytest.raises(ConfigError, match="SPLITTER_LOG takes info, warning or off, not 'loud'"):
        threshold({"SPLITTER_LOG": "loud"})


def test_forked_children_tell_nothing_of_the_trainer_s() -> None:
    text = """
tally = Tally.of("train", lambda: 1)
epoch(tally)
epoch(tally)
tally.begin()
tally.took("local", 1, 0.0)
if os.fork() == 0:
    tally.end()
    sys.exit()
os.wait()
"""
    assert run(text) == ("", ["splitter: train: 3 batches", "splitter: train: 2 epochs, 4 batches"])


def test_a_forked_child_s_own_loaders_are_told() -> None:
    text = 'Tally.of("train", lambda: 1)\nif os.fork() == 0:\n    epoch(Tally.of("train", lambda: 1))\n    sys.exit()\nos.wait()\n'
    assert run(text) == ("", ["splitter: train: 3 batches"])


def test_ranks_are_named() -> None:
    text = 'epoch(Tally.of("train", lambda: 1))'
    assert run(text, WORLD_SIZE="2", RANK="1") == ("", ["splitter: train (rank 1): 3 batches"])


def test_counting_costs_next_to_nothing() -> None:
    """Plain additions: no lock, no clock, nothing that grows. (The best of many runs; two thousand times the usual leaves no doubt.)"""
    tally = Tally.of("counting", lambda: 1)
    tally.begin()
    best = min(timeit.repeat(lambda: tally.took("local", 1000, 0.0), number=1000, repeat=20))
    assert tally.batches == 20_000 and tally.site.totals()[:2] == (20_000, 20_000_000)
    assert best < 1.0
    tally.batches = 0
