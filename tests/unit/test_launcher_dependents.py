"""A dependency as Slurm writes it, with the next job of a run in it."""

from __future__ import annotations

import pytest

from relight.launcher.clusters.slurm.dependents import joined, moved


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


@pytest.mark.parametrize(
    ("written", "before", "wanted"),
    [
        ("afterany:13_*(unfulfilled)", "13_3", "afterany:13:20"),
        ("afterok:9(unfulfilled),afterany:13_*(unfulfilled)", "13_3", "afterok:9,afterany:13:20"),
        ("afterany:13:19(unfulfilled)", "19", "afterany:13:20"),
        ("afterany:131_*(unfulfilled)", "13_3", "afterany:131_*"),
    ],
)
def test_joined(written: str, before: str, wanted: str) -> None:
    assert joined(written, before, "20") == wanted
