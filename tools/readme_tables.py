"""Writes the generated parts of README.md: the tables of codes, and one line for each source file.

    python tools/readme_tables.py          # write them
    python tools/readme_tables.py --check  # status 1 when README.md is not current

A part stands between two lines, `<!-- codes -->` and `<!-- /codes -->` for example. A file's line is the first line of
its docstring.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

from splitter.diagnostics import CODES as COMPILER_CODES
from splitter_runtime.errors import CODES as RUNTIME_CODES

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


class ReadmeError(Exception):
    """README.md or a source file lacks something; the message is one line for the user."""


def cell(text: str) -> str:
    """Text for one cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ").strip()


def compiler_codes() -> str:
    lines = ["| code | kind | says | what to do |", "|---|---|---|---|"]
    for code, rule in sorted(COMPILER_CODES.items()):
        lines.append(f"| {code} | {rule.severity} | {cell(rule.message)} | {cell(rule.hint)} |")
    return "\n".join(lines)


def runtime_codes() -> str:
    lines = ["| code | says | what to do |", "|---|---|---|"]
    for code, (message, hint) in sorted(RUNTIME_CODES.items()):
        lines.append(f"| {code} | {cell(message)} | {cell(hint)} |")
    return "\n".join(lines)


def file_lines(folder: Path) -> str:
    """One row for each Python file of a package, generated code and package markers left out."""
    lines = ["| file | what it does |", "|---|---|"]
    for path in sorted(folder.glob("*.py")):
        if path.name == "__init__.py" or "_pb2" in path.stem:
            continue
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        if not docstring:
            raise ReadmeError(f"{path.relative_to(ROOT)} has no docstring")
        lines.append(f"| `{path.name}` | {cell(docstring.splitlines()[0].rstrip('.'))} |")
    return "\n".join(lines)


def replace_part(text: str, name: str, part: str) -> str:
    """`text` with the lines between the marks of `name` replaced; ReadmeError when a mark is missing or there twice."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ReadmeError(f"README.md must hold the lines {begin.strip()} and {end.strip()}, once each, in this order")
    before, rest = text.split(begin)
    return f"{before}{begin}{part}\n{end}{rest.split(end)[1]}"


def current(text: str) -> str:
    """README's text with all generated parts current."""
    text = replace_part(text, "codes", compiler_codes())
    text = replace_part(text, "runtime codes", runtime_codes())
    text = replace_part(text, "compiler files", file_lines(ROOT / "splitter"))
    return replace_part(text, "runtime files", file_lines(ROOT / "runtime" / "splitter_runtime"))


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the generated parts of README.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 when README.md is not current")
    args = parser.parse_args()
    text = README.read_text(encoding="utf-8")
    try:
        wanted = current(text)
    except ReadmeError as error:
        print(f"readme_tables: {error}", file=sys.stderr)
        return 2
    if text == wanted:
        return 0
    if args.check:
        print("readme_tables: README.md is not current: run `make readme`", file=sys.stderr)
        return 1
    README.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
