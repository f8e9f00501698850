"""What a worker says of itself: sessions, streams, what they have made and what they take. Frozen values, and their form on the wire."""

from __future__ import annotations

import os
from dataclasses import dataclass

from . import feed_pb2 as pb

STATUS = "/splitter.v1.Feed/Status"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """What a process takes."""

    resident: int = 0  # bytes, pages shared with others included
    cpu: float = 0.0  # seconds


def usage(pid: int) -> Usage:
    """What the process takes now; nothing when there is none of that number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # its name may hold spaces
    except OSError:
        return Usage()
    return Usage(int(fields[21]) * _PAGE, (int(fields[11]) + int(fields[12])) / _TICKS)


@dataclass(frozen=True)
class StreamStatus:
    """One stream."""

    channel: int
    pid: int
    batches: int  # sent
    nbytes: int  # sent
    queue: int  # batches asked for and not sent yet
    resident: int  # bytes
    cpu: float  # seconds


@dataclass(frozen=True)
class SessionStatus:
    """One trainer."""

    peer: str
    started: float  # seconds since 1970, by the worker's clock
    template: int  # process id
    resident: int  # bytes, of the template
    cpu: float  # seconds, of the template
    streams: tuple[StreamStatus, ...] = ()


@dataclass(frozen=True)
class WorkerStatus:
    """One worker. The totals are since its start, those of streams and sessions that have ended included."""

    program: str
    pid: int
    now: float  # seconds since 1970, by the worker's clock
    started: float
    processes: int  # streams that it would like to run at once
    draining: bool
    batches: int
    nbytes: int
    own: Usage  # of the process that answers
    sessions: tuple[SessionStatus, ...] = ()

    @property
    def queue(self) -> int:
        """Batches asked for and not sent yet."""
        return sum(stream.queue for session in self.sessions for stream in session.streams)

    @property
    def resident(self) -> int:
        """Bytes, of all processes; pages that they share are counted for each."""
        inner = sum(session.resident + sum(stream.resident for stream in session.streams) for session in self.sessions)
        return self.own.resident + inner

    @property
    def cpu(self) -> float:
        """Seconds, of all processes that live."""
        return self.own.cpu + sum(session.cpu + sum(stream.cpu for stream in session.streams) for session in self.sessions)


def to_message(status: WorkerStatus) -> pb.StatusReply:
    """As it goes over the wire."""
    return pb.StatusReply(
        program=status.program,
        pid=status.pid,
        now=status.now,
        started=status.started,
        processes=status.processes,
        draining=status.draining,
        batches=status.batches,
        bytes=status.nbytes,
        resident_bytes=status.own.resident,
        cpu_seconds=status.own.cpu,
        sessions=[_session_message(session) for session in status.sessions],
    )


def _session_message(session: SessionStatus) -> pb.SessionStatus:
    return pb.SessionStatus(
        peer=session.peer,
        started=session.started,
        template=session.template,
        resident_bytes=session.resident,
        cpu_seconds=session.cpu,
        streams=[
            pb.StreamStatus(
                channel=stream.channel,
                pid=stream.pid,
                batches=stream.batches,
                bytes=stream.nbytes,
                queue=stream.queue,
                resident_bytes=stream.resident,
                cpu_seconds=stream.cpu,
            )
            for stream in session.streams
        ],
    )


def from_message(message: pb.StatusReply) -> WorkerStatus:
    """What a worker has sent."""
    return WorkerStatus(
        message.program,
        message.pid,
        message.now,
        message.started,
        message.processes,
        message.draining,
        message.batches,
        message.bytes,
        Usage(message.resident_bytes, message.cpu_seconds),
        tuple(
            SessionStatus(
                session.peer,
                session.started,
                session.template,
                session.resident_bytes,
                session.cpu_seconds,
                tuple(
                    StreamStatus(one.channel, one.pid, one.batches, one.bytes, one.queue, one.resident_bytes, one.cpu_seconds)
                    for one in session.streams
                ),
            )
            for session in message.sessions
        ),
    )
