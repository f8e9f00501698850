"""Every folder of tests/fixtures is a case: `train.py`, its local modules, and `expected/`, what splitter writes for it.

A folder `refuse_*` is a script that must be left alone; see test_refusals.py. `make_data.py` makes the data of a
fixture in the scratch copy, `args.txt` holds the script's arguments, `script.txt` how a script is run that is not `train.py` in
the fixture's folder: `PYTHONPATH=. tools/train.py` or `-m package.train`. `options.txt` holds options of splitter's; with `--samples`
among them samples of the fixture are run, and what they took is left out of what is compared. `pytest --update` rewrites `expected/`;
the review is the git diff.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scratch import COMMAND_LIMIT_S, FIXTURES, Scratch, files_below

SPLIT = sorted(
    folder.name
    for folder in FIXTURES.iterdir()
    if not folder.name.startswith("refuse_") and ((folder / "train.py").exists() or (folder / "script.txt").exists())
)
POOLS = ("local", "local:2", "local:3", "list")
# Which fixtures are verified when the tests run without --all-pools, and with which pool: files and random draws, the main process,
# a dataset that is sent, values of all types, a pool of hosts. The output of all of them, which has digests of batches and generators in
# it, is compared in any case; and test_programs.py compares 120 more programs.
POOL = {
    "odd_tensors": "local",
    "imagenet": "local:3",
    "workers_zero": "local:2",
    "hard_examples": "local:2",
    "text_vocab": "list",
} | dict.fromkeys(("cut_imagenet", "cut_v2_dict", "cut_forms", "cut_modes", "cut_text", "cut_head_forms", "cut_device"), "local")
# Nothing is new about these when they run.
COMPILED = ("path_edit",)
TIME = re.compile(r" · \d[\d.]* ms\b|(?<=<br>)\d[\d.]* ms\b( · )?")  # of a step; there is none when it took next to nothing
COST = re.compile(r"(?<=\| )\d[\d.,]*(?= \|)")  # a number alone in a table
MARK = re.compile(r"# expect: (S\d{3})$", re.MULTILINE)
GENERATED = ("train_worker.py", "train_trainer.py", "train_split.md", "train_split.json")


@dataclass(frozen=True)
class Start:
    """How a fixture's script is run: its path, what Python is given for it, and the environment."""

    path: str = "train.py"
    command: tuple[str, ...] = ("train.py",)
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> str:
        """The script's folder as a prefix of names of files: "" or "tools/"."""
        return self.path.removesuffix("train.py")


def start_of(fixture: str) -> Start:
    path = FIXTURES / fixture / "script.txt"
    if not path.exists():
        return Start()
    words = shlex.split(path.read_text())
    environment = [word for word in words if "=" in word]
    command = words[len(environment) :]
    script = command[-1] if command[0] != "-m" else f"{command[-1].replace('.', '/')}.py"
    return Start(script, tuple(command), tuple((name, value) for name, _, value in (word.partition("=") for word in environment)))


def arguments_of(fixture: str) -> list[str]:
    path = FIXTURES / fixture / "args.txt"
    return shlex.split(path.read_text()) if path.exists() else []


def after_dashes(fixture: str) -> list[str]:
    arguments = arguments_of(fixture)
    return ["--", *arguments] if arguments else []


def options_of(fixture: str) -> list[str]:
    path = FIXTURES / fixture / "options.txt"
    return shlex.split(path.read_text()) if path.exists() else []


def transform(scratch: Scratch, fixture: str, folder: Path, hash_seed: str = "0") -> None:
    command = ["transform", start_of(fixture).path, *options_of(fixture), *after_dashes(fixture)]
    ended = scratch.splitter(*command, folder=folder, PYTHONHASHSEED=hash_seed)
    assert ended.returncode == 0, ended.stderr


def timeless(texts: dict[str, str]) -> dict[str, str]:
    """Texts of a fixture whose samples were run, without what differs from run to run: times, and the record that has them all."""
    found = {name: text for name, text in texts.items() if not name.endswith("_split.json")}
    for name, text in found.items():
        if name.endswith("_split.md"):
            found[name] = COST.sub("-", TIME.sub("", text).replace('<br>"', '"'))
    return found


def marks(folder: Path) -> set[tuple[str, str, int]]:
    """(code, path, line) of every finding that the fixture's comments ask for."""
    return {
        (match[1], path.relative_to(folder).as_posix(), text.count("\n", 0, match.start()) + 1)
        for path in folder.rglob("*.py")
        if "expected" not in path.parts
        for text in [path.read_text(encoding="utf-8")]
        for match in MARK.finditer(text)
    }


def errors_of(plan: dict[str, Any]) -> set[tuple[str, str, int]]:
    """(code, path, line) of every error that a plan holds."""
    return {(row["code"], row["path"], row["line"]) for row in plan["diagnostics"] if row["severity"] == "error"}


def expected_texts(folder: Path, before: dict[str, bytes], start: Start) -> dict[str, str]:
    """What splitter wrote, as it is kept under `expected/`: edited copies of the user's files as diffs."""
    texts = {}
    for name, content in files_below(folder).items():
        if name in before:
            continue
        local = name.removeprefix(f"{start.folder}train_split/")
        original = start.path if name == f"{start.folder}train_trainer.py" else local
        original = next((path for path in before if local != name and f"/{path}".endswith(f"/{local}")), original)
        if original in before:
            texts[name.removesuffix(".py") + ".diff"] = "".join(
                difflib.unified_diff(
                    before[original].decode().splitlines(keepends=True),
                    content.decode().splitlines(keepends=True),
                    original,
                    name,
                )
            )
        else:
            texts[name] = content.decode()
    return texts


