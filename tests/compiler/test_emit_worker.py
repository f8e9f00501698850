"""The worker program: the script's own words, and where each line came from."""

from __future__ import annotations

import ast

import pytest
from plans import Script, feed, photos, plan

from splitter.emit_worker import emit_worker
from splitter.ir import Builder, Fragment, NamesFrom, Plan, WorkerModule


def worker(script: Script, *builders: Builder, modules: tuple[Script, ...] = (), **module) -> str:
    return emit_worker(planned(script, *builders, modules=modules, **module), script="train.py", folder=None).text


def planned(script: Script, *builders: Builder, modules: tuple[Script, ...] = (), **module) -> Plan:
    first = script.grid.line(1)
    return plan(
        script,
        modules,
        worker=WorkerModule(builders=builders, **module),
        feeds=(feed(script, first, residence="moved"),),
    )


def dataset(script: Script, result: str, *body: str, **given) -> Builder:
    values = {"environment": (), "globals": (), **given}
    return Builder("dataset", "train", "train", body=tuple(script.lines(text) for text in body), result=script.span(result), **values)


def between(text: str) -> str:
    """What stands between the runtime's import and the main block."""
    return text.split("import splitter_runtime\n", 1)[1].split('\n\nif __name__ == "__main__":', 1)[0].strip("\n") + "\n"


def test_photos() -> None:
    made = emit_worker(photos(), script="train.py", folder=None)
    assert (
        made.text
        == '''\
"""Worker of train.py: makes the batches of one loader, `train`, on a CPU host.

    python train_worker.py --listen 0.0.0.0:7077 --token-file token

Written by splitter 0.1.0 from train.py (sha256:52b0c4e1).
Change train.py and run `splitter transform train.py` again.
"""
import os

import torchvision.datasets as datasets

import splitter_runtime


@splitter_runtime.dataset("train", stateless=True)
def train(args):  # train.py:16-21
    traindir = os.path.join(args.data, "train")

    return datasets.ImageFolder(
        traindir,
        size=args.size,
    )


if __name__ == "__main__":
    splitter_runtime.serve(
        digest="sha256:52b0c4e1",
        script="train.py",
        lines=((8, 3, 1), (10, 6, 1), (17, 16, 1), (19, 18, 4)),
    )
'''
    )
    assert made.lines == ((8, 3, 1), (10, 6, 1), (17, 16, 1), (19, 18, 4))


def test_another_folder() -> None:
    text = emit_worker(photos(), script="../train.py", folder="..").text
    assert text.split('"""\n', 2)[1].split("import os\n\nimport torchvision")[0] == (
        'import os.path\nimport sys\n\n__file__ = os.path.normpath(os.path.join(os.path.dirname(__file__), "../train.py"))\n'
        "sys.path.insert(0, os.path.dirname(__file__))\n\n"
    )
    text = emit_worker(photos(), script="/code/train.py", folder="/code").text
    assert '\n__file__ = "/code/train.py"\nsys.path.insert(0, os.path.dirname(__file__))\n\nimport os\n' in text


def test_a_folder_far_away() -> None:
    far = "../" * 12 + "a_long_name_of_a_project/training/train.py"
    text = emit_worker(photos(), script=far, folder=far.rpartition("/")[0]).text
    assert f'\n__file__ = os.path.normpath(\n    os.path.join(os.path.dirname(__file__), "{far}")\n)\nsys.path.insert' in text


def test_code_that_reads_its_own_path_gets_the_scripts() -> None:
    script = Script("d = Data(__file__)\n")
    text = worker(script, dataset(script, "Data(__file__)"))
    assert '\n__file__ = os.path.normpath(os.path.join(os.path.dirname(__file__), "train.py"))\n\nimport splitter' in text
    assert "sys.path" not in text


def test_every_mapped_line_is_the_scripts() -> None:
    script = Script(
        "import os\nimport torch\n\n\ndef late():\n    pass\n\n\n"
        'def pad(rows):\n    """Doc.\n\n    More.\n    """\n    return rows\n\n\n'
        "if True:\n    a = 1\n    data = Data(\n        a,\n    )\n"
    )
    made = emit_worker(
        planned(
            script,
            dataset(script, "Data(\n        a,\n    )", "a = 1"),
            Builder("loader", "train", "train_loader", (), (), (), None, script.span("pad")),
            imports=(script.lines("import torch"),),
            definitions=(script.lines('def pad(rows):\n    """Doc.\n\n    More.\n    """\n    return rows'),),
        ),
        script="train.py",
        folder=None,
    )
    lines = made.text.split("\n")
    compared = 0
    for first, origin, count in made.lines:
        for step in range(count):
            written, original = lines[first - 1 + step].strip(), script.grid.line(origin + step).strip()
            assert original.removesuffix(")") in written or written.startswith("return"), (written, original)
            compared += 1
    assert compared == 12


