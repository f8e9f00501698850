"""The program of the tests of resuming: datasets of every kind, samplers, and a body that runs whole, stops, or goes on."""

from __future__ import annotations

MOVED = '''
class Noise(Dataset):
    """Draws from three generators and keeps no state; writes down what it reads."""

    def __len__(self):
        return 21

    def __getitem__(self, i):
        with open("reads", "a") as file:
            file.write(f"{i}\\n")
        return torch.randn(5) + i + random.random() + np.random.rand(), i


class Plain(Dataset):
    def __len__(self):
        return 21

    def __getitem__(self, i):
        with open("reads", "a") as file:
            file.write(f"{i}\\n")
        return torch.arange(5) + i


class Counted(Dataset):
    """Keeps state."""

    def __init__(self):
        self.read = 0

    def __len__(self):
        return 21

    def __getitem__(self, i):
        self.read += 1
        return torch.tensor([i, self.read]) + torch.rand(2)


class Shards(IterableDataset):
    sizes = [7, 2, 5, 1, 4]

    def __iter__(self):
        info = get_worker_info()
        mine = self.sizes if info is None else self.sizes[info.id :: info.num_workers]
        for size in mine:
            for number in range(size):
                yield torch.tensor([size, number]) + torch.rand(2)


class Marked(IterableDataset):
    """Can say where it is."""

    def __iter__(self):
        info = get_worker_info()
        return Marks(range(24)[info.id :: info.num_workers] if info else range(24))


class Marks:
    def __init__(self, numbers):
        self.numbers, self.at = numbers, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == len(self.numbers):
            raise StopIteration
        self.at += 1
        with open("reads", "a") as file:
            file.write(f"{self.numbers[self.at - 1]}\\n")
        return self.numbers[self.at - 1] + torch.rand(1)

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]
'''
KINDS = {
    "noise": ("Noise", "stateless=True"),
    "plain": ("Plain", "stateless=True, draws=()"),
    "counted": ("Counted", ""),
    "shards": ("Shards", ""),
    "marked": ("Marked", ""),
}
BUILDERS = "".join(
    f'\n@splitter_runtime.dataset("{name}", {options})\ndef {name}():\n    return {kind}()\n' for name, (kind, options) in KINDS.items()
)

BODY = """
import hashlib
import io
import os
import sys


class Lengths:
    def __init__(self):
        self.random = random.Random(3)

    def __iter__(self):
        numbers = list(range(21))
        self.random.shuffle(numbers)
        return iter(numbers)

    def __len__(self):
        return 21


class Marker:
    '''A sampler that says where it is.'''

    def __init__(self):
        self.order, self.at = [], 0

    def __iter__(self):
        if not self.order:
            self.order = torch.randperm(21).tolist()
        while self.at < 21:
            self.at += 1
            yield self.order[self.at - 1]
        self.order, self.at = [], 0

    def __len__(self):
        return 21

    def state_dict(self):
        return {"order": list(self.order), "at": self.at}

    def load_state_dict(self, state):
        self.order, self.at = list(state["order"]), state["at"]


class Moody(Lengths):
    '''Draws from a generator that nobody knows.'''

    def __iter__(self):
        return iter([int.from_bytes(os.urandom(4), "little") % 21 for _ in range(21)])


def digest(value):
    made = hashlib.sha256()

    def add(part):
        if isinstance(part, torch.Tensor):
            made.update(part.numpy().tobytes())
        elif isinstance(part, (list, tuple)):
            [add(one) for one in part]
        else:
            made.update(repr(part).encode())

    add(value)
    return made.hexdigest()[:12]


def states():
    return [torch.get_rng_state(), np.random.get_state(), random.getstate()]


def restore(saved):
    torch.set_rng_state(saved[0])
    np.random.set_state(saved[1])
    random.setstate(saved[2])


def loader_of(case, part):
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    return eval(f"DataLoader(splitter_runtime.RemoteDataset(case[1]), batch_size=3, {case[3] if part == 'go_on' else case[2]})")


def epoch_of(case, loader, epoch, until=None):
    for step, batch in enumerate(loader):
        print(case[0], epoch, digest(batch))
        if case[0].startswith("plain"):
            torch.rand(1)
        if step + 1 == until:
            break


def whole(case):
    loader = loader_of(case, "whole")
    for epoch in range(case[4] + 2):
        epoch_of(case, loader, epoch)
    print(case[0], "end", digest(str(states())))


def stop(case):
    loader = loader_of(case, "stop")
    for epoch in range(case[4]):
        epoch_of(case, loader, epoch)
    epoch_of(case, loader, case[4], case[5])
    torch.save(loader.state_dict(), f"{case[0]}.loader")
    torch.save(states(), f"{case[0]}.generators")


def go_on(case):
    loader = loader_of(case, "go_on")
    restore(torch.load(f"{case[0]}.generators", weights_only=False))
    loader.load_state_dict(torch.load(f"{case[0]}.loader", weights_only=True))
    open("reads", "w").close()
    epoch_of(case, loader, case[4])
    print(case[0], "read", len(open("reads").readlines()), file=sys.stderr)
    for epoch in range(case[4] + 1, case[4] + 2):
        epoch_of(case, loader, epoch)
    print(case[0], "end", digest(str(states())))


open("reads", "w").close()
for case in eval(open("cases").read()):
    globals()[sys.argv[1]](case)
"""
