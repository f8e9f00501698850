"""Numbers that the trainer's environment sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import ConfigError


@dataclass(frozen=True)
class Settings:
    """Seconds, and bytes."""

    connect: float = 60.0  # how long a worker may take to come up at the start
    patience: float = 10.0  # without a sign of life from a worker, or with a process stopped
    grace: float = 60.0  # without any worker
    budget: int = 2048 << 20  # of batches of one loader that have come and were not taken yet

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """ConfigError for what isn't a number above 0."""
        return cls(
            connect=_number(environment, "SPLITTER_CONNECT_SECONDS", cls.connect),
            patience=_number(environment, "SPLITTER_TIMEOUT_SECONDS", cls.patience),
            grace=_number(environment, "SPLITTER_GRACE_SECONDS", cls.grace),
            budget=int(_number(environment, "SPLITTER_BUFFER_MB", cls.budget >> 20) * (1 << 20)),
        )


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "")
    try:
        number = float(text) if text else default
    except ValueError:
        raise ConfigError.of("R601", what=f"{name}: {text!r} is not a number") from None
    if not 0 < number < 1e9:
        raise ConfigError.of("R601", what=f"{name}: {text} is not above 0")
    return number
