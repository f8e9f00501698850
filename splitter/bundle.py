"""The worker program with the local modules that it imports, in one place: a folder, or one .pyz file.

    train.py, data.py, pkg/         ->    worker/train_worker.py, worker/data.py, worker/train_bundle.json
    (`--bundle worker`, or `--bundle worker.pyz`)

Modules that are elsewhere than beside the script are put where their names say: ../lib/data.py, imported as `data`, becomes data.py.
It runs where the packages are installed that these modules import, with nothing of the repository. The script's folder is
then the bundle: `__file__` is in there, and so is the first entry of sys.path.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os.path
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from splitter.emit_worker import emit_worker
from splitter.ir import Bundle, OutputFile, Plan, SourceFile
from splitter.read import Module, Program, imported_names, read
from splitter.write import write

VERSION = 1
ARCHIVE = ".pyz"
MAIN = "__main__.py"
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the time of every entry, so that the same plan gives the same bytes
ORDINARY, FOLDER = 0o100644 << 16, 0o040755 << 16 | 0x10  # Unix modes, and the sign of a folder on Windows


@dataclass(frozen=True)
class Bundled:
    """The files of a bundle, the worker program first, and the places in them that read `__file__`."""

    files: tuple[OutputFile, ...]
    reads_file: tuple[str, ...]


def bundle(plan: Plan, root: Path) -> Bundled:
    """The worker program of a plan and the local modules that it reaches. `root` is the script's folder.

    Raises OSError when a module can't be read any more.
    """
    name = os.path.basename(plan.script.path)
    worker = f"{os.path.splitext(name)[0]}_worker.py"
    text = emit_worker(plan, script=name, folder=None).text
    files = [OutputFile(worker, text.encode()), *_modules(plan, read(root / name), text)]
    places = [f"{file.name}:{line}" for file in files for line in _file_reads(file.content)]
    return Bundled(tuple(files), tuple(places))


def write_bundle(plan: Plan, bundled: Bundled, path: Path) -> None:
    """Write a bundle to `path`: one file when it ends in .pyz, else a folder, where an earlier bundle of the script is replaced.

    Raises InputError (S105) when that isn't possible, or when a file is in the way that splitter did not write.
    """
    if path.suffix == ARCHIVE:
        write(Bundle(plan, (OutputFile(path.name, _archive(bundled.files)),)), path.parent)
        return
    stem = os.path.splitext(os.path.basename(plan.script.path))[0]
    listing = OutputFile(f"{stem}_bundle.json", _listing(plan, bundled.files).encode())
    before = _unchanged(path, path / listing.name)
    write(Bundle(plan, (*bundled.files, listing)), path, replaceable=before)
    for name in before - {file.name for file in bundled.files}:
        # It would hide an installed module of its name.
        (path / name).unlink(missing_ok=True)


def _modules(plan: Plan, program: Program, worker: str) -> Iterator[OutputFile]:
    """Files that the worker program imports, directly or not, at the top or in functions, with the packages they are in."""
    needed: dict[str, bytes] = {}
    needs = [name for name, module in program.modules.items() if module.file.path in plan.needs]
    pending = [_module("__main__", plan.package, worker.encode()), _module("", "", "\n".join(f"import {name}" for name in needs).encode())]
    while pending:
        module = pending.pop()
        for name in imported_names(module) if module else ():
            path = program.roots.locate(name)
            if path is None:
                continue
            package = path.name == "__init__.py"
            file = f"{name.replace('.', '/')}{'/__init__' if package else ''}.py"
            if file not in needed:
                needed[file] = path.read_bytes()
                pending.append(_module(name, name if package else name.rpartition(".")[0], needed[file]))
    yield from (OutputFile(file, needed[file]) for file in sorted(needed))


def _module(name: str, package: str, content: bytes) -> Module | None:
    """A module of which only the imports are asked; None when it doesn't parse, which then fails where it is imported."""
    try:
        return Module(name, SourceFile(name, name, ""), ast.parse(content), package, [])
    except (SyntaxError, ValueError):
        return None


def _file_reads(content: bytes) -> list[int]:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return []
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "__file__"]
    return sorted({node.lineno for node in names if isinstance(node.ctx, ast.Load)})


def _archive(files: tuple[OutputFile, ...]) -> bytes:
    """A zip application (see `zipapp`), whose main program is the worker program."""
    stream = io.BytesIO(b"#!/usr/bin/env python3\n")
    stream.seek(0, io.SEEK_END)
    with zipfile.ZipFile(stream, "a", zipfile.ZIP_STORED) as archive:
        # Python finds a package without __init__.py only by the entry of its folder.
        folders = {f"{parent.as_posix()}/" for file in files for parent in Path(file.name).parents if parent != Path()}
        for name in sorted(folders):
            entry = zipfile.ZipInfo(name, LONG_AGO)
            entry.external_attr = FOLDER
            archive.writestr(entry, b"")
        for number, file in enumerate(files):
            entry = zipfile.ZipInfo(file.name if number else MAIN, LONG_AGO)
            entry.external_attr = ORDINARY
            archive.writestr(entry, file.content)
    return stream.getvalue()


def _listing(plan: Plan, files: tuple[OutputFile, ...]) -> str:
    hashes = {file.name: hashlib.sha256(file.content).hexdigest() for file in files}
    value = {"version": VERSION, "script": plan.script.path, "digest": plan.digest, "files": hashes}
    return json.dumps(value, indent=2) + "\n"


def _unchanged(folder: Path, listing: Path) -> frozenset[str]:
    """Names of the files of an earlier bundle that are as they were written."""
    try:
        files = json.loads(listing.read_bytes())["files"]
        hashes = {str(name): str(value) for name, value in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return frozenset()
    kept = set()
    for name, value in hashes.items():
        path = folder / name
        inside = not os.path.isabs(name) and ".." not in Path(name).parts
        if inside and path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == value:
            kept.add(name)
    return frozenset(kept)