@pytest.mark.parametrize("fixture", SPLIT)
def test_generated_files(fixture: str, scratch: Scratch, update: bool) -> None:
    folder = scratch.copy(fixture)
    before = files_below(folder)
    transform(scratch, fixture, folder, hash_seed="0")
    after = files_below(folder)
    start = start_of(fixture)
    prefix = start.folder
    assert {name: after[name] for name in before} == before, "the script's own files were changed"
    assert {prefix + name for name in GENERATED} <= set(after)
    for name in after.keys() - before.keys():
        assert name.removeprefix(prefix) in GENERATED or name.startswith(f"{prefix}train_split/")
        if name.endswith(".py"):
            ast.parse(after[name], name)

    assert errors_of(json.loads(after[f"{prefix}train_split.json"])) == marks(FIXTURES / fixture)

    texts = expected_texts(folder, before, start)
    transform(scratch, fixture, folder, hash_seed="12345")
    again = expected_texts(folder, before, start)
    if options_of(fixture):
        texts, again = timeless(texts), timeless(again)
    else:
        assert files_below(folder) == after
    assert again == texts, "another hash seed, or files that were there already, gave another text"

    expected = FIXTURES / fixture / "expected"
    if update:
        shutil.rmtree(expected, ignore_errors=True)
        for name, text in texts.items():
            (expected / name).parent.mkdir(parents=True, exist_ok=True)
            (expected / name).write_text(text, encoding="utf-8", newline="")
    assert expected.is_dir(), "a new fixture: run pytest --update and review what it writes"
    assert texts == {name: content.decode() for name, content in files_below(expected).items()}


@pytest.mark.parametrize("fixture", [name for name in SPLIT if name not in COMPILED and name not in POOL])  # verified: the others
def test_same_output_as_the_script(fixture: str, scratch: Scratch) -> None:
    script, split = scratch.copy(fixture, "script"), scratch.copy(fixture, "split")
    arguments = arguments_of(fixture)
    data = files_below(script).keys()
    start = start_of(fixture)
    environment = dict(start.environment)
    plain = scratch.run([sys.executable, *start.command, *arguments], script, **environment)
    assert plain.returncode == 0, plain.stderr

    transform(scratch, fixture, split)
    present = files_below(split).keys()
    trained = scratch.run([sys.executable, f"{start.folder}train_trainer.py", *arguments], split, **environment)
    assert (trained.stdout, trained.returncode) == (plain.stdout, plain.returncode), trained.stderr
    assert "stays in the trainer" not in trained.stderr
    scratch.assert_nothing_left()
    assert files_below(split).keys() - present == files_below(script).keys() - data, "files were left behind"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "pool" in metafunc.fixturenames:
        every = metafunc.config.getoption("--all-pools")
        pairs = [(fixture, pool) for fixture in SPLIT for pool in POOLS if every or pool == POOL.get(fixture)]
        metafunc.parametrize(("fixture", "pool"), pairs)


def test_verify(fixture: str, pool: str, scratch: Scratch) -> None:
    """Batches, generators, output and exit status to the end of the script, as `splitter verify` compares them."""
    folder = scratch.copy(fixture)
    before = files_below(folder)
    with ExitStack() as workers:
        environment = dict(start_of(fixture).environment)
        if pool == "list":
            token = make_token(scratch)
            environment["SPLITTER_TOKEN_FILE"] = str(token)
            host = worker_folder(scratch, fixture)
            worker = f"{start_of(fixture).folder}train_worker.py"
            pool = ",".join(start_worker(scratch, host, worker, token, workers) for _ in range(2))
        options = ["--workers", pool, "--epochs", "9", "--batches", "999", *options_of(fixture)]
        ended = scratch.splitter("verify", start_of(fixture).path, *options, *after_dashes(fixture), folder=folder, **environment)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    scratch.assert_nothing_left()
    left = files_below(folder).keys() - before.keys()
    assert not [name for name in left if "train_" in name], "generated files were left behind"


def make_token(scratch: Scratch) -> Path:
    token = scratch.folder / "token"
    token.write_text("a token of the tests\n")
    token.chmod(0o600)
    return token


def worker_folder(scratch: Scratch, fixture: str) -> Path:
    """A folder as on a worker's host: the data, the worker program and local modules; neither script nor trainer."""
    split, host = scratch.copy(fixture, "split"), scratch.copy(fixture, "host")
    transform(scratch, fixture, split)
    start = start_of(fixture)
    (host / start.path).unlink()
    shutil.copy(split / start.folder / "train_worker.py", host / start.folder)
    return host


def start_worker(scratch: Scratch, folder: Path, program: str, token: Path, workers: ExitStack) -> str:
    """Start a worker on loopback; when `workers` closes it is asked to end, and must."""
    address = f"127.0.0.1:{free_port()}"
    process = scratch.start([sys.executable, program, "--listen", address, "--token-file", str(token)], folder, stdin=subprocess.DEVNULL)
    workers.callback(end_worker, process)
    return address


def end_worker(process: subprocess.Popen[str]) -> None:
    process.terminate()
    _, errors = process.communicate(timeout=COMMAND_LIMIT_S)
    assert process.returncode == 0, errors


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
