"""What the runtime tells the user while it works, one line each: through logging, or to standard error where logging would not show it.

    tell(logging.INFO, "train: 391 batches in 12.3 s, ...")

The logger is `splitter_runtime`. The user's logging is left as it is: a line goes to it when a handler of the user's would show it, and
is written as `splitter: ...` to the process's own standard error when none would, unless the user has quietened the logger (a level of
its own, `disabled`, `propagate = False`, `logging.disable`). SPLITTER_LOG says from which level on: info, warning, off.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Mapping

from .errors import ConfigError

LOGGER = logging.getLogger("splitter_runtime")
LEVELS = {"": logging.INFO, "info": logging.INFO, "warning": logging.WARNING, "off": logging.CRITICAL + 1}

above: Callable[[str], bool] | None = None  # writes a line above what is drawn on the terminal; False when nothing is drawn


def threshold(environment: Mapping[str, str]) -> int:
    """The lowest level that is told. ConfigError for a word that SPLITTER_LOG doesn't take."""
    word = environment.get("SPLITTER_LOG", "")
    if word not in LEVELS:
        raise ConfigError.of("R601", what=f"SPLITTER_LOG takes info, warning or off, not {word!r}")
    return LEVELS[word]


def shown_by_handlers(logger: logging.Logger, level: int) -> bool:
    """Whether a handler that the user has set up takes records of this logger at this level."""
    current: logging.Logger | None = logger if logger.isEnabledFor(level) else None
    while current is not None:
        if any(handler.level <= level and not isinstance(handler, logging.NullHandler) for handler in current.handlers):
            return True
        current = current.parent if current.propagate else None
    return False


def quietened(logger: logging.Logger, level: int) -> bool:
    """Whether the user has said of this very logger, or of all, that such records are not wanted."""
    own = logger.level != logging.NOTSET and level < logger.level
    return own or logger.disabled or not logger.propagate or logger.manager.disable >= level


def tell(level: int, text: str) -> None:
    """Tell the user one line. Never raises, never writes to standard output."""
    if level < LEVELS.get(os.environ.get("SPLITTER_LOG", ""), logging.INFO):
        return
    if shown_by_handlers(LOGGER, level):
        LOGGER.log(level, "%s", text)
    elif not quietened(LOGGER, level):
        _write(f"splitter: {text}")


def _write(line: str) -> None:
    if above is not None and above(line):
        return
    with contextlib.suppress(OSError, ValueError):  # closed, or a disk that is full: nobody is left to tell
        if sys.__stderr__ is not None:
            sys.__stderr__.write(f"{line}\n")
            sys.__stderr__.flush()
