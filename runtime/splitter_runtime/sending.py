"""Datasets that are sent: built in the trainer by the script's own text, and handed to the workers whenever an iterator is made.

    loader = DataLoader(data, num_workers=2, feed="train", send="dataset")
    iter(loader)      the dataset as it is now goes to every worker, as it would go to torch's own worker processes

Everything goes in one value, so that a dataset and a collate function that share an object share it there too. What a worker accepts is
in `accepting`.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .codec import encode
from .errors import ConfigError
from .session import Session
from .trees import Reference

PARTS = ("dataset", "collate_fn", "worker_init_fn")


def parts(send: str | tuple[str, ...]) -> tuple[str, ...]:
    """The names in `send`; ConfigError for one that isn't an attribute of a loader that can be sent."""
    names = (send,) if isinstance(send, str) else tuple(send)
    wrong = [name for name in names if name not in PARTS]
    if wrong:
        raise ConfigError.of("R601", what=f"send={wrong[0]!r}: only {', '.join(PARTS)} can be sent")
    return names


@dataclass(frozen=True)
class Package:
    """An encoded value, ready to go to every template."""

    header: bytes
    payload: Any

    def digest(self) -> bytes:
        """The same for values that a worker can't tell apart."""
        return hashlib.blake2b(self.payload, key=hashlib.blake2b(self.header).digest()).digest()

    @classmethod
    def of(cls, values: Mapping[str, object], name: str) -> Package:
        """Encode the parts of a loader together. CodecError names what can't be sent: train.dataset.transform."""
        encoded = encode(dict(values), name=name, code=True)
        payload = bytearray(encoded.nbytes)
        encoded.copy_into(payload)
        return cls(encoded.header, np.frombuffer(payload, dtype=np.uint8))


class Received:
    """A dataset that the templates hold for one iterator; they forget it with this."""

    def __init__(self, session: Session, loader: int, package: Package) -> None:
        """Hand it over. CodecError when a worker doesn't accept it."""
        self.number = session.number()
        session.call("receive", loader, package.header, package.payload, fresh=self.number, changes=False)
        weakref.finalize(self, session.drop, self.number).atexit = False

    @property
    def reference(self) -> Reference:
        """How a stream names it."""
        return Reference(self.number)
