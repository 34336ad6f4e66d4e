"""Shards on Lustre: a stand-in for ``lfs`` keeps the layout that a folder was given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relight.storage.checkpointer import load_shard, save_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.layout import Incarnation, incarnation_dir
from relight.storage.lustre import stripe_count

LFS = """#!/bin/sh
for last; do :; done
case "$1" in
getstripe) {getstripe};;
osts) echo OBDS:; echo '0: fs-OST0000_UUID ACTIVE'; echo '1: fs-OST0001_UUID ACTIVE'
      echo '2: fs-OST0002_UUID INACTIVE';;
setstripe) test -d "$last" || exit 2
           test "$(ls "$last" | wc -l)" = 0 || exit 3
           echo "$*" | sed "s, $last,," > "$last/layout";;
esac
"""
PLAIN = "echo 'stripe_count:  1 stripe_size:   1048576 pattern: raid0 stripe_offset: -1'"
WRITER = Incarnation("7.0", 1)


@pytest.mark.parametrize(
    ("targets", "files", "gib", "count"),
    [(8, 2, 100, 4), (8, 2, 3, 3), (8, 2, 0, 1), (8, 8, 100, 1), (8, 1000, 100, 1), (1, 1, 9, 1)],
)
def test_targets_are_divided_among_few_large_files(
    targets: int, files: int, gib: int, count: int
) -> None:
    assert stripe_count(targets, files, gib << 30) == count


@pytest.mark.parametrize(
    ("getstripe", "layout"),
    [
        (PLAIN, "setstripe -c 1 -S 8388608\n"),
        ("echo 'lcm_layout_gen: 0'; echo 'lcm_entry_count: 3'", None),
        ("echo 'not a Lustre file system' >&2; exit 22", None),
    ],
    ids=["plain", "progressive", "no-lustre"],
)
def test_a_save_sets_the_layout_before_its_shard_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, getstripe: str, layout: str | None
) -> None:
    lfs = tmp_path / "bin" / "lfs"
    lfs.parent.mkdir()
    lfs.write_text(LFS.format(getstripe=getstripe))
    lfs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{lfs.parent}:/usr/bin:/bin")
    directory, state = tmp_path / "checkpoints", {"w": np.arange(9)}
    epoch = claim_epoch(directory, WRITER)
    receipt = save_shard(directory, 3, WRITER, 0, 1, state)
    manifest = commit(directory, 3, WRITER, epoch, [receipt], {})
    assert np.array_equal(load_shard(directory, manifest, 0)["w"], state["w"])  # type: ignore[arg-type]
    found = incarnation_dir(directory, 3, WRITER) / "layout"
    assert (found.read_text() if found.exists() else None) == layout
    assert not (directory / "layout").exists()
