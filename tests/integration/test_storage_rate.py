"""How fast a folder takes bytes, and that nothing of the trial stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from relight.storage.rate import write_rate


def test_a_rate_is_measured_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    rate = write_rate(folder, budget_s=0.0)
    assert rate.size_bytes == 256 << 20
    assert 1e6 < rate.bytes_per_s < 1e12
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_said_and_left_clean(small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        write_rate(small_disk, budget_s=0.0)
    assert [path.name for path in small_disk.iterdir() if path.name.startswith(".")] == []
