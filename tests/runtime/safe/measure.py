"""Reads all bombs and the corpus with little memory to take; says what was wrong, and ends with status 1 when something was.

A program of its own, since the limit holds for a whole process and a crash ends it.
"""

from __future__ import annotations

import resource
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2] / "tools"), str(HERE)]

import PIL.Image  # noqa: E402
from bombs import BOMBS  # noqa: E402
from fuzz_targets import TARGETS  # noqa: E402

from splitter_runtime.codec import Limits, decode, payload_size  # noqa: E402
from splitter_runtime.errors import CodecError  # noqa: E402

ROOM = 256 << 20
LIMITS = Limits(max_payload=1 << 20, max_header=4 << 20, max_depth=50, max_nodes=200_000)


def bomb(name: str) -> str:
    """What is wrong with how a bomb is refused, "" for nothing."""
    given = BOMBS[name]
    payload = bytearray(payload_size(given.header, limits=LIMITS))
    try:
        value = decode(given.header, payload, limits=LIMITS, code=given.code)
    except CodecError as error:
        return "" if given.says in str(error) else f"{name}: {error}"
    return f"{name}: it is taken for {type(value)}"


def main() -> int:
    """Everything, one after another."""
    warnings.simplefilter("ignore")
    PIL.Image.preinit()
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    wrong = [said for said in map(bomb, BOMBS) if said]
    for path in sorted(HERE.joinpath("corpus").glob("*/*")):
        for target in TARGETS.values():
            target(path.read_bytes())
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
