"""What a worker imports because the trainer names it."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from splitter_runtime import accepting
from splitter_runtime.errors import CodecError

LIBRARY = "import random\n\nrandom.random()\n\n\nclass Option:\n    pass\n"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, and beside it one of the script's modules."""
    installed, script = tmp_path / "installed", tmp_path / "script"
    for folder, name in ((installed, "made_up_library"), (script, "made_up_script")):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("")
        (folder / name / "options.py").write_text(LIBRARY)
        (folder / name / "broken.py").write_text("1 / 0\n")
        for module in (name, f"{name}.options", f"{name}.broken"):
            monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(accepting, "_installed", lambda: {str(installed.resolve())})
    return tmp_path


def test_a_library_is_imported_when_a_value_names_it(packages: Path) -> None:
    before = random.getstate()
    assert accepting.from_trainer("made_up_library.options", "Option")
    assert "made_up_library.options" in sys.modules
    assert random.getstate() == before, "what its import draws is not seen"


def test_a_module_of_the_script_is_not(packages: Path) -> None:
    assert accepting.from_trainer("made_up_script.options", "Option"), "it may be here already, or is not found"
    assert "made_up_script" not in sys.modules


@pytest.mark.parametrize("module", ["made_up_library.broken", "made_up_library.missing"])
def test_a_library_that_can_not_be_imported(packages: Path, module: str) -> None:
    with pytest.raises(CodecError, match=f"^R119: {module}, which the value received needs, can't be imported here: "):
        accepting.from_trainer(module, "Option")


def test_names_that_lead_nowhere(packages: Path) -> None:
    for name in ("__main__", "made_up_nothing", "", ".", "made up"):
        assert accepting.from_trainer(name, "Option")
