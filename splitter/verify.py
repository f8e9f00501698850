"""`splitter verify`: runs script and split side by side and compares what their loaders give, batch by batch.

Both run under `splitter_runtime.record`, each in a process of its own, which writes one event a line. `compare` is pure: two
recordings in, one report for each loader out. Compared are structure, types, dtype, shape, strides, bits, order, sharing of
memory and identity of each batch, the trainer's generators (torch, numpy, random) before, between and after the batches, the
number of batches, standard output and how the program ends.

Processes: each program leads its own process group, which is ended with it; both are killed when this process is.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from splitter.start import started
from splitter.verify_batches import Event, first_difference, without_places

Moved = Mapping[str, Sequence[int | str]]  # places of a batch, by feed
SEED = 20240229  # of both programs, for scripts that do not seed: any two runs of them would differ
_STAYS = re.compile(r"splitter: loader .* stays in the trainer: .*")  # perhaps behind a progress bar
# Says that a program was in the way of the one beside it: a folder named after the second, a port that is written in the script.
_CLASH = re.compile(r"File exists|Address already in use|EADDRINUSE", re.IGNORECASE)


@dataclass(frozen=True)
class Ending:
    """How a program ended. `failure` is the last line of its standard error when its status isn't 0."""

    status: int
    stopped: bool  # by the recorder, since it had enough
    failure: str
    output: str

    def __str__(self) -> str:
        if self.stopped:
            return "went on"
        if self.status < 0:
            return f"was ended by {signal.Signals(-self.status).name}"
        if self.status:
            return f"failed with exit status {self.status}: {self.failure}"
        return "ended"


@dataclass(frozen=True)
class Recording:
    """What one program did: its loaders by the order of their first iteration, their events, what the runtime said of loaders."""

    names: tuple[str, ...]
    events: tuple[tuple[Event, ...], ...]
    ending: Ending
    remarks: tuple[str, ...] = ()  # loaders that turned out to stay in the trainer, and why

    def __post_init__(self) -> None:
        if len(self.names) != len(self.events):
            raise ValueError("a recording needs the events of every loader")


@dataclass(frozen=True)
class LoaderReport:
    """A loader: how many epochs and batches both programs have, up to the first difference."""

    name: str
    epochs: int
    batches: int
    difference: str | None

    def __str__(self) -> str:
        if self.difference is not None:
            return f"{self.name} {self.difference}"
        batches = "1 batch" if self.batches == 1 else f"{self.batches} batches"
        return f"{self.name}: {batches} in {self.epochs} epoch{'' if self.epochs == 1 else 's'} are identical"


@dataclass(frozen=True)
class VerifyReport:
    """The comparison. `ending` and `output` say how the ends and the standard outputs differ, or are None."""

    loaders: tuple[LoaderReport, ...]
    ending: str | None
    output: str | None
    failure: str | None = None  # what both programs ended with, when they failed alike
    remarks: tuple[str, ...] = ()  # of the split, about loaders that it left to torch: their batches are no proof of anything

    @property
    def identical(self) -> bool:
        """Whether there is something that was compared, and no difference in it."""
        return bool(self.loaders) and not self.differences

    @property
    def differences(self) -> tuple[str, ...]:
        found = [str(loader) for loader in self.loaders if loader.difference is not None]
        return tuple(found + [text for text in (self.ending, self.output) if text is not None])

    def __str__(self) -> str:
        lines = [str(loader) for loader in self.loaders] or ["no DataLoader was iterated: nothing to compare"]
        return "\n".join([*lines, *(text for text in (self.ending, self.output, self.failure) if text is not None), *self.remarks])


# --- pure comparison


