"""The decision between two steps."""

from __future__ import annotations

import numpy as np
import pytest

from relight.resilience.worker.boundary import Boundary, Verdict, whole_total
from relight.resilience.worker.errors import StepsRefused
from relight.resilience.worker.interval import EverySeconds, EverySteps, Interval


def started(done: int = 0, every: Interval | None = None) -> Boundary:
    boundary = Boundary(every)
    boundary.begin(done, 0.0, restored=done > 0)
    return boundary


def do_steps(boundary: Boundary, count: int) -> None:
    for _ in range(count):
        boundary.step_done()


def test_goes_on_when_nobody_wants_anything() -> None:
    boundary = started()
    do_steps(boundary, 5)
    assert boundary.decide(1e9) is Verdict.GO


def test_a_held_rank_finishes_its_step_and_waits() -> None:
    boundary = started(7)
    assert boundary.hold(1) == 7
    assert boundary.decide(0) is Verdict.GO  # step 7 may begin
    boundary.step_done()
    assert boundary.decide(0) is Verdict.WAIT


def test_all_ranks_can_reach_the_agreed_step() -> None:
    ranks = [started(step) for step in (3, 4, 5)]
    agreed = max(answer for rank in ranks if (answer := rank.hold(1)) is not None) + 1
    for rank in ranks:
        while rank.decide(0) is Verdict.GO:
            rank.step_done()
        assert rank.done <= agreed
        assert rank.stop_at(1, agreed)
        while rank.decide(0) is Verdict.GO:
            rank.step_done()
        assert (rank.decide(0), rank.done) == (Verdict.STOP, agreed)


def test_save_at_saves_once_and_goes_on() -> None:
    boundary = started()
    boundary.hold(1)
    boundary.step_done()
    assert boundary.save_at(1, 1)
    assert boundary.decide(0) is Verdict.SAVE
    boundary.save_tried(0, ok=True)
    assert boundary.decide(0) is Verdict.GO
    assert boundary.saved == 1


def test_release_ends_only_its_own_hold() -> None:
    boundary = started()
    boundary.hold(1)
    boundary.hold(2)
    boundary.step_done()
    boundary.release(1)
    assert boundary.decide(0) is Verdict.WAIT
    boundary.release(2)
    assert boundary.decide(0) is Verdict.GO


def test_without_a_supervisor_no_hold_lasts() -> None:
    boundary = started()
    boundary.hold(1)
    boundary.step_done()
    boundary.release_all()
    assert boundary.decide(0) is Verdict.GO


def test_a_passed_step_cannot_be_saved() -> None:
    boundary = started(9)
    assert not boundary.save_at(1, 8)
    assert not boundary.stop_at(2, 8)
    assert boundary.decide(0) is Verdict.GO


def test_the_earlier_of_two_stops_counts() -> None:
    boundary = started()
    assert boundary.stop_at(1, 2)
    assert boundary.stop_at(2, 3)
    do_steps(boundary, 2)
    assert boundary.decide(0) is Verdict.STOP


def test_a_hold_is_answered_when_the_first_step_is_known() -> None:
    boundary = Boundary(None)
    assert boundary.hold(1) is None
    assert boundary.hold(2) is None
    boundary.release(1)
    assert boundary.begin(40, 0.0, restored=True) == [2]


def test_a_restored_step_is_saved_already() -> None:
    boundary = started(40, EverySteps(20))
    assert boundary.decide(0) is Verdict.GO
    assert boundary.saved == 40
    assert boundary.save_at(1, 40)
    assert boundary.decide(0) is Verdict.GO


def test_every_steps_is_due_on_multiples() -> None:
    boundary = started(every=EverySteps(3))
    due = []
    for _ in range(7):
        boundary.step_done()
        if boundary.decide(0) is Verdict.SAVE:
            due.append(boundary.done)
            boundary.save_tried(0, ok=True)
    assert due == [3, 6]


def test_every_seconds_counts_from_the_last_try() -> None:
    boundary = started(every=EverySeconds(10))
    boundary.step_done()
    assert boundary.decide(9) is Verdict.GO
    assert boundary.decide(10) is Verdict.SAVE
    boundary.save_tried(12, ok=True)
    boundary.step_done()
    assert boundary.decide(21) is Verdict.GO
    assert boundary.decide(22) is Verdict.SAVE


def test_a_failed_save_is_not_repeated_at_once() -> None:
    boundary = started(every=EverySteps(1))
    boundary.step_done()
    boundary.save_tried(0, ok=False)
    assert boundary.decide(0) is Verdict.GO
    assert boundary.saved is None
    boundary.step_done()
    assert boundary.decide(0) is Verdict.SAVE


@pytest.mark.parametrize("done", [0, 4])
def test_a_lone_rank_stops_where_it_is(done: int) -> None:
    boundary = started(done)
    boundary.stop_now()
    assert boundary.decide(0) is Verdict.STOP


@pytest.mark.parametrize("total", [-1, 2.5, "10", None, True, np.zeros(2, int), np.array(2.0)])
def test_a_number_of_steps_that_is_none_is_refused(total: object) -> None:
    with pytest.raises(StepsRefused, match="a whole number, 0 or more"):
        whole_total(total)


def test_a_number_of_steps_may_be_one_of_numpy() -> None:
    assert [whole_total(total) for total in (0, 7, np.int64(7))] == [0, 7, 7]
