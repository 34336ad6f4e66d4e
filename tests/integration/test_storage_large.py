"""One array of more than 2 GiB: what a single read or write of Linux moves, and int32 counts."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np

from relight.storage.checkpointer import load_shard, save_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.layout import Incarnation

ONE = Incarnation("1.0", 0)
BYTES = 2 * 1024**3 + 3 * 4096 + 5
PLACES = [0, 2**31 - 4097, 2**31 - 1, 2**31, 2**31 + 4096, BYTES - 1]


def test_an_array_of_more_than_two_gibibytes_comes_back(tmp_path: Path) -> None:
    array = np.zeros(BYTES, np.uint8)  # pages of zeros take no memory until they are written
    array[PLACES] = np.arange(1, len(PLACES) + 1)
    receipt = save_shard(tmp_path, 1, ONE, 0, 1, {"w": array})
    manifest = commit(tmp_path, 1, ONE, claim_epoch(tmp_path, ONE), [receipt], {})
    assert manifest.payload_bytes == BYTES
    found = load_shard(tmp_path, manifest, 0)["w"]
    assert isinstance(found, np.ndarray)
    assert found.shape == array.shape
    assert found[PLACES].tolist() == list(range(1, len(PLACES) + 1))
    found[PLACES] = 0
    assert found.max() == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 6 * 1024**2
