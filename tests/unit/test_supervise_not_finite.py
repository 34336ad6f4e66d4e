"""When a loss that is logged counts as lost."""

from __future__ import annotations

from math import inf, nan
from typing import cast

from relight.resilience.config import RunConfig
from relight.resilience.decide.events import Event, LossNotFinite, RanksStarted
from relight.resilience.decide.state import Phase, State
from relight.resilience.supervise.lookout import Lookout
from relight.resilience.supervise.not_finite import IN_A_ROW, NotFinite, Spoilt
from relight.resilience.supervise.pace import Pace
from relight.resilience.supervise.ranks import Ranks


def watched(*values: float, name: str = "loss", rank: int = 0) -> NotFinite:
    ranks = NotFinite()
    tell(ranks, *values, name=name, rank=rank)
    return ranks


def tell(ranks: NotFinite, *values: float, name: str = "loss", rank: int = 0) -> None:
    for step, value in enumerate(values):
        ranks.on_word(rank, {"type": "logged", "step": step, "values": {name: value, "k": "text"}})


def test_one_step_that_mixed_precision_skips_is_normal() -> None:
    assert watched(*([inf] * (IN_A_ROW - 1)), 1.0, inf).look() == ()


def test_it_is_told_once_with_the_first_step_that_may_be_spoilt() -> None:
    ranks = watched(3.0, 2.0, *([nan] * IN_A_ROW))
    detail = f"loss is nan since step 2, {IN_A_ROW} times in a row"
    assert ranks.look() == (Spoilt(0, 2, detail),)
    assert ranks.look() == ()
    assert ranks.said == (f"rank 0: {detail}",)


def test_a_state_that_never_gave_a_number_is_spoilt_itself() -> None:
    ranks = NotFinite()
    ranks.begin(20)
    for step in range(25, 25 + IN_A_ROW):
        ranks.on_word(0, {"type": "logged", "step": step, "values": {"val/Loss": nan}})
    assert [one.since for one in ranks.look()] == [20]


def test_a_row_that_ends_before_anybody_looks_is_told_and_doubted_until_then() -> None:
    ranks = watched(2.0, *([nan] * IN_A_ROW), 2.0, inf)
    assert ranks.doubted == 1
    assert [one.since for one in ranks.look()] == [1]
    assert (ranks.look(), ranks.said, ranks.doubted) == ((), (), IN_A_ROW + 2)


class Places:
    places: dict[int, str] = {0: "n1"}  # noqa: RUF012


def test_what_ranks_say_before_the_first_tick_of_their_generation_counts(
    run_config: RunConfig,
) -> None:
    told: list[Event] = []
    lookout = Lookout(run_config, Pace(run_config.restart), cast("Ranks", Places()), told.append)
    for generation in (1, 2):
        lookout.on_event(
            RanksStarted(generation=generation, nodes=("n1",), world_size=1, restored_step=20)
        )
        for step in range(21, 21 + IN_A_ROW):
            lookout.on_word(0, {"type": "logged", "step": step, "values": {"loss": nan}})
        lookout.look(State(phase=Phase.RUNNING, generation=generation))
    losses = [event for event in told if isinstance(event, LossNotFinite)]
    assert [(loss.generation, loss.since) for loss in losses] == [(1, 20), (2, 20)]


def test_the_rank_where_it_began_is_named() -> None:
    ranks = watched(1.0, 1.0, *([nan] * IN_A_ROW), rank=2)
    tell(ranks, 1.0, *([nan] * IN_A_ROW), rank=5)
    (found,) = ranks.look()
    assert (found.rank, found.since) == (5, 1)


def test_it_may_come_back_and_be_lost_again() -> None:
    ranks = watched(*([nan] * IN_A_ROW))
    assert ranks.look()
    tell(ranks, 1.0)
    assert (ranks.look(), ranks.said) == ((), ())
    tell(ranks, *([nan] * IN_A_ROW))
    assert ranks.look()
    ranks.begin(0)
    assert (ranks.look(), ranks.said) == ((), ())


def test_only_a_loss_has_to_be_finite_and_only_what_is_well_formed_is_read() -> None:
    ranks = watched(*([inf] * IN_A_ROW), name="grad_norm")
    for _ in range(IN_A_ROW):
        ranks.on_word(0, {"type": "logged", "values": {"loss": nan}})
        ranks.on_word(0, {"type": "logged", "step": 1})
        ranks.on_word(0, {"type": "beat", "step": 1})
    assert ranks.look() == ()
