"""What a person sees while samples run: one line on the terminal, gone when it is done; nothing elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from splitter.trace import Progress


@contextlib.contextmanager
def sampling() -> Iterator[Progress]:
    """A progress bar on standard error, with a row for each loader."""
    if not sys.stderr.isatty():
        yield lambda feed, done, of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        start = bar.add_task("running the script up to its loaders", total=None)
        rows: dict[str, int] = {}

        def show(feed: str, done: int, of: int) -> None:
            bar.update(start, visible=False)
            row = rows.setdefault(feed, -1)
            if row < 0:
                row = rows[feed] = bar.add_task(f"samples of {feed}", total=of)
            bar.update(row, completed=done, total=of)  # type: ignore[arg-type]

        yield show
