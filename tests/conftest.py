"""Options and fixtures for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from quick import nurseries
from scratch import Scratch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite the expected/ folders of the fixtures")
    parser.addoption("--all-pools", action="store_true", help="verify every fixture with every kind of pool")


def pytest_configure() -> None:
    """Programs inherit that Ctrl-C is ignored, as a shell has it for what it starts in the background; tests send it to them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What splitter starts from the process of a test is forked as well."""
    monkeypatch.setattr("splitter.start.open_process", nurseries().start)


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update"))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fixtures")


@pytest.fixture
def scratch(tmp_path: Path, library: Path) -> Iterator[Scratch]:
    scratch = Scratch(tmp_path, library)
    try:
        yield scratch
        scratch.assert_nothing_left()
    finally:
        scratch.end()
