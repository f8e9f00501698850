"""Codes and messages of the runtime's exceptions."""

from __future__ import annotations

import string

import pytest

from splitter_runtime import errors
from splitter_runtime.errors import CODES, CodecError, SplitterError


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_message_and_a_hint(code: str) -> None:
    message, hint = CODES[code]
    assert not message.endswith(".") and hint.endswith(".")
    fields = {name for _, name, _, _ in string.Formatter().parse(message + hint) if name}
    text = str(SplitterError.of(code, **{name: "x" for name in fields}))
    assert text.startswith(f"{code}: ") and "{" not in text


def test_classes_form_the_tree_of_the_docstring() -> None:
    for name in ("CodecError", "SkewError", "AuthError", "WorkerLostError", "RemoteError", "ConfigError"):
        assert issubclass(getattr(errors, name), SplitterError) and name in (errors.__doc__ or "")
    assert issubclass(SplitterError, RuntimeError)


def test_an_exception_is_rebuilt_from_its_text() -> None:
    error = CodecError.of("R114", size=1, expected=2)
    again = CodecError(str(error))
    assert error.code == again.code == "R114" and str(error) == str(again)
    assert SplitterError("something else").code == ""
