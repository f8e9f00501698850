from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromTrainer(_message.Message):
    __slots__ = ("hello", "open", "data", "close")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    open: Open
    data: Data
    close: Close
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., open: _Optional[_Union[Open, _Mapping]] = ..., data: _Optional[_Union[Data, _Mapping]] = ..., close: _Optional[_Union[Close, _Mapping]] = ...) -> None: ...

class FromWorker(_message.Message):
    __slots__ = ("welcome", "ended", "data", "leaving")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    ended: Ended
    data: Data
    leaving: Leaving
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ..., data: _Optional[_Union[Data, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "digest", "versions", "allow_skew")
    class VersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SKEW_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    digest: str
    versions: _containers.ScalarMap[str, str]
    allow_skew: bool
    def __init__(self, protocol: _Optional[int] = ..., digest: _Optional[str] = ..., versions: _Optional[_Mapping[str, str]] = ..., allow_skew: _Optional[bool] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "digest", "versions", "refused", "datasets", "loaders", "program", "lines", "processes", "host_pid")
    class VersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    DATASETS_FIELD_NUMBER: _ClassVar[int]
    LOADERS_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    HOST_PID_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    digest: str
    versions: _containers.ScalarMap[str, str]
    refused: bool
    datasets: _containers.RepeatedCompositeFieldContainer[Builder]
    loaders: _containers.RepeatedCompositeFieldContainer[Builder]
    program: str
    lines: _containers.RepeatedCompositeFieldContainer[Lines]
    processes: int
    host_pid: int
    def __init__(self, protocol: _Optional[int] = ..., digest: _Optional[str] = ..., versions: _Optional[_Mapping[str, str]] = ..., refused: _Optional[bool] = ..., datasets: _Optional[_Iterable[_Union[Builder, _Mapping]]] = ..., loaders: _Optional[_Iterable[_Union[Builder, _Mapping]]] = ..., program: _Optional[str] = ..., lines: _Optional[_Iterable[_Union[Lines, _Mapping]]] = ..., processes: _Optional[int] = ..., host_pid: _Optional[int] = ...) -> None: ...

class Builder(_message.Message):
    __slots__ = ("name", "stateless", "draws_known", "draws")
    class Stateless(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[Builder.Stateless]
        YES: _ClassVar[Builder.Stateless]
        NO: _ClassVar[Builder.Stateless]
    UNKNOWN: Builder.Stateless
    YES: Builder.Stateless
    NO: Builder.Stateless
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATELESS_FIELD_NUMBER: _ClassVar[int]
    DRAWS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    name: str
    stateless: Builder.Stateless
    draws_known: bool
    draws: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., stateless: _Optional[_Union[Builder.Stateless, str]] = ..., draws_known: _Optional[bool] = ..., draws: _Optional[_Iterable[str]] = ...) -> None: ...

class Lines(_message.Message):
    __slots__ = ("worker", "script", "count", "path")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    worker: int
    script: int
    count: int
    path: str
    def __init__(self, worker: _Optional[int] = ..., script: _Optional[int] = ..., count: _Optional[int] = ..., path: _Optional[str] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("channel", "body")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    channel: int
    body: bytes
    def __init__(self, channel: _Optional[int] = ..., body: _Optional[bytes] = ...) -> None: ...

class Data(_message.Message):
    __slots__ = ("channel", "body")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    channel: int
    body: bytes
    def __init__(self, channel: _Optional[int] = ..., body: _Optional[bytes] = ...) -> None: ...

class Close(_message.Message):
    __slots__ = ("channel",)
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    channel: int
    def __init__(self, channel: _Optional[int] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("channel", "why", "started")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    channel: int
    why: str
    started: bool
    def __init__(self, channel: _Optional[int] = ..., why: _Optional[str] = ..., started: _Optional[bool] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("program", "pid", "now", "started", "processes", "draining", "batches", "bytes", "resident_bytes", "cpu_seconds", "sessions")
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    program: str
    pid: int
    now: float
    started: float
    processes: int
    draining: bool
    batches: int
    bytes: int
    resident_bytes: int
    cpu_seconds: float
    sessions: _containers.RepeatedCompositeFieldContainer[SessionStatus]
    def __init__(self, program: _Optional[str] = ..., pid: _Optional[int] = ..., now: _Optional[float] = ..., started: _Optional[float] = ..., processes: _Optional[int] = ..., draining: _Optional[bool] = ..., batches: _Optional[int] = ..., bytes: _Optional[int] = ..., resident_bytes: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., sessions: _Optional[_Iterable[_Union[SessionStatus, _Mapping]]] = ...) -> None: ...

class SessionStatus(_message.Message):
    __slots__ = ("peer", "started", "template", "resident_bytes", "cpu_seconds", "streams")
    PEER_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    peer: str
    started: float
    template: int
    resident_bytes: int
    cpu_seconds: float
    streams: _containers.RepeatedCompositeFieldContainer[StreamStatus]
    def __init__(self, peer: _Optional[str] = ..., started: _Optional[float] = ..., template: _Optional[int] = ..., resident_bytes: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., streams: _Optional[_Iterable[_Union[StreamStatus, _Mapping]]] = ...) -> None: ...

class StreamStatus(_message.Message):
    __slots__ = ("channel", "pid", "batches", "bytes", "queue", "resident_bytes", "cpu_seconds")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    channel: int
    pid: int
    batches: int
    bytes: int
    queue: int
    resident_bytes: int
    cpu_seconds: float
    def __init__(self, channel: _Optional[int] = ..., pid: _Optional[int] = ..., batches: _Optional[int] = ..., bytes: _Optional[int] = ..., queue: _Optional[int] = ..., resident_bytes: _Optional[int] = ..., cpu_seconds: _Optional[float] = ...) -> None: ...

class Leaving(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
