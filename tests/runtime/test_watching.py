"""A worker and a trainer that run, seen from outside: splitter top, metrics, and the line about a process that crashed."""

from __future__ import annotations

import re
import sys
from urllib.request import urlopen

import pytest
from pairs import Pair, run_both
from running import running
from scratch import Scratch

MOVED = """
class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        if i == 21 and get_worker_info() is not None:
            crash_once()
        return torch.full((1000,), i)


def crash_once():
    import ctypes, os, sys
    if os.environ.get("CRASH") and not os.path.exists(os.environ["CRASH"]):
        open(os.environ["CRASH"], "w").close()
        print("about to crash", file=sys.stderr)
        ctypes.string_at(0)
"""
BUILDERS = """
@splitter_runtime.dataset("rows")
def rows():
    return Rows()
"""
BODY = """
import sys
loader = DataLoader(Rows(), batch_size=4, num_workers=2)
for step, batch in enumerate(loader):
    see(batch)
    if step == 3 and len(sys.argv) > 1:
        print("going", flush=True)
        sys.stdin.readline()
show()
"""
PAIR = Pair(MOVED, BUILDERS, BODY, (("Rows()", 'splitter_runtime.RemoteDataset("rows")'),))


def test_a_worker_that_works(scratch: Scratch) -> None:
    folder = PAIR.write(scratch.folder / "pair")
    token = folder / "token"
    token.write_text("word")
    options = ("--listen", "127.0.0.1:0", "--token-file", "token", "--metrics", "0")
    with running(scratch, folder, "train_worker.py", *options) as worker:
        address = worker.address()
        known = {"SPLITTER_WORKERS": address, "SPLITTER_TOKEN_FILE": str(token)}
        with running(scratch, folder, "train_trainer.py", "stay", **known) as trainer:
            trainer.until("going")
            shown = scratch.splitter("top", address, "--once", folder=folder, SPLITTER_TOKEN_FILE=str(token)).stdout.splitlines()
            place = next(line.split()[-1] for line in worker.errors if line.startswith("metrics on "))
            metrics = dict(re.findall(r"^(splitter_\w+) (\S+)$", urlopen(place).read().decode(), re.MULTILINE))
        assert len(shown) == 5, shown
        assert [line.split()[0] for line in shown[:2]] == ["worker", address]
        assert shown[2].split()[0].startswith("ipv4:127.0.0.1:")
        assert float(metrics["splitter_worker_sessions"]) == 1 and float(metrics["splitter_worker_streams"]) == 2
        assert float(metrics["splitter_worker_batches_total"]) >= 4
        assert float(metrics["splitter_worker_bytes_total"]) >= 4 * 4 * 1000 * 8
        assert float(metrics["splitter_worker_resident_bytes"]) > 10 << 20
        refused = scratch.splitter("top", address, "--once", folder=folder)
        assert refused.returncode == 1 and "refuses the token" in refused.stdout


@pytest.mark.parametrize(
    ("value", "says"), [("x", "takes PORT or HOST:PORT, not x"), ("203.0.113.1:9100", "can't listen on 203.0.113.1:9100: ")]
)
def test_metrics_that_can_not_be_served(scratch: Scratch, value: str, says: str) -> None:
    folder = PAIR.write(scratch.folder / "pair")
    ended = scratch.run([sys.executable, "train_worker.py", "--listen", "127.0.0.1:0", "--metrics", value], folder)
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.startswith(f"train_worker.py: --metrics {says}") and ended.stderr.count("\n") == 1


def test_a_crash_is_told_with_its_place(scratch: Scratch) -> None:
    script, split = run_both(scratch, PAIR)
    crashed = scratch.run(
        [sys.executable, "train_trainer.py"], scratch.folder / "pair", CRASH=str(scratch.folder / "crashed"), SPLITTER_LOG="info"
    )
    assert script.stdout == split.stdout == crashed.stdout
    # torch's own signal handler writes the zero byte behind its message too, which can be right before our line.
    told = [line for line in crashed.stderr.replace("\0", "").splitlines() if "killed by SIGSEGV" in line]
    assert len(told) == 1, crashed.stderr
    assert told[0].startswith("splitter: rows: stream 1 on local was lost (killed by SIGSEGV, probably by a fault in native code; ")
    assert "about to crash" not in told[0]  # it printed that, and what it prints is seen
    assert re.search(
        r'File "[^"]*/pair/train\.py", line \d+ in crash_once \| File "[^"]*/pair/train\.py", line \d+ in __getitem__', told[0]
    )
    assert "1 move (1 lost)" in crashed.stderr
