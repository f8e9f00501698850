"""Give hostile bytes to everything that reads bytes from the network, guided by coverage (atheris: pip install -e ".[fuzz]").

python tools/fuzz.py [--minutes 10] [--target value|code|header|frames|messages] [--corpus tests/runtime/safe/corpus]

Each target runs in a process of its own for its share of the minutes; one that crashes, hangs, takes memory that it must not, or raises
what it must not, is reported with the file that makes it do so again, and the exit status is 1. Inputs that found something go into the
corpus by hand, where the tests read them too; --corpus is only read.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "runtime" / "safe" / "corpus"
NAMES = ("value", "code", "header", "frames", "messages")
SLOWEST_S = 10  # for one input
LARGEST = 4096  # bytes of one input
ROOM = 512 << 20  # bytes that a target may take beside what it has at the start


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--target", choices=NAMES, action="append", help="only this one; may be given more than once")
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--found", type=Path, help="folder for inputs that found something (default: a new one)")
    parser.add_argument("--run", help=argparse.SUPPRESS)  # this process is the one that runs a target; the rest is libFuzzer's
    options, rest = parser.parse_known_args()
    if options.run:
        run(options.run, rest)
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    names = options.target or NAMES
    found: Path = options.found or Path(tempfile.mkdtemp(prefix="fuzz-"))
    found.mkdir(parents=True, exist_ok=True)
    failed = [name for name in names if not fuzz(name, options.corpus, found, 60 * options.minutes / len(names))]
    print(f"{len(names) - len(failed)} of {len(names)} targets held" + (f"; failed: {', '.join(failed)}, see {found}" if failed else ""))
    return 1 if failed else 0


def fuzz(name: str, corpus: Path, found: Path, seconds: float) -> bool:
    """Run one target in a process; whether it held."""
    with tempfile.TemporaryDirectory() as grown:
        command = [sys.executable, __file__, "--run", name, f"-max_total_time={seconds:.0f}", f"-timeout={SLOWEST_S}"]
        command += [f"-max_len={LARGEST}", "-rss_limit_mb=4096", f"-artifact_prefix={found}/{name}-", "-verbosity=1", grown]
        seeds = corpus / name
        if seeds.is_dir():
            command.append(str(seeds))
        started = time.monotonic()
        with (found / f"{name}.log").open("wb") as log:
            status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT).returncode
        done = [line for line in (found / f"{name}.log").read_text(errors="replace").splitlines() if line.startswith("Done ")]
    print(f"{name}: {done[-1] if done else f'exit status {status}'} ({time.monotonic() - started:.0f} s)", flush=True)
    return status == 0


def run(name: str, flags: list[str]) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris
    import PIL.Image
    import torch  # noqa: F401

    PIL.Image.preinit()
    with atheris.instrument_imports(include=["splitter_runtime"]):
        import fuzz_targets
    import warnings

    warnings.simplefilter("ignore")
    statm = Path("/proc/self/statm").read_text().split()
    limit = int(statm[0]) * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    atheris.Setup([sys.argv[0], *flags], fuzz_targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
