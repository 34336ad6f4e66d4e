"""When a script is told of its time limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relight.launcher.sbatch_warnings import lead_warnings, time_limit_s
from relight.resilience.config import RunConfig


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("2:00:00", 7200),
        ("1-2", 93_600),
        ("1-2:03", 93_780),
        ("1-2:03:04", 93_784),
        ("0", None),
        ("UNLIMITED", None),
        ("now", None),
    ],
)
def test_time_as_sbatch_reads_it(text: str, seconds: int | None) -> None:
    assert time_limit_s(text) == seconds


@pytest.mark.parametrize(
    ("options", "lead_s", "warns"),
    [
        ({"time": "60"}, 1200.0, True),
        ({"time": "2:00:00", "time-min": "60"}, 1200.0, True),
        ({"time": "2:00:00"}, 1200.0, False),
        ({"time": "2"}, 60.0, False),  # nobody has asked for that minute
        ({}, 1200.0, False),
    ],
)
def test_a_script_is_told_when_a_quarter_of_its_time_is_left(
    run_config: RunConfig, options: dict[str, str | None], lead_s: float, *, warns: bool
) -> None:
    told = replace(run_config.checkpoint, signal="SIGUSR1", lead_s=lead_s)
    assert bool(list(lead_warnings(options, replace(run_config, checkpoint=told)))) is warns
    untold = replace(told, signal=None)
    assert list(lead_warnings(options, replace(run_config, checkpoint=untold))) == []
