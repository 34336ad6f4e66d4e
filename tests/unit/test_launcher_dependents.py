"""A dependency as Slurm writes it, with the next job of a run in it."""

from __future__ import annotations

import pytest

from relight.launcher.clusters.slurm.dependents import moved


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("afterany:13(unfulfilled)", "afterany:14"),
        ("afterok:9(unfulfilled),afterany:13(unfulfilled)", "afterok:9,afterany:14"),
        ("afterany:12:13:131(unfulfilled)", "afterany:12:14:131"),
        ("afterany:13+5(unfulfilled)", "afterany:14+5"),
        ("afterok:9?afterany:13", "afterok:9?afterany:14"),
        ("afterany:131(unfulfilled)", "afterany:131"),
        ("", ""),
    ],
)
def test_moved(written: str, wanted: str) -> None:
    assert moved(written, "13", "14") == wanted
