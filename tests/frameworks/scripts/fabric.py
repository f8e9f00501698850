import sys

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric, seed_everything
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __init__(self, n, augment=False):
        self.n = n
        self.augment = augment

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = torch.tensor([float(i), float(i * i % 7)]) / self.n
        if self.augment:
            x = x + 0.1 * torch.randn(2)
        return x, torch.tensor(float(i % 3))


def main():
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    seed_everything(11)
    workers = int(sys.argv[1])
    train_loader = DataLoader(Noise(30, augment=True), batch_size=8, shuffle=True, num_workers=workers)
    val_loader = DataLoader(Noise(12), batch_size=8, num_workers=workers)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = fabric.setup(model, optimizer)
    train_loader, val_loader = fabric.setup_dataloaders(train_loader, val_loader)
    for epoch in range(2):
        for x, y in train_loader:
            loss = F.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
            print(f"{epoch} {loss.item():.8f}")
        for x, y in val_loader:
            print(f"val {F.mse_loss(model(x).squeeze(1), y).item():.8f}")


if __name__ == "__main__":
    main()
