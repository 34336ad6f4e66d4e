"""How often to save, from what a run has been through."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.resilience.decide.cadence import (
    CAP_S,
    FIRST_S,
    FLOOR_S,
    NODE_FAILURE_RATE,
    cadence,
    daly_s,
    meta_share,
    mttf_s,
    prior_mttf_s,
    useful_share,
)
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.events import (
    AttemptStarted,
    CheckpointCommitted,
    Event,
    RanksStarted,
    RanksStopped,
)
from relight.resilience.decide.past import Past, SaveCost, remember

HOUR_S = 3600.0
positive = st.floats(0.001, 1e6)


# nodes of 8 GPUs at Meta's rate, save, restart → Daly's interval in minutes, useful share
@pytest.mark.parametrize(
    ("nodes", "save_s", "restart_s", "minutes", "share"),
    [
        (16, 60.0, 600.0, 166, 0.987),
        (128, 60.0, 600.0, 58, 0.961),
        (512, 60.0, 600.0, 29, 0.912),
        (16, 300.0, 1200.0, 369, 0.972),
        (128, 300.0, 1200.0, 128, 0.916),
        (512, 300.0, 1200.0, 62, 0.816),
    ],
)
def test_published_numbers(
    nodes: int, save_s: float, restart_s: float, minutes: int, share: float
) -> None:
    mean_s = 1 / (nodes * NODE_FAILURE_RATE)
    every_s = daly_s(save_s, mean_s)
    assert every_s / 60 == pytest.approx(minutes, abs=1)
    assert meta_share(every_s, save_s, restart_s, mean_s) == pytest.approx(share, abs=0.001)
    assert useful_share(every_s, save_s, restart_s, mean_s) == pytest.approx(share, abs=0.01)


@given(save_s=st.floats(0.1, 100.0), mean_s=st.floats(1e3, 1e6))
def test_dalys_interval_is_the_best(save_s: float, mean_s: float) -> None:
    best_s = daly_s(save_s, mean_s)
    at_best = useful_share(best_s, save_s, 60.0, mean_s)
    for factor in (0.5, 0.8, 1.25, 2.0):
        assert useful_share(best_s * factor, save_s, 60.0, mean_s) <= at_best + 1e-4


@given(positive, positive, positive, positive)
def test_a_share_is_a_share(every_s: float, save_s: float, restart_s: float, mean_s: float) -> None:
    assert 0 <= useful_share(every_s, save_s, restart_s, mean_s) <= 1


def test_a_save_longer_than_the_time_to_failure_leaves_only_that() -> None:
    assert daly_s(300.0, 100.0) == 100.0


def test_the_prior_is_soon_outweighed() -> None:
    assert mttf_s(Past(), nodes=1) == prior_mttf_s(1) == 24 * HOUR_S
    assert prior_mttf_s(1000) == pytest.approx(1000 * 24 * HOUR_S / 6.5 / 1000)
    often = Past(ran_s=10 * HOUR_S, failures=20)
    assert mttf_s(often, nodes=1) == pytest.approx(0.5 * HOUR_S, rel=0.25)
    assert mttf_s(Past(ran_s=300 * HOUR_S), nodes=1) > 1000 * HOUR_S


def saved_in(seconds: float, stall_s: float | None = None) -> Past:
    stall_s = seconds if stall_s is None else stall_s
    return Past(saves=(SaveCost(seconds=seconds, stall_s=stall_s),))


def test_a_save_beside_the_steps_is_made_more_often_but_not_before_the_last_is_durable() -> None:
    waited, beside = cadence(saved_in(100.0), 1), cadence(saved_in(100.0, stall_s=1.0), 1)
    assert 100.0 < beside.interval_s < waited.interval_s / 3
    assert cadence(saved_in(900.0, stall_s=0.0), 100).interval_s >= 900.0


def test_the_interval_has_its_limits() -> None:
    assert cadence(Past(), 1).interval_s == FIRST_S
    assert cadence(saved_in(1e-6), 1).interval_s == FLOOR_S
    assert cadence(saved_in(1000.0), 1).interval_s == CAP_S
    assert cadence(saved_in(7200.0), 1).interval_s == 7200.0, "not before the last is durable"
    storm = replace(saved_in(5.0), ran_s=600.0, failures=20)
    assert 10.0 < cadence(storm, 2).interval_s < 100.0


# What is remembered

BEGIN = AttemptStarted(attempt="7.0", job_id="7", restart_count=0, nodes=("n1",), batch_node="n1")
STARTED = RanksStarted(generation=1, nodes=("n1",), world_size=1)
STOPPED = RanksStopped(generation=1)
SAVED = CheckpointCommitted(step=5, generation=1, seconds=2.5)


def lived(*story: tuple[float, Event], failed: bool = False, told: StopCause | None = None) -> Past:
    past = Past()
    for now, event in story:
        past = remember(past, event, now, failed=failed, told=told)
    return past


def test_running_time_is_that_of_the_ranks() -> None:
    past = lived((0.0, BEGIN), (10.0, STARTED), (40.0, STOPPED), (90.0, STARTED), (95.0, SAVED))
    assert (past.ran_s, past.failures, past.save_s) == (35.0, 0, 2.5)
    assert remember(past, STOPPED, 100.0, failed=False, told=None).ran_s == 40.0


@pytest.mark.parametrize(
    ("failed", "told", "failures"),
    [
        (True, None, 1),
        (True, StopCause.SIGNALLED, 1),
        (True, StopCause.PREEMPTED, 0),
        (False, StopCause.TIME_LIMIT, 0),
        (False, StopCause.SIGNALLED, 0),
    ],
)
def test_preemption_and_time_limit_are_no_failures(
    failed: bool, told: StopCause | None, failures: int
) -> None:
    assert lived((1.0, STARTED), (2.0, STOPPED), failed=failed, told=told).failures == failures


def test_an_end_that_nobody_saw_counts_when_the_host_is_down() -> None:
    again = AttemptStarted(
        attempt="7.1",
        job_id="7",
        restart_count=1,
        nodes=("n2",),
        batch_node="n2",
        lost_batch_node="n1",
    )
    past = lived((1.0, STARTED), (3.0, SAVED), (99.0, again))
    assert (past.failures, past.ran_s, past.since) == (1, 2.0, None)
    assert lived((1.0, STARTED), (99.0, BEGIN)).failures == 0


def test_what_a_save_costs_is_what_the_last_ones_did_usually_not_the_one_at_the_end() -> None:
    def save(seconds: float, stall_s: float | None, behind_s: float = 0.0) -> Event:
        return replace(SAVED, seconds=seconds, stall_s=stall_s, behind_s=behind_s)

    usual = [save(3.0, 1.0, behind_s=0.5) for _ in range(3)]
    story = [save(90.0, None), *usual, save(0.1, 0.1)]
    past = lived((0.0, BEGIN), *((10.0 + number, one) for number, one in enumerate(story)))
    assert past.save_s == 3.0
    assert past.cost_s == pytest.approx(0.5 + 2.5 / 20)
    assert lived((1.0, save(8.0, None))).cost_s == 8.0, "nobody told for how long steps waited"
