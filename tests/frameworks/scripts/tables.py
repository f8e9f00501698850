import sys

import torch
from datasets import Dataset, load_dataset
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, DataCollatorWithPadding


def scale(batch):
    return {"x": [torch.tensor(x) * 2 + torch.rand(1) for x in batch["x"]], "y": batch["y"]}


class Texts:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, texts):
        return self.tokenizer(texts, padding=True, return_tensors="pt")


def main():
    workers = int(sys.argv[1])
    torch.manual_seed(3)
    tokenizer = AutoTokenizer.from_pretrained("tok")
    raw = load_dataset("json", data_files={"train": "train.json", "validation": "validation.json"})

    def tokenize(examples):
        return tokenizer(examples["sentence1"], truncation=True)

    tokenized = raw.map(tokenize, batched=True, remove_columns=["sentence1", "sentence2", "idx"])
    collator = DataCollatorWithPadding(tokenizer=tokenizer)
    train_loader = DataLoader(tokenized["train"], batch_size=8, shuffle=True, collate_fn=collator, num_workers=workers)
    val_loader = DataLoader(tokenized["validation"], batch_size=8, collate_fn=DataCollatorWithPadding(tokenizer), num_workers=workers)
    texts_loader = DataLoader(list(raw["train"]["sentence1"]), batch_size=8, collate_fn=Texts(tokenizer), num_workers=workers)
    table = Dataset.from_dict({"x": [[i / 7, i / 3] for i in range(30)], "y": list(range(30))})
    table = table.filter(lambda row: row["y"] % 3 != 0).train_test_split(test_size=0.3, seed=1)
    plain = table["train"].with_format("torch")
    plain_loader = DataLoader(plain, batch_size=4, num_workers=workers)
    moved = table["test"].with_transform(scale)
    moved_loader = DataLoader(moved, batch_size=2, num_workers=workers)
    for _epoch in range(2):
        for name, loader in (("train", train_loader), ("val", val_loader), ("plain", plain_loader), ("moved", moved_loader)):
            for batch in loader:
                print(
                    name,
                    sorted(getattr(batch, "__dict__", ())),
                    {key: (tuple(value.shape), float(value.double().sum())) for key, value in batch.items()},
                )
        for batch in texts_loader:
            print(sorted(vars(batch)), batch.tokens(1), batch.input_ids.sum().item())


if __name__ == "__main__":
    main()
