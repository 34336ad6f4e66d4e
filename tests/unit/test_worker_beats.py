"""How often agents and programs say that they live."""

from __future__ import annotations

import pytest

from relight.resilience.worker.beats import VARIABLE, beat_of_world, beat_s


@pytest.mark.parametrize(
    ("world_size", "seconds"), [(1, 1.0), (1000, 1.0), (2500, 2.5), (10_000, 5.0), (100_000, 5.0)]
)
def test_in_a_large_world_each_rank_speaks_less_often(world_size: int, seconds: float) -> None:
    assert beat_of_world(world_size) == seconds


def test_the_agent_that_speaks_for_its_node_keeps_its_pace() -> None:
    assert beat_s({VARIABLE: "5.0"}, leader=True) == 1.0
    assert beat_s({VARIABLE: "5.0"}, leader=False) == 5.0
    assert beat_s({}, leader=False) == 1.0
