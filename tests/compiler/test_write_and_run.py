"""Files are written all or none; `run` owns its folder and hands signals and statuses through."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from plans import PHOTOS, photos

from splitter.emit import emit
from splitter.ir import Bundle, OutputFile
from splitter.read import InputError
from splitter.run import execute, relative, temporary
from splitter.write import write


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(bundle: Bundle, folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        write(bundle, folder)
    assert caught.value.diagnostic.code == "S105"
    return caught.value.diagnostic.argument("reason")


def test_write_makes_folders_and_replaces_its_own_files(tmp_path: Path) -> None:
    bundle = emit(photos())
    paths = write(bundle, tmp_path / "a" / "b")
    first = listing(tmp_path)
    assert [path.name for path in paths] == [file.name for file in bundle.files]
    write(bundle, tmp_path / "a" / "b")
    assert listing(tmp_path) == first
    assert set(first) == {f"a/b/{file.name}" for file in bundle.files}


def test_a_file_of_the_users_own_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "train_trainer.py").write_text("print('mine')\n")
    before = listing(tmp_path)
    assert refusal(emit(photos()), tmp_path) == "it is there already and was not written by splitter"
    assert listing(tmp_path) == before


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "train_split.json").mkdir()
    assert refusal(emit(photos()), tmp_path) == "it is a folder"
    assert listing(tmp_path) == {}


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    refusal(emit(photos()), tmp_path / "out" / "deeper")
    assert listing(tmp_path) == {"out": b"x"}


def test_a_disk_that_gets_full_leaves_nothing(tmp_path: Path) -> None:
    """A limit on file sizes fails the write of the last file half-way, as a full disk does."""
    code = f"""
import resource, signal, sys
from pathlib import Path
from splitter.ir import Bundle, OutputFile
from splitter.read import InputError
from splitter.write import write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    write(Bundle(None, (OutputFile("a/small", b"splitter"), OutputFile("large", bytes(1 << 20)))), Path({str(tmp_path)!r}, "new"))
except InputError as error:
    sys.exit(error.diagnostic.code)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (1, "S105\n")
    assert list(tmp_path.iterdir()) == []


def test_written_files_have_ordinary_permissions(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        (path,) = write(Bundle(photos(), (OutputFile("x", b""),)), tmp_path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644


def test_relative_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert relative(tmp_path, tmp_path / "link") is None
    assert relative(tmp_path, tmp_path / "a" / "b") == "../.."


def test_temporary_programs_are_removed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PHOTOS)
    with temporary(photos(), tmp_path) as trainer:
        assert trainer.name == "train_trainer.py"
        assert (trainer.parent / "train_worker.py").exists()
        assert f'script="{tmp_path}/train.py"' in trainer.read_text()
    assert not trainer.parent.exists()
    assert listing(tmp_path) == {"train.py": PHOTOS.encode()}


def executed(text: str, tmp_path: Path, *args: str) -> int:
    trainer = tmp_path / "trainer.py"
    trainer.write_text(text)
    return execute(trainer, args, os.environ)


def test_arguments_environment_and_status(tmp_path: Path) -> None:
    assert executed("import sys; sys.exit(int(sys.argv[1]) + len(sys.argv))", tmp_path, "7", "--", "-x") == 11
    assert executed("import os; os.kill(os.getpid(), 9)", tmp_path) == -signal.SIGKILL


def test_the_trainer_has_the_signals_of_a_new_process(tmp_path: Path) -> None:
    text = "import signal, sys; sys.exit(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
    assert executed(text, tmp_path) == 0
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []), "this process's own mask is as before"


RUN = """
import os, sys
from pathlib import Path
from splitter.run import execute, leave
sys.exit(leave(execute(Path(sys.argv[1]), sys.argv[2:], os.environ)))
"""


def start(text: str, tmp_path: Path, **given) -> subprocess.Popen[str]:
    """A process that runs a trainer; its first line of output is the trainer's process number."""
    trainer = tmp_path / "trainer.py"
    trainer.write_text("import os, sys, signal\nprint(os.getpid(), flush=True)\n" + text)
    return subprocess.Popen([sys.executable, "-c", RUN, str(trainer)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **given)


WAIT = "signal.pause()\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_trainer_and_its_end_is_waited_for(number: signal.Signals, tmp_path: Path) -> None:
    text = f"""
def ended(*_):
    os.write(1, b"ended\\n")  # print may be at work
    sys.exit(5)
signal.signal({int(number)}, ended)
print("ready", flush=True)
{WAIT}"""
    with start(text, tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == "ended\n"
        assert process.wait() == 5


def test_a_signal_that_ends_the_trainer_ends_the_run(tmp_path: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
        with start(f"os.kill(os.getpid(), {int(number)})\n", tmp_path) as process:
            process.communicate()
        assert process.returncode == -number


def test_the_trainer_ends_with_a_killed_run(tmp_path: Path) -> None:
    with start(WAIT, tmp_path) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) != process.pid
        process.kill()
        assert process.stdout.read() == "", "the trainer was the last to hold the pipe"


def test_ctrl_c_of_a_terminal_comes_once(tmp_path: Path) -> None:
    text = f"""
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
def ended(*_):
    print("ended", flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, ended)
print("ready", flush=True)
while True:
    {WAIT}"""
    controller, terminal = os.openpty()

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    with start(text, tmp_path, stdin=terminal, preexec_fn=own_terminal) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert process.stdout.readline() == "ready\n"
        os.write(controller, b"\x03")
        assert process.stdout.readline() == "interrupted\n"
        process.terminate()
        assert process.stdout.read() == "ended\n"
        assert process.wait() == 5
    os.close(controller)
    os.close(terminal)
