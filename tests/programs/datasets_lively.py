"""Datasets of random programs that draw random numbers or read what is around them; and those that are iterated over."""

from __future__ import annotations

from programs.datasets import ROWS, data

SHARDED = """
class Sharded(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for k in range(first, self.count, step):
            yield torch.tensor([float(k)])
"""

LIVELY = {
    "draws torch": data(
        """
class Noisy(Dataset):
    def __init__(self, count, noise=0.1):
        self.count = count
        self.noise = noise

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return i + self.noise * torch.randn(2)
""",
        "$data = Noisy($n)",
        "index len",
    ),
    "draws numpy": data(
        """
class Jittered(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return np.random.rand(2) + i
""",
        "$data = Jittered($n)",
        "index len",
    ),
    "draws random": data(
        """
class Masked(Dataset):
    words = ["one", "two", "three", "four"]

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return i, random.choice(self.words)
""",
        "$data = Masked($n)",
        "index len Masked.words",
    ),
    "draws in the constructor": data(
        """
class Made(Dataset):
    def __init__(self, count):
        self.x = torch.randn(count, 2)
        self.y = np.random.randint(0, 3, count)
        self.order = random.sample(range(count), count)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        i = self.order[i]
        return self.x[i], int(self.y[i])
""",
        "$data = Made($n)",
        "index len own",
    ),
    "own generator": data(
        """
class Seeded(Dataset):
    def __init__(self, count):
        self.count = count
        self.rng = np.random.RandomState(9)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.rng.rand(2) + i
""",
        "$data = Seeded($n)",
        "index len",
    ),
    "class attribute": data(
        """
class Scaled(Dataset):
    scale = 2

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.tensor([i * self.scale])
""",
        "$data = Scaled($n)",
        "index len Scaled.scale",
    ),
    "global": data(
        """
OFFSET = 10


class Shifted(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.tensor([i + OFFSET])
""",
        "$data = Shifted($n)",
        "index len OFFSET",
    ),
    "global dict": data(
        """
config = {"offset": 10}


class Configured(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.tensor([i + config["offset"]])
""",
        "$data = Configured($n)",
        "index len config",
    ),
    "closure": data(
        """
def with_scale(count, scale):
    class Local(Dataset):
        def __len__(self):
            return count

        def __getitem__(self, i):
            return torch.tensor([i * scale])

    return Local()
""",
        "$data = with_scale($n, 3)",
        "index len",
    ),
    "list kept by the script": data(
        """
class Kept(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.tensor([self.rows[i]])
""",
        "rows_$tag = [float(k) for k in range($n)]\nrandom.shuffle(rows_$tag)\n$data = Kept(rows_$tag)",
        "index len rows",
    ),
    "array kept by the script": data(
        """
class FromArray(Dataset):
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]
""",
        "x_$tag = np.random.rand($n, 2).astype(np.float32)\n$data = FromArray(x_$tag)\nprint(x_$tag.mean())",
        "index len own",
    ),
    "named tuples": data(
        """
Row = collections.namedtuple("Row", ["x", "label"])


class Named(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return Row(torch.full((2,), float(i)), i % 2)
""",
        "$data = Named($n)",
        "index len",
    ),
    "dataclass": data(
        """
@dataclasses.dataclass
class Table(Dataset):
    count: int
    level: int = 3

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.tensor([i, self.level])
""",
        "$data = Table($n)",
        "index len level",
    ),
    "inherits": data(
        ROWS
        + """

class Halved(Rows):
    def __init__(self, count):
        super().__init__(count)
        self.level = 0.5

    def __getitem__(self, i):
        return super().__getitem__(i) * self.level
""",
        "$data = Halved($n)",
        "index len level rows",
    ),
    "worker id": data(
        """
class Where(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        info = get_worker_info()
        return torch.tensor([i, -1 if info is None else info.id, 0 if info is None else info.seed % 97])
""",
        "$data = Where($n)",
        "index len",
    ),
    "prints in the constructor": data(
        """
class Announced(Dataset):
    def __init__(self, count):
        self.count = count
        print("made with", count)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.tensor(i)
""",
        "$data = Announced($n)",
        "index len",
    ),
    "of different lengths": data(
        """
class Words(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.arange(i % 4 + 1)
""",
        "$data = Words($n)",
        "index len var",
    ),
    "fails": data(
        """
class Broken(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if i == 7:
            raise ValueError(f"row {i} is broken")
        return torch.tensor(i)
""",
        "$data = Broken($n)",
        "index len fails",
    ),
    "lru_cache": data(
        """
@functools.lru_cache(maxsize=None)
def loaded(i):
    return torch.rand(1) + i


class Loaded(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return loaded(i % 5)
""",
        "$data = Loaded($n)",
        "index len own",
    ),
    "global list filled by rows": data(
        """
log = []


class Logged(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        log.append(i)
        return torch.tensor([i, len(log)])
""",
        "$data = Logged($n)",
        "index len log",
    ),
    "sharded": data(
        SHARDED,
        "$data = Sharded($n)",
        "iterable",
    ),
    "chain": data(SHARDED, "$data = ChainDataset([Sharded($n), Sharded(3)])", "iterable"),
    "shuffled stream": data(
        """
class Stream(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        order = list(range(self.count))
        random.shuffle(order)
        for k in order:
            yield k, torch.rand(1)

    def __len__(self):
        return self.count
""",
        "$data = Stream($n)",
        "iterable len",
    ),
    "stream that goes on": data(
        """
class Cursor(IterableDataset):
    def __init__(self, count):
        self.count = count
        self.at = 0

    def __iter__(self):
        for _ in range(self.count):
            self.at += 1
            yield self.at
""",
        "$data = Cursor($n)",
        "iterable at",
    ),
}
