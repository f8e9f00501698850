"""What a trainer may name on a worker: what computes, and nothing that starts, loads, evaluates or opens."""

from __future__ import annotations

import functools
import http
import io
import operator
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from bombs import named, of, text, tree, u32

from splitter_runtime import accepting
from splitter_runtime import codec_wire as wire
from splitter_runtime.codec import decode, encode
from splitter_runtime.errors import CodecError

ACCEPT = accepting._accepting(frozenset({"__main__.Photos"}))
FORBIDDEN: list[Any] = [os.system, eval, exec, open, getattr, __import__, compile, subprocess.run, shutil.rmtree, sys.exit, os.kill]
GOOD: list[Any] = [
    torch.stack,
    np.load,
    len,
    max,
    os.path.join,
    re.sub,
    "a".join,
    str.lower,
    functools.partial(int, base=2),
    operator.itemgetter(1),
]


def refused(header: bytes, code: bool) -> None:
    with pytest.raises(CodecError, match=r"^R11[03579]: "):
        decode(header, bytearray(0), code=code, accept=ACCEPT if code else accepting.from_trainer)


@pytest.mark.parametrize("function", FORBIDDEN, ids=lambda function: str(function.__name__))
def test_functions(function: Callable[..., Any]) -> None:
    with pytest.raises(CodecError, match=r"^R108: .* which does more than compute"):
        encode({"dataset": function}, code=True)
    refused(tree(wire.FUNCTION, text(function.__module__), text(function.__qualname__)), code=True)
    refused(tree(wire.FUNCTION, text(function.__module__), text(function.__qualname__)), code=False)


@pytest.mark.parametrize("code", [False, True])
def test_classes(code: bool) -> None:
    """As values, which code of the worker program may call; exceptions, paths and files in memory are fine."""
    accept = ACCEPT if code else accepting.from_trainer
    for cls in (subprocess.Popen, types.FunctionType, tempfile.TemporaryDirectory, threading.Thread):
        module, name = ("types", "FunctionType") if cls is types.FunctionType else (cls.__module__, cls.__qualname__)
        refused(tree(wire.CLASS, named(module, name)), code)
    for fine in (subprocess.CalledProcessError, KeyError, pathlib.PurePath, io.BytesIO, dict, torch.nn.Module):
        header = tree(wire.CLASS, named(fine.__module__, fine.__qualname__))
        assert decode(header, bytearray(0), code=code, accept=accept) is fine


def test_members_of_enums_are_data() -> None:
    for value in (signal.SIGTERM, http.HTTPStatus.OK, re.I, os.terminal_size((1, 2))):
        encoded = encode(value)
        assert decode(encoded.header, bytearray(encoded.nbytes), accept=accepting.from_trainer) == value


def test_what_computes_arrives() -> None:
    encoded = encode(GOOD, code=True)
    arrived = decode(encoded.header, bytearray(encoded.nbytes), code=True, accept=ACCEPT)
    assert isinstance(arrived, list) and arrived[:6] == GOOD[:6]


def test_modules() -> None:
    encoded = encode(np, code=True)
    assert decode(encoded.header, bytearray(0), code=True, accept=ACCEPT) is np
    for module in (os, sys, subprocess, torch.hub):
        with pytest.raises(CodecError, match="which does more than compute"):
            encode(module, code=True)
        refused(tree(wire.MODULE, text(module.__name__)), code=True)


def test_getters_do_not_lead_to_modules() -> None:
    """Compose([attrgetter("__init__.__globals__"), itemgetter("os"), ...]) would."""
    for getter in (operator.attrgetter("__init__.__globals__"), operator.methodcaller("__subclasses__")):
        with pytest.raises(CodecError, match=r"^R107: .* two underscores"):
            encode(getter, code=True)
    refused(tree(wire.OBJECT, 9, u32(2), of(("a.__init__",)), of({})), code=True)
    refused(tree(wire.OBJECT, 10, u32(2), of(("__call__",)), of({})), code=True)


@pytest.mark.parametrize("module", ["antigravity", "this", "idlelib.run", "turtledemo", "ctypes"])
def test_nothing_of_that_kind_is_imported(module: str) -> None:
    before = set(sys.modules)
    refused(tree(wire.CLASS, named(module, "Anything")), code=False)
    assert module in before or module not in sys.modules
