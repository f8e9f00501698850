"""What has gone through the channels of a worker, counted as it is relayed."""

from __future__ import annotations

from dataclasses import dataclass

from .frames import MAGIC, VERSION, Buffer, Frame, Kind
from .status import StreamStatus, usage

_INDEX = MAGIC + bytes((VERSION, Kind.INDEX))  # how a frame that asks for a batch begins
_BATCHES = (Kind.ITEM, Kind.STOP, Kind.FAULT)


@dataclass
class Flow:
    """What has gone through one channel, or through several."""

    asked: int = 0  # batches
    batches: int = 0
    nbytes: int = 0

    def take(self, body: Buffer) -> None:
        """A message of the trainer goes to the process; a small frame has one of its own."""
        self.asked += bytes(body[: len(_INDEX)]) == _INDEX

    def give(self, frame: Frame) -> None:
        """A frame of the process goes to the trainer."""
        if frame.kind in _BATCHES:
            self.batches += 1
            self.nbytes += frame.nbytes

    def add(self, other: Flow) -> None:
        """What went through another channel as well."""
        self.asked, self.batches, self.nbytes = self.asked + other.asked, self.batches + other.batches, self.nbytes + other.nbytes

    def stream(self, channel: int, pid: int) -> StreamStatus:
        """The status of the stream whose channel it is."""
        takes = usage(pid)
        return StreamStatus(channel, pid, self.batches, self.nbytes, max(0, self.asked - self.batches), takes.resident, takes.cpu)
