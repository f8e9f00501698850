"""Finish: what the cut leaves on the trainer is done to every sample there, and nobody can tell by the batches."""

from __future__ import annotations

import copy
import queue
import signal
import sys
import threading
from collections import namedtuple
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pairs import Pair, assert_same, run_both
from PIL import Image
from running import running
from sameness import difference
from scratch import Scratch
from torch.utils.data import default_collate
from torchvision import transforms

from splitter_runtime.errors import ConfigError, SplitterError
from splitter_runtime.failures import FinishFailure
from splitter_runtime.finish import Finish, ScaleToFloat
from splitter_runtime.finishing import FinishThread, finished

# Programs. The script's dataset finishes its samples itself; the worker's builder makes one that doesn't.

PICTURES = '''
from PIL import Image
from torchvision import transforms


class Pictures(Dataset):
    """Like an ImageFolder: images of one size, a label, and a transform."""

    def __init__(self, form, transform, n=21):
        self.form, self.transform, self.n = form, transform, n

    def __len__(self):
        return self.n

    def image(self, i):
        rows = np.random.RandomState(i).randint(0, 256, (7, 5, 3), dtype=np.uint8)
        rows[..., 0] = i
        return Image.fromarray(rows)

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        x = self.transform(self.image(i))
        if torch.rand(1) < 0.5:
            x = x.flip(-1)
        if self.form == "tuple":
            return x, i
        if self.form == "dict":
            return {"name": f"n{i}", "pair": [x, i + 0.5], "again": torch.tensor([i])}
        return x
'''

BUILDERS = """
@splitter_runtime.dataset("train", stateless=True, draws=("torch",))
def train(form):
    return Pictures(form, transforms.Compose([transforms.PILToTensor()]))
"""

HEAD = """
from torchvision import transforms

normalize = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
"""
WHOLE = "transforms.Compose([transforms.ToTensor(), normalize])"
REST = "transforms.Compose([splitter_runtime.ScaleToFloat(), normalize])"
FORMS = {"tuple": f"({REST}, None)", "dict": f'{{"name": None, "pair": [{REST}, None], "again": None}}', "bare": REST}


def pair(body: str, form: str = "tuple", finish: str = "") -> Pair:
    swap = (
        f'Pictures("{form}", {WHOLE})',
        f'splitter_runtime.RemoteDataset("train", {{"form": "{form}"}}, finish={finish or FORMS[form]})',
    )
    builders = BUILDERS if form != "bare" else BUILDERS.replace(', stateless=True, draws=("torch",)', "")
    return Pair(PICTURES, builders, HEAD + body.replace("DATASET", swap[0]), (swap,))


@pytest.mark.parametrize("form", FORMS)
def test_batches(scratch: Scratch, form: str) -> None:
    body = """
dataset = DATASET
for loader in (
    DataLoader(dataset, batch_size=4, shuffle=True),
    DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2),
    DataLoader(dataset, batch_size=4, num_workers=2, persistent_workers=True),
    DataLoader(dataset, batch_size=None, num_workers=1),
):
    for epoch in range(2):
        for batch in loader:
            see(batch)
show()
"""
    assert_same(scratch, pair(body, form))


def test_everything_else(scratch: Scratch) -> None:
    body = """
import threading

dataset = DATASET
first, rest = random_split(dataset, [15, 6])
see([dataset[3], list(dataset)[-1], first[2], len(rest)])
print(dataset[3][0].is_contiguous(), type(dataset[3]).__name__)
for loader in (
    DataLoader(Subset(first, range(9)), batch_size=4, num_workers=2, shuffle=True),
    DataLoader(ConcatDataset([rest, first]), batch_size=4),
    DataLoader(dataset, batch_size=None),
    DataLoader(dataset, batch_size=4, num_workers=2, timeout=60, pin_memory=True),
    DataLoader(torch.utils.data.StackDataset(rest, rest), batch_size=4, num_workers=1),
    DataLoader(torch.utils.data.StackDataset(a=rest, b=rest), batch_size=4),
):
    for batch in loader:
        see(batch)
loader = DataLoader(dataset, batch_size=2, shuffle=True, num_workers=2)
for epoch in range(2):
    for step, batch in enumerate(loader):
        see(batch)
        if step == 1 + epoch:
            break
try:
    for batch in loader:
        see(batch)
        raise KeyError("in the loop")
except KeyError as error:
    see(str(error))
with torch.no_grad():
    for batches in zip(loader, DataLoader(dataset, batch_size=3, num_workers=1)):
        see(batches)
del batch, batches
print([thread.name for thread in threading.enumerate() if "finish" in thread.name])
show()
kept = iter(loader)
see(next(kept))
persistent = DataLoader(dataset, batch_size=3, num_workers=2, persistent_workers=True)
print(len(next(iter(persistent))))
"""
    out = assert_same(scratch, pair(body), quick=False)
    assert "True tuple" in out and "[]" in out


