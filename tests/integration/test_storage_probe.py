"""The question whether a checkpoint directory works: it never waits for ever."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from relight.resilience.supervise import storage_probe


def test_a_directory_that_works_keeps_nothing_of_the_question(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    assert asyncio.run(storage_probe.run(directory)) is None
    assert list(directory.iterdir()) == []


def test_the_fault_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    fault = asyncio.run(storage_probe.run(tmp_path / "file" / "checkpoints"))
    assert fault is not None
    assert "Not a directory" in fault


def test_a_full_disk_is_a_fault(small_disk: Path) -> None:
    with suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(1024**2))
    fault = asyncio.run(storage_probe.run(small_disk))
    assert fault is not None
    assert "No space left" in fault


def test_silence_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that does not come back, as in the kernel of a dead file system."""
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(storage_probe, "LIMIT_S", 0.5)
    fault = asyncio.run(storage_probe.run(tmp_path))
    assert fault is not None
    assert "no answer" in fault