def test_decorators_say_what_is_known() -> None:
    script = Script("d = Data(a, b.c)\n")
    text = worker(
        script,
        dataset(script, "Data(a, b.c)", environment=("a", "b.c", "b.d"), globals=("a",), stateless=False),
        Builder("loader", "train", "train_loader", (), (), (), None, None, script.span("a")),
    )
    assert between(text) == (
        '@splitter_runtime.dataset("train", stateless=False, globals=("a",))\n'
        "def train(b):  # train.py:1\n    return Data(a, b.c)\n\n\n"
        '@splitter_runtime.loader("train")\n'
        "def train_loader():  # train.py:1\n    return splitter_runtime.Loader(worker_init_fn=a)\n"
    )


def test_future_local_imports_and_definitions() -> None:
    script = Script(
        "import os\n\nSIZE = 3\nMEAN = 0.5\n\nSTD = 1\nOTHER = 2\nFAR = 3\n# what it is\nclass Data:\n    pass\nlast = Data()\n"
    )
    text = worker(
        script,
        dataset(script, "Data()"),
        future=("annotations",),
        imports=(script.lines("import os"),),
        local_imports=(NamesFrom("loaders", ("TF", "Photos")), NamesFrom("pkg.more", ("x",))),
        definitions=tuple(
            script.lines(part) for part in ("SIZE = 3", "MEAN = 0.5", "STD = 1", "FAR = 3", "# what it is\nclass Data:\n    pass")
        ),
    )
    assert text.split('"""\n', 2)[1].split("@splitter", 1)[0] == (
        "from __future__ import annotations\n\nimport os\n\nfrom loaders import TF, Photos\nfrom pkg.more import x\n\n"
        "import splitter_runtime\n\nSIZE = 3\nMEAN = 0.5\n\nSTD = 1\nFAR = 3\n# what it is\nclass Data:\n    pass\n\n\n"
    )


def test_long_local_import_is_wrapped() -> None:
    script = Script("d = Data()\n")
    names = tuple(f"some_long_name_{n}" for n in range(9))
    text = worker(script, dataset(script, "Data()"), local_imports=(NamesFrom("loaders", names),))
    ast.parse(text)
    assert "from loaders import (\n    some_long_name_0,\n" in text


