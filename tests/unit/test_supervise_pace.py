"""How long ranks may stand still, learned from how they move."""

from __future__ import annotations

import pytest

from relight.resilience.config import RestartConfig
from relight.resilience.supervise.pace import FLOOR_S, SECTION_LIMIT_S, START_LIMIT_S, Pace

AUTO = RestartConfig()


def moving(
    config: RestartConfig = AUTO, step_s: float = 1.0, steps: int = 10
) -> tuple[Pace, float]:
    """Two ranks that have done some steps; the pace and the time."""
    pace, now = Pace(config), 0.0
    pace.begin(now, 2)
    for rank in (0, 1):
        pace.on_word(rank, {"type": "joined"}, now)
    for step in range(steps):
        for rank in (0, 1):
            pace.on_word(rank, {"type": "restored" if step == 0 else "beat", "step": step}, now)
        now += step_s
    return pace, now


def test_the_start_and_the_first_step_may_take_long() -> None:
    pace = Pace(AUTO)
    pace.begin(0.0, 2)
    assert pace.hang(1e6) is None, "nothing is known of programs that have not said a word"
    pace.on_word(0, {"type": "joined"}, 0.0)
    absent = pace.hang(START_LIMIT_S + 1)
    assert absent is not None
    assert absent.ranks == (0, 1)
    for rank in (0, 1):
        pace.on_word(rank, {"type": "restored", "step": 40}, 100.0)
    assert pace.hang(100.0 + START_LIMIT_S - 1) is None
    assert pace.hang(100.0 + START_LIMIT_S + 1) is not None


def test_a_generation_of_which_nobody_joins_is_late_when_one_before_did() -> None:
    pace, now = moving()
    pace.begin(now, 2)
    assert pace.hang(now + START_LIMIT_S - 1) is None
    hang = pace.hang(now + START_LIMIT_S + 1)
    assert hang is not None
    assert hang.ranks == (0, 1)


def test_quick_steps_still_have_a_minute() -> None:
    pace, now = moving(step_s=0.1)
    assert pace.limit_s() == FLOOR_S
    assert pace.hang(now + FLOOR_S - 1) is None
    hang = pace.hang(now + FLOOR_S + 1)
    assert hang is not None
    assert "no step in" in hang.detail


def test_slow_steps_teach_a_longer_limit() -> None:
    pace, now = moving(step_s=40.0)
    assert pace.limit_s() == 200.0
    assert pace.hang(now + 150.0) is None


def test_a_given_limit_holds_and_off_means_off() -> None:
    pace, now = moving(RestartConfig(hang_s=3.0))
    assert pace.hang(now + 4.0) is not None
    pace, now = moving(RestartConfig(watch_hangs=False))
    assert pace.hang(now + 1e6) is None


def test_the_rank_that_is_silent_is_named_before_those_that_wait_for_it() -> None:
    pace, now = moving(RestartConfig(hang_s=20.0))
    pace.on_word(0, {"type": "beat", "step": 9}, now + 19.0)
    hang = pace.hang(now + 21.0)
    assert hang is not None
    assert hang.ranks == (1,)


def test_the_rank_with_the_lowest_step_is_named_when_all_beat() -> None:
    pace, now = moving(RestartConfig(hang_s=20.0))
    pace.on_word(0, {"type": "beat", "step": 10}, now + 19.0)
    pace.on_word(1, {"type": "beat", "step": 9}, now + 19.0)
    hang = pace.hang(now + 21.0)
    assert hang is not None
    assert hang.ranks == (1,)


def test_a_section_has_its_own_limit_and_its_time_does_not_count() -> None:
    pace, now = moving(RestartConfig(hang_s=5.0))
    pace.on_word(0, {"type": "entered", "section": "eval", "limit_s": 100.0}, now)
    assert pace.hang(now + 99.0) is None
    overdue = pace.hang(now + 101.0)
    assert overdue is not None
    assert (overdue.ranks, "eval" in overdue.detail) == ((0,), True)
    pace.on_word(0, {"type": "left", "section": "eval"}, now + 99.0)
    assert pace.hang(now + 103.0) is None
    assert pace.hang(now + 105.0) is not None


