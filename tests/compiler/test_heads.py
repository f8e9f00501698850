"""The head of a loop: which statements the text lets move, and what ends it. As many must stay as may move."""

from __future__ import annotations

from pathlib import Path

import pytest
from head_scripts import heads, loop, texts

MOVE = {
    "cast": ("images = images.float() / 255", 1),
    "augmented": ("images = images.float()\nimages /= 255", 2),
    "one-hot": ("labels = F.one_hot(labels, CLASSES)", 1),
    "permute": ("images = images.permute(0, 2, 3, 1).contiguous()", 1),
    "reshape": ("images = images.view(images.size(0), -1)", 1),
    "dtype": ("labels = labels.to(torch.float32)", 1),
    "mask": ("images = torch.where(images > 3, images, 0)", 1),
    "two at once": ("images, labels = images.float(), labels.long()", 1),
    "annotated": ("images: torch.Tensor = images.float()", 1),
    "a temporary": ("scale = images.float()\nimages = scale / 255", 2),
    "a constant temporary": ("scale = torch.tensor([1.0, 2.0, 3.0, 4.0])\nimages = images / scale", 2),
    "behind what stays": ("optimizer.zero_grad()\nstep = 3\nimages = images.float()", 1),
    "behind a clock": ("began = time.time()\nimages = images.float()", 1),
    "over lines": ("images = images.float(\n) / 255", 1),
}

STAY = {
    "a device": ("images = images.to(device)", "moves to a device"),
    "a device by another name": ("images = images.to(gpu)", "may move to a device"),
    "cuda": ("images = images.cuda()", "moves to a device"),
    "a device keyword": ("images = images.to(device=gpu)", "may move to a device"),
    "draws": ("images = images * (torch.rand(4) > 0.5)", "draws random numbers"),
    "draws in a function": ("images = noisy(images)", "isn't known"),
    "draws numpy": ("images = images + np.random.rand()", "draws random numbers"),
    "the model": ("images = model(images)", "`model`"),
    "prints": ("print(images.shape)", "prints"),
    "prints in a function": ("images = shout(images)", "isn't known"),
    "an attribute": ("model.last = images", "doesn't only give names"),
    "another name that is read": ("inputs = images.float()\nimages = inputs + 1\nprint(inputs)", "read behind the head"),
    "a branch": ("if images.sum() > 3:\n    images = images.float()", "branches"),
    "a context": ("with torch.no_grad():\n    images = images.float()", "branches"),
    "a method in place": ("images.add_(1)", "doesn't only give names"),
    "gradients": ("images = images.float().requires_grad_()", "gradient"),
    "unknown": ("images = kornia.flip(images)", "isn't known"),
    "state": ("labels = counting(labels)", "isn't known"),
    "a walrus": ("images = (n := images.float())", "doesn't only give names"),
}


@pytest.mark.parametrize("case", MOVE)
def test_moves(case: str, tmp_path: Path) -> None:
    body, count = MOVE[case]
    (head,) = heads(tmp_path, loop(body))
    assert len(head.statements) == count
    assert head.end is not None and "`model`" in head.end.why
    assert [name for name, _ in head.parts] == ["images", "labels"]


@pytest.mark.parametrize("case", STAY)
def test_ends(case: str, tmp_path: Path) -> None:
    """What ends the head, with a statement before it that moves and one behind it that doesn't."""
    body, why = STAY[case]
    (head,) = heads(tmp_path, loop(f"labels = labels + 1\n{body}\nlabels = labels * 2"))
    assert texts(tmp_path, head) == ["labels = labels + 1"]
    assert head.end is not None and why in head.end.why


TARGETS = {
    "enumerate": ("step, (images, labels)", "enumerate(loader)"),
    "enumerate from one": ("step, (images, labels)", "enumerate(loader, 1)"),
    "a progress bar": ("images, labels", "tqdm(loader, desc='train')"),
    "a progress bar in enumerate": ("step, (images, labels)", "enumerate(tqdm(loader))"),
    "enumerate in a progress bar": ("step, (images, labels)", "tqdm(enumerate(loader), total=len(loader))"),
    "a list": ("[images, labels]", "loader"),
}


