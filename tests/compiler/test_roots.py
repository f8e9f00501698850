"""Where local modules are looked for: beside the script, by its package, by sys.path, in its project."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from splitter.compile import compile_script
from splitter.path_edits import path_edits
from splitter.read import Program, read
from splitter.scopes import resolve_names


def project(tmp_path: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def found(program: Program) -> dict[str, str]:
    return {name: module.file.path for name, module in program.modules.items() if name != "__main__"}


CASES: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "beside the script": ({"train.py": "import data", "data.py": ""}, "train.py", {"data": "data.py"}),
    "beside the script before the project's": (
        {"setup.py": "", "tools/train.py": "import data", "tools/data.py": "", "data.py": ""},
        "tools/train.py",
        {"data": "data.py"},
    ),
    "the project's folder": (
        {".git/config": "", "a/b/train.py": "from pkg.data import X", "pkg/__init__.py": "", "pkg/data.py": ""},
        "a/b/train.py",
        {"pkg": "../../pkg/__init__.py", "pkg.data": "../../pkg/data.py"},
    ),
    "a folder between": (
        {"pyproject.toml": "", "a/b/train.py": "import near", "a/near.py": "", "near.py": ""},
        "a/b/train.py",
        {"near": "../near.py"},
    ),
    "not above the project's folder": ({"a/setup.cfg": "", "a/b/train.py": "import data", "data.py": ""}, "a/b/train.py", {}),
    "no project": ({"a/train.py": "import data", "data.py": ""}, "a/train.py", {}),
    "installed libraries are not taken from the project": (
        {"setup.py": "", "a/train.py": "import torchvision, code, datasets", "torchvision.py": "", "code.py": "", "datasets.py": ""},
        "a/train.py",
        {"datasets": "../datasets.py"},
    ),
    "the package's folder": (
        {"pkg/__init__.py": "", "pkg/sub/__init__.py": "", "pkg/sub/train.py": "from pkg.data import X", "pkg/data.py": ""},
        "pkg/sub/train.py",
        {"pkg": "../__init__.py", "pkg.data": "../data.py"},
    ),
    "relative imports": (
        {"pkg/__init__.py": "", "pkg/train.py": "from .data import X\nimport other", "pkg/data.py": "", "pkg/other.py": "", "data.py": ""},
        "pkg/train.py",
        {"pkg": "__init__.py", "pkg.data": "data.py"},
    ),
    "relative imports without __init__.py": (
        {"pkg/sub/train.py": "from ..data import X", "pkg/data.py": ""},
        "pkg/sub/train.py",
        {"pkg.data": "../data.py"},
    ),
    "relative imports that may fail": (
        {
            "pkg/__init__.py": "",
            "pkg/train.py": "try:\n    from .data import X\nexcept ImportError:\n    from data import X",
            "pkg/data.py": "",
        },
        "pkg/train.py",
        {"data": "data.py"},
    ),
    "insert": (
        {"train.py": "import sys\nsys.path.insert(0, 'lib')\nimport data", "lib/data.py": "", "data.py": ""},
        "train.py",
        {"data": "lib/data.py"},
    ),
    "append": (
        {"train.py": "import sys\nsys.path.append('lib')\nimport data, more", "lib/data.py": "", "lib/more.py": "", "data.py": ""},
        "train.py",
        {"data": "data.py", "more": "lib/more.py"},
    ),
    "relative to the project's folder": (
        {"setup.py": "", "tools/train.py": "import sys\nsys.path.append('lib')\nimport data", "lib/data.py": ""},
        "tools/train.py",
        {"data": "../lib/data.py"},
    ),
    "in a module": (
        {
            "tools/train.py": "import paths\nfrom core.data import X",
            "tools/paths.py": "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))",
            "lib/core/data.py": "from . import sizes\nimport deeper",
            "lib/core/sizes.py": "import sys\nsys.path.append('deep')",
            "tools/deep/deeper.py": "",
        },
        "tools/train.py",
        {"paths": "paths.py", "core.data": "../lib/core/data.py", "core.sizes": "../lib/core/sizes.py", "deeper": "deep/deeper.py"},
    ),
    "a package hides what is behind it": (
        {"setup.py": "", "a/train.py": "from pkg.data import X", "a/pkg/__init__.py": "", "pkg/__init__.py": "", "pkg/data.py": ""},
        "a/train.py",
        {"pkg": "pkg/__init__.py"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_modules_are_found(tmp_path: Path, name: str) -> None:
    files, script, expected = CASES[name]
    assert found(read(project(tmp_path, files) / script)) == expected


def test_the_home_folder_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    files = {".git/config": "", "a/train.py": "import data", "data.py": ""}
    assert found(read(project(tmp_path, files) / "a/train.py")) == {}


def test_a_script_of_a_package_knows_its_name(tmp_path: Path) -> None:
    program = read(
        project(tmp_path, {"pkg/__init__.py": "", "pkg/sub/train.py": "from ..data import X", "pkg/data.py": ""}) / "pkg/sub/train.py"
    )
    assert (program.entry.package, program.elsewhere(program.modules)) == ("pkg.sub", (("pkg", "../.."),))


EDITS = {
    "sys.path.append('core')": [("end", "core")],
    "sys.path += ['a', 'b']": [("end", "a"), ("end", "b")],
    "sys.path.extend(['a'])": [("end", "a")],
    "sys.path.insert(1, osp.join(osp.dirname(osp.abspath(__file__)), 'lib'))": [("second", "/p/tools/lib")],
    "sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'src'))": [("front", "/p/src")],
    "sys.path.insert(0, str(Path(__file__).parent.parent))": [("front", "/p")],
    "here = osp.dirname(__file__)\nsys.path.insert(0, here + '/../lib')": [("front", "/p/tools/../lib")],
    "def add(path):\n    if path not in sys.path:\n        sys.path.insert(0, path)\nadd('a')\nadd(osp.join('b', 'c'))": [
        ("front", "a"),
        ("front", "b/c"),
    ],
    "sys.path.append(os.environ['LIB'])": [("end", None)],
    "sys.path.append(choose())": [("end", None)],
    "here = 'a'\nhere = 'b'\nsys.path.append(here)": [("end", None)],
    "sys.path.remove('a')": [],
    "other.path.append('a')": [],
}


@pytest.mark.parametrize("text", EDITS)
def test_path_edits(text: str) -> None:
    tree = ast.parse(f"import os, sys\nimport os.path as osp\nfrom pathlib import Path\n{text}\n")
    assert [(where, folder) for _, where, folder in path_edits(tree, resolve_names(tree), "/p/tools/train.py")] == EDITS[text]


DATA = """\
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): return index

