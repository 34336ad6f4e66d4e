"""Programs that save by themselves: when they are resumed, and how their saves are seen."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from relight.resilience.config import RunConfig
from relight.resilience.supervise.own_saves import command_of, saved_files


def with_resume(config: RunConfig, done: str | None) -> RunConfig:
    checkpoint = replace(config.checkpoint, done=done)
    return replace(config, resume=("continue",), checkpoint=checkpoint)


def test_the_first_start_is_that_of_the_command(run_config: RunConfig, tmp_path: Path) -> None:
    config = with_resume(run_config, None)
    assert command_of(config, started_before=False) == ("true",)
    assert command_of(config, started_before=True) == ("continue",)
    assert command_of(run_config, started_before=True) == ("true",)


def test_nothing_is_resumed_before_there_is_a_file(run_config: RunConfig, tmp_path: Path) -> None:
    for pattern in ("state/*.done", str(tmp_path / "state" / "*.done")):
        config = with_resume(run_config, pattern)
        assert command_of(config, started_before=True) == ("true",)
        (tmp_path / "state").mkdir(exist_ok=True)
        (tmp_path / "state" / "1.done").touch()
        assert command_of(config, started_before=True) == ("continue",)
        (tmp_path / "state" / "1.done").unlink()


def test_a_file_that_is_written_again_is_another_save(
    run_config: RunConfig, tmp_path: Path
) -> None:
    config = with_resume(run_config, "*.done")
    (tmp_path / "1.done").touch()
    before = saved_files(config)
    assert saved_files(config) == before
    os.utime(tmp_path / "1.done", ns=(1, 1))
    assert saved_files(config) != before
