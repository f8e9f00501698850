"""The finders of the script's own modules: what Python finds must be what was read."""

from __future__ import annotations

import importlib.machinery
import sys
from pathlib import Path

import pytest

from splitter_runtime.errors import ConfigError
from splitter_runtime.local_modules import PatchedLoader, RootFinder, TrainerFinder


def package(folder: Path, *, namespace: bool = False) -> Path:
    (folder / "birds").mkdir(parents=True)
    if not namespace:
        (folder / "birds/__init__.py").write_text("")
    (folder / "birds/data.py").write_text("SIZE = 1\n")
    return folder


@pytest.fixture
def finder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainerFinder:
    """A trainer's finder whose script has a patched copy of birds.data, read in `read`."""
    (tmp_path / "copy.py").write_text("SIZE = 2\n")
    made = TrainerFinder({"birds.data": str(tmp_path / "copy.py")}, {"birds": str(tmp_path / "read")}, str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [made, *sys.meta_path])
    return made


def found(finder: TrainerFinder, folder: Path) -> importlib.machinery.ModuleSpec:
    spec = finder.find_spec("birds.data", [str(folder / "birds")])
    assert spec is not None
    return spec


@pytest.mark.parametrize("namespace", [False, True])
def test_what_python_finds_gets_the_text_of_the_copy(
    tmp_path: Path, finder: TrainerFinder, namespace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = package(tmp_path / "read", namespace=namespace)
    monkeypatch.syspath_prepend(read)
    above = finder.find_spec("birds", None)
    assert above is not None and list(above.submodule_search_locations or ()) == [str(read / "birds")]
    spec = found(finder, read)
    assert spec.origin == str(read / "birds/data.py")
    assert isinstance(spec.loader, PatchedLoader) and spec.loader.get_source("birds.data") == "SIZE = 2\n"
    assert finder.find_spec("torch", None) is None
    assert finder.find_spec("birds.other", [str(read / "birds")]) is None


@pytest.mark.parametrize("namespace", [False, True])
def test_what_python_does_not_find_is_where_it_was_read(tmp_path: Path, finder: TrainerFinder, namespace: bool) -> None:
    read = package(tmp_path / "read", namespace=namespace)
    spec = finder.find_spec("birds", None)
    assert spec is not None and list(spec.submodule_search_locations or ()) == [str(read / "birds")]


@pytest.mark.parametrize("namespace", [False, True])
def test_another_file_than_was_read(tmp_path: Path, finder: TrainerFinder, namespace: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    read, other = package(tmp_path / "read"), package(tmp_path / "other", namespace=namespace)
    monkeypatch.syspath_prepend(other)
    with pytest.raises(ConfigError) as caught:
        finder.find_spec("birds", None)
    wrong = other / "birds" if namespace else other / "birds/__init__.py"
    assert str(caught.value).startswith(f"R601: Python imports birds from {wrong}, but {read / 'birds/__init__.py'} was read")
    with pytest.raises(ConfigError, match=str(other / "birds/data.py")):
        found(finder, other)


def test_links_are_the_same_file(tmp_path: Path, finder: TrainerFinder, monkeypatch: pytest.MonkeyPatch) -> None:
    read = package(tmp_path / "read")
    (tmp_path / "link").symlink_to(read)
    monkeypatch.syspath_prepend(tmp_path / "link")
    assert finder.find_spec("birds", None) is not None


def test_a_worker_looks_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = package(tmp_path / "read")
    monkeypatch.syspath_prepend(package(tmp_path / "other"))
    told = RootFinder({"birds": str(read), "gone": str(read)})
    spec = told.find_spec("birds", None)
    assert spec is not None and spec.origin == str(read / "birds/__init__.py")
    assert told.find_spec("gone", None) is None and told.find_spec("birds.data", [str(read)]) is None
