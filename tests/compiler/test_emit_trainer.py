"""The trainer program: what is written where, and that nothing else changes."""

from __future__ import annotations

import pytest
from plans import PHOTOS, Script, photos

from splitter.emit import emit
from splitter.emit_trainer import Edits, ProgramCall, edit

PROGRAM = ProgramCall("train_worker.py", "sha256:52b0c4e1", "train.py")
CALL = 'splitter_runtime.program("train_worker.py", digest="sha256:52b0c4e1", script="train.py")'


def edited(script: Script, program: ProgramCall | None = PROGRAM, **edits) -> str:
    return edit(script.file, Edits(**{name: tuple(values) for name, values in edits.items()}), program)


def body(text: str) -> str:
    """What follows the program call."""
    return text.split(CALL, 1)[1].lstrip("\r\n")


# Where the runtime is imported. `|` marks the place.
PLACES = {
    "after the imports": "import os\nimport torch\n|\nx = 1\n",
    "with two blank lines after": "import os\n|\n\ndef f():\n    pass\n",
    "without a blank line after": "import os\n|x = 1\n",
    "after docstring and future": '"""Doc."""\nfrom __future__ import annotations\n|x = 1\n',
    "after a docstring of many lines": '"""Doc.\n\nimport this\n"""\n|x = 1\n',
    "below the header's comments": "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n|x = 1\n",
    "after imports between assignments": "import os\nos.environ['A'] = '1'\nimport torch\n|x = 1\n",
    "after a conditional import": "import os\ntry:\n    import apex\nexcept ImportError:\n    apex = None\n|x = 1\n",
    "not after a late import": "import os\n|\n\ndef f():\n    pass\n\n\nimport late\n",
    "not after the edit": "import os\n|x = [DATA]\nimport late\n",
    "not in the main block": "import os\n|\nif __name__ == '__main__':\n    import late\n",
    "after both statements of a line": "import os; x = 1\n|y = 2\n",
    "early when __file__ is read": "|import sys\nsys.path.insert(0, __file__)\nimport torch\nx = 1\n",
    "before a decorator": "|@property\ndef f():\n    pass\n",
    "in an empty file": "|",
    "in a file of comments": "# nothing\n|",
}


@pytest.mark.parametrize("name", PLACES)
def test_place(name: str) -> None:
    above, below = PLACES[name].split("|")
    script = Script(above + below)
    handles = [script.handle("[DATA]")] if "[DATA]" in script.file.text else []
    text = edited(script, handles=handles)
    at = text.index("import splitter_runtime\n")
    before, after = text[:at], text[at:].removeprefix(f"import splitter_runtime\n\n{CALL}\n")
    assert before.rstrip("\n") == above.rstrip("\n")
    assert after.lstrip("\n") == below.lstrip("\n").replace("[DATA]", 'splitter_runtime.RemoteDataset("train")')
    assert not before or before.endswith("\n\n"), "one blank line before"
    assert not after or after.startswith("\n"), "one blank line after"
    assert not after.startswith("\n\n") or below.startswith("\n\n")


@pytest.mark.parametrize(
    ("above", "fresh"),
    [
        ("import os\nimport torch\n", False),
        ("import sys\nsys.path.insert(0, 'lib')\nimport torch\n", False),
        ("import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport torch\n", False),
        ("import numpy as np\nnp.random.seed(0)\nimport torch\n", False),
        ("try:\n    import apex\nexcept ImportError:\n    apex = None\nimport torch\n", False),
        ("import hydra\nstore = hydra.store('name', object)\nimport torch\n", True),
        ("import os\nif os.name:\n    import plugins\n    plugins.register('a')\nimport torch\n", True),
        ("import counts\ncounts.n += 1\nimport torch\n", True),
    ],
)
def test_what_may_not_run_twice_asks_for_a_fresh_worker(above: str, fresh: bool) -> None:
    text = edited(Script(above + "x = 1\n"))
    assert ('script="train.py", fresh=True)' in text) == fresh


