"""Why processes end: words for it, the kernel's counter, and what they said last."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from splitter_runtime import causes
from splitter_runtime.causes import Ending, Kills, Log, cause, ending, last_lines

EXIT_1 = 1 << 8


def died(body: Callable[[Log], object]) -> Ending:
    """How a forked process that runs `body` ended, as its reader sees it."""
    log = Log()
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()
        body(log)
        os._exit(1)
    handle = os.pidfd_open(pid)
    found = ending(handle, pid, 60.0, log.duplicate())
    os.waitpid(pid, 0)
    os.close(handle)
    log.close()
    return found


def fault(log: Log) -> None:
    log.write(b"before\n")
    log.arm()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    ctypes.string_at(0)


def test_a_fault_in_native_code() -> None:
    found = died(fault)
    assert (found.how, found.cause) == ("killed by SIGSEGV", "a fault in native code")
    assert found.lines[0] == "Fatal Python error: Segmentation fault"
    assert found.lines[1].startswith("File ") and "string_at" in found.lines[1]
    assert any(line.startswith(f'File "{__file__}", line ') and line.endswith("in fault") for line in found.lines)
    assert not any("Extension modules" in line or "thread" in line for line in found.lines)
    expected = (
        "killed by SIGSEGV, probably by a fault in native code; the last that it said: Fatal Python error: Segmentation fault | File "
    )
    assert str(found).startswith(expected) and "\n" not in str(found)


def test_a_kill() -> None:
    def body(log: Log) -> None:
        log.write("nearly donê\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)

    found = died(body)
    assert found.how == "killed by SIGKILL" and found.lines == ("nearly donê",)


def test_an_exit() -> None:
    found = died(lambda log: None)
    assert str(found) == "exit status 1"


def test_abort_is_told_with_its_stack() -> None:
    def body(log: Log) -> None:
        log.arm()
        os.abort()

    found = died(body)
    assert found.how == "killed by SIGABRT" and found.lines[0] == "Fatal Python error: Aborted"


def test_torch_s_own_handlers_still_speak(capfd: pytest.CaptureFixture[str]) -> None:
    """torch's loop sets handlers that print a line for some signals; armed after them, both the line and the stack are there."""
    from torch.utils.data._utils import signal_handling

    def body(log: Log) -> None:
        for _ in range(2):  # epochs of one process
            signal_handling._set_worker_signal_handlers()
            log.arm()
        os.kill(os.getpid(), signal.SIGBUS)

    found = died(body)
    assert found.how == "killed by SIGBUS" and found.lines[0] == "Fatal Python error: Bus error"
    assert "Unexpected bus error encountered in worker" in capfd.readouterr().err


def test_a_process_that_has_not_ended() -> None:
    assert str(ending(os.pidfd_open(os.getpid()), os.getpid(), 0.0)) == "it closed its connection"


def test_a_process_that_others_have_waited_for() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    handle = os.pidfd_open(pid)
    os.waitpid(pid, 0)
    assert str(ending(handle, pid, 60.0)) == "it ended"
    os.close(handle)


@pytest.mark.parametrize(
    ("status", "out_of_memory", "expected"),
    [
        (signal.SIGKILL, True, "the kernel, which ran out of memory"),
        (signal.SIGKILL, False, "somebody's kill -9, or the end of its parent"),
        (signal.SIGSEGV, True, "a fault in native code"),
        (None, True, "the kernel, which ran out of memory"),
        (None, False, ""),
        (EXIT_1, True, ""),
        (EXIT_1, False, ""),
        (signal.SIGUSR1, False, ""),
    ],
)
def test_causes(status: int | None, out_of_memory: bool, expected: str) -> None:
    assert cause(status, out_of_memory) == expected


def group(root: Path, group: str, counter: str) -> Path:
    """A system whose processes are in this control group, and whose count stands in this file."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(group + "\n")
    path = root / counter
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@pytest.mark.parametrize(
    ("line", "counter"),
    [
        ("0::/job", "sys/fs/cgroup/job/memory.events"),
        ("0::/not/visible/here", "sys/fs/cgroup/memory.events"),
        ("4:cpu,memory:/job", "sys/fs/cgroup/memory/job/memory.oom_control"),
        ("4:memory:/not/visible/here", "sys/fs/cgroup/memory/memory.oom_control"),
        ("0::/", "proc/vmstat"),
    ],
)
def test_the_kernel_s_counter(tmp_path: Path, line: str, counter: str) -> None:
    path = group(tmp_path, line, counter)
    path.write_text("low 0\noom 1\noom_kill 2\n")
    now = [100.0]
    kills = Kills(tmp_path, lambda: now[0])
    assert not kills.lately()
    path.write_text("low 0\noom 2\noom_kill 3\n")
    assert kills.lately()
    now[0] += 1.0
    assert kills.lately()  # its streams end with a template
    now[0] += 10.0
    assert not kills.lately()


@pytest.mark.parametrize("text", [None, "", "oom 1\n", "oom_kill many\n", "oom_kill\n"])
def test_a_system_without_the_counter(tmp_path: Path, text: str | None) -> None:
    path = group(tmp_path, "0::/job", "sys/fs/cgroup/job/memory.events")
    if text is not None:
        path.write_text(text)
    assert not Kills(tmp_path).lately()
    assert not Kills(tmp_path / "nothing").lately()


def test_a_log_keeps_the_end() -> None:
    log = Log()
    for number in range(20_000):
        log.write(f"line {number}\n".encode())
    seen = log.duplicate()
    assert last_lines(seen, 3) == ["line 19997", "line 19998", "line 19999"]
    assert os.fstat(seen).st_size <= 64 << 10
    log.write(b"x" * 1_000_000 + b"\nend")
    assert last_lines(seen)[-1] == "end" and os.fstat(seen).st_size <= 64 << 10
    os.close(seen)
    log.close()


def test_a_log_that_holds_nothing() -> None:
    log = Log()
    assert last_lines(log.duplicate()) == []


def test_looking_starts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "_kills", None)
    causes.watch()
    first = causes._kills
    causes.watch()
    assert first is not None and causes._kills is first