def compare(script: Recording, split: Recording) -> VerifyReport:
    """Where the split differs from the script."""
    loaders = []
    for number in range(max(len(script.names), len(split.names))):
        if number >= len(split.names):
            loaders.append(LoaderReport(script.names[number], 0, 0, "is iterated by the script, and not by the split"))
        elif number >= len(script.names):
            loaders.append(LoaderReport(split.names[number], 0, 0, "is iterated by the split, and not by the script"))
        else:
            loaders.append(compare_loader(script.names[number], script.events[number], split.events[number]))
    ending = compare_endings(script.ending, split.ending)
    failure = f"script and split both {script.ending}" if ending is None and script.ending.status and not script.ending.stopped else None
    return VerifyReport(tuple(loaders), ending, compare_output(script, split), failure, split.remarks)


def compare_loader(name: str, script: Sequence[Event], split: Sequence[Event]) -> LoaderReport:
    """The report of one loader."""
    epochs = batches = 0
    for number in range(max(len(script), len(split))):
        left = script[number] if number < len(script) else None
        right = split[number] if number < len(split) else None
        difference = first_difference(left, right)
        if difference is not None:
            return LoaderReport(name, epochs, batches, difference)
        assert left is not None
        epochs += left["event"] == "begin"
        batches += left["event"] == "batch"
    return LoaderReport(name, epochs, batches, None)


def compare_endings(script: Ending, split: Ending) -> str | None:
    """How the ends of the two programs differ; the same failure on both sides is no difference."""
    same = (script.status, script.stopped, script.failure) == (split.status, split.stopped, split.failure)
    return None if same else f"the script {script}; the split {split}"


# parts of a line that tell how long something took
_UNIT = r"(s|ms|us|µs|ns|secs?|seconds?|mins?|minutes?|h|hours?)(\b|(?=\d))"
_CLOCKS = (
    re.compile(r"\b\d+(:\d\d){1,2}([.,]\d+)?\b"),  # 0:01:23, 12:00:00,123
    re.compile(r"\b(\d{4}|\d{6}|\d{8})[-_T]\d{6}\b"),  # 0229_120003, in the names of files
    re.compile(rf"\d[\d.,]*(e[+-]?\d+)?\s*([a-z]+\s*(/\s*|per\s+))?{_UNIT}", re.IGNORECASE),  # 3.2 s, 120 img/s
    re.compile(r"\b(time|elapsed|took|eta|duration|speed|throughput|data)\b[^\w,;]{0,6}\d[\d.,]*", re.IGNORECASE),  # Time 0.2
    re.compile(r"<time>\s*\(\s*(\d[\d.]*|<time>)\s*\)"),  # and its average in brackets
)


def without_clock(line: str) -> str:
    """A line of output with what looks like durations, rates and times of day taken out: they differ in any two runs.

    Where there is one, runs of blanks and backspaces become one: progress bars fill up their line.
    """
    clockless = line
    for clock in _CLOCKS:
        clockless = clock.sub("<time>", clockless)
    return line if clockless == line else re.sub(r"[ \b]{2,}", " ", clockless)


def compare_output(script: Recording, split: Recording) -> str | None:
    """The first line of standard output that differs, when both programs went equally far."""
    if (script.ending.status, script.ending.stopped) != (split.ending.status, split.ending.stopped):
        return None
    left, right = script.ending.output.splitlines(), split.ending.output.splitlines()
    for number in range(max(len(left), len(right))):
        one = left[number] if number < len(left) else None
        other = right[number] if number < len(right) else None
        if one is None or other is None:
            longer, line = ("split", other) if one is None else ("script", one)
            return f"standard output line {number + 1}: only the {longer} prints {line!r}"
        if one != other and without_clock(one) != without_clock(other):
            return f"standard output line {number + 1}: {one!r} and {other!r}"
    return None


def without_prefix(split: Recording, recordings: Sequence[Recording], moved: Moved) -> tuple[Recording, ...]:
    """Recordings without the places of batches that the worker has put results of the model's forward in.

    Feeds are known from the split's loaders, which are numbered like the script's.
    """
    feeds = [next((event.get("feed") for event in events if event["event"] == "begin"), None) for events in split.events]

    def cleaned(recording: Recording) -> Recording:
        keys = [moved.get(str(feed), ()) for feed in feeds] + [()] * len(recording.events)
        events = tuple(tuple(without_places(event, keys[number]) for event in own) for number, own in enumerate(recording.events))
        return replace(recording, events=events)

    return tuple(map(cleaned, recordings))


