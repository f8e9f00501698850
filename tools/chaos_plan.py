"""Which fault, when, and whom it hits: decided by a seed alone, before anything happens.

    plan(seed=1, minutes=10, mean_seconds=4) -> (Hit(at=2.3, kind="kill template", choice=0.41, lasts=1.2), ...)

`choice` picks one of the victims that live at that time: 0 is the first, almost 1 the last.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

# How often each kind comes, compared with the others.
KINDS = {
    "kill remote worker": 3,
    "kill local worker": 2,
    "kill launcher": 1,
    "kill template": 3,
    "kill stream": 4,
    "stop worker": 2,
    "stop stream": 2,
    "reset connections": 3,
    "hold connections": 1,
    "cut cable": 2,
    "drain worker": 2,
    "kill all workers": 1,
    "no memory": 1,
}
SHORTEST_S = 0.3  # between two faults
LEAD_S = 3.0  # before the first, in which the trainer gets going


@dataclass(frozen=True)
class Hit:
    """One fault. Times are seconds: since the start, and until it's repaired."""

    at: float
    kind: str
    choice: float
    lasts: float

    def of(self, count: int) -> int:
        """Which one of so many victims."""
        return min(int(self.choice * count), count - 1)


def plan(*, seed: int, minutes: float, mean_seconds: float, longest: float) -> tuple[Hit, ...]:
    """All faults of a run. Every kind comes in each dozen or so, in random order; what stops or cuts does so up to `longest` seconds."""
    chance = random.Random(seed)
    hits: list[Hit] = []
    deck: list[str] = []
    at = LEAD_S
    while True:
        at += max(SHORTEST_S, min(chance.expovariate(1 / mean_seconds), 4 * mean_seconds))
        if at > minutes * 60:
            return tuple(hits)
        if not deck:
            deck = [kind for kind, weight in KINDS.items() for _ in range(weight)]
            chance.shuffle(deck)
        hits.append(Hit(round(at, 2), deck.pop(), chance.random(), round(chance.uniform(0.2, longest), 2)))
