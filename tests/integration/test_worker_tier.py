"""A rank with a tier: where its saves go, and what it restores when a copy there is damaged."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from relight.resilience.messages import Message
from relight.resilience.worker.checkpoints import SupervisedCheckpoints
from relight.resilience.worker.environment import read_environment
from relight.resilience.worker.line import Line
from relight.resilience.worker.world import World
from relight.storage.commit import claim_epoch, commit
from relight.storage.drain import drain
from relight.storage.layout import Incarnation, manifest_path, shard_path
from relight.storage.needs import Needs
from relight.storage.notes import Notes
from relight.storage.receipt import Receipt
from relight.storage.tier_folder import tier_folder

ONE = Incarnation("1.0", 1)
VALUES = np.arange(50_000)


class Rank:
    """A rank of a supervised run, and what it says to its agent."""

    def __init__(self, place: Path) -> None:
        self.directory, self.tier = place / "checkpoints", tier_folder(place, "run", "n1")
        self.words: list[Message] = []
        self.directory.mkdir()
        self.epoch = claim_epoch(self.directory, ONE)
        self.line = Line.__new__(Line)  # without an agent to connect to
        self.line.lost = False
        self.line.copied = self.copied = threading.Event()
        self.line.send = self.send  # type: ignore[method-assign]
        self.copied.set()

    def send(self, message: Message) -> None:
        self.words.append(message)

    def start(self, restore: str = "", share_bytes: int = 10**7) -> SupervisedCheckpoints:
        environ = {
            "RELIGHT_AGENT_SOCKET": "@agent",
            "RELIGHT_ATTEMPT": ONE.attempt,
            "RELIGHT_GENERATION": str(ONE.generation),
            "RELIGHT_CHECKPOINT_STAGING": "0",
            "RELIGHT_CHECKPOINT_TIER": str(self.tier),
            "RELIGHT_CHECKPOINT_TIER_SHARE": str(share_bytes),
            "RELIGHT_RESTORE": restore,
        }
        environment = read_environment(environ, self.directory, None)
        return SupervisedCheckpoints(self.directory, environment, World(), self.line)

    def committed(self, step: int) -> str:
        assert self.start().save(step, {"w": VALUES}, Notes())
        receipt = drain(
            self.tier, self.directory, Receipt.from_json(str(self.words.pop()["receipt"]))
        )
        commit(self.directory, step, ONE, self.epoch, [receipt], {})
        self.copied.set()
        return str(manifest_path(self.directory, step))


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


def test_saves_go_to_the_tier_but_for_the_last_one(rank: Rank) -> None:
    checkpoints = rank.start()
    assert checkpoints.save(1, {"w": VALUES}, Notes())
    rank.copied.set()
    assert checkpoints.save(2, {"w": VALUES}, Notes(), last=True)
    near, last = rank.words
    assert (near["tier"], near["directory"]) == (str(rank.tier), str(rank.directory))
    assert (near["step"], near["writer"], near["rank"]) == (1, "1.0.g1", 0)
    assert "tier" not in last
    assert shard_path(rank.tier, 1, ONE, 0).exists()
    assert shard_path(rank.directory, 2, ONE, 0).exists()
    assert not shard_path(rank.directory, 1, ONE, 0).exists()


def test_a_tier_that_fails_in_the_middle_of_a_save_costs_no_checkpoint(rank: Rank) -> None:
    checkpoints = rank.start()
    assert checkpoints.save(1, {"w": VALUES}, Notes())
    rank.copied.set()
    (rank.tier / "000000000002").touch()  # where a folder has to be made
    assert checkpoints.save(2, {"w": VALUES}, Notes())
    assert [word["type"] for word in rank.words] == ["saved", "tier_failed", "saved"]
    assert "tier" not in rank.words[-1]
    assert shard_path(rank.directory, 2, ONE, 0).exists()


def test_a_save_waits_for_the_copy_of_the_one_before(rank: Rank) -> None:
    """Or copies would pile up in the tier, of other steps on each node."""
    checkpoints = rank.start()
    assert checkpoints.save(1, {"w": VALUES}, Notes())
    second = threading.Thread(target=checkpoints.save, args=(2, {"w": VALUES}, Notes()))
    second.start()
    second.join(0.2)
    assert second.is_alive()
    assert not shard_path(rank.tier, 2, ONE, 0).exists()
    rank.copied.set()
    second.join()
    assert [word["step"] for word in rank.words] == [1, 2]


def test_nothing_is_waited_for_once_the_run_has_to_stop(rank: Rank) -> None:
    """Neither by the save that waits, nor by those after it: the last one least of all."""
    checkpoints = rank.start()
    assert checkpoints.save(1, {"w": VALUES}, Notes())
    second = threading.Thread(target=checkpoints.save, args=(2, {"w": VALUES}, Notes()))
    second.start()
    rank.line.hurry()
    second.join()
    assert checkpoints.save(3, {"w": VALUES}, Notes())
    assert checkpoints.save(4, {"w": VALUES}, Notes(), last=True)
    assert [word["step"] for word in rank.words if "step" in word] == [1, 2, 3]
    assert shard_path(rank.directory, 4, ONE, 0).exists()


def test_the_last_save_does_not_overtake_the_one_before(rank: Rank) -> None:
    checkpoints = rank.start()
    assert checkpoints.save(1, {"w": VALUES}, Notes())
    last = threading.Thread(
        target=checkpoints.save, args=(2, {"w": VALUES}, Notes()), kwargs={"last": True}
    )
    last.start()
    last.join(0.2)
    assert last.is_alive()
    rank.copied.set()
    last.join()
    assert shard_path(rank.directory, 2, ONE, 0).exists()


def test_without_an_agent_nothing_is_waited_for(rank: Rank) -> None:
    checkpoints = rank.start()
    rank.line.lost = True
    for step in (1, 2, 3):
        assert checkpoints.save(step, {"w": VALUES}, Notes())
    assert shard_path(rank.tier, 3, ONE, 0).exists()


def test_what_is_restored_is_right_whatever_the_tier_holds(rank: Rank) -> None:
    manifest = rank.committed(3)
    copy = shard_path(rank.tier, 3, ONE, 0)
    for damaged in (False, True):
        if damaged:
            data = bytearray(copy.read_bytes())
            data[data.index(VALUES[1000:1050].tobytes())] ^= 1
            copy.write_bytes(data)
        checkpoints = rank.start(manifest)
        restored = checkpoints.restore(lambda: Needs(pieces={}))
        assert restored is not None
        assert np.array_equal(np.asarray(restored.state["w"]), VALUES)
        assert checkpoints.near is not damaged
    (told,) = rank.words
    assert told["type"] == "tier_failed"
    assert "its digest does not match" in str(told["reason"])
