"""What worker and trainer tell each other when a session opens, and how they find that they differ."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

from . import feed_pb2 as pb
from .builders import Builder, Program
from .errors import SkewError
from .wire import PROTOCOL

PACKAGES = ("torch", "numpy", "torchvision", "Pillow")

_TO_WIRE = {None: pb.Builder.UNKNOWN, True: pb.Builder.YES, False: pb.Builder.NO}
_FROM_WIRE = {wire: value for value, wire in _TO_WIRE.items()}


@dataclass(frozen=True)
class Lines:
    """`count` lines of the worker program, from line `worker` on, that are `path`'s from line `script` on."""

    worker: int
    script: int
    count: int
    path: str


@dataclass(frozen=True)
class Manifest:
    """What a worker says about its program. `datasets` and `loaders` map a builder's name to whether it is stateless, `dataset_draws` and
    `loader_draws` to the generators that it may draw from (None: not known, or it matters which process makes a batch)."""

    digest: str
    datasets: Mapping[str, bool | None]
    loaders: Mapping[str, bool | None]
    dataset_draws: Mapping[str, tuple[str, ...] | None]
    loader_draws: Mapping[str, tuple[str, ...] | None]
    program: str
    lines: tuple[Lines, ...]
    processes: int


def versions() -> dict[str, str]:
    """Versions that decide whether two machines compute the same; "" for what isn't installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = ""
    return found


def describe(digest: str, protocol: int, found: Mapping[str, str]) -> str:
    """One side in one line."""
    parts = [f"{name} {version or 'not installed'}" for name, version in sorted(found.items())]
    return ", ".join([f"split {digest[:23]}", f"protocol {protocol}", *parts])


def differences(mine: pb.Hello | pb.Welcome, theirs: pb.Hello | pb.Welcome) -> tuple[str, ...]:
    """Names of what differs: "split", "protocol", "torch", ..."""
    names = [name for name in ("digest", "protocol") if getattr(mine, name) != getattr(theirs, name)]
    packages = sorted(set(mine.versions) | set(theirs.versions))
    return (*names, *(name for name in packages if mine.versions.get(name, "") != theirs.versions.get(name, "")))


def check(hello: pb.Hello, welcome: pb.Welcome, worker: str) -> None:
    """SkewError with both lists when worker and trainer differ and that isn't allowed; a protocol must always agree."""
    different = differences(hello, welcome)
    if not different or (hello.allow_skew and "protocol" not in different):
        return
    lists = (
        f"{', '.join(different)}\n"
        f"  trainer: {describe(hello.digest, hello.protocol, hello.versions)}\n"
        f"  worker {worker}: {describe(welcome.digest, welcome.protocol, welcome.versions)}\n"
    )
    raise SkewError.of("R201", difference=lists)


def hello(digest: str) -> pb.Hello:
    """The trainer's first message."""
    allow = os.environ.get("SPLITTER_ALLOW_SKEW", "") == "1"
    return pb.Hello(protocol=PROTOCOL, digest=digest, versions=versions(), allow_skew=allow)


def welcome(digest: str, program: Program, path: str, lines: tuple[Lines, ...], processes: int) -> pb.Welcome:
    """The worker's first message."""

    def builders(table: Mapping[str, Builder]) -> list[pb.Builder]:
        return [
            pb.Builder(name=name, stateless=_TO_WIRE[one.stateless], draws_known=one.draws is not None, draws=one.draws or ())
            for name, one in table.items()
        ]

    return pb.Welcome(
        protocol=PROTOCOL,
        digest=digest,
        versions=versions(),
        datasets=builders(program.datasets),
        loaders=builders(program.loaders),
        program=path,
        lines=[pb.Lines(worker=part.worker, script=part.script, count=part.count, path=part.path) for part in lines],
        processes=processes,
        host_pid=os.getpid(),
    )


def _drawn(builder: pb.Builder) -> tuple[str, ...] | None:
    return tuple(builder.draws) if builder.draws_known else None


def read(message: pb.Welcome) -> Manifest:
    """What a Welcome says."""
    return Manifest(
        digest=message.digest,
        datasets={builder.name: _FROM_WIRE[builder.stateless] for builder in message.datasets},
        loaders={builder.name: _FROM_WIRE[builder.stateless] for builder in message.loaders},
        dataset_draws={builder.name: _drawn(builder) for builder in message.datasets},
        loader_draws={builder.name: _drawn(builder) for builder in message.loaders},
        program=message.program,
        lines=tuple(Lines(part.worker, part.script, part.count, part.path) for part in message.lines),
        processes=message.processes,
    )
