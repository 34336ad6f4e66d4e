"""Shuffle and zstd: every value comes back, and damaged chunks never do more than fail."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from relight.storage.chunks import WIDTHS, Chunk, Chunked
from relight.storage.codec import pack, unpack
from relight.storage.index import Index
from relight.storage.leaf import Form

SIZE = 4096
DATA = bytes(np.random.default_rng(1).normal(size=SIZE // 8).astype("f8").data)


def unpacked(packed: bytes, chunk_bytes: int, width: int, size: int) -> bytes:
    target = bytearray(size)
    unpack(memoryview(packed), chunk_bytes, width, memoryview(target))
    return bytes(target)


@given(st.sampled_from(WIDTHS), st.binary(min_size=8, max_size=400), st.data())
def test_the_first_bytes_of_a_chunk_are_what_was_packed(
    width: int, data: bytes, more: st.DataObject
) -> None:
    data = data[: len(data) & -8]
    wanted = more.draw(st.integers(0, len(data) // width)) * width
    assert unpacked(pack(data, width), len(data), width, wanted) == data[:wanted]


@given(st.binary(max_size=200), st.integers(0, 300), st.integers(1, 255))
def test_no_bytes_do_more_than_fail(noise: bytes, at: int, change: int) -> None:
    damaged = bytearray(pack(DATA, 8))
    damaged[at % len(damaged)] ^= change
    for packed in (bytes(damaged), noise):
        try:
            assert len(unpacked(packed, SIZE, 8, SIZE)) == SIZE
        except ValueError:
            continue


@pytest.mark.parametrize("claimed", [SIZE, 64 << 20], ids=["hidden", "claimed"])
def test_a_bomb_does_not_go_off(claimed: int) -> None:
    """A chunk that says how long it gets, and one that gets longer than it says."""
    bomb, size = (
        zstandard.ZstdCompressor().compress(bytes(64 << 20)),
        (64 << 20).to_bytes(4, "little"),
    )
    assert size in bomb[:16]
    bomb = bomb.replace(size, claimed.to_bytes(4, "little"), 1)
    assert zstandard.frame_content_size(bomb) == claimed
    tracemalloc.start()
    with pytest.raises(ValueError):
        unpacked(bomb, SIZE, 8, SIZE)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1 << 20


@pytest.mark.parametrize(
    "chunked",
    [
        Chunked(3, (Chunk(0, 9, b""),)),
        Chunked(8, ()),
        Chunked(8, (Chunk(0, SIZE + 1, b""),)),
        Chunked(8, (Chunk(0, 0, b""),)),
        Chunked(8, (Chunk(0, 9, b""), Chunk(9, 9, b""))),
    ],
)
def test_chunks_that_do_not_fit_their_array_are_not_read(chunked: Chunked) -> None:
    index = Index(
        step=1, rank=0, world_size=1, writer="1.0.g0", block_bytes=8 << 20, packed_below_bytes=0,
        tree=None, borrows=(), forms=(Form("numpy", "<f8", (SIZE // 8,), SIZE),), arrays=(0,),
        at=(0,), pack_at=0, pack_bytes=0, chunked={0: chunked},
    )  # fmt: skip
    with pytest.raises(ValueError, match="do not fit"):
        Index.parse(index.to_bytes())