# --- running


def verify(
    script: Path,
    trainer: Path,
    args: Sequence[str],
    *,
    batches: int,
    epochs: int,
    workers: str | None,
    python: str,
    package: str = "",
    heads: str = "[]",
    moved: Moved | None = None,
) -> VerifyReport:
    """Run the script and the trainer program of its split side by side and compare them.

    `heads` is what loops of the script do first that the split does on its workers (see `head_text.recorded`): the script's batches are
    compared behind it. With `package` the script runs as `python -m package.script` does, from the folder that holds the package.
    The first `batches` batches of the first `epochs` epochs of every loader are compared; `workers` is SPLITTER_WORKERS for the split.
    Both run in the current folder with the same seed of hashes. One that fails because the other was in its way (a port, a new folder)
    runs once more, alone. A program that doesn't start shows up as a difference. `moved` has, by feed, the places of
    a batch that differ since the model's forward begins on the worker: what comes of them is seen in the output alone.
    """
    environment = {**os.environ}
    environment.setdefault("PYTHONHASHSEED", "0")  # else any two runs differ in the order of sets
    alone = {name: value for name, value in environment.items() if name != "SPLITTER_WORKERS"}
    spread = environment if workers is None else {**environment, "SPLITTER_WORKERS": workers}
    programs = {"script": (script, alone), "split": (trainer, spread)}
    with tempfile.TemporaryDirectory(prefix="splitter-verify-") as name:

        def command(side: str, files: Path) -> list[str]:
            program = programs[side][0]
            asked = ["--batches", str(batches), "--epochs", str(epochs), "--parent", str(os.getpid()), "--seed", str(SEED)]
            asked += ["--package", package] if package and program is script else []
            asked += ["--heads", heads] if program is script else []
            return [python, "-m", "splitter_runtime.record", "--out", f"{files}.jsonl", *asked, str(program), *args]

        def run(folder: Path, *sides: str) -> dict[str, Recording]:
            folder.mkdir()
            with contextlib.ExitStack() as stack:
                running = [stack.enter_context(started(command(side, folder / side), programs[side][1], folder / side)) for side in sides]
                statuses = [process.wait() for process in running]
            return {side: read_recording(folder, side, status) for side, status in zip(sides, statuses, strict=True)}

        found = run(Path(name, "together"), *programs)
        clashed = [side for side in programs if _CLASH.search(found[side].ending.failure)]
        if len(clashed) == 1:
            found |= run(Path(name, "alone"), *clashed)
    one, other = without_prefix(found["split"], (found["script"], found["split"]), moved or {})
    return compare(one, other)


def read_recording(folder: Path, side: str, status: int) -> Recording:
    """What the files of one side say."""
    import json

    events: list[Event] = []
    recorded = folder / f"{side}.jsonl"
    if recorded.exists():
        for line in recorded.read_text("utf-8").splitlines():
            events.append(json.loads(line))
    errors = (folder / f"{side}.err").read_text("utf-8", "replace").strip().splitlines()
    remarks = dict.fromkeys(found[0] for line in errors if (found := _STAYS.search(line)))
    ending = Ending(
        status,
        stopped=any(event["event"] == "end" and event["how"] == "stopped" for event in events),
        failure=errors[-1] if errors and status else "",
        output=(folder / f"{side}.out").read_text("utf-8", "replace"),
    )
    names = tuple(event["name"] for event in events if event["event"] == "loader")
    return Recording(names, tuple(of_loader(events, number) for number in range(len(names))), ending, tuple(remarks))


def of_loader(events: Sequence[Event], number: int) -> tuple[Event, ...]:
    """The events of one loader, epoch by epoch."""
    own = [event for event in events if event.get("loader") == number and event["event"] != "loader"]
    return tuple(sorted(own, key=lambda event: event["epoch"]))  # stable: inside an epoch as they came
