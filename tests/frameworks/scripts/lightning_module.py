import random
import sys

import lightning as L
import torch
import torch.nn.functional as F
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
            x = x + 0.1 * torch.randn(2) + random.random()
        return x, torch.tensor(float(i % 3))


class Lit(L.LightningModule):
    def __init__(self, lr=0.01, workers=2):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        return self.layer(x).squeeze(1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.mse_loss(self(x), y)
        print("train", batch_idx, f"{loss.item():.8f}")
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        loss = F.mse_loss(self(x), y)
        print("val", batch_idx, f"{loss.item():.8f}")
        self.log("val_loss", loss)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

    def train_dataloader(self):
        return DataLoader(Noise(30, augment=True), batch_size=8, shuffle=True, num_workers=self.hparams.workers)

    def val_dataloader(self):
        return DataLoader(Noise(12), batch_size=8, num_workers=self.hparams.workers)


def main():
    L.seed_everything(7, workers=True)
    workers = int(sys.argv[1])
    model = Lit(workers=workers)
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model)
    extra = DataLoader(Noise(9), batch_size=4, num_workers=workers)
    trainer.validate(model, extra, verbose=False)


if __name__ == "__main__":
    main()
