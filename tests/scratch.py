"""A folder to run commands in, and a look at what they leave behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from quick import nurseries

FIXTURES = Path(__file__).parent / "fixtures"
COMMAND_LIMIT_S = 120
ENDING_LIMIT_S = 10
SHARED_MEMORY = Path("/dev/shm")
# What is not part of the script of a fixture.
AROUND = shutil.ignore_patterns("expected", "__pycache__", "args.txt", "script.txt", "options.txt")


def python_environment(**more: str) -> dict[str, str]:
    """What this process has, without anything that chooses workers; no bytecode is written."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPLITTER_")}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8", **more}


def quickly(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """With `--static`, where that can be said and nothing else is."""
    if arguments[:1] not in (("transform",), ("verify",)) or {"--samples", "--help"} & set(arguments):
        return arguments
    return (arguments[0], "--static", *arguments[1:])


@dataclass
class Scratch:
    """A scratch folder and the commands run in it, each marked so that everything they start can be found again.

    `library` keeps one copy of each fixture with its data made, for all tests of a session.
    """

    folder: Path
    library: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    shared_memory_before: frozenset[str] = field(default_factory=lambda: shared_memory_names())

    def copy(self, fixture: str, name: str = "script") -> Path:
        """A copy of the fixture with its data made, and without what splitter is expected to write."""
        prepared = self.library / fixture
        if not prepared.exists():
            making = self.folder / "making"
            shutil.copytree(FIXTURES / fixture, making, ignore=AROUND)
            maker = making / "make_data.py"
            if maker.exists():
                ended = self.run([sys.executable, maker.name], making)
                assert ended.returncode == 0, ended.stderr
                maker.unlink()
            making.rename(prepared)
        return Path(shutil.copytree(prepared, self.folder / name))

    def environment(self, **more: str) -> dict[str, str]:
        return python_environment(**{"SPLITTER_TEST_MARK": self.mark, "SPLITTER_LOG": "warning", **more})

    def run(self, command: Sequence[str], folder: Path, anew: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
        """Start a program and wait for it. Raises subprocess.TimeoutExpired when it hangs; `end` then ends what it started."""
        with self.start(command, folder, stdin=subprocess.DEVNULL, anew=anew, **environment) as process:
            try:
                out, errors = process.communicate(timeout=COMMAND_LIMIT_S)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(list(command), process.returncode, out, errors)

    def start(
        self, command: Sequence[str], folder: Path, stdin: int = subprocess.PIPE, anew: bool = False, **environment: str
    ) -> subprocess.Popen[str]:
        """A Python program that goes on, with pipes; forked where that can be, or with nothing imported if `anew`.

        Forked ones have one thread for torch's operations, unless something else is said: many programs run at once.
        """
        if not anew and command[1] != "-m":
            environment = {"OMP_NUM_THREADS": "1", **environment}
        start: Callable[..., subprocess.Popen[str]] = subprocess.Popen if anew else nurseries().start
        given: dict[str, Any] = {"env": self.environment(**environment), "encoding": "utf-8"}
        return start(command, cwd=folder, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given)

    def run_anew(self, command: Sequence[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Like `run`, in a new Python with nothing imported."""
        return self.run(command, folder, anew=True, **environment)

    def splitter(self, *arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command of splitter's, without running samples, which takes seconds, unless `--samples` asks for it."""
        return self.run([sys.executable, "-m", "splitter", *quickly(arguments)], folder, anew=False, **environment)

    def processes(self) -> list[psutil.Process]:
        """Every living process that a command of this scratch started, however far down."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        if process.pid == os.getpid():
            return False
        try:
            marked = process.environ().get("SPLITTER_TEST_MARK") == self.mark
            return marked or any(str(self.folder) in part for part in process.cmdline())
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            return False

    def assert_nothing_left(self) -> None:
        """No process and no shared memory of this scratch outlives its commands by more than a moment."""
        _, alive = psutil.wait_procs(self.processes(), timeout=ENDING_LIMIT_S)
        assert not alive, f"still running: {[(process.pid, process.cmdline()) for process in alive]}"
        left = {name for name in shared_memory_names() - self.shared_memory_before if not held_by_others(name)}
        assert not left, f"left in {SHARED_MEMORY}: {sorted(left)}"

    def end(self) -> None:
        """End what is still there after a failure: by process, each one checked to be ours."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def shared_memory_names() -> frozenset[str]:
    return frozenset(entry.name for entry in os.scandir(SHARED_MEMORY)) if SHARED_MEMORY.is_dir() else frozenset()


def held_by_others(name: str) -> bool:
    """Tests run side by side: an entry that is gone by now, or that a living process uses, is another's.

    Called only after every process of ours has ended. torch puts the maker's process id in the name; a semaphore has
    another name when it is made, so that whoever uses it has its inode mapped.
    """
    try:
        found = (SHARED_MEMORY / name).stat()
    except FileNotFoundError:
        return True
    # The name of torch's has a random number as well, which may be larger than any process id.
    if any(psutil.pid_exists(int(part)) for part in name.split("_") if part.isdecimal() and len(part) < 8):
        return True
    inode = f" {os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x} {found.st_ino} "
    mapped = any(inode in maps_of(process) for process in psutil.process_iter())
    return mapped or not (SHARED_MEMORY / name).exists()


def maps_of(process: psutil.Process) -> str:
    try:
        return Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file below the folder, by its path, bytecode left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
