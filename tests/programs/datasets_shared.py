"""Datasets of random programs that share something with the script: tensors, lists, other datasets, objects with attributes."""

from __future__ import annotations

from programs.datasets import ROWS, data

FROM_ARRAY = """
class FromArray(Dataset):
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]
"""
WITH_TRANSFORM = """
class Add:
    def __init__(self, amount):
        self.amount = amount
        self.parts = [0, 1]

    def __call__(self, x):
        return x + self.amount + sum(self.parts)


class Changed(Dataset):
    def __init__(self, count, transform):
        self.count = count
        self.transform = transform

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.transform(torch.arange(2.0) + i)
"""

SHARED = {
    "tensor of the script": data(
        FROM_ARRAY, "x_$tag = torch.arange($n * 2.0).reshape($n, 2)\n$data = FromArray(x_$tag)", "index len own x FromArray"
    ),
    "array as a tensor": data(
        FROM_ARRAY, "y_$tag = np.arange($n * 2.0).reshape($n, 2)\n$data = FromArray(torch.from_numpy(y_$tag))", "index len own y"
    ),
    "tensors of the script": data("", "x_$tag = torch.randn($n, 2)\n$data = TensorDataset(x_$tag, torch.arange($n))", "index len own x"),
    "part of a tensor": data(
        FROM_ARRAY, "x_$tag = torch.arange($n * 4.0).reshape(-1, 2)\n$data = FromArray(x_$tag[$n :])", "index len own x FromArray"
    ),
    "copy of a tensor": data(FROM_ARRAY, "x_$tag = torch.randn($n, 2)\n$data = FromArray(x_$tag.clone())", "index len own x"),
    "list of the script": data("", "list_$tag = [torch.ones(2) * k for k in range($n)]\n$data = list_$tag", "index len own list"),
    "subset of a dataset of the script": data(ROWS, "base_$tag = Rows($n + 2)\n$data = Subset(base_$tag, range(1, $n))", "index len base"),
    "concatenation of datasets of the script": data(
        ROWS, "base_$tag = Rows(5)\n$data = ConcatDataset([base_$tag, Rows($n - 5)])", "index len base"
    ),
    "wrapper of a dataset of the script": data(
        ROWS
        + """

class Twice(Dataset):
    def __init__(self, base):
        self.base = base

    def __len__(self):
        return len(self.base)

    def __getitem__(self, i):
        return self.base[i] * 2
""",
        "base_$tag = Rows($n)\n$data = Twice(base_$tag)",
        "index len base",
    ),
    "transform of the script": data(WITH_TRANSFORM, "add_$tag = Add(2)\n$data = Changed($n, add_$tag)", "index len add transform"),
    "two of one list": data(
        FROM_ARRAY + ROWS,
        "list_$tag = [torch.ones(2) * k for k in range($n)]\n$data = FromArray(list_$tag)\nprint(len(FromArray(list_$tag)))",
        "index len own list",
    ),
    "closure over a list": data(
        """
def reading(rows):
    class Reader(Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, i):
            return torch.tensor(rows[i % len(rows)])

    return Reader()
""",
        "list_$tag = [float(k) for k in range($n)]\n$data = reading(list_$tag)",
        "index len list",
    ),
    "property": data(
        """
class Strong(Dataset):
    def __init__(self, count):
        self.count = count
        self._level = 1

    @property
    def level(self):
        return self._level

    @level.setter
    def level(self, value):
        self._level = 10 * value

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.tensor(i * self._level)
""",
        "$data = Strong($n)",
        "index len level",
    ),
    "methods": data(
        """
class Grown(Dataset):
    def __init__(self, count):
        self.rows = [float(k) for k in range(count)]

    def grow(self, value):
        self.rows.append(value)
        return len(self.rows)

    def all_rows(self):
        return self.rows

    def mix(self):
        random.shuffle(self.rows)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.tensor(self.rows[i])
""",
        "$data = Grown($n)",
        "index len rows grow",
    ),
    "own state for pickle": data(
        """
class Pickled(Dataset):
    def __init__(self, count):
        self.count = count
        self.level = 7

    def __getstate__(self):
        return {"count": self.count, "level": 0}

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.tensor(i + self.level)
""",
        "$data = Pickled($n)",
        "index len level",
    ),
    "holds unusual objects": data(
        """
class Holding(Dataset):
    def __init__(self, count):
        self.count = count
        self.me = self
        self.counts = collections.defaultdict(lambda: 3)
        self.queue = collections.deque([1, 2], maxlen=2)
        self.generator = torch.Generator().manual_seed(3)
        self.numbers = np.random.default_rng(5)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        self.queue.append(i)
        drawn = torch.rand(1, generator=self.generator).item() + self.numbers.random()
        return torch.tensor([drawn, self.me.counts[i], sum(self.queue)])
""",
        "$data = Holding($n)",
        "index len",
    ),
    "slots": data(
        """
class Slotted(Dataset):
    __slots__ = ("count", "level")

    def __init__(self, count):
        self.count = count
        self.level = 4

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.tensor(i * self.level)
""",
        "$data = Slotted($n)",
        "index len level",
    ),
    "made by a class method": data(
        """
class Read(Dataset):
    def __init__(self, rows):
        self.rows = rows

    @classmethod
    def numbers(cls, count):
        return cls([float(k) for k in range(count)])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.tensor(self.rows[i])
""",
        "$data = Read.numbers($n)",
        "index len rows",
    ),
    "chosen by a name": data(
        ROWS
        + """

class Negative(Rows):
    def __getitem__(self, i):
        return -super().__getitem__(i)


KINDS = {"rows": Rows, "negative": Negative}
""",
        '$data = KINDS["negative"]($n)',
        "index len level rows",
    ),
    "from a factory with defaults": data(
        ROWS
        + """

def build(count, split="train", **options):
    if split == "train":
        return Rows(count)
    return Subset(Rows(count), range(count - 1))
""",
        '$data = build($n, split="test", level=3)',
        "index len",
    ),
    "sorted set": data(
        """
class Vocabulary(Dataset):
    def __init__(self, count):
        self.words = sorted({f"word {k % 5}" for k in range(count)})
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.words[i % len(self.words)], i
""",
        "$data = Vocabulary($n)",
        "index len",
    ),
}