def test_early_place_is_before_the_first_import() -> None:
    script = Script('"""Doc."""\nfrom __future__ import annotations\nimport data\n')
    program = ProgramCall("w.py", "d", "train.py", modules=(("data", "train_split/data.py"),), early=True)
    assert edited(script, program) == (
        '"""Doc."""\nfrom __future__ import annotations\n\nimport splitter_runtime\n\n'
        'splitter_runtime.program("w.py", digest="d", script="train.py", modules={"data": "train_split/data.py"})\n\n'
        "import data\n"
    )


def test_a_long_program_call_is_wrapped() -> None:
    text = edited(Script("import os\n"), ProgramCall("train_worker.py", "sha256:" + "0" * 64, "train.py"))
    assert text.endswith(f'splitter_runtime.program(\n    "train_worker.py",\n    digest="sha256:{"0" * 64}",\n    script="train.py",\n)\n')


def test_many_patched_modules_have_one_line_each() -> None:
    modules = tuple((f"package.a_long_name_{n}", f"train_split/package/a_long_name_{n}.py") for n in range(2))
    text = edited(Script("import os\n"), ProgramCall("w.py", "d", "train.py", modules=modules))
    entries = "".join(f'        "{module}": "{path}",\n' for module, path in modules)
    assert text.endswith(f'    script="train.py",\n    modules={{\n{entries}    }},\n)\n')


@pytest.mark.parametrize(
    "binding",
    ["splitter_runtime = 1", "def splitter_runtime(): pass", "import splitter_runtime", "import a as splitter_runtime"],
)
def test_another_name_where_the_runtimes_is_taken(binding: str) -> None:
    script = Script(f"import os\n{binding}\nx = Data()\n")
    text = edited(script, handles=[script.handle("Data()")])
    assert "import splitter_runtime as splitter_runtime_\n" in text
    assert 'x = splitter_runtime_.RemoteDataset("train")' in text
    assert "\nsplitter_runtime_.program(" in text


def test_moved_expression_with_values() -> None:
    script = Script("import os\ntrain = Data(\n    args.data,\n)  # photos\n")
    text = edited(script, handles=[script.handle("Data(\n    args.data,\n)", environment=("args.data", "size"))])
    assert body(text) == ('train = splitter_runtime.RemoteDataset("train", {"args.data": args.data, "size": size})  # photos\n')


@pytest.mark.parametrize("unit", ["    ", "\t", "  "])
def test_a_long_handle_is_wrapped_in_the_files_own_indentation(unit: str) -> None:
    script = Script(f"import os\ndef main():\n{unit}train = Data(a)\n")
    names = tuple(f"args.some_rather_long_{n}" for n in range(2))
    text = edited(script, handles=[script.handle("Data(a)", environment=names)])
    entries = ", ".join(f'"{name}": {name}' for name in names)
    assert body(text) == (
        f'def main():\n{unit}train = splitter_runtime.RemoteDataset(\n{unit}{unit}"train",\n{unit}{unit}{{{entries}}},\n{unit})\n'
    )


def test_a_very_long_environment_has_one_entry_a_line() -> None:
    script = Script("import os\ntrain = Data(a)\n")
    names = tuple(f"args.some_long_name_{n}" for n in range(9))
    text = edited(script, handles=[script.handle("Data(a)", environment=names)])
    entries = "".join(f'        "{name}": {name},\n' for name in names)
    assert body(text) == f'train = splitter_runtime.RemoteDataset(\n    "train",\n    {{\n{entries}    }},\n)\n'


def test_replicated_expression_is_kept() -> None:
    script = Script("import os\ntrain = Data(a,\n             b)\n")
    text = edited(script, handles=[script.handle("Data(a,\n             b)", environment=("a",), residence="replicated")])
    assert body(text) == 'train = splitter_runtime.replicated("train", {"a": a}, lambda: Data(a,\n             b))\n'


