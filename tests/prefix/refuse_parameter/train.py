"""What is looked up depends on a parameter."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clicks(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.arange(i, i + 4), float(i % 3 == 0)


class Recommender(nn.Module):
    def __init__(self, buckets):
        super().__init__()
        self.buckets = buckets
        self.table = nn.EmbeddingBag(buckets, 4)
        self.top = nn.Linear(4, 1)
        self.shift = nn.Parameter(torch.ones(1))

    def forward(self, ids):
        rows = (ids * self.shift.long()) % self.buckets  # expect: S422
        return self.top(self.table(rows)).squeeze(1)


def main():
    torch.manual_seed(7)
    loader = DataLoader(Clicks(), batch_size=16, shuffle=True, num_workers=1)
    model = Recommender(1000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for ids, clicked in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids), clicked.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


main()