def test_the_thread_that_pins(scratch: Scratch) -> None:
    """Without an accelerator: torch is told that there is one, and pinning notes the dtype."""
    body = """
import torch.utils.data._utils.pin_memory as pins

torch.accelerator.is_available = lambda: True
torch.accelerator.current_device_index = lambda: 0
torch.accelerator.set_device_index = lambda index: None
dtypes = set()
pins.pin_memory = lambda data, device=None: data and (dtypes.add(data[0].dtype) or data)
dataset = DATASET
for keep in (False, True):
    loader = DataLoader(dataset, batch_size=4, num_workers=2, pin_memory=True, persistent_workers=keep)
    for epoch in range(2):
        for batch in loader:
            see(batch)
for step, batch in enumerate(loader):
    if step == 2:
        break
print(dtypes)
show()
"""
    assert "{torch.float32}" in assert_same(scratch, pair(body), quick=False)


PICKY = """

def picky(x):
    if round(float(x[0, 0, 0]) * 255) == 7:
        raise ValueError("seven")
    return x * 2

"""


def test_what_a_finish_raises(scratch: Scratch) -> None:
    body = (
        PICKY
        + """
dataset = Pictures("tuple", transforms.Compose([transforms.ToTensor(), picky]))
for loader in (
    DataLoader(dataset, batch_size=4),
    DataLoader(dataset, batch_size=4, num_workers=2),
    DataLoader(dataset, batch_size=None, num_workers=2),
    DataLoader(dataset, batch_size=4, num_workers=2, persistent_workers=True),
):
    for epoch in range(2):
        iterator = iter(loader)
        while True:
            try:
                see(next(iterator))
            except StopIteration:
                break
            except ValueError as error:
                print(type(error).__name__, "seven" in str(error))
for batch in loader:
    see(batch)
"""
    )
    script = 'Pictures("tuple", transforms.Compose([transforms.ToTensor(), picky]))'
    rest = "(transforms.Compose([splitter_runtime.ScaleToFloat(), picky]), None)"
    case = Pair(
        PICTURES, BUILDERS, HEAD + body, ((script, f'splitter_runtime.RemoteDataset("train", {{"form": "tuple"}}, finish={rest})'),)
    )
    script_ended, split = run_both(scratch, case)
    assert split.stdout == script_ended.stdout and split.stdout.count("ValueError True") == 8, split.stderr
    assert script_ended.returncode == split.returncode == 1
    assert "ValueError: Caught ValueError while its batch was finished in the trainer." in split.stderr
    assert "splitter: while these samples were fetched: 4, 5, 6, 7" in split.stderr or sys.version_info < (3, 11)


