"""Generate splitter_runtime's protobuf module from runtime/feed.proto.

python tools/gen_proto.py           # write runtime/splitter_runtime/feed_pb2.py and feed_pb2.pyi
python tools/gen_proto.py --check   # exit status 1 when they are not what the proto file gives
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped]

RUNTIME = Path(__file__).resolve().parent.parent / "runtime"
PACKAGE = RUNTIME / "splitter_runtime"


def generate(folder: Path) -> dict[str, str]:
    """Compile the proto file into `folder`; returns file name -> text. SystemExit when protoc refuses it."""
    # Mapped into a folder of its own name: descriptors are registered by file name, and a user may have a feed.proto too.
    outputs = [f"--python_out={folder}", f"--pyi_out={folder}"]
    status = protoc.main(["protoc", f"-I{PACKAGE.name}={RUNTIME}", *outputs, f"{PACKAGE.name}/feed.proto"])
    if status != 0:
        sys.exit(f"protoc ended with status {status}")
    return {path.name: path.read_text() for path in sorted((folder / PACKAGE.name).iterdir())}


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        generated = generate(Path(folder))
    if "--check" in arguments:
        stale = [name for name, text in generated.items() if not (PACKAGE / name).exists() or (PACKAGE / name).read_text() != text]
        for name in stale:
            print(f"{PACKAGE / name} is not current: run python tools/gen_proto.py", file=sys.stderr)
        return 1 if stale else 0
    for name, text in generated.items():
        (PACKAGE / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
