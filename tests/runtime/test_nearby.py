"""Batches through memory: what is lent is what is borrowed, and nothing stays."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from splitter_runtime.codec import decode, encode
from splitter_runtime.nearby import Lender, Offer, borrow, visible


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_what_is_lent_is_what_is_borrowed() -> None:
    before = descriptors()
    batch = [torch.arange(300_000.0).reshape(3, -1), {"labels": torch.arange(7), "name": "x"}]
    lender = Lender()
    offer = lender.lend(4, encode(batch))
    payload = borrow(offer)
    lender.taken(4)
    images, rest = decode(offer.header, payload)
    assert torch.equal(images, batch[0]) and torch.equal(rest["labels"], batch[1]["labels"]) and rest["name"] == "x"
    images.mul_(2)  # the memory is the borrower's own
    assert torch.equal(images, batch[0] * 2)
    assert descriptors() == before


def test_the_memory_outlives_its_lender() -> None:
    code = (
        "import sys, torch; from splitter_runtime.codec import encode; from splitter_runtime.nearby import Lender\n"
        "offer = Lender().lend(0, encode(torch.ones(100_000)))\n"
        "print(offer.pid, offer.descriptor, offer.size, offer.header.hex(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as lender:
        assert lender.stdout is not None
        pid, descriptor, size, header = lender.stdout.readline().split()
        offer = Offer(int(pid), int(descriptor), bytes.fromhex(header), int(size))
        assert visible(lender.pid)
        payload = borrow(offer)
        lender.kill()
        lender.wait()
        assert torch.equal(decode(offer.header, payload), torch.ones(100_000))
        with pytest.raises(FileNotFoundError):
            borrow(offer)
        assert not visible(lender.pid)
