"""Amounts as people write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relight.launcher.units import (
    check_interval,
    parse_bytes,
    parse_duration,
    parse_every,
    slurm_memory,
    slurm_time,
)
from relight.resilience.worker.interval import (
    AUTO_ALONE_S,
    EverySeconds,
    EverySteps,
    Interval,
    parse_interval,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("8GB", 8 * 1024**3),
        ("8G", 8 * 1024**3),
        ("8 GiB", 8 * 1024**3),
        ("512m", 512 * 1024**2),
        ("1.5TB", 3 * 1024**4 // 2),
        ("1K", 1024),
    ],
)
def test_memory(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["8", "8 XB", "GB", "-1GB", "0GB", "8GB 8GB", "", "1e3M"])
def test_not_memory(text: str) -> None:
    with pytest.raises(ValueError, match="8GB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("4:00:00", 14400),
        ("1-12:00:00", 129600),
        ("90s", 90),
        ("10min", 600),
        ("2h", 7200),
        ("7d", 604800),
        ("1h 30min", 5400),
        ("1h30min", 5400),
        ("0.5s", 0.5),
    ],
)
def test_duration(text: str, duration_s: float) -> None:
    assert parse_duration(text) == duration_s


@pytest.mark.parametrize(
    "text", ["4:00", "4", "10m", "10 minutes", "0s", "0:00:00", "1:60:00", "", "h", "-1h", "1h x"]
)
def test_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="4:00:00"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "normal", "meaning"),
    [
        ("auto", "auto", EverySeconds(AUTO_ALONE_S)),
        ("20 steps", "20 steps", EverySteps(20)),
        ("1  step", "1 steps", EverySteps(1)),
        ("90s", "90s", EverySeconds(90)),
        ("0.5s", "0.5s", EverySeconds(0.5)),
        ("10min", "600s", EverySeconds(600)),
        ("0:30:00", "1800s", EverySeconds(1800)),
        ("1h 30min", "5400s", EverySeconds(5400)),
        ("1-12:00:00", "129600s", EverySeconds(129600)),
    ],
)
def test_interval_is_what_the_ranks_understand(text: str, normal: str, meaning: Interval) -> None:
    assert check_interval(text) == check_interval(normal) == normal
    assert parse_interval(normal) == meaning


@pytest.mark.parametrize("text", ["20", "0 steps", "20steps", "-1 steps", "often"])
def test_not_an_interval(text: str) -> None:
    with pytest.raises(ValueError, match="20 steps"):
        check_interval(text)


@pytest.mark.parametrize("read", [check_interval, parse_every])
def test_a_distance_that_is_too_long_is_told_as_that(read: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match="too long: Slurm cannot hold more than 24855d"):
        read("1000000h")


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [(14400, "04:00:00"), (0.5, "00:00:01"), (90061, "1-01:01:01"), (604800, "7-00:00:00")],
)
def test_slurm_time(duration_s: float, text: str) -> None:
    assert slurm_time(duration_s) == text


def test_slurm_memory_is_never_less() -> None:
    assert slurm_memory(1024**3) == "1024M"
    assert slurm_memory(1024**2 + 1) == "2M"
