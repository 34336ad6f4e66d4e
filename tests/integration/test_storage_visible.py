"""Files of other nodes may be seen late; what never comes is said with what to look at."""

from __future__ import annotations

import json
import threading
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from relight.resilience.worker.environment import read_environment
from relight.resilience.worker.own_checkpoints import OwnCheckpoints
from relight.resilience.worker.world import World
from relight.storage.checkpointer import save_shard
from relight.storage.choose import candidates
from relight.storage.commit import claim_epoch, commit
from relight.storage.layout import Incarnation, manifest_path, shard_path, step_dir
from relight.storage.needs import Needs
from relight.storage.notes import Notes
from relight.storage.visible import await_file

ONE = Incarnation("1.0", 0)


def test_what_never_comes_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"0\.1 s of waiting: does this node see the same"):
        await_file(tmp_path / "000000000003" / "MANIFEST.json", limit_s=0.1)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        await_file(tmp_path / "file" / "a", limit_s=60)


@pytest.mark.parametrize("late", ["manifest", "shard"])
def test_a_rank_waits_for_what_it_cannot_see_yet(tmp_path: Path, late: str) -> None:
    """A client that believes the name is not there, then does: the name comes in a moment."""
    receipt = save_shard(tmp_path, 3, ONE, 0, 2, {"w": np.arange(3)})
    other = save_shard(tmp_path, 3, ONE, 1, 2, {"w": np.arange(3) + 1})
    commit(tmp_path, 3, ONE, claim_epoch(tmp_path, ONE), [receipt, other], {})
    name = manifest_path(tmp_path, 3) if late == "manifest" else shard_path(tmp_path, 3, ONE, 1)
    hidden = step_dir(tmp_path, 3) / "hidden"
    name.rename(hidden)
    environment = read_environment({"RELIGHT_CHECKPOINT_STAGING": "0"}, tmp_path, None)
    # Its name; then what it has found: its epoch, its choice, a manifest, and no fault.
    found = (json.dumps([word, None, None]) for word in ("1", "3", "", ""))
    words_of_rank_0 = chain(["own-1"], found)
    rank = OwnCheckpoints(
        tmp_path, environment, World(1, 2), lambda word: [next(words_of_rank_0), word]
    )
    timer = threading.Timer(0.2, lambda: hidden.rename(name))
    timer.start()
    restored = rank.restore(lambda: Needs(pieces={}))
    timer.join()
    assert restored is not None
    array = restored.state["w"]
    assert isinstance(array, np.ndarray)
    assert array.tolist() == [1, 2, 3]


@pytest.mark.parametrize(("environ", "kept"), [({}, 3), ({"RELIGHT_CHECKPOINT_KEEP": "2"}, 2)])
def test_without_a_supervisor_the_last_ones_stay(
    tmp_path: Path, environ: dict[str, str], kept: int
) -> None:
    environment = read_environment(environ | {"RELIGHT_CHECKPOINT_STAGING": "0"}, tmp_path, None)
    rank = OwnCheckpoints(tmp_path, environment, World(0, 1), lambda word: [word])
    assert rank.restore(lambda: Needs(pieces={})) is None
    for step in range(5):
        assert rank.save(step, {"w": np.arange(3)}, Notes())
    assert [one.step for one in candidates(tmp_path)] == [4, 3, 2][:kept]
