"""Exceptions that cross: taken apart on the worker, raised on the trainer with the same type, message, and lines of the user's file.

    record_exception(error), record_wrapper(wrapper)     plain data; both take the index that was being fetched
    rebuild(record, lines)                               exception of a call, its remote traceback as the cause
    StreamFailure(record, lines)                         torch's ExceptionWrapper, for what a stream raised

The samples that were being fetched are a note on the exception: its type and text stay the script's.

Types are looked up by name among builtins and modules that are already imported; nothing is imported because a message says so.
"""

from __future__ import annotations

import builtins
import operator
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data._utils import fetch

from .codec import encode
from .errors import CodecError, RemoteError, SplitterError
from .manifest import Manifest

_HERE = os.path.dirname(os.path.abspath(__file__))
_SHOWN = 32  # indices in a note
_FRAME = re.compile(r'(^\s*|: |\| )File "([^"\n]+)", line (\d+)', re.MULTILINE)


class RemoteTraceback(Exception):
    """The traceback on the worker, as the cause of an exception that was raised there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class LineMap:
    """Lines of the worker program -> lines of the script."""

    def __init__(self, manifest: Manifest, folder: str) -> None:
        """`folder` is the script's: the paths in the manifest are relative to it."""
        self._program = manifest.program
        self._parts = [(part, os.path.normpath(os.path.join(folder, part.path))) for part in manifest.lines]

    def place(self, line: int) -> tuple[str, int] | None:
        """File and line that a line of the worker program was copied from; None for lines that are new."""
        for part, path in self._parts:
            if part.worker <= line < part.worker + part.count:
                return path, part.script + line - part.worker
        return None

    def map(self, text: str) -> str:
        """The text of a traceback, naming the user's own file."""

        def name(match: re.Match[str]) -> str:
            found = self.place(int(match[3])) if match[2] == self._program else None
            return f'{match[1]}File "{found[0]}", line {found[1]}' if found else match[0]

        return _FRAME.sub(name, text)


def _types(kind: type[BaseException]) -> list[tuple[str, str]]:
    return [(base.__module__, base.__qualname__) for base in kind.__mro__ if issubclass(base, BaseException)]


def _plain(value: object) -> bool:
    try:
        encode(value)
    except CodecError:
        return False
    return True


def samples(index: object) -> str:
    """The indices of a batch in words; "" when they say nothing, as those of iterable datasets."""
    indices = index if type(index) is list else [index]
    shown = [_index_text(one) for one in indices[:_SHOWN] if one is not None]
    more = f", ... ({len(indices)} in all)" if len(indices) > _SHOWN else ""
    return ", ".join(shown) + more if shown else ""


def _index_text(index: object) -> str:
    if isinstance(index, (str, bytes)):
        return repr(index[:100])
    if type(index) is tuple:
        return f"({', '.join(_index_text(part) for part in index[:8])})"
    try:
        return str(operator.index(index))  # type: ignore[arg-type]
    except Exception:  # an index may be anything, and this is only a note
        return type(index).__name__


def record_exception(error: BaseException, index: object = None) -> dict[str, Any]:
    """What is needed to raise `error` elsewhere; `index` is what was being fetched, if anything was."""
    trace = error.__traceback__
    while trace is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == _HERE:
        trace = trace.tb_next
    # The file name of an OSError is not among its args.
    args = error.__reduce__()[1] if isinstance(error, OSError) else error.args
    return {
        "types": _types(type(error)),
        "args": args if _plain(args) else None,
        "state": dict(vars(error)) if _plain(vars(error)) else {},
        "text": str(error),
        "traceback": "".join(traceback.format_exception(type(error), error, trace)),
        "samples": samples(index),
    }


def record_wrapper(wrapper: ExceptionWrapper, index: object = None) -> dict[str, Any]:
    """What is needed to raise what torch's worker loop has caught; `index` is what it was fetching, if it was."""
    fetching = f'"{fetch.__file__}"' in wrapper.exc_msg  # not when worker_init_fn failed, which the loop says in the place of a batch
    return {
        "types": _types(wrapper.exc_type),
        "traceback": wrapper.exc_msg,
        "where": wrapper.where,
        "samples": samples(index) if fetching else "",
    }


def find_type(module: str, name: str) -> type[BaseException] | None:
    """The exception class of that name, when it is already here."""
    found: Any = builtins if module == "builtins" else sys.modules.get("__main__" if module == "__mp_main__" else module)
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def nearest_type(types: Sequence[tuple[str, str]]) -> type[BaseException] | None:
    """The first of the type and its bases that is here and says more than Exception does."""
    for module, name in types:
        found = find_type(module, name)
        if found is not None and found not in (BaseException, Exception):
            return found
    return None


def _construct(record: dict[str, Any]) -> BaseException:
    (module, name), *_ = record["types"]
    exact, nearest = find_type(module, name), nearest_type(record["types"])
    if exact is not None and record["args"] is not None:
        if module == "builtins" or issubclass(exact, SplitterError):
            return exact(*record["args"])
        error = exact.__new__(exact, *record["args"])  # without the user's __init__, which may want other arguments
        error.args = tuple(record["args"])
        vars(error).update(record["state"])
        return error
    if nearest is not None and nearest.__module__ == "builtins" and not issubclass(nearest, (OSError, UnicodeError)):
        return nearest(record["text"])
    return RemoteError.of("R501", type=name, text=record["text"])


def rebuild(record: dict[str, Any], lines: LineMap) -> BaseException:
    """The exception of a call, to be raised."""
    error = _construct(record)
    error.__cause__ = RemoteTraceback(lines.map(record["traceback"]))
    _note(error, record.get("samples", ""))
    return error


def _note(error: BaseException, which: str) -> None:
    """Say which samples were being fetched, beside the exception's own text."""
    if which:  # as add_note does, which Python 3.10 doesn't have (nor shows notes)
        error.__notes__ = [*getattr(error, "__notes__", ()), f"splitter: while these samples were fetched: {which}"]


class StreamFailure(ExceptionWrapper):
    """What a stream raised, in the form in which torch's loader raises it again."""

    def __init__(self, record: dict[str, Any], lines: LineMap) -> None:
        self.exc_type = nearest_type(record["types"]) or RuntimeError
        self.exc_msg = lines.map(record["traceback"])
        self.where = record["where"]
        self._own = record.get("own")
        self._samples = record.get("samples", "")

    def reraise(self) -> None:
        """Raise; an error of the runtime itself keeps its own text, which starts with its code."""
        try:
            if self._own is not None:
                raise self.exc_type(self._own)
            super().reraise()  # type: ignore[no-untyped-call]
        except BaseException as error:
            _note(error, self._samples)
            raise


class FinishFailure(ExceptionWrapper):
    """What the finish of a batch raised, in its place."""

    def __init__(self, error: BaseException, which: str) -> None:
        """`which`: the samples of the batch, in words."""
        where = "while its batch was finished in the trainer"
        super().__init__((type(error), error, error.__traceback__), where)  # type: ignore[no-untyped-call]
        self._own = str(error) if isinstance(error, SplitterError) else None
        self._samples = which

    def reraise(self) -> None:
        """Raise; an error of the runtime itself keeps its own text, which starts with its code."""
        try:
            if self._own is not None:
                raise self.exc_type(self._own)
            super().reraise()  # type: ignore[no-untyped-call]
        except BaseException as error:
            _note(error, self._samples)
            raise


class Lost(ExceptionWrapper):
    """A stream that will not answer any more, in the place of a batch: passes through torch's pinning thread as it is."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def reraise(self) -> None:
        """Raise the error itself."""
        raise self.error
