"""Neither a save nor an export holds a whole array once more."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from relight.storage import blocks, entries
from relight.storage.checkpointer import load_shard, save_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.export import export
from relight.storage.layout import Incarnation

ONE = Incarnation("1.0", 0)
MIB = 1024**2


@contextmanager
def at_most(size_bytes: int) -> Iterator[None]:
    """Counts what numpy takes, too."""
    tracemalloc.start()
    try:
        yield
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < size_bytes


def test_arrays_are_copied_and_exported_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "CHUNK_BYTES", blocks.BLOCK_BYTES)
    transposed = np.arange(5 * MIB, dtype="f8").reshape(1024, -1).T
    epoch = claim_epoch(tmp_path, ONE)
    with at_most(20 * MIB):
        receipt = save_shard(tmp_path, 1, ONE, 0, 1, {"w": transposed})
    manifest = commit(tmp_path, 1, ONE, epoch, [receipt], {})
    for ending in ("npz", "safetensors"):
        with at_most(25 * MIB):
            export(tmp_path, manifest, tmp_path / f"all.{ending}")
    with pytest.raises(AssertionError), at_most(25 * MIB):
        load_shard(tmp_path, manifest, 0)  # which holds all of it, so this would be seen
    with np.load(tmp_path / "all.npz") as arrays:
        assert np.array_equal(arrays["w"], transposed)
