"""Puts idioms together into programs.

    program = draw(lambda name, options: options[0])     # the plainest one
    print(text(program))                                 # a script

A program is the choice of one idiom from each table. `smaller` gives programs that are plainer by one choice, for finding what matters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from programs.datasets import PLAIN
from programs.datasets_lively import LIVELY
from programs.datasets_shared import SHARED
from programs.head import HEAD
from programs.loaders import BATCHES, COLLATES, NUMBERS, WORKERS
from programs.loops import LOOPS
from programs.meanwhile import HELPERS, MEANWHILE
from programs.places import PLACES

DATASETS = {**PLAIN, **LIVELY, **SHARED}
TABLES: dict[str, Mapping[str, Any]] = {
    "dataset": DATASETS,
    "place": PLACES,
    "loop": LOOPS,
    "batches": BATCHES,
    "collate": COLLATES,
    "workers": WORKERS,
    "numbers": NUMBERS,
    "meanwhile": MEANWHILE,
    "also": MEANWHILE,
}
VARIED = ("dataset", "meanwhile")
Program = Mapping[str, str]
Choose = Callable[[str, Sequence[str]], str]
# Places that go through the loader in their own way.
OPEN = ("module", "main", "function called at once", "each epoch", "in the loop's head", "lambda", "comprehension", "options", "walrus")
OWN_LOOP = ("generator function", "in the loop's head")
ANY_ROWS = ("lambda", "closure", "partial", "global", "static method", "draws")
EPOCHS = "for epoch in range(2):\n    $loop\n"


def draw(choose: Choose) -> Program:
    """A program that makes sense; `choose` picks one of the names that a table offers.

    The plain idiom stands there as often as all others: of a program in which everything is unusual, little is split.
    """
    chosen: dict[str, str] = {}
    for name, table in TABLES.items():
        options = [option for option in table if sensible({**chosen, name: option})]
        chosen[name] = choose(name, options if name in VARIED else options[:1] * len(options) + options)
    return chosen


def smaller(program: Program) -> Iterator[Program]:
    """Programs that have the plain idiom of one more table."""
    for name, table in TABLES.items():
        plain = {**program, name: next(iter(table))}
        if plain != program and sensible(plain):
            yield plain


def sensible(program: Program) -> bool:
    """Whether the choices made so far go together."""
    has = {*DATASETS[program["dataset"]].has, f"collate {program.get('collate')}", f"batches {program.get('batches')}"}
    # What the script shares with its dataset can be named where the dataset is made, that is in places without functions or classes.
    if program.get("place", "module") not in OPEN:
        has -= {"x", "y", "list", "base", "add"}
    loop, batches, collate = program.get("loop"), program.get("batches"), program.get("collate")
    wanted = set(BATCHES[batches][2].split()) if batches else set()
    for name in ("meanwhile", "also"):
        if name in program:
            needs = MEANWHILE[program[name]][2]
            wanted |= {needs} - {""} if needs.startswith(("batches ", "collate ")) else set(needs.split())
    if program.get("place") in OWN_LOOP and loop not in (None, "for"):
        return False
    if program.get("place") == "generator function" and {program.get("meanwhile", "nothing"), program.get("also", "nothing")} != {
        "nothing"
    }:
        return False
    if loop == "nested" and "persistent_workers" in WORKERS[program.get("workers", "none")][1]:
        return False  # both loops have one iterator then, and the outer one never ends
    if loop == "len" and "len" not in has:
        return False
    if batches and batches.startswith("no batches") and collate not in (None, "none"):
        return False
    if "var" in has and batches and batches != "one" and not batches.startswith("no batches") and collate not in (None, *ANY_ROWS):
        return False
    return wanted <= has


def text(program: Program) -> str:
    """The script."""
    kind, place = DATASETS[program["dataset"]], PLACES[program["place"]]
    definitions, n = NUMBERS[program["numbers"]]
    arguments = [BATCHES[program["batches"]][1], COLLATES[program["collate"]][1], WORKERS[program["workers"]][1]]
    call = f"DataLoader({', '.join(['$data', *filter(None, arguments)])})"
    names = {"data": place.data, "loader": place.loader, "second": place.second, "n": n, "tag": "a"}
    outside = {**names, "loader": place.called or place.loader, "data": place.dataset or place.data}
    doing = {where: _meanwhile(program, where, outside) for where in ("before", "each", "after")}
    loop = doing["before"] + fill(LOOPS[program["loop"]], outside, doing) + doing["after"]
    dataset = fill(kind.make, {**names, "n": place.n or n})
    construct = fill(f"$loader = {call}", names)
    blocks = {
        **doing,
        "dataset": dataset,
        "construct": construct,
        "make": dataset + construct,
        "more": _second(program, place.second, n),
        "loop": loop,
        "body": fill(EPOCHS, names, {"loop": loop}),
    }
    inline = {"call": fill(call, names).strip(), "arguments": fill(", ".join(filter(None, arguments)), names).strip()}
    main = fill(place.text, {**inline, **names}, blocks)
    parts = [kind.text, definitions, *(TABLES[name][program[name]][0] for name in ("batches", "collate", "workers"))]
    parts += [helper for name, helper in HELPERS.items() if re.search(rf"\b{name}\b", main)]
    return "\n\n".join(part.strip("\n") + "\n" for part in [HEAD, *filter(None, parts), main])


def _meanwhile(program: Program, where: str, names: Mapping[str, str]) -> str:
    chosen = dict.fromkeys((program["meanwhile"], program["also"]))
    found = [fill(MEANWHILE[name][1], names) for name in chosen if MEANWHILE[name][0] == where and name != "nothing"]
    return "".join(found)


def _second(program: Program, name: str, n: str) -> str:
    if "$second" not in LOOPS[program["loop"]]:
        return f"{name} = None\n" if "$second = $loader if" in PLACES[program["place"]].text else ""
    names = {"data": "held", "n": f"({n} - 2)", "tag": "b"}
    arguments = [part for part in (COLLATES[program["collate"]][1], WORKERS[program["workers"]][1]) if part]
    call = ", ".join(["held", "batch_size=4", *arguments])
    return fill(DATASETS[program["dataset"]].make, names) + f"{name} = DataLoader({call})\n"


def fill(template: str, names: Mapping[str, str], blocks: Mapping[str, str] | None = None) -> str:
    """The text with names in place; a line that is the name of a block becomes the block's lines, as far in as it was."""
    lines = []
    for line in template.splitlines():
        block = (blocks or {}).get(line.strip().removeprefix("$")) if line.strip().startswith("$") else None
        if block is None:
            lines.append(re.sub(r"\$(\w+)", lambda match: names[match[1]], line))
        else:
            lines += [" " * (len(line) - len(line.lstrip())) + part if part else "" for part in block.splitlines()]
    return "".join(f"{line}\n" for line in lines)
