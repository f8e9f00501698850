import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __init__(self, n, noise):
        self.n = n
        self.noise = noise

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = torch.tensor([i, i * i], dtype=torch.float32) / self.n
        return x + self.noise * torch.ones(2), float(i % 3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workers", type=int)
    args = parser.parse_args()
    set_seed(3)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    train_loader = DataLoader(Squares(40, 0.1), batch_size=8, shuffle=True, num_workers=args.workers)
    eval_loader = DataLoader(Squares(20, 0.0), batch_size=8, num_workers=args.workers)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.000001)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(model, optimizer, train_loader, eval_loader, scheduler)
    for epoch in range(2):
        model.train()
        batches = accelerator.skip_first_batches(train_loader, 2) if epoch == 1 else train_loader
        for x, y in batches:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x).squeeze(1), y.float())
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        model.eval()
        total = 0.0
        for x, y in eval_loader:
            with torch.no_grad():
                out = model(x).squeeze(1)
            out, y = accelerator.gather_for_metrics((out, y))
            total += (out - y).abs().sum().item()
        accelerator.print(f"epoch {epoch} loss {loss.item():.8f} eval {total:.8f} {len(train_loader)}")


if __name__ == "__main__":
    main()
