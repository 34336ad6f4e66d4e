"""Programs that save by themselves: when they are resumed, and how their saves are seen."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.supervise import own_saves
from relight.resilience.supervise.own_saves import OwnSave, command_of, of_one_save, saved_files


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


@pytest.mark.parametrize(
    ("ages_s", "count"), [([], 1), ([5], 1), ([5, 6, 50], 3), ([5, 605, 1205], 1)]
)
def test_the_last_save_says_how_many_markers_one_leaves(ages_s: list[int], count: int) -> None:
    files = {str(age_s): (10_000 - age_s) * 10**9 for age_s in ages_s}
    assert of_one_save(files) == count


def test_a_save_of_two_ranks_is_not_done_with_the_marker_of_one(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that of the other, from another node, stays unseen."""
    monkeypatch.setattr(own_saves, "QUIET_S", -1.0)
    seen: list[Mapping[str, int]] = [{"0": 1, "1": 2}, {"0": 3, "1": 2}, {"0": 3, "1": 4}]
    monkeypatch.setattr(own_saves, "saved_files", lambda _: seen.pop(0))

    async def scene() -> list[bool]:
        save = OwnSave(with_resume(run_config, "*"))
        await save.begin(10.0)
        return [await save.is_done(10.0) for _ in range(2)]

    assert asyncio.run(scene()) == [False, True]
