"""The time that a rank needs for a step itself."""

from __future__ import annotations

from relight.resilience.worker.own_time import OwnTime


def test_waiting_for_others_does_not_count() -> None:
    own = OwnTime()
    assert own.take() is None
    own.begin(10.0)
    own.waited(0.25)
    own.waited(0.25)
    own.end(11.0)
    own.begin(12.0)
    own.end(13.5)
    assert own.take() == (1.0, 1.25), "half of one second, and one and a half"
    assert own.take() is None, "each step is told once"


def test_an_end_without_a_beginning_is_no_step() -> None:
    own = OwnTime()
    own.end(1.0)
    assert own.take() is None


def test_clocks_that_disagree_give_no_negative_time() -> None:
    own = OwnTime()
    own.begin(1.0)
    own.waited(9.0)
    own.end(2.0)
    assert own.take() == (0.0, 1.0)