def test_replicated_expression_without_values() -> None:
    script = Script("import os\ntrain = Data()\n")
    text = edited(script, handles=[script.handle("Data()", residence="replicated")])
    assert body(text) == 'train = splitter_runtime.replicated("train", {}, lambda: Data())\n'


def test_dataset_made_inside_of_the_loaders_call() -> None:
    script = Script("import os\nloader = DataLoader(Data(), 4)\n")
    text = edited(script, handles=[script.handle("Data()")], loaders=[script.loader("DataLoader(Data(), 4)")])
    assert body(text) == 'loader = splitter_runtime.DataLoader(splitter_runtime.RemoteDataset("train"), 4)\n'


SENT = {"feed": "v", "explicit": True, "send": ("dataset",)}
LOADERS = [
    ("DataLoader(d, 4)", {}, "(d, 4)"),
    ("DataLoader(d, 4)", {"feed": "val", "explicit": True}, '(d, 4, feed="val")'),
    ("DataLoader(d, 4)", {"feed": None, "explicit": True}, "(d, 4, feed=None)"),
    ("DataLoader(d, 4,)", {"feed": "val", "explicit": True}, '(d, 4, feed="val",)'),
    ("DataLoader((d))", {"feed": "val", "explicit": True}, '((d), feed="val")'),
    ("DataLoader(d, **kw)", {"environment": ("a.b",)}, '(d, **kw, env={"a.b": a.b})'),
    ("DataLoader(\n    d,  # data\n)", {"feed": "v", "explicit": True}, '(\n    d,  # data\n    feed="v",\n)'),
    ("DataLoader(\n    d\n)", {"feed": "v", "explicit": True}, '(\n    d, feed="v"\n)'),
    ("DataLoader(\n    d,\n    b=4  # four\n)", SENT, '(\n    d,\n    b=4,  # four\n    feed="v",\n    send="dataset"\n)'),
    (
        "DataLoader(d,\n           b=(1,\n              2))",
        SENT,
        '(d,\n           b=(1,\n              2),\n           feed="v",\n           send="dataset")',
    ),
    ("DataLoader(d,\n    (a), b=4,\n)", SENT, '(d,\n    (a), b=4, feed="v", send="dataset",\n)'),
    (
        "DataLoader(\n    *d,\n    (a),\n    **b,\n    # more\n)",
        SENT,
        '(\n    *d,\n    (a),\n    **b,\n    feed="v",\n    send="dataset",\n    # more\n)',
    ),
    ("DataLoader(d)", {"streams": 2}, "(d, num_workers=2)"),
    ("DataLoader(d, num_workers=0)", {"streams": 2}, "(d, num_workers=2)"),
    ("DataLoader(d, num_workers=(n + 1), shuffle=s)", {"streams": 2}, "(d, num_workers=(2), shuffle=s)"),
    ("DataLoader(d, 4, True, None, None, 0, None)", {"streams": 2, "workers": "0"}, "(d, 4, True, None, None, 2, None)"),
    ("DataLoader(d, **kw, num_workers=0)", {"streams": 2}, "(d, **kw, num_workers=2)"),
    ("DataLoader(d, **kw)", {"streams": 2}, '(d, **{**kw, "num_workers": 2})'),
    ("DataLoader(d)", {"streams": 2, "feed": "v", "explicit": True}, '(d, feed="v", num_workers=2)'),
]


@pytest.mark.parametrize(("call", "given", "expected"), LOADERS)
def test_loader(call: str, given: dict, expected: str) -> None:
    script = Script(f"import os\nloader = {call}  # keep\n")
    if "workers" in given:
        given = {**given, "workers": script.span(given["workers"])}
    text = edited(script, loaders=[script.loader(call, **given)])
    assert body(text) == f"loader = splitter_runtime.DataLoader{expected}  # keep\n"


