"""What goes with a dataset into a loader, in random programs: each idiom once. Plain ones come first in each table.

Names in a text that start with a dollar sign are filled in by `compose`: $data and $loader are how the program calls the dataset and the
loader there, $second is another loader, $n a number, $tag something to make a name of. All modules of texts keep to these names.
"""

from __future__ import annotations

# Where numbers such as the size of the dataset come from: definitions, and the expression.
NUMBERS = {
    "literal": ("", "12"),
    "constant": ("COUNT = 12", "COUNT"),
    "arguments": (
        """\
parser = argparse.ArgumentParser()
parser.add_argument("--count", type=int, default=12)
args = parser.parse_args()
""",
        "args.count",
    ),
    "dict": ('options = {"count": 12, "name": "rows"}', 'options["count"]'),
    "class": (
        """\
class Config:
    count = 12
""",
        "Config.count",
    ),
    "object": (
        """\
class Settings:
    def __init__(self):
        self.count = 12


settings = Settings()
""",
        "settings.count",
    ),
    "computed": ("size = sum(range(4)) * 2", "size"),
    "drawn": ("drawn = random.randint(9, 14)", "drawn"),
}

# collate_fn: definitions, and the argument.
COLLATES = {
    "none": ("", ""),
    "function": (
        """\
def pair(rows):
    return default_collate(rows), len(rows)
""",
        "collate_fn=pair",
    ),
    "lambda": ("", "collate_fn=lambda rows: rows"),
    "default_collate": ("", "collate_fn=default_collate"),
    "closure": (
        """\
def keep(k):
    def collate(rows):
        return rows[:k]

    return collate
""",
        "collate_fn=keep(2)",
    ),
    "partial": (
        """\
def first(rows, k):
    return rows[0], k
""",
        "collate_fn=functools.partial(first, k=3)",
    ),
    "instance": (
        """\
class Reversed:
    def __init__(self, step):
        self.step = step

    def __call__(self, rows):
        return default_collate(rows[:: self.step])
""",
        "collate_fn=Reversed(-1)",
    ),
    "instance with state": (
        """\
class Numbered:
    def __init__(self):
        self.calls = 0

    def __call__(self, rows):
        self.calls += 1
        return default_collate(rows), self.calls
""",
        "collate_fn=Numbered()",
    ),
    "bound method": (
        """\
class Batches:
    def __init__(self, extra):
        self.extra = extra

    def make(self, rows):
        return [default_collate(rows), self.extra]


batches = Batches(4)
""",
        "collate_fn=batches.make",
    ),
    "draws": (
        """\
def mixed(rows):
    random.shuffle(rows)
    return rows, torch.rand(1)
""",
        "collate_fn=mixed",
    ),
    "global": (
        """\
BASE = 100


def based(rows):
    return BASE, rows
""",
        "collate_fn=based",
    ),
    "uses the model": (
        """\
def scored(rows):
    return [float(model(torch.ones(1, 1))), rows]
""",
        "collate_fn=scored",
    ),
    "static method": (
        """\
class Collates:
    @staticmethod
    def listed(rows):
        return list(enumerate(rows))
""",
        "collate_fn=Collates.listed",
    ),
}

# How rows come together: definitions, the arguments of the loader, and what the dataset must have.
BATCHES = {
    "plain": ("", "batch_size=3", ""),
    "shuffle": ("", "batch_size=4, shuffle=True", "index"),
    "drop_last": ("", "batch_size=5, drop_last=True", ""),
    "one": ("", "", ""),
    "no batches": ("", "batch_size=None", ""),
    "no batches, shuffled": ("", "batch_size=None, shuffle=True", "index"),
    "RandomSampler": ("", "batch_size=3, sampler=RandomSampler($data)", "index"),
    "with replacement": ("", "batch_size=3, sampler=RandomSampler($data, replacement=True, num_samples=7)", "index"),
    "SubsetRandomSampler": ("", "batch_size=3, sampler=SubsetRandomSampler(list(range(2, 9)))", "index"),
    "weighted": ("", "batch_size=3, sampler=WeightedRandomSampler([1.0 + k for k in range(9)], 8)", "index"),
    "list": ("", "batch_size=2, sampler=[5, 3, 3, 1, 0]", "index"),
    "own sampler": (
        """\
class Backwards(Sampler):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter(range(len(self.data) - 1, -1, -1))

    def __len__(self):
        return len(self.data)
""",
        "batch_size=3, sampler=Backwards($data)",
        "index",
    ),
    "sampler that draws": (
        """\
class Drawn(Sampler):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        for _ in range(6):
            yield random.randrange(8)

    def __len__(self):
        return 6
""",
        "batch_size=2, sampler=Drawn($data)",
        "index",
    ),
    "sampler that reads rows": (
        """\
class Sorted(Sampler):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter(sorted(range(len(self.data)), key=lambda i: str(self.data[i])))

    def __len__(self):
        return len(self.data)
""",
        "batch_size=3, sampler=Sorted($data)",
        "index",
    ),
    "sampler that reads an attribute": (
        """\
class ByLevel(Sampler):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter([k for k in range(len(self.data)) if k != self.data.level])

    def __len__(self):
        return len(self.data) - 1
""",
        "batch_size=3, sampler=ByLevel($data)",
        "index level",
    ),
    "batch_sampler": ("", "batch_sampler=BatchSampler(SequentialSampler($data), batch_size=4, drop_last=False)", "index"),
    "batch_sampler as a list": ("", "batch_sampler=[[0, 1], [2], [5, 4, 3]]", "index"),
    "own batch_sampler": (
        """\
class Buckets:
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        order = torch.randperm(self.count).tolist()
        for k in range(0, self.count, 3):
            yield order[k : k + 3]

    def __len__(self):
        return (self.count + 2) // 3
""",
        "batch_sampler=Buckets(8)",
        "index",
    ),
    "distributed": ("", "batch_size=2, sampler=DistributedSampler($data, num_replicas=2, rank=1)", "index"),
    "generator": ("", "batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(11)", "index"),
    "shared generator": (
        """\
shared = torch.Generator()
shared.manual_seed(12)
""",
        "batch_size=3, shuffle=True, generator=shared",
        "index",
    ),
}

# Workers: definitions, the arguments of the loader.
WORKERS = {
    "none": ("", ""),
    "zero": ("", "num_workers=0"),
    "one": ("", "num_workers=1"),
    "two": ("", "num_workers=2"),
    "three": ("", "num_workers=3"),
    "persistent": ("", "num_workers=1, persistent_workers=True"),
    "two persistent": ("", "num_workers=2, persistent_workers=True"),
    "prefetch": ("", "num_workers=2, prefetch_factor=1"),
    "far ahead": ("", "num_workers=1, prefetch_factor=5, persistent_workers=True"),
    "init": (
        """\
def seed_worker(number):
    random.seed(number)
    np.random.seed(torch.initial_seed() % 2**32)
""",
        "num_workers=2, worker_init_fn=seed_worker",
    ),
    "init changes the dataset": (
        """\
def shift(number):
    get_worker_info().dataset.shift = number
""",
        "num_workers=2, worker_init_fn=shift",
    ),
    "init lambda": ("", "num_workers=1, worker_init_fn=lambda number: np.random.seed(100 + number)"),
    "computed": ("workers = 0 + (torch.get_default_dtype() == torch.float32)", "num_workers=workers"),
    "pinned and timed": ("", "num_workers=1, pin_memory=False, timeout=50"),
}