@pytest.mark.parametrize("case", TARGETS)
def test_targets(case: str, tmp_path: Path) -> None:
    target, loader = TARGETS[case]
    (head,) = heads(tmp_path, loop("images = images.float()", target, loader))
    assert head.parts == (("images", (0,)), ("labels", (1,)))


def test_one_name(tmp_path: Path) -> None:
    (head,) = heads(tmp_path, loop('batch["label"] = batch["label"].float()', "batch", data="Words", first='batch["label"]'))
    assert (head.target, head.parts) == ("batch", (("batch", ()),))
    assert head.statements[0].mutates


def test_taken_apart(tmp_path: Path) -> None:
    body = "images, labels = batch\nlabels = F.one_hot(labels, CLASSES)"
    (head,) = heads(tmp_path, loop(body, "batch"))
    assert (head.target, head.parts, len(head.unpacking)) == ("batch", (("images", (0,)), ("labels", (1,))), 1)
    assert texts(tmp_path, head) == ["labels = F.one_hot(labels, CLASSES)"]


def test_items_taken(tmp_path: Path) -> None:
    body = 'text = batch["text"]\nlabels = batch["label"]\ntext = tokens(text)'
    (head,) = heads(tmp_path, loop(body, "batch", data="Words", first="text"))
    assert head.parts == (("text", ("text",)), ("labels", ("label",)))
    assert texts(tmp_path, head) == ["text = tokens(text)"]


def test_the_whole_batch_is_read_again(tmp_path: Path) -> None:
    body = 'text = batch["text"]\ntext = tokens(text)\nlabels = batch["label"]'
    assert not heads(tmp_path, loop(body, "batch", data="Words", first="text"))


def test_what_a_tokenizer_needs(tmp_path: Path) -> None:
    (head,) = heads(tmp_path, loop("text = tokenizer(text)", "(text, labels)", first="text"))
    assert texts(tmp_path, head) == ["text = tokenizer(text)"]
    lines = (tmp_path / "train.py").read_text().splitlines()
    needs = head.statements[0].needs
    needed = {lines[part.first - 1] for part in (*needs.definitions, *needs.body)}
    assert {"class Tokenizer:", 'VOCABULARY = {"a": 1, "b": 2}', "tokenizer = Tokenizer(9)"} <= needed


@pytest.mark.parametrize(
    "target",
    ["images", "images, *rest", "(images, images)", "step, batch", "images, labels.x"],
)
def test_other_targets_stay(target: str, tmp_path: Path) -> None:
    loader = "zip(range(3), loader)" if target == "step, batch" else "loader"
    found = heads(tmp_path, loop("images = images.float()", target, loader))
    assert not any(head.statements for head in found) or target == "images"


def test_order_of_statements(tmp_path: Path) -> None:
    (head,) = heads(tmp_path, loop("images = images * labels\nlabels = labels.float()\nimages = images + 1"))
    assert [own.after for own in head.statements] == [(), (0,), (0,)]


def test_temporaries_stay_together(tmp_path: Path) -> None:
    (head,) = heads(tmp_path, loop("labels = labels + 1\nscale = images.float()\nimages = scale / 255"))
    assert head.together == ((1, 2),)


AROUND = {
    "autocast": "with torch.autocast('cpu'):\n    for images, labels in loader:\n        images = images.float()\n",
    "inference": "with torch.inference_mode():\n    for images, labels in loader:\n        images = images.float()\n",
    "a closure": "for images, labels in loader:\n    images = images.float()\n    f = lambda: 3\ndef show():\n    return images\n",
    "one line": "for images, labels in loader: images = images.float()\n",
    "shared lines": "for images, labels in loader:\n    images = images.float(); labels = labels + 1\n",
}


@pytest.mark.parametrize("case", AROUND)
def test_around(case: str, tmp_path: Path) -> None:
    found = heads(tmp_path, "\nloader = DataLoader(Rows(), batch_size=4)\n" + AROUND[case])
    assert not any(head.statements for head in found)


def test_no_gradients_are_no_context(tmp_path: Path) -> None:
    text = "\nloader = DataLoader(Rows())\nwith torch.no_grad():\n    for images, labels in loader:\n        images = images.float()\n"
    assert heads(tmp_path, text)[0].statements