LONG = [
    # the loader's call, what it becomes when its line gets too long
    (f"DataLoader(d, {'b' * 90})", {}, f"(\n        d, {'b' * 90})"),
    (
        f"DataLoader(d, {'b' * 70})",
        {"environment": ("args.data", "args.size")},
        f'(\n        d, {"b" * 70},\n        env={{"args.data": args.data, "args.size": args.size}})',
    ),
    (
        f"DataLoader(\n        d, {'b' * 70})",
        {"environment": ("args.data", "args.size")},
        f'(\n        d, {"b" * 70},\n        env={{"args.data": args.data, "args.size": args.size}})',
    ),
    (
        f"DataLoader(\n        d, {'b' * 90}  # {'b' * 9}\n    )",
        SENT,
        f'(\n        d, {"b" * 90},  # {"b" * 9}\n        feed="v", send="dataset"\n    )',
    ),
    (
        f"DataLoader(\n        d, {'b' * 90}\n    )",
        {**SENT, "environment": ("args.much_longer", "args.data_and_more"), "inline": True},
        f'(\n        d, {"b" * 90},\n        feed="v",\n        env={{"args.much_longer": args.much_longer, '
        '"args.data_and_more": args.data_and_more},\n        send="dataset",\n        inline=True\n    )',
    ),
    (
        "DataLoader(\n        d,\n        b,\n    )",
        {**SENT, "environment": ("args.longer_than_the_others_are", "args.data_and_more")},
        '(\n        d,\n        b,\n        feed="v",\n        env={\n            "args.longer_than_the_others_are": '
        'args.longer_than_the_others_are,\n            "args.data_and_more": args.data_and_more,\n        },\n'
        '        send="dataset",\n    )',
    ),
    (f"DataLoader({'b' * 110})", {"feed": "v", "explicit": True}, f'(\n        {"b" * 110},\n        feed="v")'),
]


@pytest.mark.parametrize(("call", "given", "expected"), LONG)
def test_loader_on_a_long_line(call: str, given: dict, expected: str) -> None:
    script = Script(f"import os\nif True:\n    loader = {call}\n")
    text = edited(script, loaders=[script.loader(call, **given)])
    assert body(text) == f"if True:\n    loader = splitter_runtime.DataLoader{expected}\n"


SIZES = ("args.data", "args.size")
ENTRIES = '{"args.data": args.data, "args.size": args.size}'
MORE_ENTRIES = f'{ENTRIES[:-1]}, "args.much_longer": args.much_longer}}'
NESTED = [
    ((), f"Data(), {'b' * 50})", f'(\n    splitter_runtime.RemoteDataset("train"), {"b" * 50})'),
    ((), f"Data(), {'b' * 80})", f'(\n    splitter_runtime.RemoteDataset("train"),\n    {"b" * 80})'),
    (SIZES, f"Data(), {'b' * 40})", f'(\n    splitter_runtime.RemoteDataset("train", {ENTRIES}),\n    {"b" * 40})'),
    (SIZES, f"Data(), {'b' * 9})", f'(\n    splitter_runtime.RemoteDataset("train", {ENTRIES}), {"b" * 9})'),
    (SIZES, "\n  Data(), b)", f'(\n  splitter_runtime.RemoteDataset("train", {ENTRIES}), b)'),
    (
        (*SIZES, "args.much_longer"),
        "Data(), b)",
        f'(\n    splitter_runtime.RemoteDataset(\n        "train",\n        {MORE_ENTRIES},\n    ), b)',
    ),
]


@pytest.mark.parametrize(("environment", "rest", "expected"), NESTED)
def test_long_handle_inside_of_the_loaders_call(environment: tuple[str, ...], rest: str, expected: str) -> None:
    script = Script(f"import os\nloader = DataLoader({rest}\n")
    handle = script.handle("Data()", environment=environment)
    text = edited(script, handles=[handle], loaders=[script.loader(f"DataLoader({rest}")])
    assert body(text) == f"loader = splitter_runtime.DataLoader{expected}\n"
    assert max(len(line) for line in text.split("\n")) <= 120


