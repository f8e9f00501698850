"""`splitter` and `python -m splitter`."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it quietly with status 130."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        from splitter.cli import app

        app(prog_name="splitter")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
