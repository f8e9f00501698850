"""Segments: what is lent is what is taken, memory is used again only when nobody looks at it, and nothing stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate

from splitter_runtime.codec import decode, encode
from splitter_runtime.collating import collate_into
from splitter_runtime.errors import CodecError
from splitter_runtime.segments import Arena, Loan, Shelf


def pass_on(arena: Arena, shelf: Shelf, batch: Any) -> Any:
    encoded = encode(batch)
    loan = arena.lend(22, encoded)
    assert loan is not None
    descriptors = deque([loan.descriptor] if loan.descriptor is not None else [])
    arrived = Loan.unpack(loan.pack())
    return decode(encoded.header, shelf.take(arrived, descriptors), offsets=arrived.offsets)


def give_back(arena: Arena, shelf: Shelf) -> int:
    returned = shelf.returns()
    for number, keep in returned:
        arena.returned(number, keep=keep)
    return len(returned)


def test_what_is_lent_is_what_is_taken_and_no_descriptor_stays() -> None:
    before = set(os.listdir("/proc/self/fd"))
    arena, shelf = Arena(), Shelf()
    for number in range(5):
        batch = [torch.full((300, 1000), float(number)), {"labels": torch.arange(7) + number, "name": "x"}]
        images, rest = pass_on(arena, shelf, batch)
        assert torch.equal(images, batch[0]) and torch.equal(rest["labels"], batch[1]["labels"]) and rest["name"] == "x"
        images.mul_(2)  # the memory is the reader's own
        assert torch.equal(images, batch[0] * 2)
        del images, rest
        give_back(arena, shelf)
    assert set(os.listdir("/proc/self/fd")) == before


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 60_000), st.booleans(), st.booleans()), max_size=12))
def test_a_batch_stays_what_it_is_as_long_as_somebody_has_it(batches: list[tuple[int, bool, bool]]) -> None:
    """Both sides may keep tensors: the trainer its batches, and the user's code in the stream what it has collated."""
    arena, shelf = Arena(), Shelf()
    kept: list[tuple[torch.Tensor, int]] = []
    for number, (size, here, there) in enumerate(batches):
        made = arena.empty((size,), torch.int64)
        made = torch.empty(size, dtype=torch.int64) if made is None else made
        made.fill_(number)
        come = pass_on(arena, shelf, made)
        assert come.eq(number).all()
        kept += [(made, number)] * there + [(come, number)] * here
        del made, come
        give_back(arena, shelf)
        assert all(tensor.eq(value).all() for tensor, value in kept)


def test_segments_are_used_again() -> None:
    arena, shelf = Arena(), Shelf()
    places = set()
    for _ in range(10):
        batch = pass_on(arena, shelf, torch.zeros(100_000))
        places.add(batch.data_ptr())
        del batch
        assert give_back(arena, shelf) == 1
    assert len(places) == 1


def test_collating_gives_what_torch_gives() -> None:
    arena, shelf = Arena(), Shelf()
    collate_into(arena)
    pass_on(arena, shelf, torch.zeros(4 << 20, dtype=torch.uint8))  # the arena learns how large batches are
    samples = [
        [torch.rand(3, 64, 64) for _ in range(32)],
        [torch.rand(64, 64, 3).permute(2, 0, 1) for _ in range(32)],
        [torch.randint(0, 255, (3, 64, 64), dtype=torch.uint8) for _ in range(32)],
        [torch.rand(20) for _ in range(64)],
        [torch.tensor(number) for number in range(9)],
        [torch.rand(2), torch.arange(2)],
        [torch.rand(0, 3)] * 4,
        [torch.rand(3, 90, 90).to(torch.complex64).conj() for _ in range(8)],
    ]
    for batch in samples:
        ours, torchs = default_collate(batch), collate_tensor_fn(batch)
        assert (ours.dtype, ours.shape, ours.is_conj()) == (torchs.dtype, torchs.shape, torchs.is_conj())
        assert torch.equal(ours, torchs) and ours.is_contiguous()
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        default_collate([torch.rand(3, 64, 64), torch.rand(3, 65, 64)])


def test_memory_outlives_its_owner() -> None:
    code = (
        "import socket, sys, torch; from splitter_runtime.codec import encode; from splitter_runtime.segments import Arena\n"
        "encoded = encode(torch.ones(100_000)); loan = Arena().lend(22, encoded); sock = socket.socket(fileno=0)\n"
        "socket.send_fds(sock, [loan.pack()], [loan.descriptor]); sock.sendall(b'|' + encoded.header); sys.stdin.close(); sock.recv(1)"
    )
    import socket

    ours, theirs = socket.socketpair()
    with subprocess.Popen([sys.executable, "-c", code], stdin=theirs) as owner:
        theirs.close()
        head, descriptors, _, _ = socket.recv_fds(ours, 1 << 16, 4)
        while b"|" not in head or len(head) < 60:
            head += ours.recv(1 << 16)
        owner.kill()
        owner.wait()
    loan, _, header = head.partition(b"|")
    arrived = Loan.unpack(loan)
    batch = decode(header, Shelf().take(arrived, deque(descriptors)), offsets=arrived.offsets)
    assert torch.equal(batch, torch.ones(100_000))
    ours.close()


def test_loans_that_are_none() -> None:
    shelf = Shelf()
    with pytest.raises(CodecError, match="another length"):
        Loan.unpack(b"abc")
    with pytest.raises(CodecError, match="not known"):
        shelf.take(Loan(22, 7, 0, ()), deque())
    with pytest.raises(CodecError, match="without its descriptor"):
        shelf.take(Loan(22, 7, 4096, ()), deque())
    small = os.memfd_create("small")
    with pytest.raises(CodecError, match="smaller than it says"):
        shelf.take(Loan(22, 7, 4096, ()), deque([small]))
    header = encode(torch.zeros(100)).header
    with pytest.raises(CodecError, match="reaches out"):
        decode(header, memoryview(bytearray(400)), offsets=(64,))
    with pytest.raises(CodecError, match="other places"):
        decode(header, memoryview(bytearray(400)), offsets=())
