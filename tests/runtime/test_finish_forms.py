"""Finish by itself, without programs: any form of sample, against finishing each one before it is collated."""

from __future__ import annotations

import copy
import queue
import threading
from collections import namedtuple
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sameness import difference
from torch.utils.data import default_collate
from torchvision import transforms

from splitter_runtime.errors import ConfigError, SplitterError
from splitter_runtime.failures import FinishFailure
from splitter_runtime.finish import Finish, ScaleToFloat
from splitter_runtime.finishing import FinishThread, finished


def turned(x: torch.Tensor) -> list[int]:
    """Its dimensions backwards."""
    return list(range(x.dim()))[::-1]


DTYPES = (torch.uint8, torch.int64, torch.float32, torch.float64, torch.bool, torch.complex64, torch.bfloat16)
STEPS: tuple[Callable[[torch.Tensor], Any] | None, ...] = (
    None,
    lambda x: x,
    lambda x: x.double() - 1 if not x.is_complex() else x * 2,
    lambda x: x.flatten(),
    lambda x: x.ne(0),
    lambda x: x[None].expand(2, *x.shape),
    lambda x: x.permute(turned(x)),
    lambda x: x.numel(),
    lambda x: {"both": (x, str(x.dtype))},
)
Named = namedtuple("Named", "a b")
LEAVES = st.tuples(
    st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=4).map(tuple), st.booleans(), st.sampled_from(range(len(STEPS)))
)
PLAIN = st.sampled_from([3, 2.5, "text", b"bytes"])
FORM = st.recursive(
    LEAVES | PLAIN,
    lambda parts: (
        st.lists(parts, min_size=1, max_size=3)
        | st.dictionaries(st.sampled_from("xyz"), parts, min_size=1)
        | st.builds(Named, parts, parts)
    ),
    max_leaves=5,
)


def is_leaf(form: Any) -> bool:
    return type(form) is tuple and len(form) == 4 and isinstance(form[0], torch.dtype)


def build(form: Any, leaf: Callable[[Any], Any], plain: Callable[[Any], Any]) -> Any:
    if is_leaf(form):
        return leaf(form)
    if isinstance(form, Named):
        return Named(*(build(part, leaf, plain) for part in form))
    if isinstance(form, list):
        return [build(part, leaf, plain) for part in form]
    if isinstance(form, dict):
        return {key: build(part, leaf, plain) for key, part in form.items()}
    return plain(form)


def made(leaf: Any, generator: torch.Generator) -> torch.Tensor:
    dtype, shape, transposed, _ = leaf
    values = torch.randint(0, 200, shape, generator=generator)
    return (values.permute(turned(values)) if transposed else values).to(dtype)


def plain_tuples(structure: Any) -> Any:
    """As the compiler writes it: a tuple for a namedtuple."""
    if isinstance(structure, tuple):
        return tuple(plain_tuples(part) for part in structure)
    if isinstance(structure, list):
        return [plain_tuples(part) for part in structure]
    return {key: plain_tuples(part) for key, part in structure.items()} if isinstance(structure, dict) else structure


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return type(error), str(error)


@given(FORM, st.integers(1, 4), st.booleans())
def test_any_form(form: Any, count: int, in_main: bool) -> None:
    """The same as finishing each sample before it is collated."""
    generator = torch.Generator().manual_seed(count)
    raw = [build(form, lambda leaf: made(leaf, generator), lambda value: value) for _ in range(count)]
    structure = plain_tuples(build(form, lambda leaf: STEPS[leaf[3]], lambda value: None))
    whole = [finish_by_hand(form, sample) for sample in copy.deepcopy(raw)]
    assert difference(Finish(structure).sample(copy.deepcopy(raw[0])), whole[0]) is None
    with pytest.MonkeyPatch.context() as patch:
        if not in_main:
            patch.setattr(torch.utils.data._utils.worker, "_worker_info", object())
        batch, expected = default_collate(raw), outcome(lambda: default_collate(whole))
    assert difference(outcome(lambda: Finish(structure).batch(batch, in_main=in_main)), expected) is None


