import sys

import pandas as pd
import torch
from omegaconf import OmegaConf
from torch.utils.data import DataLoader, Dataset

cfg = OmegaConf.create({"seed": 3, "data": {"scale": 2.0, "twice": "${data.scale}", "batch_size": 4}})


class Table(Dataset):
    def __init__(self, frame, cfg):
        self.frame = frame
        self.cfg = cfg

    def __len__(self):
        return len(self.frame)

    def __getitem__(self, i):
        row = self.frame.iloc[i]
        return torch.tensor([row["a"], row["b"]]) * self.cfg.twice + torch.rand(1), row["name"]


def main():
    torch.manual_seed(cfg.seed)
    frame = pd.DataFrame({"a": range(20), "b": torch.rand(20).numpy(), "name": [f"row{i}" for i in range(20)]})
    frame = frame[frame.a > 2].reset_index(drop=True)
    loader = DataLoader(Table(frame, cfg.data), batch_size=cfg.data.batch_size, shuffle=True, num_workers=int(sys.argv[1]))
    for epoch in range(2):
        for x, names in loader:
            print(epoch, names, x.sum().item())


if __name__ == "__main__":
    main()
