"""Where streams run: decisions only, no I/O.

board = Board({"cpu1:7077": 8, "cpu2:7077": 16})
board.place() -> "cpu2:7077"     the worker with the most room for one more
board.release("cpu2:7077")
board.stay_at("cpu1:7077")       from now on every stream goes there
"""

from __future__ import annotations

from collections.abc import Mapping


class Board:
    """How many streams each worker runs, and which gets the next one.

    Workers fill in proportion to the number of processes that they offered; ties go to the first in the list, so that the same
    program places its streams in the same way each time.
    """

    def __init__(self, processes: Mapping[str, int]) -> None:
        if not processes:
            raise ValueError("a pool needs at least one worker")
        self._room = {name: max(1, count) for name, count in processes.items()}
        self._running = dict.fromkeys(processes, 0)
        self._only: str | None = None

    def place(self) -> str:
        """Choose the worker of one more stream, and count it there."""
        name = self._only or min(self._running, key=lambda worker: (self._running[worker] + 1) / self._room[worker])
        self._running[name] += 1
        return name

    def release(self, name: str) -> None:
        """A stream that place() had put there has ended."""
        self._running[name] -= 1

    def stay_at(self, name: str) -> None:
        """Place everything there from now on: its template alone knows the datasets' state."""
        self._only = name

    def __repr__(self) -> str:
        loads = ", ".join(f"{name}: {count}/{self._room[name]}" for name, count in self._running.items())
        return f"<Board {loads}{f', only {self._only}' if self._only else ''}>"
