"""Examples for the codes of the model prefix: a script that has the code with --model-prefix, and what to write in its place."""

from __future__ import annotations

_NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 1)

    def forward(self, x):
        rows = x.long() % 10
        return self.table(rows)

"""
_LOOP = """\
model = Net()
for x in DataLoader(Rows(), num_workers=2):
    print(model(x))
"""

PREFIX: dict[str, tuple[str, str]] = {
    "S421": (
        _NET + _LOOP + "print(model(torch.tensor([[3.0]])))\n",
        _NET + _LOOP,
    ),
    "S422": (
        _NET.replace("rows = x.long() % 10", "rows = x.long() % self.table.num_embeddings") + _LOOP,
        _NET + _LOOP,
    ),
    "S423": (
        _NET.replace("x.long() % 10", "x.long() % self.count") + _LOOP.replace("Net()\n", "Net()\nmodel.count = 10\n"),
        _NET.replace("x.long() % 10", "x.long() % self.count").replace("self.table =", "self.count = 10\n        self.table =") + _LOOP,
    ),
    "S424": (
        _NET + _LOOP.replace("Net()", "nn.DataParallel(Net())"),
        _NET + _LOOP,
    ),
    "S425": (
        _NET.replace("x.long() % 10", "(x.exp() * 10).long() % 10") + _LOOP,
        _NET + _LOOP,
    ),
}
