"""Which checkpoints may go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.storage.retention import Keep, to_delete

STEPS = st.sets(st.integers(0, 1000), min_size=1)


@given(STEPS, st.integers(1, 10), st.data())
def test_the_newest_and_all_above_it_stay(steps: set[int], last: int, data: st.DataObject) -> None:
    newest = data.draw(st.sampled_from(sorted(steps)))
    deleted = to_delete(steps, newest, Keep(last=last))
    assert set(deleted) <= steps
    assert all(step < newest for step in deleted)
    assert list(deleted) == sorted(deleted)


@given(STEPS, st.integers(1, 10))
def test_exactly_the_last_ones_stay(steps: set[int], last: int) -> None:
    deleted = to_delete(steps, max(steps), Keep(last=last))
    assert steps - set(deleted) == set(sorted(steps)[-last:])


@given(STEPS, st.integers(1, 10))
def test_deciding_again_deletes_nothing_more(steps: set[int], last: int) -> None:
    left = steps - set(to_delete(steps, max(steps), Keep(last=last)))
    assert to_delete(left, max(left), Keep(last=last)) == ()


@given(st.sets(st.integers(0, 1000)))
def test_without_a_valid_checkpoint_nothing_goes(steps: set[int]) -> None:
    assert to_delete(steps, None, Keep(last=1)) == ()


def test_keeping_none_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Keep(last=0)
