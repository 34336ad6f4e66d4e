"""Which checkpoints may go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.storage.retention import Best, Committed, Keep, kept_by, to_delete

CHECKPOINTS = st.dictionaries(
    st.integers(0, 1000),
    st.tuples(
        st.floats(0, 1e6),
        st.dictionaries(st.sampled_from(["loss", "score"]), st.floats(allow_nan=False)),
    ),
    min_size=1,
).map(
    lambda found: [
        Committed(step=step, created_s=time_s, metrics=metrics)
        for step, (time_s, metrics) in found.items()
    ]
)
BEST = st.builds(
    Best,
    metric=st.sampled_from(["loss", "score", "unknown"]),
    mode=st.sampled_from(["min", "max"]),
    n=st.integers(1, 4),
)
KEEP = st.builds(
    Keep,
    last=st.integers(1, 10),
    every_steps=st.none() | st.integers(1, 500),
    every_s=st.none() | st.floats(1, 1e5),
    best=st.none() | BEST,
)


def steps(committed: list[Committed]) -> set[int]:
    return {one.step for one in committed}


def left(committed: list[Committed], keep: Keep) -> list[int]:
    newest = max(steps(committed))
    return sorted(steps(committed) - set(to_delete(committed, newest, keep)))


@given(CHECKPOINTS, KEEP, st.data())
def test_the_newest_and_all_above_it_stay(
    committed: list[Committed], keep: Keep, data: st.DataObject
) -> None:
    newest = data.draw(st.sampled_from(sorted(steps(committed))))
    deleted = to_delete(committed, newest, keep)
    assert set(deleted) <= steps(committed)
    assert all(step < newest for step in deleted)
    assert list(deleted) == sorted(deleted)


@given(CHECKPOINTS, st.integers(1, 10))
def test_exactly_the_last_ones_stay(committed: list[Committed], last: int) -> None:
    assert left(committed, Keep(last=last)) == sorted(steps(committed))[-last:]


@given(CHECKPOINTS, KEEP)
def test_deciding_again_deletes_nothing_more(committed: list[Committed], keep: Keep) -> None:
    newest = max(steps(committed))
    deleted = to_delete(committed, newest, keep)
    rest = [one for one in committed if one.step not in deleted]
    assert to_delete(rest, newest, keep) == ()


@given(CHECKPOINTS, KEEP)
def test_without_a_valid_checkpoint_nothing_goes(committed: list[Committed], keep: Keep) -> None:
    assert to_delete(committed, None, keep) == ()


def test_one_of_each_thousand_steps_stays() -> None:
    committed = [Committed(step=step) for step in (0, 400, 800, 1000, 1400, 2300, 2700, 2800)]
    assert left(committed, Keep(last=1, every_steps=1000)) == [0, 1000, 2300, 2800]


def test_one_of_each_two_hours_stays() -> None:
    committed = [Committed(step=n, created_s=n * 1800.0) for n in range(10)]
    assert left(committed, Keep(last=1, every_s=7200.0)) == [0, 4, 8, 9]


@pytest.mark.parametrize(("mode", "kept"), [("min", [2, 5, 6]), ("max", [1, 4, 6])])
def test_the_best_stay_and_of_equal_ones_the_oldest(mode: str, kept: list[int]) -> None:
    losses = {1: 9.0, 2: 1.0, 3: 5.0, 4: 9.0, 5: 1.0}
    committed = [Committed(step=step, metrics={"loss": loss}) for step, loss in losses.items()]
    committed += [Committed(step=6)]
    best = Best(metric="loss", mode="min" if mode == "min" else "max", n=2)
    assert left(committed, Keep(last=1, best=best)) == kept
    one = Best(metric="loss", mode=best.mode)
    assert left(committed, Keep(last=1, best=one)) == [kept[0], 6]


def test_keeping_none_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Keep(last=0)
    with pytest.raises(ValueError, match=r"keep\.every"):
        Keep(every_steps=0)
    with pytest.raises(ValueError, match=r"keep\.best\.n"):
        Best(metric="loss", n=0)


def test_each_one_that_stays_is_told_why() -> None:
    found = [Committed(step=step, metrics={"loss": 1 / step}) for step in (10, 20, 30, 40)]
    keep = Keep(last=1, every_steps=20, best=Best(metric="loss", mode="max"))
    assert kept_by(found, 40, keep) == {
        10: ("every 20 steps", "best loss"),
        20: ("every 20 steps",),
        40: ("newest", "last 1", "every 20 steps"),
    }
