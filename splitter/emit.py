"""Plan -> Bundle: the generated files.

    train.py  ->  train_worker.py, train_trainer.py, train_split.md, train_split.json
                  and train_split/data.py for a local module with a loader in it

Nothing is decided here, nothing is written to disk, and the same plan gives the same bytes.
"""

from __future__ import annotations

import os.path

from splitter.diff import unified
from splitter.emit_trainer import Edits, ProgramCall, edit
from splitter.emit_worker import emit_worker
from splitter.ir import Bundle, OutputFile, Plan, SourceFile
from splitter.plan_json import plan_json
from splitter.report import report


def emit(plan: Plan, out_relative: str | None = None) -> Bundle:
    """All files of a split; none when no loader is split.

    `out_relative` is the script's folder as seen from the output folder ("..", or None for the same folder); it may be absolute.
    Raises ValueError when the plan doesn't fit its text, SyntaxError when a result isn't Python.
    """
    if not plan.split:
        return Bundle(plan)
    folder = None if out_relative in (None, "", ".") else out_relative
    name = os.path.basename(plan.script.path)
    stem = os.path.splitext(name)[0]
    script = name if folder is None else f"{folder}/{name}"
    roots = tuple((name, path if folder is None else os.path.normpath(f"{folder}/{path}")) for name, path in plan.roots)
    worker = emit_worker(plan, script=script, folder=folder, roots=roots)
    patched = {source: f"{stem}_split/{_module_path(source)}" for source in plan.modules if _edits(plan, source.module)}
    program = ProgramCall(
        worker=f"{stem}_worker.py",
        digest=plan.agreed,
        script=script,
        modules=tuple((source.module, path) for source, path in patched.items()),
        roots=roots,
        package=plan.package,
        # The script's folder must be on the path before its first local import.
        early=bool(patched or roots) or folder is not None,
    )
    trainer = edit(plan.script, _edits(plan, plan.script.module), program)
    trainer_name = f"{stem}_trainer.py"
    files = [
        OutputFile(program.worker, worker.text.encode()),
        OutputFile(trainer_name, _encoded(plan.script, trainer)),
    ]
    diff = unified(plan.script.path, plan.script.text, trainer_name, trainer)
    for source, path in patched.items():
        text = edit(source, _edits(plan, source.module), None)
        files.append(OutputFile(path, _encoded(source, text)))
        diff += unified(source.path, source.text, path, text)
    files.append(OutputFile(f"{stem}_split.md", report(plan, folder).encode("utf-8", "backslashreplace")))
    files.append(OutputFile(f"{stem}_split.json", plan_json(plan).encode()))
    return Bundle(plan, tuple(files), diff, worker.lines)


def _edits(plan: Plan, module: str) -> Edits:
    return Edits(
        tuple(handle for handle in plan.handles if handle.module == module),
        tuple(loader for loader in plan.loaders if loader.module == module),
        tuple(removal for removal in plan.removals if removal.module == module),
        tuple(edit for edit in plan.classes if edit.module == module),
        tuple(rename for rename in plan.renames if rename.module == module),
        tuple(line for line in plan.insertions if line.module == module),
    )


def _module_path(source: SourceFile) -> str:
    path = source.module.replace(".", "/")
    return f"{path}/__init__.py" if os.path.basename(source.path) == "__init__.py" else f"{path}.py"


def _encoded(source: SourceFile, text: str) -> bytes:
    """The text in the encoding that the file declares, with its byte-order mark."""
    encoding = "utf-8" if source.encoding.lower().replace("_", "-") == "utf-8-sig" else source.encoding
    return (b"\xef\xbb\xbf" if source.bom else b"") + text.encode(encoding)
