"""Virtual environments of the peers, made below the benchmarks' folder; peers are never dependencies.

An environment that needs torch sees this one's site-packages behind its own, by a .pth file, so that torch isn't installed again.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

from command import CommandError, run_command

INSTALL_SECONDS = 900.0


@dataclass(frozen=True)
class Peer:
    """A library that is measured beside the split."""

    name: str  # of the contender, and of the environment's folder
    title: str
    program: str  # in tools/peers
    requirements: tuple[str, ...]
    python: bool  # whether it runs the user's Python: it then needs the torch that is installed here


PEERS = (
    Peer("tensorflow", "tf.data service 2.21.0", "tfdata_service.py", ("tensorflow-cpu==2.21.0",), False),
    # ray[data]'s iter_torch_batches imports pydantic, which it doesn't ask for.
    Peer("ray", "Ray Data 2.60.0", "ray_data.py", ("ray[data]==2.60.0", "pydantic"), True),
    Peer("rpcdataloader", "RPCDataloader 0.2.1", "rpc_dataloader.py", ("rpcdataloader==0.2.1",), True),
)


def ensure_venv(folder: Path, peer: Peer) -> Path:
    """The Python of the peer's environment, which is made unless it was made before, with the same requirements, by this Python.

    Raises CommandError when the peer can't be installed.
    """
    home = folder / peer.name
    python = home / "bin" / "python"
    stamp = home / "installed.txt"
    wanted = "\n".join((sys.version, *peer.requirements))
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    try:
        venv.EnvBuilder(with_pip=True, clear=True, symlinks=True).create(home)
    except subprocess.CalledProcessError as error:
        raise CommandError(f"no environment can be made in {home}: {error}") from None
    if peer.python:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        behind = home / "lib" / version / "site-packages" / "zz_behind.pth"
        behind.write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    argv = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements]
    run_command(argv, folder=folder, seconds=INSTALL_SECONDS)
    stamp.write_text(wanted, encoding="utf-8")
    return python