BODIES = {
    "from a deeper block": (
        "if 1:\n    if 2:\n        a = 1\n        d = Data(\n            a)\n",
        ["a = 1"],
        "Data(\n            a)",
        "    a = 1\n    return Data(\n        a)\n",
    ),
    "tabs": (
        "def f():\n\ta = [\n\t\t1]\n\tif a:\n\t\ta = 2\n\td = Data(\n\t\ta)\n",
        ["a = [\n\t\t1]\n\tif a:\n\t\ta = 2"],
        "Data(\n\t\ta)",
        "\ta = [\n\t\t1]\n\tif a:\n\t\ta = 2\n\treturn Data(\n\t\ta)\n",
    ),
    "a string of many lines": (
        'if 1:\n    a = """x\n    y\n  z"""\n    d = Data(a, """p\n        q""")\n',
        ['a = """x\n    y\n  z"""'],
        'Data(a, """p\n        q""")',
        '    a = """x\n    y\n  z"""\n    return Data(a, """p\n        q""")\n',
    ),
    "an f-string of many lines": (
        'if 1:\n        a = f"""x{\n1}\n    y"""\n        b = (a +\n             a)\n        d = Data(b)\n',
        ['a = f"""x{\n1}\n    y"""', "b = (a +\n             a)"],
        "Data(b)",
        '    a = f"""x{\n1}\n    y"""\n    b = (a +\n         a)\n    return Data(b)\n',
    ),
    "a backslash in a string": (
        "if 1:\n        a = 'x\\\n        y'\n        d = Data(a)\n",
        ["a = 'x\\\n        y'"],
        "Data(a)",
        "    a = 'x\\\n        y'\n    return Data(a)\n",
    ),
    "a continuation left of its statement": (
        "if 1:\n        a = (1,\n  2)\n        d = Data(a)\n",
        ["a = (1,\n  2)"],
        "Data(a)",
        "    a = (1,\n    2)\n    return Data(a)\n",
    ),
    "an expression that needs its parentheses": (
        "if 1:\n    d = (Data\n         .open())\n",
        [],
        "Data\n         .open()",
        "    return (Data\n         .open())\n",
    ),
    "a comment first": (
        "if 1:\n  # why\n  a = 1\n\n  # data\n  d = Data(a)\n",
        ["# why\n  a = 1", "# data"],
        "Data(a)",
        "    # why\n    a = 1\n\n    # data\n    return Data(a)\n",
    ),
    "blank lines": (
        "if 1:\n    a = 1\n   \n    c = 3\n\n\n    b = 2\n    d = Data(a)\n",
        ["a = 1\n   \n    c = 3", "b = 2"],
        "Data(a)",
        "    a = 1\n\n    c = 3\n\n    b = 2\n    return Data(a)\n",
    ),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_body(name: str, newline: str) -> None:
    text, body, result, expected = BODIES[name]
    script = Script(text.replace("\n", newline))
    parts = [part.replace("\n", newline) for part in body]
    builder = dataset(script, result.replace("\n", newline), *parts)
    assert between(worker(script, builder)).split("\n", 2)[2] == expected


def test_collate_of_many_lines() -> None:
    script = Script("if 1:\n  loader = DataLoader(d, collate_fn=lambda rows: [\n      row for row in rows\n  ])\n")
    builder = Builder("loader", "train", "train", (), (), (), None, script.span("lambda rows: [\n      row for row in rows\n  ]"))
    assert between(worker(script, builder)).split("\n", 2)[2] == (
        "    return splitter_runtime.Loader(\n        collate_fn=lambda rows: [\n            row for row in rows\n        ],\n    )\n"
    )


def test_lines_from_another_file_name_it() -> None:
    data = Script("def load():\n    return 1\n\n\ndef make():\n    return Data()\n", "data", "data.py")
    script = Script("import data\nd = data.make()\n")
    made = emit_worker(
        planned(script, dataset(data, "Data()"), modules=(data,), definitions=(data.lines("def load():\n    return 1"),)),
        script="train.py",
        folder=None,
    )
    assert [entry[1:] for entry in made.lines] == [(1, 2, "data.py"), (6, 1, "data.py")]
    assert "# data.py:6\n" in made.text
    assert '1, 2, "data.py")' in made.text


def test_the_scripts_docstring_is_kept_for_code_that_reads_it() -> None:
    script = Script('"""It\'s \\"doc\\"."""\nd = Data(__doc__)\n')
    tree = ast.parse(worker(script, dataset(script, "Data(__doc__)")))
    assigned = next(node for node in tree.body if isinstance(node, ast.Assign))
    assert ast.literal_eval(assigned.value) == 'It\'s "doc".'
    script = Script("d = Data(__doc__)\n")
    assert "\n__doc__ = None\n" in worker(script, dataset(script, "Data(__doc__)"))


def test_another_name_where_the_runtimes_is_taken() -> None:
    script = Script("splitter_runtime = 3\nd = Data()\n")
    text = worker(script, dataset(script, "Data()"), definitions=(script.lines("splitter_runtime = 3"),))
    assert "import splitter_runtime as splitter_runtime_\n" in text
    assert "@splitter_runtime_.dataset" in text and "    splitter_runtime_.serve(" in text


def test_a_long_line_map_is_wrapped() -> None:
    text = "".join(f"a{n} = {n}\nb = 0\n" for n in range(60)) + "d = Data()\n"
    script = Script(text)
    definitions = tuple(Fragment("train.py", 2 * n + 1, 2 * n + 1) for n in range(60))
    written = worker(script, dataset(script, "Data()"), definitions=definitions)
    assert max(len(line) for line in written.split("\n")) <= 120
    serve = ast.parse(written).body[-1]
    lines = next(word.value for word in ast.walk(serve) if isinstance(word, ast.keyword) and word.arg == "lines")
    assert len(ast.literal_eval(lines)) == 61


@pytest.mark.parametrize("path", ['a"""b.py', "back\\slash.py", "日本.py", "new\nline.py", "bad\udcff.py"])
def test_any_file_name(path: str) -> None:
    script = Script("d = Data()\n", path=path)
    made = emit_worker(planned(script, dataset(script, "Data()")), script=path, folder=None)
    tree = ast.parse(made.text)
    script_argument = next(word.value for word in ast.walk(tree) if isinstance(word, ast.keyword) and word.arg == "script")
    assert ast.literal_eval(script_argument) == path
    made.text.encode()


def test_text_that_does_not_parse_is_an_error() -> None:
    script = Script("if 1:\n    a = 1\nelse:\n    d = Data()\n")
    with pytest.raises(SyntaxError):
        worker(script, dataset(script, "Data()", "else:"))
    with pytest.raises(ValueError, match=r"train.py:9 is outside of the file"):
        worker(script, dataset(script, "Data()"), definitions=(Fragment("train.py", 9, 9),))
