"""Programs that say nothing of themselves: when their silence is a hang."""

from __future__ import annotations

from relight.resilience.config import RestartConfig
from relight.resilience.supervise.quiet import Quiet


def two(config: RestartConfig, *seen: tuple[float, float]) -> Quiet:
    """Two ranks, of which the agents have seen so much: (output_s, idle_s)."""
    quiet = Quiet(config)
    quiet.begin(2)
    for rank, (output_s, idle_s) in enumerate(seen):
        quiet.on_word(rank, {"type": "active", "output_s": output_s, "idle_s": idle_s})
    return quiet


def test_nothing_is_a_hang_that_nobody_has_asked_for() -> None:
    assert two(RestartConfig(), (1e6, 1e6), (1e6, 1e6)).hang() is None


def test_silence_is_that_of_all_ranks() -> None:
    config = RestartConfig(silence_s=60.0)
    assert two(config, (1e6, 0.0), (59.0, 0.0)).hang() is None, "one of them still writes"
    assert two(config, (1e6, 0.0)).hang() is None, "of the other one nothing is known"
    hang = two(config, (61.0, 0.0), (90.0, 0.0)).hang()
    assert hang is not None
    assert hang.ranks == (0, 1)
    assert "no rank has written anything for 61 s" in hang.detail


def test_each_rank_has_to_compute() -> None:
    config = RestartConfig(idle_s=60.0)
    assert two(config, (1e6, 59.0), (1e6, 0.0)).hang() is None
    hang = two(config, (0.0, 61.0), (0.0, 0.0)).hang()
    assert hang is not None
    assert hang.ranks == (0,)


def test_a_rank_that_has_ended_owes_nothing() -> None:
    quiet = two(RestartConfig(idle_s=60.0), (0.0, 61.0), (0.0, 0.0))
    quiet.ended(0)
    assert quiet.hang() is None


def test_the_silence_of_those_that_are_left_is_a_hang() -> None:
    """What a rank that has ended wrote last stays as young as it was."""
    quiet = two(RestartConfig(silence_s=60.0), (1.0, 0.0), (61.0, 0.0))
    assert quiet.hang() is None
    quiet.ended(0)
    quiet.on_word(0, {"type": "active", "output_s": 1.0, "idle_s": 0.0})  # a late word
    hang = quiet.hang()
    assert hang is not None
    assert hang.ranks == (1,)
    quiet.ended(1)
    assert quiet.hang() is None


def test_a_new_generation_is_looked_at_anew() -> None:
    quiet = two(RestartConfig(silence_s=1.0, idle_s=1.0), (9.0, 9.0), (9.0, 9.0))
    quiet.begin(2)
    assert quiet.hang() is None
