"""A bar for a person who looks, and nothing in a log."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from relight.resilience.worker import own_checkpoints
from relight.resilience.worker.environment import read_environment
from relight.resilience.worker.world import World
from relight.storage.needs import Needs
from relight.storage.notes import Notes
from relight.storage.progress import progress


def test_a_terminal_sees_what_is_done_how_fast_and_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        with progress("restore", 4 * 10**9) as advance:
            advance(10**9)
            advance(10**9)
    seen = "".join(everything(ours))
    for shown in ("restore", "2.0/4.0 GB", "B/s", "0:00:"):
        assert shown in seen


def everything(terminal: int) -> Iterator[str]:
    """What was shown, piece by piece: a terminal gives what it has, and EIO behind the last."""
    with suppress(OSError):
        while piece := os.read(terminal, 65536):
            yield piece.decode()
    os.close(terminal)


def test_a_log_sees_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as file:
        monkeypatch.setattr("sys.stderr", file)
        with progress("restore", 10) as advance:
            advance(10)
    assert log.read_text() == ""


def test_who_runs_a_program_by_hand_sees_what_is_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(own_checkpoints, "_WORTH_A_BAR_BYTES", 8000)
    monkeypatch.setenv("TERM", "xterm")
    environment = read_environment({"RELIGHT_CHECKPOINT_STAGING": "0"}, tmp_path, None)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        for steps, words in ((1, 1000), (2, 999)):
            rank = own_checkpoints.OwnCheckpoints(
                tmp_path, environment, World(), lambda word: [word]
            )
            rank.restore(lambda: Needs(pieces={}))
            assert rank.save(steps, {"w": np.zeros(words)}, Notes())
    seen = "".join(everything(ours))
    assert "save step 1" in seen
    assert "restore" in seen
    assert "save step 2" not in seen, "8 bytes less are not worth a bar"