def trainer(scratch: Scratch, case: Pair, **environment: str) -> str:
    """The output of the trainer program of a case."""
    folder = case.write(scratch.folder / "pair")
    ended = scratch.run([sys.executable, "train_trainer.py"], folder, **environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


REFUSED = """

def refused(work):
    try:
        work()
    except RuntimeError as error:
        print(type(error).__name__, error)

"""


def test_samples_of_another_type(scratch: Scratch) -> None:
    deep = PICTURES.replace("Image.fromarray(rows)", 'Image.fromarray(rows[..., 0].astype(np.int32), mode="I")')
    body = (
        REFUSED
        + """
dataset = DATASET
refused(lambda: dataset[0])
for count in (0, 2):
    refused(lambda: next(iter(DataLoader(dataset, batch_size=4, num_workers=count))))
other = splitter_runtime.RemoteDataset("train", {"form": "dict"}, finish=(print, None))
refused(lambda: other[0])
refused(lambda: next(iter(DataLoader(other, batch_size=4, num_workers=2))))
"""
    )
    case = pair(body)
    lines = trainer(scratch, Pair(deep, case.builders, case.body, case.swaps)).splitlines()
    said = "ConfigError R604: a tensor of torch.int32 where ToTensor got one of torch.uint8, other than in the samples that were recorded"
    assert len(lines) == 5 and all(line.startswith(said) for line in lines[:3]), lines
    assert lines[3].startswith("ConfigError R604: sample is a dict where a sequence of 2 was"), lines
    assert lines[4].startswith("ConfigError R604: batch is a dict where a sequence of 2 was"), lines


def test_loaders_that_can_not_be(scratch: Scratch) -> None:
    body = (
        REFUSED
        + """
dataset = DATASET
make = lambda finish: splitter_runtime.RemoteDataset("train", {"form": "tuple"}, finish=finish)
scale = splitter_runtime.ScaleToFloat
refused(lambda: DataLoader(ConcatDataset([dataset, make((scale(), None))])))
refused(lambda: DataLoader(ConcatDataset([dataset, make(None)])))
refused(lambda: DataLoader(dataset, collate_fn=lambda samples: samples, feed="loader"))
refused(lambda: splitter_runtime.RemoteDataset("train", {"form": [Subset(dataset, [1])]}))
print(len(DataLoader(ConcatDataset([make((transforms.Compose([scale(), normalize]), None)), Subset(dataset, [1, 2])]))))
for wrong in ((1, None), "x"):
    try:
        make(wrong)
    except TypeError as error:
        print(error)
"""
    )
    case = pair(body)
    builders = (
        case.builders
        + """
@splitter_runtime.loader("loader")
def loader():
    return splitter_runtime.Loader(collate_fn=len)
"""
    )
    lines = trainer(scratch, Pair(case.moved, builders, case.body, case.swaps)).splitlines()
    assert [line[:16] for line in lines[:4]] == ["ConfigError R601"] * 4, lines
    assert "finishes in different ways" in lines[0] and "finishes in different ways" in lines[1]
    assert "<lambda>" in lines[2] and "collate_fn" in lines[2] and "part of another dataset" in lines[3]
    assert lines[4] == "23" and "int where a callable" in lines[5] and "str where a callable" in lines[6]


def test_remote_workers(scratch: Scratch) -> None:
    case = pair("""
dataset = DATASET
for count in (3, 0, 2):
    for batch in DataLoader(dataset, batch_size=4, shuffle=True, num_workers=count):
        see(batch)
see(dataset[4])
show()
""")
    folder = case.write(scratch.folder / "pair")
    expected = scratch.run([sys.executable, "train.py"], folder).stdout
    with running(scratch, folder, "train_worker.py", "--listen", "127.0.0.1:0") as worker:
        ended = scratch.run([sys.executable, "train_trainer.py"], folder, SPLITTER_WORKERS=worker.address())
        assert ended.stdout == expected, ended.stderr
        ended = scratch.run(
            [sys.executable, "train_trainer.py"], folder, SPLITTER_WORKERS=f"{worker.address()},local", SPLITTER_BUDGET="1000"
        )
        assert ended.stdout == expected, ended.stderr


def test_resume(scratch: Scratch) -> None:
    body = """
dataset = DATASET
for count in (2, 0):
    digests = []
    for stop in (None, 2):
        torch.manual_seed(3)
        loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=count)
        batches = []
        for batch in loader:
            batches.append(batch)
            if len(batches) == stop:
                state, generator = loader.state_dict(), torch.get_rng_state()
                del loader
                torch.set_rng_state(generator)
                loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=count)
                loader.load_state_dict(state)
                batches += list(loader)
                break
        digests.append(torch.cat([x.flatten() for x, _ in batches]))
    print(batches[0][0].dtype, torch.equal(*digests))
"""
    assert trainer(scratch, pair(body)) == "torch.float32 True\n" * 2


def test_interrupted(scratch: Scratch) -> None:
    """Ctrl-C in the middle of an epoch, and the end of the program while streams are under way and finishes are slow."""
    body = """
import time

dataset = DATASET
kept = iter(DataLoader(dataset, batch_size=1, num_workers=2, prefetch_factor=8))
also = iter(DataLoader(dataset, batch_size=1, num_workers=1, persistent_workers=True))
next(kept), next(also)
print("under way", flush=True)
for batch in DataLoader(dataset, batch_size=1, num_workers=2, timeout=60):
    time.sleep(60)
"""
    slow = "(lambda x: (__import__('time').sleep(0.05), torch.mm(torch.ones(200, 200), torch.ones(200, 200)))[1], None)"
    case = pair(body, finish=slow)
    with running(scratch, case.write(scratch.folder / "pair"), "train_trainer.py") as program:
        program.until("under way")
        program.process.send_signal(signal.SIGINT)
        status, errors = program.ended()
    assert status in (1, -signal.SIGINT, 130) and "KeyboardInterrupt" in errors and "Fatal" not in errors, (status, errors)


# Finish by itself


def turned(x: torch.Tensor) -> list[int]:
    """Its dimensions backwards."""
    return list(range(x.dim()))[::-1]


DTYPES = (torch.uint8, torch.int64, torch.float32, torch.float64, torch.bool, torch.complex64, torch.bfloat16)
STEPS: tuple[Callable[[torch.Tensor], Any] | None, ...] = (
    None,
    lambda x: x,
    lambda x: x.double() - 1 if not x.is_complex() else x * 2,
    lambda x: x.flatten(),
    lambda x: x.ne(0),
    lambda x: x[None].expand(2, *x.shape),
    lambda x: x.permute(turned(x)),
    lambda x: x.numel(),
    lambda x: {"both": (x, str(x.dtype))},
)
Named = namedtuple("Named", "a b")
LEAVES = st.tuples(
    st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=4).map(tuple), st.booleans(), st.sampled_from(range(len(STEPS)))
)
PLAIN = st.sampled_from([3, 2.5, "text", b"bytes"])
FORM = st.recursive(
    LEAVES | PLAIN,
    lambda parts: (
        st.lists(parts, min_size=1, max_size=3)
        | st.dictionaries(st.sampled_from("xyz"), parts, min_size=1)
        | st.builds(Named, parts, parts)
    ),
    max_leaves=5,
)


