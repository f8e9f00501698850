"""Files on disk: all of a bundle, or none of it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Set
from pathlib import Path

from splitter.ir import Bundle, Diagnostic
from splitter.read import InputError

MARKS = (b"splitter", b'"digest": "sha256:')


def write(bundle: Bundle, folder: Path, replaceable: Set[str] = frozenset()) -> tuple[Path, ...]:
    """Write the bundle's files into `folder`, which is made when it isn't there; returns their paths.

    Each file is written under another name first, and they change places when all are complete. `replaceable` names files
    that may be replaced although nothing in them says that splitter wrote them.
    Raises InputError (S105) when that isn't possible, or when a file is in the way that splitter did not write.
    """
    targets = [(folder / file.name, file.content) for file in bundle.files]
    made: list[Path] = []
    parts: list[tuple[Path, Path]] = []
    try:
        for target, content in targets:
            if target.relative_to(folder).as_posix() not in replaceable:
                _check(target)
            for new in _make(target.parent):
                made.append(new)
            part = target.with_name(f".{target.name}.{os.getpid()}.part")
            parts.append((part, target))
            with open(part, "xb") as stream:
                stream.write(content)
        for part, target in parts:
            os.replace(part, target)
    except OSError as error:
        raise _refused(folder, _reason(error)) from None
    else:
        made = []
    finally:
        for part, _ in parts:
            part.unlink(missing_ok=True)
        for directory in reversed(made):
            with contextlib.suppress(OSError):
                directory.rmdir()
    return tuple(target for target, _ in targets)


def _check(target: Path) -> None:
    """Raises InputError when the target is a file of the user's own."""
    if target.is_dir():
        raise _refused(target, "it is a folder")
    with contextlib.suppress(FileNotFoundError):
        if not any(mark in target.read_bytes() for mark in MARKS):
            raise _refused(target, "it is there already and was not written by splitter")


def _make(folder: Path) -> Iterator[Path]:
    """Make a folder and the missing ones above it; yields those that are new."""
    if not folder.is_dir():
        yield from _make(folder.parent)
        folder.mkdir()
        yield folder


def _refused(path: Path, reason: str) -> InputError:
    return InputError(Diagnostic("S105", None, (("path", str(path)), ("reason", reason))))


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the disk is full"
    return (error.strerror or str(error)).lower()