if __name__ == "__main__":
    loader = DataLoader(Rows(), num_workers=1)
"""
TRAIN = "from data import Rows\nfrom torch.utils.data import DataLoader\nloader = DataLoader(Rows(), num_workers=1)\n"


def test_a_main_block_of_a_module_has_no_loader(tmp_path: Path) -> None:
    folder = project(tmp_path, {"data.py": DATA, "train.py": TRAIN})
    assert [feed.loader.path for feed in compile_script(folder / "train.py").feeds] == ["train.py"]
    assert [feed.loader.path for feed in compile_script(folder / "data.py").feeds] == ["data.py"]


def test_path_edits_that_the_text_does_not_give(tmp_path: Path) -> None:
    """Then the trainer compares every module with what was read."""
    folder = project(tmp_path, {"lib/data.py": DATA, "data.py": DATA})
    cases = {"'lib'": (None, (("data", "lib"),)), "os.environ['LIB']": (None, (("data", "."),)), "choose()": ("S319", ())}
    for argument, (code, roots) in cases.items():
        (folder / "train.py").write_text(f"import os, sys\ndef choose(): return sys.argv[1]\nsys.path.insert(0, {argument})\n{TRAIN}")
        plan = compile_script(folder / "train.py")
        assert ({feed.code for feed in plan.feeds}, plan.roots) == ({code}, roots)