def finish_by_hand(form: Any, sample: Any) -> Any:
    if is_leaf(form):
        step = STEPS[form[3]]
        return sample if step is None else step(sample)
    if isinstance(form, Named):
        return Named(*map(finish_by_hand, form, sample))
    if isinstance(form, list):
        return list(map(finish_by_hand, form, sample))
    return {key: finish_by_hand(part, sample[key]) for key, part in form.items()} if isinstance(form, dict) else sample


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "LA", "CMYK", "YCbCr"])
@pytest.mark.parametrize("size", [(5, 7), (1, 7), (5, 1), (1, 1)])
@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_the_second_half_of_to_tensor(mode: str, size: tuple[int, int], default: torch.dtype) -> None:
    channels = len(Image.new(mode, (1, 1)).getbands())
    pixels = np.random.RandomState(0).randint(0, 256, (size[1], size[0], channels), dtype=np.uint8).tobytes()
    image = Image.frombytes(mode, size, pixels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_default_dtype", lambda: default)
        assert difference(ScaleToFloat()(transforms.PILToTensor()(image)), transforms.ToTensor()(image)) is None


def odd(x: torch.Tensor) -> torch.Tensor:
    """Other results for some samples."""
    kind = int(x.flatten()[0])
    if kind == 1:
        return x.double()
    if kind == 2:
        return x[:1]
    if kind == 3:
        return x.float().requires_grad_()
    if kind == 4:
        raise ZeroDivisionError
    return x.float()


@pytest.mark.parametrize("kinds", [[0, 1, 0], [1, 0, 0], [0, 0, 2], [2, 0], [3, 0], [0, 3], [0, 2, 4], [4]])
@pytest.mark.parametrize("in_main", [True, False])
def test_results_that_differ(kinds: list[int], in_main: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [torch.full((2, 3), kind) for kind in kinds]
    found = outcome(lambda: Finish(odd).batch(torch.stack(samples), in_main=in_main))
    if not in_main:
        monkeypatch.setattr(torch.utils.data._utils.worker, "_worker_info", object())
    expected = outcome(lambda: default_collate([odd(sample) for sample in samples]))
    if isinstance(expected, torch.Tensor):
        assert difference(found.detach(), expected.detach()) is None and found.requires_grad == expected.requires_grad
    elif expected[0] is RuntimeError and "resize" in expected[1]:  # torch's worker makes too small a tensor before it looks at the shapes
        assert found[0] is RuntimeError and "stack expects each tensor to be equal size" in found[1]
    else:
        assert found == expected


def test_what_is_not_finished_stays_itself() -> None:
    kept, x = torch.arange(3), torch.zeros(3, 2)
    batch: list[Any] = [x, {"kept": kept, "again": kept}]
    done = Finish((torch.neg, None)).batch(batch)
    assert done is batch and done[1]["kept"] is done[1]["again"] is kept and done[0] is not x
    shared = {"x": x}
    done = Finish(({"x": torch.exp}, {"x": torch.exp}, torch.exp)).sample((shared, shared, x))
    assert done[0] is done[1] is shared and done[2] is done[0]["x"] and torch.equal(done[2], torch.ones(3, 2))


def test_a_result_passes_when_it_is_no_batch() -> None:
    for result in ((None, None), (3, FinishFailure(ValueError("x"), ""))):
        assert finished(result, lambda batch: 1 / 0, str) is result
    number, failure = finished((3, [1]), ScaleToFloat(), lambda number: [7, 8])
    with pytest.raises(ConfigError, match=r"^R604: a list where") as caught:
        failure.reraise()
    assert number == 3 and caught.value.code == "R604" and "7, 8" in str(vars(caught.value)["__notes__"])


def test_a_thread_whose_results_end_says_so() -> None:
    class Results:
        left: ClassVar = [queue.Empty(), (0, "batch"), SplitterError("gone")]

        def get(self, timeout: float) -> Any:
            found = self.left.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

    out: queue.Queue[Any] = queue.Queue()
    thread = FinishThread(Results(), out, threading.Event())
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and out.get() == (0, "batch")
    number, lost = out.get()
    with pytest.raises(SplitterError, match="gone"):
        lost.reraise()
    assert number is None


def test_finishes_that_are_the_same() -> None:
    def composed(mean: float) -> Any:
        return transforms.Compose([ScaleToFloat(), transforms.Normalize([mean], [1.0])])

    step = lambda x: x  # noqa: E731
    assert Finish((composed(0.5), None)).same_as(Finish((composed(0.5), None)))
    assert not Finish((composed(0.5), None)).same_as(Finish((composed(0.25), None)))
    assert not Finish(composed(0.5)).same_as(Finish((composed(0.5), None)))
    assert Finish({"a": [step]}).same_as(Finish({"a": [step]})) and not Finish([step]).same_as(Finish([lambda x: x]))
