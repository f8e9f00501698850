"""Tables of pandas, datasets and tokenizers of Hugging Face, options of OmegaConf: there and back."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from splitter_runtime.codec import decode, encode
from splitter_runtime.errors import CodecError

pytestmark = pytest.mark.frameworks


def sent(value: object) -> Any:
    encoded = encode(value, name="dataset", code=True)
    payload = bytearray(encoded.nbytes)
    encoded.copy_into(payload)
    return decode(encoded.header, payload, code=True)


def double(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [2 * item for item in column] for name, column in batch.items()}


def everything() -> Any:
    import pandas as pd

    count = 9
    objects = [[1], None, "x", {"a": 1}, np.nan, pd.NA, pd.NaT, pd.Timestamp("2020-02-02", tz="Europe/Berlin"), 3]
    return pd.DataFrame(
        {
            "int": range(count),
            "float": np.arange(count) / 3,
            "more": np.arange(count) / 7,
            "byte": np.arange(count, dtype=np.uint8),
            "bool": [True] * count,
            "text": [f"t{n}" for n in range(count)],
            "missing text": pd.Series(["a", None, "é"] * 3, dtype="str"),
            "string": pd.array(["a", None, "c"] * 3, dtype="string"),
            "python string": pd.array(["a", None, "c"] * 3, dtype="string[python]"),
            "object": objects,
            "time": pd.date_range("2020-01-01", periods=count),
            "zoned": pd.date_range("2020-01-01", periods=count, tz="America/New_York"),
            "delta": pd.to_timedelta(range(count), unit="s"),
            "category": pd.Categorical(list("abcabcabc")),
            "ordered": pd.Categorical([1, 2, None] * 3, ordered=True),
            "masked": pd.array([1, None, 3] * 3, dtype="Int64"),
            "masked bool": pd.array([True, None, False] * 3, dtype="boolean"),
            "masked float": pd.array([1.5, None, 3] * 3, dtype="Float32"),
        }
    )


def test_tables_arrive() -> None:
    import pandas as pd

    whole = everything()
    tables = [
        whole,
        whole.iloc[2:5],
        whole.set_index("text"),
        whole.set_index(["int", "category"]),
        whole.loc[:, ["time"]],
        pd.DataFrame(),
        pd.DataFrame(index=range(3)),
        pd.DataFrame(np.arange(6.0).reshape(3, 2)),
        pd.DataFrame({"a": [1, 2], "b": [3, 4]}, index=pd.date_range("2020", periods=2, freq="D", tz="UTC")),
        pd.DataFrame({("a", 1): [1], ("a", 2): [2.0]}),
        pd.DataFrame([[1, 2]], columns=["x", "x"]),
        pd.DataFrame({"a": pd.Series([], dtype="str")}),
    ]
    for table in tables:
        arrived = sent(table)
        pd.testing.assert_frame_equal(table, arrived)
        assert type(table.index) is type(arrived.index) and (table.dtypes == arrived.dtypes).all()
        arrived.insert(0, "new", 1.0)
        arrived.loc[:, "new"] = 2.0
    for name in whole:
        pd.testing.assert_series_equal(whole[name], sent(whole[name]))
        pd.testing.assert_index_equal(pd.Index(whole[name]), sent(pd.Index(whole[name])))


def test_columns_that_are_not_known_are_refused() -> None:
    import pandas as pd

    for values in (pd.arrays.SparseArray([1, 0]), pd.period_range("2020", periods=3), pd.interval_range(0, 3)):
        with pytest.raises(CodecError, match=r"^R107: dataset: pandas\.\w+ can't be sent: columns of this type"):
            sent(pd.Series(values))


def test_datasets_arrive() -> None:
    import datasets

    rows = datasets.Dataset.from_dict({"a": [1, 2, 3], "t": ["x", "y", "z"], "e": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]})
    for value in (
        rows,
        rows.with_format("torch"),
        rows.shuffle(seed=3).with_format("numpy", columns=["a"]),
        rows.with_transform(double),
        rows.select([2, 0]),
        datasets.concatenate_datasets([rows, rows]),
        rows.cast_column("a", datasets.ClassLabel(names=["p", "q", "r", "s"])),
    ):
        arrived = sent(value)
        assert type(arrived) is type(value) and len(arrived) == len(value)
        assert repr(arrived[0]) == repr(value[0]) and repr(arrived[:]) == repr(value[:])
        assert (arrived.features, arrived.format, arrived.split) == (value.features, value.format, value.split)
    split = rows.train_test_split(0.3, seed=1)
    assert sent(split)["test"][:] == split["test"][:]
    with pytest.raises(CodecError, match=r"^R108: dataset.*transform.*lambda"):
        sent(rows.with_transform(lambda batch: batch))
    with pytest.raises(CodecError, match=r"^R109: dataset\._epoch: memory that processes share"):
        sent(rows.to_iterable_dataset())


def test_tokenizers_arrive() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "a": 2, "b": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    collator = DataCollatorWithPadding(PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]"))
    arrived = sent(collator)
    texts = [collator.tokenizer("a b"), collator.tokenizer("b")]
    assert arrived(texts)["input_ids"].tolist() == collator(texts)["input_ids"].tolist() == [[2, 3], [3, 1]]


def test_batches_of_tokenizers_arrive_as_out_of_pickle() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "a": 2, "b": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    batch = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")(["a b", "b"], padding=True)
    for pickled in (True, False):
        encoded = encode(batch, pickled=pickled)
        payload = bytearray(encoded.nbytes)
        encoded.copy_into(payload)
        arrived: Any = decode(encoded.header, payload)
        expected = pickle.loads(pickle.dumps(batch)) if pickled else batch
        assert vars(arrived).keys() == vars(expected).keys()
        assert (arrived.data, arrived.tokens(0), arrived.word_ids(0)) == (batch.data, ["a", "b"], [0, 1])


def test_options_arrive() -> None:
    from omegaconf import OmegaConf

    options = OmegaConf.create({"a": {"b": 1, "c": [1, {"x": "${a.b}"}]}, "n": None})
    OmegaConf.set_readonly(options, True)
    arrived = sent(options)
    assert arrived == options and arrived.a.c[1].x == 1 and OmegaConf.is_readonly(arrived)
    assert sent(options.a).c[1].x == 1
