"""What became of the scripts of a tree, and the tables that say it. Nothing is read or written here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from splitter.diagnostics import CODES

# "left" has loaders and none is split; "bad input" is a file that splitter can't read.
Result = Literal["split", "left", "no loader", "bad input", "crashed", "slow", "not parsing"]
FAULTS: tuple[Result, ...] = ("crashed", "slow", "not parsing")
# What became of a loader that is split: how its dataset gets to the worker.
SPLIT = ("moved", "replicated", "sent")
# Loaders of other libraries, which are not splitter's to split.
OTHER = "S202"


@dataclass(frozen=True)
class Outcome:
    """What became of one script.

    `loaders` has a word for each place where a loader is constructed: one of SPLIT, or the code with which it was left.
    `said` is what a failure printed.
    """

    script: str
    result: Result
    seconds: float
    loaders: tuple[str, ...] = ()
    said: str = ""


def verdicts(feeds: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """A word for each loader of a plan in JSON, in the order of the text.

    A loader that gets several datasets is left when one of them leaves it, and else has the word that is last in SPLIT.
    """
    places: dict[str, list[str]] = {}
    for feed in feeds:
        word = feed["dataset"] if feed["status"] == "split" else feed["code"]
        places.setdefault(str(feed["loader"]), []).append(str(word))
    return tuple(_verdict(words) for words in places.values())


def _verdict(words: Sequence[str]) -> str:
    return next((word for word in words if word not in SPLIT), None) or max(words, key=SPLIT.index)


def summary(outcomes: Sequence[Outcome]) -> str:
    """The counts, one to a line."""
    results = Counter(one.result for one in outcomes)
    words = Counter(word for one in outcomes for word in one.loaders)
    lines = [
        f"scripts: {len(outcomes)} ({', '.join(f'{count} {result}' for result, count in results.most_common())})",
        f"loaders: {words.total()} ({', '.join(f'{words[word]} {word}' for word in SPLIT)}, {_left(words).total()} left)",
        *(f"  {code} {count}" for code, count in _by_count(_left(words))),
        _share(words),
        _times(outcomes),
    ]
    lines += [f"{one.result}: {one.script}" for one in outcomes if one.result in FAULTS]
    return "\n".join(line for line in lines if line)


def report(outcomes: Sequence[Outcome], group: Callable[[str], str]) -> str:
    """The report as Markdown; `group` gives the row in which a script is counted."""
    results = Counter(one.result for one in outcomes)
    words = Counter(word for one in outcomes for word in one.loaders)
    reached = Counter(word for one in outcomes for word in set(one.loaders))
    kinds = [(word, words[word]) for word in SPLIT] + _by_count(_left(words))
    parts = [
        "# What splitter makes of these scripts",
        table(("scripts", "count"), [*results.most_common(), ("all", len(outcomes))]),
        table(("loaders", "what it means", "count", "scripts"), [(word, _meaning(word), count, reached[word]) for word, count in kinds]),
        " ".join(f"{line[0].upper()}{line[1:]}." for line in (_share(words), _times(outcomes)) if line),
        groups(outcomes, group),
        table(
            ("script", "result", "split", "left", "seconds"),
            [
                (f"`{one.script}`", one.result, _listing(_split(one)), _listing(_left(one.loaders)), f"{one.seconds:.1f}")
                for one in outcomes
            ],
        ),
    ]
    parts += [f"## {one.result}: `{one.script}`\n\n{_fenced(one.said)}" for one in outcomes if one.result in FAULTS and one.said]
    return "\n\n".join(part for part in parts if part) + "\n"


def groups(outcomes: Sequence[Outcome], group: Callable[[str], str]) -> str:
    """The table with one row for each group of scripts, and one for all of them."""
    members: dict[str, list[Outcome]] = {}
    for one in outcomes:
        members.setdefault(group(one.script), []).append(one)
    rows = [_row(f"`{name}`", ones) for name, ones in members.items()]
    head = ("folder", "scripts", "loaders", *SPLIT, "left", "crashed", "slow", "median s", "worst s")
    return table(head, [*rows, _row("all", outcomes)])


def _row(name: str, outcomes: Sequence[Outcome]) -> tuple[object, ...]:
    results = Counter(one.result for one in outcomes)
    words = Counter(word for one in outcomes for word in one.loaders)
    seconds = [one.seconds for one in outcomes]
    return (
        name,
        len(outcomes),
        words.total(),
        *(words[word] for word in SPLIT),
        _listing(_left(words)),
        results["crashed"] + results["not parsing"],
        results["slow"],
        f"{median(seconds):.1f}",
        f"{max(seconds):.1f}",
    )


def _split(one: Outcome) -> Counter[str]:
    return Counter(word for word in one.loaders if word in SPLIT)


def _left(words: Iterable[str] | Counter[str]) -> Counter[str]:
    return Counter({word: count for word, count in Counter(words).items() if word not in SPLIT})


def _by_count(words: Counter[str]) -> list[tuple[str, int]]:
    return sorted(words.items(), key=lambda item: (-item[1], item[0]))


def _listing(words: Counter[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in sorted(words.items()))


def _meaning(word: str) -> str:
    """What a word or a code stands for, in a few words."""
    if word in SPLIT:
        return {
            "moved": "the dataset is built on the worker",
            "replicated": "it is built on the worker and in the trainer",
            "sent": "it is built in the trainer and sent to the worker",
        }[word]
    return CODES[word].title if word in CODES else ""


def _share(words: Counter[str]) -> str:
    """How many of torch's own loaders are split; empty when there is none."""
    torch = words.total() - words[OTHER]
    split = sum(words[word] for word in SPLIT)
    return f"{split} of {torch} torch loaders are split ({split / torch:.1%})" if torch else ""


def _times(outcomes: Sequence[Outcome]) -> str:
    """The median and the worst time of a script; empty without scripts."""
    if not outcomes:
        return ""
    worst = max(outcomes, key=lambda one: one.seconds)
    return f"one script takes {median(one.seconds for one in outcomes):.1f} s (median), {worst.script} {worst.seconds:.1f} s (worst)"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _fenced(text: str) -> str:
    fence = "`" * 3
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"
