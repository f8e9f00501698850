"""Where random programs make dataset and loader, and who goes through it. The plain place comes first.

In a text, $make stands for all statements that make dataset and loader: $dataset, and $construct, which gives $loader the value $call,
a call with $arguments. $more makes a second loader. $body is the epochs, and $loop one of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Names where dataset and loaders are made; `called` and `dataset` are what the epochs call loader and dataset, if not the same."""

    text: str
    data: str = "data"
    loader: str = "loader"
    second: str = "second"
    called: str = ""
    dataset: str = ""
    n: str = ""  # how the size is called, when not as in the rest of the program


# Names of objects that hold loaders in attributes; of functions that give a loader and not its dataset.
OWN = {"data": "self.data", "loader": "self.loader", "second": "self.second"}
HIDDEN = {"dataset": "loader.dataset"}

PLACES = {
    "module": Place("""\
$make
$more
$body
"""),
    "main": Place("""\
def main():
    $make
    $more
    $body


if __name__ == "__main__":
    main()
"""),
    "function called at once": Place("""\
def run():
    $make
    $more
    $body


run()
"""),
    "helper": Place(
        """\
def make():
    $make
    return $loader


$loader = make()
$more
$body
""",
        **HIDDEN,
    ),
    "helper, tuple": Place("""\
def make():
    $make
    return $data, $loader


$data, $loader = make()
$more
$body
"""),
    "helper, two loaders": Place(
        """\
def make():
    $make
    $more
    $second = $loader if $second is None else $second
    return $loader, $second


def main():
    $loader, $second = make()
    $body


main()
""",
        **HIDDEN,
    ),
    "helper, dict": Place(
        """\
def make():
    $make
    return {"train": $loader}


loaders = make()
$more
$body
""",
        called='loaders["train"]',
        dataset='loaders["train"].dataset',
    ),
    "helper, list": Place(
        """\
def make():
    $make
    return [$loader]


loaders = make()
$more
$body
""",
        called="loaders[0]",
        dataset="loaders[0].dataset",
    ),
    "helper of a helper": Place(
        """\
def build():
    $make
    return $data, $loader


def make():
    return build()[1]


$loader = make()
$more
$body
""",
        **HIDDEN,
    ),
    "dataset from a helper": Place("""\
def make():
    $dataset
    return $data


$data = make()
$construct
$more
$body
"""),
    "lambda": Place("""\
$dataset
make = lambda: $call
$loader = make()
$more
$body
"""),
    "generator function": Place("""\
def stream():
    $make
    yield from $loader


for batch in stream():
    train(batch)
"""),
    "each epoch": Place("""\
$dataset
$more
for epoch in range(2):
    $construct
    $loop
"""),
    "all each epoch": Place("""\
$more
for epoch in range(2):
    $make
    $loop
"""),
    "in the loop's head": Place("""\
$dataset
$more
for epoch in range(2):
    $before
    for batch in $call:
        train(batch)
        $each
    $after
"""),
    "attribute": Place(
        """\
class Trainer:
    def __init__(self):
        $make
        $more

    def fit(self):
        $body


trainer = Trainer()
trainer.fit()
""",
        **OWN,
    ),
    "setup method": Place(
        """\
class Module:
    def __init__(self):
        self.ready = False

    def setup(self):
        $make
        $more
        self.ready = True

    def fit(self):
        self.setup()
        $body


Module().fit()
""",
        **OWN,
    ),
    "property": Place(
        """\
class Task:
    def __init__(self):
        $dataset
        $more

    @property
    def loader(self):
        return $call

    def fit(self):
        $body


Task().fit()
""",
        **OWN,
    ),
    "method": Place(
        """\
class Task:
    def __init__(self):
        $dataset
        $more

    def train_dataloader(self):
        return $call

    def fit(self):
        loader = self.train_dataloader()
        $body


Task().fit()
""",
        **OWN,
        called="loader",
    ),
    "factory": Place("""\
def make($data, limit):
    $construct
    return $loader


$dataset
$loader = make($data, 3)
$more
$body
"""),
    "called twice": Place(
        """\
def make(extra):
    $make
    print("made", extra)
    return $loader


first = make(1)
$loader = make(2)
$more
for batch in first:
    train(batch)
$body
""",
        **HIDDEN,
    ),
    "called twice with other sizes": Place(
        """\
def make(size, name):
    $make
    print(name)
    return $loader


loaders = {"train": make($n, "train"), "test": make($n - 2, name="test")}
$more
$body
""",
        called='loaders["train"]',
        dataset='loaders["test"].dataset',
        n="size",
    ),
    "comprehension": Place(
        """\
$dataset
loaders = [$call for _ in range(2)]
$more
$body
""",
        called="loaders[1]",
    ),
    "dict comprehension": Place(
        """\
$dataset
loaders = {name: $call for name in ("train", "test")}
$more
$body
""",
        called='loaders["test"]',
    ),
    "branch": Place("""\
$dataset
if len(str($n)) > 1:
    $construct
else:
    $loader = DataLoader($data)
$more
$body
"""),
    "try": Place("""\
$dataset
try:
    $construct
except ImportError:
    $loader = None
$more
$body
"""),
    "options": Place("""\
$dataset
keywords = dict($arguments)
$loader = DataLoader($data, **keywords)
$more
$body
"""),
    "partial": Place("""\
$dataset
Loader = functools.partial(DataLoader, $arguments)
$loader = Loader($data)
$more
$body
"""),
    "global statement": Place("""\
$loader = None


def make():
    global $data, $loader
    $dataset
    $construct


make()
$more
$body
"""),
    "walrus": Place("""\
$dataset
if ($loader := $call) is not None:
    $more
    $body
"""),
    "nested function": Place("""\
def outer():
    $make
    $more

    def inner():
        $body

    inner()


outer()
"""),
}
