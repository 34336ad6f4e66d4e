"""Steps per second as a person wants to read them."""

from __future__ import annotations

from relight.resilience.supervise.rate import Rate


def test_fast_steps_are_counted_over_a_minute() -> None:
    rate = Rate()
    rates = [rate.update(2 * second, float(second)) for second in range(200)]
    assert rates[0] is None
    assert rates[1] == rates[199] == 2.0
    slower = [rate.update(398 + second, 199.0 + second) for second in range(1, 200)]
    assert slower[-1] == 1.0, "what was a minute ago does not count"


def test_a_step_of_five_minutes_is_a_rate_too() -> None:
    rate = Rate()
    assert rate.update(3, 0.0) is None
    assert [rate.update(3, 100.0), rate.update(4, 300.0)] == [None, 1 / 300]
    assert rate.update(4, 500.0) == 1 / 300
    assert rate.update(5, 600.0) == 1 / 300


def test_another_generation_begins_anew() -> None:
    rate = Rate()
    rate.update(10, 0.0)
    rate.update(20, 1.0)
    assert rate.update(None, 2.0) is None
    assert rate.update(12, 3.0) is None
    rate.update(14, 4.0)
    assert rate.update(5, 5.0) is None
