"""What a command says and how it ends when something is wrong: one line, and an exit status.

0  at least one loader was split      2  bad input: no such file, not Python, a wrong option
1  an internal error                  3  there was nothing to split, or everything was refused
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import typer

import splitter

if TYPE_CHECKING:
    from splitter.read import InputError

DONE, INTERNAL, BAD_INPUT, NOTHING_SPLIT, INTERRUPTED = 0, 1, 2, 3, 130
CALLERS = ("cli", "cli_errors", "compile", "show", "run")  # they call the steps
P = ParamSpec("P")


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Every way in which a command can fail becomes one line and an exit status."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        from splitter.read import InputError

        try:
            _check_own(kwargs.get("args"))
            command(*args, **kwargs)
        except InputError as error:
            raise typer.Exit(_bad_input(error, Path(str(kwargs.get("script", ""))))) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except Exception as error:
            raise typer.Exit(_internal(error, str(kwargs.get("script", "?")))) from None

    return wrapper


def _check_own(args: object) -> None:
    """The script's own arguments stand after `--`; anything else is a slip."""
    if isinstance(args, list) and args and sys.argv[-len(args) - 1 :] != ["--", *args]:
        raise typer.BadParameter(f"unexpected argument {args[0]!r}; the script's own arguments go after --")


def _bad_input(error: InputError, script: Path) -> int:
    from splitter import console
    from splitter.ir import SourceFile

    found = error.diagnostic
    sources = {}
    if found.span is not None:
        path = script.parent / found.span.path
        text = path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""
        sources[found.span.path] = SourceFile("", found.span.path, text)
    text = console.rendered(found, sources, str(folder_of(script)), colour=sys.stderr.isatty())
    print(text, end="", file=sys.stderr)
    return NOTHING_SPLIT if found.code == "S104" else BAD_INPUT


def _internal(error: Exception, script: str) -> int:
    from splitter import console
    from splitter.diagnostics import hint, message
    from splitter.ir import Diagnostic

    home = os.path.dirname(os.path.abspath(splitter.__file__))
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    own = [Path(name).stem for name in files if os.path.dirname(os.path.abspath(name)) == home]
    step = next((name for name in own if name not in CALLERS), own[-1])
    reason = f"{type(error).__name__}: {error}"
    found = Diagnostic("S901", None, (("step", step), ("path", script), ("reason", reason)))
    print(console.printable(f"splitter: S901 {message(found)}; {hint(found)}"), file=sys.stderr)
    if os.environ.get("SPLITTER_TRACEBACK") == "1":
        traceback.print_exception(error)
    return INTERNAL


def folder_of(script: Path) -> Path | str:
    """The script's folder as the user wrote it; empty for the current one, so that places stay short."""
    return "" if script.parent == Path() else script.parent
