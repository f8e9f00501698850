import argparse
import os

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningDataModule, LightningModule, Trainer, seed_everything
from torch.utils.data import DataLoader, Dataset, random_split


class Noise(Dataset):
    def __init__(self, path, augment=False):
        self.rows = [line.split() for line in open(path)]
        self.augment = augment

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        x = torch.tensor([float(v) for v in self.rows[i][:2]])
        if self.augment:
            x = x + 0.1 * torch.randn(2)
        return x, torch.tensor(float(self.rows[i][2]))


class Data(LightningDataModule):
    def __init__(self, data_dir="data", batch_size=8, num_workers=2):
        super().__init__()
        self.data_dir = data_dir
        self.batch_size = batch_size
        self.num_workers = num_workers

    def prepare_data(self):
        os.makedirs(self.data_dir, exist_ok=True)
        with open(os.path.join(self.data_dir, "rows.txt"), "w") as f:
            for i in range(40):
                f.write(f"{i / 40} {i % 5} {i % 3}\n")

    def setup(self, stage=None):
        path = os.path.join(self.data_dir, "rows.txt")
        if stage == "fit" or stage is None:
            full = Noise(path, augment=True)
            self.train_set, self.val_set = random_split(full, [30, 10])
        if stage == "test" or stage is None:
            self.test_set = Noise(path)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True, num_workers=self.num_workers)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size, num_workers=self.num_workers)

    def test_dataloader(self):
        return DataLoader(self.test_set, batch_size=self.batch_size, num_workers=self.num_workers)


class Lit(LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.mse_loss(self.layer(x).squeeze(1), y)
        print("train", batch_idx, f"{loss.item():.8f}")
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        print("val", batch_idx, f"{F.mse_loss(self.layer(x).squeeze(1), y).item():.8f}")

    def test_step(self, batch, batch_idx):
        x, y = batch
        print("test", batch_idx, f"{F.mse_loss(self.layer(x).squeeze(1), y).item():.8f}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workers", type=int)
    args = parser.parse_args()
    seed_everything(5)
    data = Data(num_workers=args.workers)
    model = Lit(0.01)
    trainer = Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=data)
    trainer.test(model, datamodule=data, verbose=False)


if __name__ == "__main__":
    main()