def is_leaf(form: Any) -> bool:
    return type(form) is tuple and len(form) == 4 and isinstance(form[0], torch.dtype)


def build(form: Any, leaf: Callable[[Any], Any], plain: Callable[[Any], Any]) -> Any:
    if is_leaf(form):
        return leaf(form)
    if isinstance(form, Named):
        return Named(*(build(part, leaf, plain) for part in form))
    if isinstance(form, list):
        return [build(part, leaf, plain) for part in form]
    if isinstance(form, dict):
        return {key: build(part, leaf, plain) for key, part in form.items()}
    return plain(form)


def made(leaf: Any, generator: torch.Generator) -> torch.Tensor:
    dtype, shape, transposed, _ = leaf
    values = torch.randint(0, 200, shape, generator=generator)
    return (values.permute(turned(values)) if transposed else values).to(dtype)


def plain_tuples(structure: Any) -> Any:
    """As the compiler writes it: a tuple for a namedtuple."""
    if isinstance(structure, tuple):
        return tuple(plain_tuples(part) for part in structure)
    if isinstance(structure, list):
        return [plain_tuples(part) for part in structure]
    return {key: plain_tuples(part) for key, part in structure.items()} if isinstance(structure, dict) else structure


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return type(error), str(error)


@given(FORM, st.integers(1, 4), st.booleans())
def test_any_form(form: Any, count: int, in_main: bool) -> None:
    """The same as finishing each sample before it is collated."""
    generator = torch.Generator().manual_seed(count)
    raw = [build(form, lambda leaf: made(leaf, generator), lambda value: value) for _ in range(count)]
    structure = plain_tuples(build(form, lambda leaf: STEPS[leaf[3]], lambda value: None))
    whole = [finish_by_hand(form, sample) for sample in copy.deepcopy(raw)]
    assert difference(Finish(structure).sample(copy.deepcopy(raw[0])), whole[0]) is None
    with pytest.MonkeyPatch.context() as patch:
        if not in_main:
            patch.setattr(torch.utils.data._utils.worker, "_worker_info", object())
        batch, expected = default_collate(raw), outcome(lambda: default_collate(whole))
    assert difference(outcome(lambda: Finish(structure).batch(batch, in_main=in_main)), expected) is None


