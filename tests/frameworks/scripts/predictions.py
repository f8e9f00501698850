import sys

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor([float(i), float(i * i % 7)]) / self.n + 0.1 * torch.randn(2), torch.tensor(float(i % 3))


def pad(batch):
    xs, ys = zip(*batch, strict=False)
    return torch.stack(xs) + 1, torch.stack(ys)


class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.mse_loss(self.layer(x).squeeze(1), y)
        print("train", batch_idx, f"{loss.item():.8f}")
        return loss

    def predict_step(self, batch, batch_idx):
        return self.layer(batch[0]).sum().item()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main():
    pl.seed_everything(7)
    workers = int(sys.argv[1])
    model = Lit()
    quiet = dict(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    loader = DataLoader(Noise(30), batch_size=8, shuffle=True, collate_fn=pad, num_workers=workers)
    trainer = pl.Trainer(max_epochs=2, overfit_batches=2, **quiet)
    trainer.fit(model, train_dataloaders=loader)
    print(trainer.predict(model, DataLoader(Noise(9), batch_size=4, collate_fn=pad, num_workers=workers)))
    pl.Trainer(max_epochs=1, **quiet).fit(model, loader)


if __name__ == "__main__":
    main()
