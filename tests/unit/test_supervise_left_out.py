"""A rank that ends with 0 before its first step leaves the others without a complete checkpoint."""

from __future__ import annotations

from typing import cast

from relight.resilience.config import RunConfig
from relight.resilience.decide.events import Event, RankExited, RanksStarted, SaveFailed
from relight.resilience.decide.state import Phase, State
from relight.resilience.supervise.lookout import Lookout
from relight.resilience.supervise.pace import Pace
from relight.resilience.supervise.ranks import Ranks


class Places:
    places: dict[int, str] = {0: "n1"}  # noqa: RUF012


def test_it_is_told_once_as_soon_as_others_do_steps(run_config: RunConfig) -> None:
    told: list[Event] = []
    lookout = Lookout(run_config, Pace(run_config.restart), cast("Ranks", Places()), told.append)
    for generation in (1, 2):
        lookout.on_event(
            RanksStarted(generation=generation, nodes=("n1",), world_size=3, restored_step=None)
        )
        lookout.on_event(exited(generation, 1))
        lookout.look(State(phase=Phase.RUNNING, generation=generation))
        assert lookout.said == (), "they may all be programs without steps"
        lookout.on_word(0, {"type": "restored", "step": 0})
        lookout.on_event(exited(generation, 0))  # after its first step: nothing to tell of that
        lookout.on_event(exited(generation, 2, code=1))
        for _ in range(2):
            lookout.look(State(phase=Phase.RUNNING, generation=generation))
        assert "rank 1 ended with code 0 before the first step" in "".join(lookout.said)
    lacking = [event for event in told if isinstance(event, SaveFailed)]
    assert [(one.generation, one.step) for one in lacking] == [(1, None), (2, None)]


def exited(generation: int, rank: int, code: int = 0) -> RankExited:
    return RankExited(generation=generation, rank=rank, node="n1", code=code)