def finish_by_hand(form: Any, sample: Any) -> Any:
    if is_leaf(form):
        step = STEPS[form[3]]
        return sample if step is None else step(sample)
    if isinstance(form, Named):
        return Named(*map(finish_by_hand, form, sample))
    if isinstance(form, list):
        return list(map(finish_by_hand, form, sample))
    return {key: finish_by_hand(part, sample[key]) for key, part in form.items()} if isinstance(form, dict) else sample


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "LA", "CMYK", "YCbCr"])
@pytest.mark.parametrize("size", [(5, 7), (1, 7), (5, 1), (1, 1)])
@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_the_second_half_of_to_tensor(mode: str, size: tuple[int, int], default: torch.dtype) -> None:
    channels = len(Image.new(mode, (1, 1)).getbands())
    pixels = np.random.RandomState(0).randint(0, 256, (size[1], size[0], channels), dtype=np.uint8).tobytes()
    image = Image.frombytes(mode, size, pixels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_default_dtype", lambda: default)
        assert difference(ScaleToFloat()(transforms.PILToTensor()(image)), transforms.ToTensor()(image)) is None


def odd(x: torch.Tensor) -> torch.Tensor:
    """Other results for some samples."""
    kind = int(x.flatten()[0])
    if kind == 1:
        return x.double()
    if kind == 2:
        return x[:1]
    if kind == 3:
        return x.float().requires_grad_()
    if kind == 4:
        raise ZeroDivisionError
    return x.float()


@pytest.mark.parametrize("kinds", [[0, 1, 0], [1, 0, 0], [0, 0, 2], [2, 0], [3, 0], [0, 3], [0, 2, 4], [4]])
@pytest.mark.parametrize("in_main", [True, False])
def test_results_that_differ(kinds: list[int], in_main: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [torch.full((2, 3), kind) for kind in kinds]
    found = outcome(lambda: Finish(odd).batch(torch.stack(samples), in_main=in_main))
    if not in_main:
        monkeypatch.setattr(torch.utils.data._utils.worker, "_worker_info", object())
    expected = outcome(lambda: default_collate([odd(sample) for sample in samples]))
    if isinstance(expected, torch.Tensor):
        assert difference(found.detach(), expected.detach()) is None and found.requires_grad == expected.requires_grad
    elif expected[0] is RuntimeError and "resize" in expected[1]:  # torch's worker makes too small a tensor before it looks at the shapes
        assert found[0] is RuntimeError and "stack expects each tensor to be equal size" in found[1]
    else:
        assert found == expected


def test_what_is_not_finished_stays_itself() -> None:
    kept, x = torch.arange(3), torch.zeros(3, 2)
    batch = [x, {"kept": kept, "again": kept}]
    done = Finish((torch.neg, None)).batch(batch)
    assert done is batch and done[1]["kept"] is done[1]["again"] is kept and done[0] is not x
    shared = {"x": x}
    done = Finish(({"x": torch.exp}, {"x": torch.exp}, torch.exp)).sample((shared, shared, x))
    assert done[0] is done[1] is shared and done[2] is done[0]["x"] and torch.equal(done[2], torch.ones(3, 2))


def test_a_result_passes_when_it_is_no_batch() -> None:
    for result in ((None, None), (3, FinishFailure(ValueError("x"), ""))):
        assert finished(result, lambda batch: 1 / 0, str) is result
    number, failure = finished((3, [1]), ScaleToFloat(), lambda number: [7, 8])
    with pytest.raises(ConfigError, match=r"^R604: a list where") as caught:
        failure.reraise()
    assert number == 3 and caught.value.code == "R604" and "7, 8" in str(vars(caught.value)["__notes__"])


def test_a_thread_whose_results_end_says_so() -> None:
    class Results:
        left: ClassVar = [queue.Empty(), (0, "batch"), SplitterError("gone")]

        def get(self, timeout: float) -> Any:
            found = self.left.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

    out: queue.Queue[Any] = queue.Queue()
    thread = FinishThread(Results(), out, threading.Event())
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and out.get() == (0, "batch")
    number, lost = out.get()
    with pytest.raises(SplitterError, match="gone"):
        lost.reraise()
    assert number is None


def test_finishes_that_are_the_same() -> None:
    def composed(mean: float) -> Any:
        return transforms.Compose([ScaleToFloat(), transforms.Normalize([mean], [1.0])])

    step = lambda x: x  # noqa: E731
    assert Finish((composed(0.5), None)).same_as(Finish((composed(0.5), None)))
    assert not Finish((composed(0.5), None)).same_as(Finish((composed(0.25), None)))
    assert not Finish(composed(0.5)).same_as(Finish((composed(0.5), None)))
    assert Finish({"a": [step]}).same_as(Finish({"a": [step]})) and not Finish([step]).same_as(Finish([lambda x: x]))
