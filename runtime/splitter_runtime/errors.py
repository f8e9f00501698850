"""Exceptions of the runtime, and what each of their codes means.

    RuntimeError
      SplitterError
        CodecError        R1xx  a value can't be sent, or bytes that arrived are not a value
        SkewError         R2xx  worker and trainer are not the same versions
        AuthError         R3xx  token or certificate refused
        WorkerLostError   R4xx  a worker, template or stream ended
        RemoteError       R5xx  the worker's program failed in a way that has no exception type here
        ConfigError       R6xx  an option or environment variable is wrong, or what a script was split for has changed

Every message starts with its code and ends with what to do: `R102: batch[0]["x"]: a tensor that ... Call .detach() on it`.
`CODES` maps a code to its message (fields in braces) and hint, so that `splitter explain R102` can print them.
Build one with `CodecError.of("R102", path=..., grad_fn=...)`; the constructor itself takes a finished text, so that an
exception can be rebuilt from its text alone.
"""

from __future__ import annotations

from typing import TypeVar

_E = TypeVar("_E", bound="SplitterError")

CODES: dict[str, tuple[str, str]] = {
    "R101": (
        "{path}: {type} can't be sent",
        "Return tensors, arrays, plain data or instances of it, or register the type with torch.utils._pytree.",
    ),
    "R102": (
        "{path}: a tensor that was computed with gradients (grad_fn={grad_fn}) can't be sent",
        "Call .detach() on it, or compute it under torch.no_grad().",
    ),
    "R103": (
        "{path}: a {what} tensor can't be sent",
        "Make it an ordinary tensor in CPU memory first (.cpu(), .to_dense(), .rename(None)).",
    ),
    "R104": (
        "{path}: {what} is {size}, above the limit of {limit}",
        "Make the value smaller or flatter, for example with a smaller batch.",
    ),
    "R105": (
        "{path}: a {type} that contains itself can't be sent",
        "Break the cycle; lists, dicts and instances may contain themselves, tuples, sets and arrays may not.",
    ),
    "R106": (
        "{path}: the class {type} can't be found under its name",
        "Define it at the top level of a module, under the name that it has.",
    ),
    "R107": (
        "{path}: {type} can't be sent: {why}",
        "Change what is returned to plain data, or convert it in collate_fn.",
    ),
    "R108": (
        "{path}: {what} can't be sent",
        "Define it with def at the top level of a module, under the name that it has.",
    ),
    "R109": (
        "{path}: {what} can't be sent with a dataset: the worker would get a copy that is not kept up to date",
        "Keep models, and memory that processes share, out of datasets and transforms.",
    ),
    "R110": (
        "the bytes received are damaged: {why}",
        "Check that both sides run the same version of splitter_runtime.",
    ),
    "R111": (
        "the bytes received have format {theirs}, this side reads {ours}",
        "Install the same version of splitter_runtime on both sides.",
    ),
    "R112": (
        "{what} of the value received is {size}, above the limit of {limit}",
        "Raise the limit, or send less at once.",
    ),
    "R113": (
        "the class {name} of the value received is not known here",
        "Import its module in the program before the first batch, so that both sides know the class.",
    ),
    "R114": (
        "the payload received has {size} bytes, its header says {expected}",
        "Send the batch again; the connection lost part of it.",
    ),
    "R115": (
        "no registration with torch.utils._pytree for {name} here",
        "Register the type in a module that the script and its worker program both import.",
    ),
    "R116": ("{name} is not known to the {library} here", "Install the same version of {library} on both sides."),
    "R117": (
        "{name} is not one of the classes and functions that the worker program accepts",
        "Compile the script again, so that the worker program lists what the dataset consists of.",
    ),
    "R118": (
        "a set of {size} items would be iterated in another order here than in the process that sent it",
        "Sort what the dataset iterates over, or keep a list.",
    ),
    "R119": (
        "{name}, which the value received needs, can't be imported here: {why}",
        "Install the package on the worker's host in the version that the trainer has.",
    ),
    "R201": ("worker and trainer differ: {difference}", "Install the same versions, or set SPLITTER_ALLOW_SKEW=1."),
    "R301": ("the worker {worker} refused the token", "Give worker and trainer the same token."),
    "R401": ("worker {worker} was lost: {why}", "Look at the worker's log for the reason, then start again."),
    "R402": ("no worker came within {seconds} s: {why}", "Start one, or raise SPLITTER_GRACE_SECONDS; the run can be started again."),
    "R403": (
        "stream {number} of loader {loader} was lost {times} times at the same batch, the last time on {worker}: {why}",
        "Look at what this batch does to its process: memory, or a library that crashes. The indices that it was given: {indices}.",
    ),
    "R501": ("the worker raised {type}: {text}", "Look at the remote traceback above for the line that failed."),
    "R601": ("{what}", "Correct it and start again."),
    "R602": (
        "the state of loader {loader} can't be saved: {why}",
        "Save between two epochs, and begin the interrupted one again.",
    ),
    "R603": (
        "loader {loader} can't go on from the saved state: {why}",
        "Correct it, or begin the epoch again without load_state_dict().",
    ),
    "R604": (
        "{what}, other than in the samples that were recorded when the script was split",
        "Transform the script again, with more samples (--samples) or with --static.",
    ),
    "R605": ("the finish on the device: {what}", "Transform the script again with --finish-on cpu."),
    "R606": (
        "{path} is {found} where it is finished, and was {given} when the loader gave it",
        "Only move a batch to its device before that line, or transform the script again with --finish-on cpu.",
    ),
}


class SplitterError(RuntimeError):
    """Any failure of the runtime. `str()` starts with the code; `.code` is the code alone."""

    @classmethod
    def of(cls: type[_E], code: str, **fields: object) -> _E:
        """Make the exception of `code` with the fields of its message; KeyError when a field is missing."""
        message, hint = CODES[code]
        return cls(f"{code}: {message.format(**fields)}. {hint.format(**fields)}")

    @property
    def code(self) -> str:
        """The code that the text starts with, or "" when it has none."""
        head = str(self).split(":", 1)[0]
        return head if head in CODES else ""


class CodecError(SplitterError):
    """A value can't be sent (R101-R109), or received bytes are not a value (R110-R118)."""


class SkewError(SplitterError):
    """Worker and trainer differ in the digest of the split or in versions."""


class AuthError(SplitterError):
    """A token or certificate was refused."""


class WorkerLostError(SplitterError):
    """A worker, its template or one of its streams ended or stopped answering."""


class RemoteError(SplitterError):
    """The worker's program failed with an exception that can't be rebuilt here."""


class ConfigError(SplitterError):
    """An option or an environment variable is wrong, or what a script was split for is not what it meets."""
