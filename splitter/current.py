"""Whether the generated files in a folder are what `transform` would write there now.

    --- train_trainer.py        as it is
    +++ train_trainer.py        as `splitter transform` would write it
    @@ -8,3 +8,3 @@

`patch -p0` brings the files up to date with such a diff.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from splitter.diff import unified
from splitter.ir import Bundle
from splitter.write import MARKS

NOWHERE = "/dev/null"


@dataclass(frozen=True)
class Difference:
    """Names, relative to the folder, of the files that are not current, and the diff.

    Bytes that aren't UTF-8 stand in the diff as surrogates ("surrogateescape").
    """

    missing: tuple[str, ...]
    changed: tuple[str, ...]
    left_over: tuple[str, ...]
    diff: str

    def __bool__(self) -> bool:
        return bool(self.missing or self.changed or self.left_over)

    def __str__(self) -> str:
        """What differs, in one line without an end."""
        parts = [(self.changed, "not current"), (self.missing, "missing"), (self.left_over, "left over")]
        return "; ".join(f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {what}" for names, what in parts if names)


def compare(bundle: Bundle, folder: Path) -> Difference:
    """Compare the bundle's files with those in `folder`. Raises OSError when one is there and can't be read."""
    wanted = {file.name: file.content for file in bundle.files}
    missing: list[str] = []
    changed: list[str] = []
    diffs = []
    for name, content in wanted.items():
        there = _read(folder / name)
        if there != content:
            (missing if there is None else changed).append(name)
            diffs.append(_diff(folder, name, there, content))
    stem = os.path.splitext(os.path.basename(bundle.plan.script.path))[0]
    left_over = [name for name in _patched(folder, f"{stem}_split") if name not in wanted]
    diffs += [_diff(folder, name, _read(folder / name), None) for name in left_over]
    return Difference(tuple(missing), tuple(changed), tuple(left_over), "".join(diffs))


def _read(path: Path) -> bytes | None:
    """What is in a file; None when there is none."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _patched(folder: Path, name: str) -> Iterator[str]:
    """Patched copies of local modules in the folder; files of the user's own are left out."""
    for path in sorted((folder / name).rglob("*.py")):
        if path.is_file() and any(mark in (_read(path) or b"") for mark in MARKS):
            yield path.relative_to(folder).as_posix()


def _diff(folder: Path, name: str, old: bytes | None, new: bytes | None) -> str:
    shown = str(folder / name)
    texts = ["" if content is None else content.decode("utf-8", "surrogateescape") for content in (old, new)]
    return unified(NOWHERE if old is None else shown, texts[0], NOWHERE if new is None else shown, texts[1])
