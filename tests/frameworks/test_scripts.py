"""Scripts that use Accelerate, Lightning, Hugging Face, OmegaConf and pandas: script and split print the same.

The test environment of the project doesn't have these; in one that has them: `pytest -m frameworks tests/frameworks`.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from scratch import Scratch

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))
pytestmark = pytest.mark.frameworks


def tokenizer_and_rows(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    text = "the cat sat dog ran far " + " ".join(map(str, range(50)))
    words.train_from_iterator([text], trainers.WordLevelTrainer(special_tokens=["[UNK]", "[PAD]"]))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder / "tok")
    for name, count in (("train", 40), ("validation", 20)):
        rows = [
            {"sentence1": f"the cat {i} sat " * (i % 3 + 1), "sentence2": f"dog {i} ran far", "label": i % 2, "idx": i}
            for i in range(count)
        ]
        (folder / f"{name}.json").write_text("\n".join(map(json.dumps, rows)))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.stem))
def test_script_and_split_print_the_same(script: Path, scratch: Scratch) -> None:
    folder = scratch.folder / "script"
    folder.mkdir()
    shutil.copy(script, folder / "train.py")
    if script.stem == "tables":
        tokenizer_and_rows(folder)
    made = scratch.splitter("transform", "train.py", folder=folder)
    assert made.returncode == 0 and "split" in made.stdout, made.stdout + made.stderr
    for workers in ("2", "0"):
        expected, split = (scratch.run([sys.executable, name, workers], folder) for name in ("train.py", "train_trainer.py"))
        assert expected.returncode == 0, expected.stderr
        assert (split.stdout, split.returncode) == (expected.stdout, 0), split.stderr
        assert "stays in the trainer" not in split.stderr
