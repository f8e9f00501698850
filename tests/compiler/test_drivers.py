"""Loaders that are handed to the libraries that drive the training."""

from __future__ import annotations

from pathlib import Path

import pytest

from splitter.compile import compile_script

HEAD = """
import accelerate
import lightning as L
import pytorch_lightning as pl
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 9

    def __getitem__(self, i):
        return torch.tensor(i)


class Module(L.LightningModule):
    def train_dataloader(self):
        return DataLoader(Rows(), num_workers=2)


"""
TAKEN = {
    "prepare": """
accelerator = Accelerator(cpu=True)
model, loader = accelerator.prepare(torch.nn.Linear(1, 1), DataLoader(Rows(), num_workers=2))
for x in accelerator.skip_first_batches(loader, 2):
    print(x)
""",
    "prepare in a function": """
def prepared(accelerator, loader):
    return accelerator.prepare(loader)


loader = prepared(accelerate.Accelerator(), DataLoader(Rows(), num_workers=2))
""",
    "an attribute": """
class Run:
    def __init__(self):
        self.fabric = Fabric()
        self.loader = self.fabric.setup_dataloaders(DataLoader(Rows(), num_workers=2))


Run()
""",
    "fit": "L.Trainer().fit(Module(), train_dataloaders=DataLoader(Rows(), num_workers=2))",
    "several": """
trainer = pl.Trainer(max_epochs=2)
trainer.fit(Module(), DataLoader(Rows(), num_workers=2), [DataLoader(Rows(), num_workers=2)])
trainer.test(Module(), DataLoader(Rows(), num_workers=2))
print(trainer.predict(Module(), DataLoader(Rows(), num_workers=2)))
""",
    "hooks": "L.Trainer().fit(Module())",
}
REFUSED = {
    "another library": "other = __import__('x').Driver()\nother.prepare(DataLoader(Rows(), num_workers=2))",
    "another method": "Accelerator().register_for_checkpointing(DataLoader(Rows(), num_workers=2))",
    "torchdata's loader": """
accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))
loader = accelerator.prepare(DataLoader(Rows(), num_workers=2))
""",
}


def codes(folder: Path, body: str) -> set[str]:
    (folder / "train.py").write_text(HEAD + body)
    plan = compile_script(folder / "train.py")
    return {feed.code or feed.status for feed in plan.feeds if feed.code or feed.status != "split"} or {f"{len(plan.feeds)} split"}


@pytest.mark.parametrize(("body"), TAKEN.values(), ids=TAKEN)
def test_loaders_that_keep_their_batches(tmp_path: Path, body: str) -> None:
    assert codes(tmp_path, body) <= {"1 split", "2 split", "5 split"}


@pytest.mark.parametrize(("body"), REFUSED.values(), ids=REFUSED)
def test_loaders_that_may_lose_them(tmp_path: Path, body: str) -> None:
    assert codes(tmp_path, body) == {"S318"}


@pytest.mark.parametrize(("more", "residence"), [("", "moved"), ("loader.dataset.rows.append(1)\n", "sent")])
def test_a_prepared_loader_is_followed(tmp_path: Path, more: str, residence: str) -> None:
    (tmp_path / "train.py").write_text(HEAD + TAKEN["prepare"] + more)
    assert compile_script(tmp_path / "train.py").feeds[-1].residence == residence
