"""One small script for each code that `splitter explain` prints, and what to write in its place, which is split.

They stand below the same few lines: imports of the standard library, torch, `DataLoader` and `Dataset`, and a dataset `Rows` of a list of
numbers with a method `set_strength`. The tests compile all of them.
"""

from __future__ import annotations

from typing import NamedTuple

from splitter.examples_prefix import PREFIX


class Example(NamedTuple):
    """A script that has the code, and one that hasn't."""

    before: str
    after: str


EXAMPLES: dict[str, Example] = {
    "S201": Example(
        """\
class Registry:
    def build(self, name):
        return getattr(self, name)()

data = Registry().build(sys.argv[1])
loader = DataLoader(data)
""",
        """\
data = Rows(torch.load('rows.pt'))
loader = DataLoader(data)
""",
    ),
    "S202": Example(
        """\
from torchdata.stateful_dataloader import StatefulDataLoader

for x in StatefulDataLoader(Rows(), num_workers=2):
    print(x)
""",
        """\
for x in DataLoader(Rows(), num_workers=2):
    print(x)
""",
    ),
    "S203": Example(
        """\
args = argparse.ArgumentParser().parse_args()
loader = DataLoader(Rows(), **vars(args))
""",
        """\
args = argparse.ArgumentParser().parse_args()
loader = DataLoader(Rows(), batch_size=args.batch_size, num_workers=args.num_workers)
""",
    ),
    "S301": Example(
        """\
class Embedded(Rows):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def __getitem__(self, i):
        return self.model(super().__getitem__(i))

model = nn.Linear(1, 1)
for x in DataLoader(Embedded(model), num_workers=2):
    print(x)
""",
        """\
model = nn.Linear(1, 1)
for x in DataLoader(Rows(), num_workers=2):
    print(model(x))
""",
    ),
    "S302": Example(
        """\
class OnDevice(Rows):
    def __getitem__(self, i):
        return super().__getitem__(i).cuda()

for x in DataLoader(OnDevice(), num_workers=2):
    print(x)
""",
        """\
for x in DataLoader(Rows(), num_workers=2):
    x = x.cuda()
    print(x)
""",
    ),
    "S303": Example(
        """\
class Noisy(Rows):
    def __getitem__(self, i):
        torch.manual_seed(i)
        return super().__getitem__(i) + torch.randn(1)

loader = DataLoader(Noisy())
""",
        """\
class Noisy(Rows):
    def __getitem__(self, i):
        own = torch.Generator().manual_seed(i)
        return super().__getitem__(i) + torch.randn(1, generator=own)

loader = DataLoader(Noisy())
""",
    ),
    "S304": Example(
        """\
rows = [1.0, 2.0]
loader = DataLoader(Rows(rows))
for x in loader:
    rows.append(x.item())
""",
        """\
data = Rows([1.0, 2.0])
loader = DataLoader(data)
for x in loader:
    data.set_strength(x.item())
""",
    ),
    "S305": Example(
        """\
import sqlite3

class Table(Rows):
    def __init__(self, connection):
        super().__init__([row[0] for row in connection.execute('select x from t')])

connection = sqlite3.connect('rows.db')
print(connection.total_changes)
loader = DataLoader(Table(connection))
""",
        """\
import sqlite3

class Table(Rows):
    def __init__(self, path):
        with sqlite3.connect(path) as connection:
            super().__init__([row[0] for row in connection.execute('select x from t')])

loader = DataLoader(Table('rows.db'))
""",
    ),
    "S306": Example(
        """\
class Timed(Rows):
    def __getitem__(self, i):
        return super().__getitem__(i) * time.time()

loader = DataLoader(Timed(), num_workers=2)
""",
        """\
class Timed(Rows):
    def __init__(self, start):
        super().__init__()
        self.start = start

    def __getitem__(self, i):
        return super().__getitem__(i) * self.start

start = time.time()
loader = DataLoader(Timed(start), num_workers=2)
""",
    ),
    "S307": Example(
        """\
prompts = torch.zeros(3, 8, requires_grad=True)
for prompt in DataLoader(Rows(prompts)):
    prompt.sum().backward()
""",
        """\
prompts = torch.zeros(3, 8, requires_grad=True)
for i in DataLoader(range(3)):
    prompts[i].sum().backward()
""",
    ),
    "S308": Example(
        """\
loader = DataLoader(Rows(), num_workers=2, in_order=False)
""",
        """\
loader = DataLoader(Rows(), num_workers=2)
""",
    ),
    "S310": Example(
        """\
loader = DataLoader(Rows(torch.ones(3, 1)), batch_size=None)
for x in loader:
    x.mul_(0.5)
""",
        """\
loader = DataLoader(Rows(torch.ones(3, 1)), batch_size=None)
for x in loader:
    x = x * 0.5
""",
    ),
    "S311": Example(
        """\
strength = 0.0

class Scaled(Rows):
    def __getitem__(self, i):
        return super().__getitem__(i) * strength

loader = DataLoader(Scaled(), num_workers=2)
for epoch in range(9):
    strength = epoch / 9
    for x in loader:
        print(x)
""",
        """\
class Scaled(Rows):
    def __getitem__(self, i):
        return super().__getitem__(i) * self.strength

data = Scaled()
loader = DataLoader(data, num_workers=2)
for epoch in range(9):
    data.set_strength(epoch / 9)
    for x in loader:
        print(x)
""",
    ),
    "S313": Example(
        """\
class Lines(Rows):
    def __init__(self, path):
        super().__init__()
        self.file = open(path)

    def __getitem__(self, i):
        self.file.seek(8 * i)
        return float(self.file.read(8))

loader = DataLoader(Lines('rows.txt'), num_workers=2)
""",
        """\
class Lines(Rows):
    def __init__(self, path):
        super().__init__()
        self.path = path

    def __getitem__(self, i):
        with open(self.path) as file:
            file.seek(8 * i)
            return float(file.read(8))

loader = DataLoader(Lines('rows.txt'), num_workers=2)
""",
    ),
    "S314": Example(
        """\
skipped = 0

class Skipping(Rows):
    def __getitem__(self, i):
        global skipped
        skipped += i == 1
        return super().__getitem__(i)

for x in DataLoader(Skipping()):
    print(x, skipped)
""",
        """\
class Skipping(Rows):
    def __getitem__(self, i):
        return super().__getitem__(i), i == 1

skipped = 0
for x, bad in DataLoader(Skipping()):
    skipped += bad.item()
    print(x, skipped)
""",
    ),
    "S315": Example(
        """\
# rows.py has the class, and at its top level: os.makedirs("logs")
import rows

loader = DataLoader(rows.Rows())
""",
        """\
# tables.py has the class and nothing else
import tables

loader = DataLoader(tables.Rows())
""",
    ),
    "S316": Example(
        """\
class Jitter:
    def __init__(self):
        self.k = random.random()

class Scaled(Rows):
    def __init__(self, jitter):
        super().__init__()
        self.jitter = jitter

jitter = Jitter()
loader = DataLoader(Scaled(jitter))
jitter.k = 0.0
""",
        """\
class Scaled(Rows):
    def __init__(self):
        super().__init__()
        self.k = random.random()

loader = DataLoader(Scaled())
""",
    ),
    "S317": Example(
        """\
class Doubled(Rows):
    def __init__(self, rows):
        super().__init__(rows)
        self.change = lambda x: 2 * x

rows = [1.0, 2.0]; print('start')
loader = DataLoader(Doubled(rows))
""",
        """\
class Doubled(Rows):
    def __init__(self, rows):
        super().__init__(rows)
        self.change = lambda x: 2 * x

rows = [1.0, 2.0]
print('start')
loader = DataLoader(Doubled(rows))
""",
    ),
    "S318": Example(
        """\
from composer import Trainer

Trainer(train_dataloader=DataLoader(Rows())).fit()
""",
        """\
for x in DataLoader(Rows()):
    print(x)
""",
    ),
    "S319": Example(
        """\
import cv2

class Photos(Rows):
    def __getitem__(self, i):
        return cv2.imread(self.rows[i])

if len(sys.argv) > 1:
    cv2.setNumThreads(int(sys.argv[1]))
loader = DataLoader(Photos(['1.png']))
""",
        """\
import cv2

class Photos(Rows):
    def __getitem__(self, i):
        return cv2.imread(self.rows[i])

cv2.setNumThreads(0)
loader = DataLoader(Photos(['1.png']))
""",
    ),
    "S401": Example(
        """\
class Files(Rows):
    def __init__(self, folder):
        super().__init__(os.listdir(folder))

    def __getitem__(self, i):
        return self.rows[i]

loader = DataLoader(Files('photos'), num_workers=2)
""",
        """\
class Files(Rows):
    def __init__(self, folder):
        super().__init__(sorted(os.listdir(folder)))

    def __getitem__(self, i):
        return self.rows[i]

loader = DataLoader(Files('photos'), num_workers=2)
""",
    ),
}

EXAMPLES |= {code: Example(*pair) for code, pair in PREFIX.items()}  # with --model-prefix