def test_a_save_and_a_restore_may_take_long_as_long_as_bytes_move() -> None:
    def moving_bytes(what: str, done_bytes: int) -> dict[str, object]:
        return {"what": what, "step": 9, "done_bytes": done_bytes, "total_bytes": 99}

    pace, now = moving()
    pace.on_word(0, {"type": "entered", "section": "save", "limit_s": None}, now)
    pace.on_word(1, {"type": "entered", "section": "save", "limit_s": None}, now)
    now += SECTION_LIMIT_S - 1
    for rank, done_bytes in ((0, 7), (1, 0)):
        pace.on_word(
            rank, {"type": "beat", "step": 9, "moving": moving_bytes("save", done_bytes)}, now
        )
    hang = pace.hang(now + 2)
    assert hang is not None
    assert hang.ranks == (1,), "the other one has written something"

    pace.begin(now, 2)
    pace.on_word(1, {"type": "restored", "step": 9}, now)
    for done_bytes in (5, 6):
        now += START_LIMIT_S - 1
        pace.on_word(0, {"type": "moving", "moving": moving_bytes("restore", done_bytes)}, now)
        assert pace.hang(now + START_LIMIT_S - 1) is None
    pace.on_word(0, {"type": "moving", "moving": moving_bytes("restore", 6)}, now + 9.0)
    hang = pace.hang(now + START_LIMIT_S + 1)
    assert hang is not None
    assert hang.ranks == (0,)


@pytest.mark.parametrize("inner", ["plots", "eval"])
def test_a_section_goes_on_after_one_within_it(inner: str) -> None:
    pace, now = moving(RestartConfig(hang_s=5.0))
    pace.on_word(0, {"type": "entered", "section": "eval", "limit_s": 100.0}, now)
    pace.on_word(0, {"type": "entered", "section": inner, "limit_s": 10.0}, now)
    pace.on_word(0, {"type": "left", "section": inner}, now + 9.0)
    assert pace.hang(now + 99.0) is None
    overdue = pace.hang(now + 101.0)
    assert overdue is not None
    assert "eval" in overdue.detail


def test_a_section_does_not_grow_older_while_the_job_is_suspended() -> None:
    pace, now = moving()
    pace.on_word(0, {"type": "entered", "section": "eval", "limit_s": 100.0}, now)
    pace.pause_over(now + 3600.0, 3590.0)
    assert pace.hang(now + 3600.0) is None
    assert pace.hang(now + 3689.0) is None
    assert pace.hang(now + 3691.0) is not None


def test_what_comes_after_the_last_step_has_the_limit_of_a_section() -> None:
    pace, now = moving(RestartConfig(hang_s=5.0))
    pace.on_word(0, {"type": "finished", "step": 10}, now)
    hang = pace.hang(now + 100.0)
    assert hang is not None
    assert hang.ranks == (1,), "the other one has not finished"
    pace.on_word(1, {"type": "finished", "step": 10}, now)
    assert pace.hang(now + SECTION_LIMIT_S - 1) is None
    pace.ended(0, now + 10.0)
    assert pace.hang(now + SECTION_LIMIT_S + 9) is None
    hang = pace.hang(now + SECTION_LIMIT_S + 11)
    assert hang is not None
    assert hang.ranks == (1,), "the other one has ended"
    pace.ended(1, now + SECTION_LIMIT_S + 12)
    assert pace.hang(now + 1e6) is None


def test_a_long_end_can_be_named_and_given_its_own_limit() -> None:
    pace, now = moving()
    for rank in (0, 1):
        pace.on_word(rank, {"type": "finished", "step": 10}, now)
    pace.on_word(0, {"type": "entered", "section": "export", "limit_s": 9000.0}, now)
    assert pace.hang(now + 8999.0) is None
    hang = pace.hang(now + 9001.0)
    assert hang is not None
    assert "export" in hang.detail


def test_a_rank_that_leaves_early_is_not_waited_for() -> None:
    pace, now = moving(RestartConfig(hang_s=5.0))
    pace.on_word(0, {"type": "entered", "section": "eval", "limit_s": 1e6}, now)
    pace.ended(0, now)
    hang = pace.hang(now + 6.0)
    assert hang is not None
    assert hang.ranks == (1,)


@pytest.mark.parametrize("joins", [True, False])
def test_those_that_go_on_without_a_rank_that_has_ended_do_not_hang(joins: bool) -> None:
    pace, now = Pace(AUTO), 0.0
    pace.begin(now, 2)
    for rank in (0, 1) if joins else (0,):
        pace.on_word(rank, {"type": "joined"}, now)
        pace.on_word(rank, {"type": "restored", "step": 0}, now)
    pace.ended(1, now)
    for step in range(1, 100):
        now += FLOOR_S / 2
        pace.on_word(0, {"type": "beat", "step": step}, now)
        assert pace.hang(now) is None
    assert pace.hang(now + START_LIMIT_S) is not None
