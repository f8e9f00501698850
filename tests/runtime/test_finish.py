"""Finish: what the cut leaves on the trainer is done to every sample there, and nobody can tell by the batches."""

from __future__ import annotations

import signal
import sys

import pytest
from pairs import Pair, assert_same, run_both
from running import running
from scratch import Scratch

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
    out = assert_same(scratch, pair(body))
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
    assert "{torch.float32}" in assert_same(scratch, pair(body))


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


MIXED = """
class Mixed(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.full((2,), i, dtype=torch.float32 if i == 4 else torch.uint8)


class Pairs(Mixed):
    def __getitem__(self, i):
        return [super().__getitem__(i), torch.ones(2, dtype=torch.int32)]
"""
MIXED_BUILDERS = """
@splitter_runtime.dataset("mixed", stateless=True, draws=(), unfinished=True)
def mixed():
    return Mixed()


@splitter_runtime.dataset("others", stateless=True, draws=())
def others():
    return Mixed()


@splitter_runtime.dataset("pairs", stateless=True, draws=(), unfinished=True)
def pairs():
    return Pairs()
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_types_that_collating_would_make_one_are_refused_where_they_are_finished(scratch: Scratch, workers: int) -> None:
    """torch makes 5 of uint8 beside floats 5.0, which the rest of the transforms takes for another number. Other datasets may do so."""
    body = f"""
import sys
from torch.utils.data import Subset
for batch in DataLoader(Pairs(), batch_size=None, num_workers={workers}):
    see(batch)
for batch in DataLoader(Mixed(), batch_size=4, num_workers={workers}):
    see(batch)
show()
if len(sys.argv) > 1:
    for batch in DataLoader(Subset(Unfinished(), range(8)), batch_size=4, num_workers={workers}):
        print("batch", flush=True)
"""
    swaps = [(name + "()", f'splitter_runtime.RemoteDataset("{feed}")') for name, feed in (("Pairs", "pairs"), ("Mixed", "others"))]
    swaps.append(("Unfinished()", 'splitter_runtime.RemoteDataset("mixed", finish=float)'.replace("float", "torch.Tensor.float")))
    script, split = run_both(scratch, Pair(MIXED, MIXED_BUILDERS, body, tuple(swaps)))
    assert (split.stdout, split.returncode) == (script.stdout, 0), split.stderr
    more = scratch.run([sys.executable, "train_trainer.py", "more"], scratch.folder / "pair")
    assert more.returncode == 1 and more.stdout == script.stdout + "batch\n"
    assert "R604: tensors of torch.float32 and torch.uint8 in one batch" in more.stderr
