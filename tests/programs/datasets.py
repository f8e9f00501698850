"""The datasets of random programs: each idiom once. Plain ones come first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Data:
    """A kind of dataset: its definitions, the statements that make it ($data is set), and what programs may do with it."""

    text: str
    make: str
    has: frozenset[str] = frozenset()


def data(text: str, make: str, has: str = "") -> Data:
    return Data(text.strip("\n"), make.strip("\n"), frozenset(has.split()))


# What `has` says: index (it can be indexed), len, and the attributes and methods that `MEANWHILE` uses; iterable; own (a batch that isn't
# collated is the dataset's own memory); var (rows of different lengths); fails (raises for some rows).
ROWS = """
class Rows(Dataset):
    def __init__(self, count):
        self.rows = [float(k) for k in range(count)]
        self.level = 1

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.tensor([self.rows[i], self.level])
"""

PLAIN = {
    "class": data(ROWS, "$data = Rows($n)", "index len level rows method"),
    "pairs": data(
        """
class Pairs(Dataset):
    def __init__(self, count, level=1):
        self.count = count
        self.level = level

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.full((2,), i / 4), self.level * (i % 3)
""",
        "$data = Pairs($n, level=2)",
        "index len level",
    ),
    "dicts": data(
        """
class Dicts(Dataset):
    def __init__(self, count):
        self.names = [f"row {k}" for k in range(count)]

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        return {"x": np.arange(3, dtype=np.float32) + i, "name": self.names[i], "i": i}
""",
        "$data = Dicts($n)",
        "index len",
    ),
    "tensors": data("", "$data = TensorDataset(torch.arange($n * 2.0).reshape($n, 2), torch.arange($n))", "index len own"),
    "random tensors": data("", "x_$tag = torch.randn($n, 2)\n$data = TensorDataset(x_$tag, x_$tag.sum(1) > 0)", "index len own"),
    "list": data("", "$data = [(torch.ones(2) * k, k) for k in range($n)]", "index len own"),
    "range": data("", "$data = range($n)", "index len"),
    "arrays": data("", "$data = np.arange($n * 2).reshape($n, 2)", "index len own"),
    "subset": data(ROWS, "$data = Subset(Rows($n + 3), range(1, $n + 1))", "index len"),
    "subset of random indices": data(ROWS, "$data = Subset(Rows($n + 3), torch.randperm($n + 3)[:$n].tolist())", "index len"),
    "random_split": data(ROWS, "$data, rest_$tag = random_split(Rows($n + 4), [$n, 4])", "index len"),
    "random_split with a generator": data(
        ROWS,
        "$data, rest_$tag = random_split(Rows($n + 4), [$n, 4], generator=torch.Generator().manual_seed(7))\nprint(len(rest_$tag))",
        "index len",
    ),
    "concat": data(ROWS, "$data = ConcatDataset([Rows(4), Rows($n - 4)])", "index len"),
    "stack": data(ROWS, "$data = StackDataset(Rows($n), list(range($n)))", "index len"),
    "sum of datasets": data(ROWS, "$data = Rows(4) + Rows($n - 4)", "index len"),
    "wrapper": data(
        ROWS
        + """

class Wrapped(Dataset):
    def __init__(self, inner, transform=None):
        self.inner = inner
        self.transform = transform

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, i):
        row = self.inner[i]
        return row if self.transform is None else self.transform(row)

    def __getattr__(self, name):
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)
""",
        "$data = Wrapped(Rows($n), transform=lambda row: row * 2)",
        "index len",
    ),
    "wrapper of a loader's dataset": data(
        ROWS
        + """

class Paired(Dataset):
    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, i):
        return self.inner[i], self.inner[i - 1]
""",
        "plain_$tag = Rows($n)\nfor batch in DataLoader(plain_$tag, batch_size=5):\n    train(batch)\n$data = Paired(plain_$tag)",
        "index len",
    ),
    "transform": data(
        """
def double(x):
    return x * 2


class Transformed(Dataset):
    def __init__(self, count, transform=None):
        self.count = count
        self.transform = transform

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        x = torch.arange(3.0) + i
        return x if self.transform is None else self.transform(x)
""",
        "$data = Transformed($n, double)",
        "index len transform",
    ),
    "augmented": data(
        """
class Flip:
    def __init__(self, p):
        self.p = p

    def __call__(self, x):
        return x.flip(0) if torch.rand(1) < self.p else x


class Augmented(Dataset):
    def __init__(self, count, transform):
        self.x = torch.arange(count * 3.0).reshape(count, 3)
        self.transform = transform

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.transform(self.x[i]), i
""",
        "$data = Augmented($n, Flip(0.5))",
        "index len transform",
    ),
    "set_epoch": data(
        """
class Epochs(Dataset):
    def __init__(self, count):
        self.count = count
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.count + self.epoch

    def __getitem__(self, i):
        return torch.tensor(i * 100 + self.epoch)
""",
        "$data = Epochs($n)",
        "index len set_epoch",
    ),
    "counter": data(
        """
class Counted(Dataset):
    def __init__(self, count):
        self.count = count
        self.served = 0

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        self.served += 1
        return torch.tensor([i, self.served])
""",
        "$data = Counted($n)",
        "index len served",
    ),
    "cache": data(
        """
class Cached(Dataset):
    def __init__(self, count):
        self.count = count
        self.cache = {}

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if i not in self.cache:
            self.cache[i] = torch.tensor([float(i), len(self.cache)])
        return self.cache[i]
""",
        "$data = Cached($n)",
        "index len own cache",
    ),
    "getitems": data(
        """
class Many(Dataset):
    def __init__(self, count):
        self.x = torch.arange(count * 2.0).reshape(count, 2)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]

    def __getitems__(self, indices):
        return [self.x[i] + len(indices) for i in indices]
""",
        "$data = Many($n)",
        "index len own",
    ),
}
