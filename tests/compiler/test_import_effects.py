"""What a module may do when it is imported by both programs, and what not."""

from __future__ import annotations

from pathlib import Path

import pytest

from splitter.effects import Effects
from splitter.import_effects import import_effect, imported_along
from splitter.kinds import Kinds
from splitter.read import Program, read
from splitter.resolve import Resolver


def program(folder: Path, text: str, **others: str) -> Program:
    (folder / "train.py").write_text("import module\n")
    for name, content in {"module": text, **others}.items():
        (folder / f"{name}.py").write_text(content)
    return read(folder / "train.py")


def culprit(found: Program) -> int | None:
    resolver = Resolver(found)
    stmt = import_effect(Effects(resolver, Kinds(resolver)), found.modules["module"])
    return None if stmt is None else stmt.lineno


QUIET = {
    "print": "print('x')",
    "print in a constructor": "class A:\n    def __init__(self):\n        print('x')\nA()",
    "print in a class body": "class A:\n    print('x')",
    "print for want of a library": "try:\n    import accimage\nexcept ImportError:\n    print('slow')",
    "sys.path": "import sys\nsys.path.insert(0, 'lib')",
    "own globals": "NAMES = ['a']\nNAMES.append('b')\nTABLE = {}\nTABLE['x'] = 1\nKNOWN = set()\nKNOWN.add(3)",
    "a global of another module": "import registry\nregistry.TABLE['x'] = 1\nregistry.NAMES.append('x')",
    "a registration": "from registry import register, REGISTRY\n@register('x')\nclass A: pass\nregister('y')(A)",
    "a bare decorator": "from registry import keep\n@keep\ndef f(): pass",
    "an object that registers": "from registry import REGISTRY\n@REGISTRY.module('x')\nclass A: pass\nREGISTRY.add(A)",
    "logging": "import logging\nlogging.basicConfig(level=10)\nlog = logging.getLogger(__name__)\nlog.setLevel(10)",
    "warnings": "import warnings\nwarnings.filterwarnings('ignore')",
    "switches": "import torch, cv2, numpy as np\ntorch.backends.cudnn.benchmark = True\ntorch.set_num_threads(1)\ncv2.setNumThreads(0)",
    "more switches": "import cv2, matplotlib\ncv2.ocl.setUseOpenCL(False)\nmatplotlib.use('Agg')",
    "an object of an unknown library": "import inflect\nengine = inflect.engine()",
    "an import that may fail": "try:\n    import accimage\n    FAST = True\nexcept ImportError:\n    accimage = None\n    FAST = False",
    "the environment": "import os\nSEED = os.environ.get('SEED')\nos.environ['OMP_NUM_THREADS'] = '1'\nos.environ.setdefault('A', 'b')",
    "whether there is a GPU": "import torch\nDEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'",
    "a file that is read": "import json\nwith open('names.json') as file:\n    NAMES = json.load(file)",
    "the main block": "def main(): pass\nif __name__ == '__main__':\n    print('x')\n    main()",
    "a loop": "TABLE = {}\nfor i in range(3):\n    TABLE[i] = i",
    "a function that is not called": "def f():\n    print('x')",
    "random transforms": "from torchvision import transforms\nCROP = transforms.RandomCrop(32)",
}
LOUD = {
    "a log message": "import logging\nlog = logging.getLogger()\nlog.info('x')",
    "a log file": "import logging\nlogging.basicConfig(filename='x.log')",
    "a file handler": "import logging\nhandler = logging.FileHandler('x.log')",
    "arguments": "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--x')",
    "parsed arguments": "from options import parser\nargs = parser.parse_args()",
    "a shell": "import os\nWIDTH = os.popen('stty size').read()",
    "a process": "import subprocess\nHEAD = subprocess.check_output(['git'])",
    "a file in a function that is called": "def f():\n    open('x', 'w')\nf()",
    "a file in a method": "class A:\n    def go(self):\n        open('x', 'w')\na = A()\na.go()",
    "a thread": "from threading import Thread\nThread(target=print).start()",
    "a thread by name": "from threading import Thread\nt = Thread(target=print)\nt.start()",
    "a download": "import nltk\nnltk.download('punkt')",
    "a connection": "import requests\nINDEX = requests.get('http://localhost')",
    "an unknown library's call": "import pynvml\npynvml.nvmlInit()",
    "an unknown library's start": "import wandb\nRUN = wandb.init()",
    "an unknown library's model": "import segmentation_models_pytorch as smp\nNET = smp.create_model('Unet')",
    "a draw": "import torch\nNOISE = torch.randn(3)",
    "a draw in a class": "import torch\nclass A:\n    noise = torch.randn(3)",
    "a draw in a default": "import torch\ndef f(noise=torch.randn(3)): pass",
    "a seed": "import torch\ntorch.manual_seed(0)",
    "a model": "from torch import nn\nNET = nn.Linear(1, 1)",
    "a default device": "import torch\ntorch.set_default_device('cuda')",
    "a default tensor type": "import torch\ntorch.set_default_tensor_type(torch.cuda.FloatTensor)",
    "a written file": "open('x', 'w').write('x')",
    "a folder": "import os\nos.makedirs('logs', exist_ok=True)",
    "a copy": "import shutil\nshutil.copy('a', 'b')",
    "a branch by the environment": "import os\nif os.environ.get('FAST'):\n    SIZE = 32\nelse:\n    SIZE = 64",
    "training": "def train(): open('x', 'w')\nfor epoch in range(3):\n    train()",
    "a loop that may not end": "while True: pass",
    "input": "NAME = input()",
}
OTHERS = {
    "registry": """\
TABLE, NAMES = {}, []
def register(name):
    def keep(cls):
        TABLE[name] = cls
        return cls
    return keep
def keep(f):
    NAMES.append(f.__name__)
    return f
class Registry:
    def __init__(self):
        self.known = {}
    def add(self, cls):
        self.known[cls.__name__] = cls
    def module(self, name):
        def wrap(cls):
            self.known[name] = cls
            return cls
        return wrap
REGISTRY = Registry()
""",
    "loud": """\
def shout(f):
    print(f)
    return f
def late(name):
    def wrap(f):
        print(f)
        return f
    return wrap
""",
    "options": "import argparse\nparser = argparse.ArgumentParser()\n",
}


@pytest.mark.parametrize("name", QUIET)
def test_may(tmp_path: Path, name: str) -> None:
    assert culprit(program(tmp_path, QUIET[name] + "\n", **OTHERS)) is None


@pytest.mark.parametrize("name", LOUD)
def test_may_not(tmp_path: Path, name: str) -> None:
    assert culprit(program(tmp_path, LOUD[name] + "\n", **OTHERS)) is not None


def test_what_is_imported_along(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    text = """\
from a import *
import pkg.b
if TYPE_CHECKING:
    import typed
if __name__ == "__main__":
    import main
try:
    import tried
except ImportError:
    pass
def f():
    import late
"""
    for name in ("a", "pkg/__init__", "pkg/b", "typed", "main", "tried", "late"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "pkg/inner.py").write_text("")
    found = program(tmp_path, text + "from pkg import inner\n")
    assert sorted(module.name for module in imported_along(found, found.modules["module"])) == ["a", "pkg", "pkg.b", "pkg.inner", "tried"]
    assert [module.name for module in imported_along(found, found.modules["pkg.inner"])] == ["pkg"]
