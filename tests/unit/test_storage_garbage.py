"""Many small arrays do not set off Python's search for garbage, and it goes on afterwards."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from relight.storage.checkpointer import load_shard, save_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.errors import StateRefused
from relight.storage.garbage import no_search
from relight.storage.layout import Incarnation

INCARNATION = Incarnation("77.0", 0)


@contextmanager
def searches() -> Iterator[list[str]]:
    """The searches that begin meanwhile."""
    begun: list[str] = []
    gc.collect()
    gc.callbacks.append(lambda phase, info: begun.append(phase) if phase == "start" else None)
    try:
        yield begun
    finally:
        gc.callbacks.pop()


def test_a_state_of_many_arrays_is_saved_and_restored_with_hardly_a_search(tmp_path: Path) -> None:
    state = {f"{number}": np.full(2, number) for number in range(10_000)}
    epoch = claim_epoch(tmp_path, INCARNATION)
    with searches() as begun:
        receipt = save_shard(tmp_path, 1, INCARNATION, 0, 1, {"arrays": state})
        manifest = commit(tmp_path, 1, INCARNATION, epoch, [receipt], {})
        loaded = load_shard(tmp_path, manifest, 0)["arrays"]
    assert isinstance(loaded, dict)
    assert all(np.array_equal(loaded[name], array) for name, array in state.items())
    assert len(begun) < 40, begun
    assert gc.isenabled()


def test_it_goes_on_after_a_state_that_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateRefused):
        save_shard(tmp_path, 1, INCARNATION, 0, 1, {"odd": object()})
    assert gc.isenabled()


def test_it_goes_on_once_the_last_of_two_has_come_to_its_end_and_in_a_child_at_once() -> None:
    first, second = no_search(), no_search()
    with first:
        second.__enter__()
    assert not gc.isenabled()
    child = os.fork()
    if child == 0:
        os._exit(0 if gc.isenabled() else 1)
    assert os.waitpid(child, 0)[1] == 0
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_it_stays_off_where_the_program_has_turned_it_off() -> None:
    gc.disable()
    try:
        with no_search():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