REMOVALS = [
    ("def f():\n    a = 1\n    b = 2\n", ["a = 1"], "def f():\n    b = 2\n"),
    ("def f():\n    a = 1\n    b = 2\n", ["a = 1", "b = 2"], "def f():\n    pass\n"),
    ("def f():\n    a = (1,\n         2)\n", ["a = (1,\n         2)"], "def f():\n    pass\n"),
    ("if x:\n    a = 1\nelse:\n    b = 2\n", ["b = 2"], "if x:\n    a = 1\nelse:\n    pass\n"),
    ("if x:\n    a = 1\nelse:\n    b = 2\n", ["if x:\n    a = 1\nelse:\n    b = 2"], ""),
    ("try:\n\ta = 1\nexcept E:\n\tb = 2\n", ["b = 2"], "try:\n\ta = 1\nexcept E:\n\tpass\n"),
    ("match x:\n    case 1:\n        a = 1\n", ["a = 1"], "match x:\n    case 1:\n        pass\n"),
    ("b = 0\n\na = 1\n\nc = 2\n", ["a = 1"], "b = 0\n\nc = 2\n"),
    ("# why\na = 1\nc = 2\n", ["a = 1"], "# why\nc = 2\n"),
    ("c = 2\na = 1", ["a = 1"], "c = 2\n"),
]


@pytest.mark.parametrize(("text", "gone", "expected"), REMOVALS)
def test_removal(text: str, gone: list[str], expected: str) -> None:
    script = Script("import os\n\n" + text)
    assert body(edited(script, removals=[script.removal(part) for part in gone])) == expected


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_stay(newline: str) -> None:
    text = PHOTOS.replace("\n", newline)
    trainer = emit(photos(text)).files[1].content
    assert trainer.decode() == emit(photos()).files[1].content.decode().replace("\n", newline)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_file_without_a_final_line_end(newline: str) -> None:
    script = Script(f"import os{newline}x = Data()")
    text = edited(script, handles=[script.handle("Data()")])
    assert text.endswith(f'{newline}{newline}x = splitter_runtime.RemoteDataset("train")')
    assert edited(Script("import os")) == f"import os\n\nimport splitter_runtime\n\n{CALL}\n"


def test_form_feeds_tabs_and_wide_characters_do_not_move_places() -> None:
    script = Script('import os\n\x0c\nif 1:\n\tnäme = "日本\x0c\x85"; train = Data(näme)\n')
    text = edited(script, handles=[script.handle("Data(näme)", environment=("näme",))])
    assert body(text) == ('\x0c\nif 1:\n\tnäme = "日本\x0c\x85"; train = splitter_runtime.RemoteDataset("train", {"näme": näme})\n').lstrip(
        "\n"
    )


def test_encoding_and_byte_order_mark_stay() -> None:
    bom = Script(PHOTOS, bom=True)
    written = emit(photos(bom.file.text))
    latin = '# -*- coding: latin-1 -*-\nname = "café"\n' + PHOTOS.split('"""\n', 1)[1]
    plan = photos(latin)
    object.__setattr__(plan.script, "encoding", "iso-8859-1")
    trainer = emit(plan).files[1].content
    assert b'name = "caf\xe9"\n' in trainer
    object.__setattr__(written.plan.script, "bom", True)
    marked = emit(written.plan).files[1].content
    assert marked == b"\xef\xbb\xbf" + written.files[1].content


def test_overlapping_edits_are_an_error() -> None:
    script = Script("import os\nx = f(g(1))\n")
    with pytest.raises(ValueError, match="overlap"):
        edited(script, handles=[script.handle("f(g(1))"), script.handle("g(1)")])


def test_a_loader_that_is_no_call_is_an_error() -> None:
    script = Script("import os\nx = DataLoader\n")
    with pytest.raises(ValueError, match=r"no call at train.py:2:5"):
        edited(script, loaders=[script.loader("DataLoader", streams=1)])
