"""Runs the contenders of experiments in turn. One that fails is left out, with one line that says why; the rest goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench_experiments import PEER_EXPERIMENTS, Bench, Experiment, prepare_script
from bench_table import SPLIT, Numbers, Outcome, Round, outcome
from command import CommandError
from photos import PhotosError
from rich.console import Console


class Complaints:
    """What went wrong: one line for each contender, which is then left out; the rest goes on."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.needed = False  # whether something other than a peer failed

    def add(self, experiment: Experiment, contender: str, error: Exception) -> None:
        self.needed = self.needed or contender == SPLIT or experiment not in PEER_EXPERIMENTS
        self._console.print(f"bench: {experiment.name}: {contender} left out: {error}", soft_wrap=True, markup=False)


def measure(bench: Bench, experiment: Experiment, rounds: int, console: Console, complaints: Complaints) -> list[Round]:
    """Run all contenders in turn, `rounds` times. A contender that fails is left out from then on."""
    running = list(experiment.contenders)
    for contender in experiment.contenders:
        with console.status(f"{experiment.name}: preparing {contender.name}"):
            try:
                contender.prepare(bench)
            except (CommandError, OSError) as error:
                complaints.add(experiment, contender.name, error)
                running.remove(contender)
    done: list[Round] = []
    for number in range(1, rounds + 1):
        if len(running) < 2 or running[0].name != SPLIT:
            break  # nothing is left to compare
        found: dict[str, Numbers] = {}
        for contender in tuple(running):
            with console.status(f"{experiment.name}: {contender.name}, round {number} of {rounds}"):
                try:
                    found[contender.name] = contender.run(bench)
                except (CommandError, OSError) as error:
                    complaints.add(experiment, contender.name, error)
                    running.remove(contender)
        done.append(found)
    return done


def outcomes(
    bench: Bench, experiments: Sequence[Experiment], keys: Sequence[str], rounds: int, console: Console, complaints: Complaints
) -> Iterator[Outcome]:
    """Measure experiments one after another; the lines of the rows that were asked for."""
    for experiment in experiments:
        try:
            with console.status(f"{experiment.name}: splitting {experiment.script}.py"):
                prepare_script(bench, experiment.script)
            done = measure(bench, experiment, min(rounds, experiment.most_rounds), console, complaints)
        except (CommandError, PhotosError, OSError) as error:
            complaints.add(experiment, SPLIT, error)
            continue
        for row in experiment.rows:
            line = outcome(row, done) if row.key in keys else None
            if line is not None:
                yield line
