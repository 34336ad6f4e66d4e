"""How often agents and programs say that they live."""

from __future__ import annotations

import pytest

from relight.resilience.worker.beats import VARIABLE, agent_beat_s, beat_of_world, beat_s


@pytest.mark.parametrize(
    ("world_size", "seconds"), [(1, 1.0), (1000, 1.0), (2500, 2.5), (10_000, 5.0), (100_000, 5.0)]
)
def test_in_a_large_world_each_rank_speaks_less_often(world_size: int, seconds: float) -> None:
    assert beat_of_world(world_size) == seconds


def test_the_agent_that_speaks_for_its_node_keeps_its_pace() -> None:
    large = {VARIABLE: "5.0"}
    assert agent_beat_s(large, leader=True) == 1.0
    assert agent_beat_s(large, leader=False) > beat_s(large) == 5.0
    assert agent_beat_s({}, leader=False) == beat_s({}) == 1.0
