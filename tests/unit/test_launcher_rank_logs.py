"""What a log has gained, line by line, whatever ends its lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from relight.errors import UsageError
from relight.launcher.rank_logs import LogTail, rank_logs
from relight.resilience.run_folder import RunFolder


def test_lines_of_a_progress_bar_and_of_text(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    tail = LogTail(log)
    with log.open("wb", buffering=0) as file:
        file.write(b"10%\r20%\r")
        assert list(tail.new_lines()) == ["10%"]
        file.write(b"30%\r")
        assert list(tail.new_lines()) == ["20%"]
        file.write(b"\n\0\0windows\r\n\nhalf")
        assert list(tail.new_lines()) == ["30%", "windows", ""]
        file.write(b" done\r")
        assert list(tail.new_lines()) == []
    assert list(tail.new_lines(to_the_end=True)) == ["half done"]
    assert list(tail.new_lines(to_the_end=True)) == []


def test_a_line_that_does_not_end_is_not_kept_back(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    tail = LogTail(log)
    with log.open("wb", buffering=0) as file:
        file.write(b"x" * 100_000)
        assert list(tail.new_lines()) == ["x" * 100_000]
        file.write(b"y\n")
        assert list(tail.new_lines()) == ["y"]


def test_a_rank_that_there_is_not(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.journals.mkdir()
    assert rank_logs(folder, rank=9) == [], "nothing has run yet"
    folder.journal("7.0").touch()
    for rank in (0, 1):
        log = folder.logs("7.0") / "1" / f"{rank}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
    assert [log.rank for log in rank_logs(folder, rank=1)] == [1]
    with pytest.raises(UsageError, match="no log of rank 9; there are those of 0 to 1"):
        rank_logs(folder, rank=9)
