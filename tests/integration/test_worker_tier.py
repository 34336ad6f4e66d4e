"""A rank with a tier: where its saves go, and what it restores when a copy there is damaged."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from stage.faulty_disk import Disk, faulty_disk

from relight.answer import given
from relight.errors import RelightError
from relight.resilience.messages import Message
from relight.resilience.worker.checkpoints import SupervisedCheckpoints
from relight.resilience.worker.drains import Drains
from relight.resilience.worker.environment import read_environment
from relight.resilience.worker.line import Line
from relight.resilience.worker.transfer import Transfer
from relight.resilience.worker.world import World
from relight.storage import drain as drain_module
from relight.storage.choose import newest_valid
from relight.storage.commit import claim_epoch, commit
from relight.storage.depot import listening_socket, take
from relight.storage.drain import drain
from relight.storage.layout import Incarnation, incarnation_dir, manifest_path, shard_path
from relight.storage.manifest import Manifest
from relight.storage.needs import Needs
from relight.storage.notes import Notes
from relight.storage.partner_line import PartnerLine
from relight.storage.receipt import Receipt
from relight.storage.send import send
from relight.storage.tier_folder import tier_folder

ONE = Incarnation("1.0", 1)
VALUES = np.arange(50_000)


class Moved(Transfer):
    """What was counted to its last byte."""

    def __init__(self) -> None:
        super().__init__()
        self.whole: list[tuple[str, int]] = []

    @contextmanager
    def shown(self, what: str, step: int, total_bytes: int) -> Iterator[Callable[[int], None]]:
        with super().shown(what, step, total_bytes) as advance:
            yield advance
            assert self._moving is not None
            if self._moving._done_bytes == total_bytes:
                self.whole.append((what, step))


class Rank:
    """A rank of a supervised run, and what it says to its agent."""

    def __init__(self, place: Path, tier: Path | None = None) -> None:
        self.directory = place / "checkpoints"
        self.tier = tier_folder(tier or place, "run", "n1")
        self.words: list[Message] = []
        self.directory.mkdir()
        self.epoch = claim_epoch(self.directory, ONE)
        self.line = Line.__new__(Line)  # without an agent to connect to
        self.line.lost = False
        self.line.copied = self.copied = threading.Event()
        self.line.transfer = self.moved = Moved()
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

    def said(self) -> list[object]:
        """What it has told since the last time."""
        kinds = [word["type"] for word in self.words]
        self.words.clear()
        return kinds

    def committed(self, step: int) -> str:
        assert self.start().save(step, {"w": VALUES}, Notes())
        assert self.moved.whole[-1] == ("save", step)
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
        assert rank.moved.whole[-1] == ("restore", 3), "as it was told while it went on"
    (told,) = rank.words
    assert told["type"] == "tier_failed"
    assert "its digest does not match" in str(told["reason"])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    (tmp_path / "fuse").mkdir()
    with faulty_disk(tmp_path / "fuse", late=False) as found:
        if found is None:
            pytest.skip("/dev/fuse does not work here")
        yield found


def test_a_tier_whose_disk_fails_costs_no_checkpoint_and_no_value(
    disk: Disk, tmp_path: Path
) -> None:
    rank = Rank(tmp_path, disk.root)
    faults = [("MKDIR", 0), ("STATFS", 0), ("CREATE", 0), ("WRITE", 0), ("WRITE", 3), ("FSYNC", 0)]
    for step, (call, after) in enumerate(faults, 1):
        disk.fail(call, errno.EIO, after)
        assert rank.start().save(step, {"w": VALUES}, Notes()), call
        disk.mend()
        assert rank.said() == ["tier_failed", "saved"], call
        assert shard_path(rank.directory, step, ONE, 0).exists(), call
    manifest = rank.committed(10)

    def fails_while_it_is_read(step: int) -> Receipt:
        assert rank.start().save(step, {"w": VALUES}, Notes())
        rank.copied.set()
        disk.drop_caches()
        disk.fail("READ", errno.EIO, after=2)
        return Receipt.from_json(str(rank.words.pop()["receipt"]))

    receipt = fails_while_it_is_read(11)
    with pytest.raises(OSError, match="Input/output error"):
        drain(rank.tier, rank.directory, receipt)
    disk.mend()
    assert list(incarnation_dir(rank.directory, 11, ONE).iterdir()) == []

    receipt = fails_while_it_is_read(12)
    partner = tier_folder(tmp_path, "run", "n2")
    with listening_socket() as server, ThreadPoolExecutor(1) as pool:
        server.settimeout(10)
        address = "127.0.0.1", server.getsockname()[1]
        sent = pool.submit(send, rank.tier, 12, ONE, 0, address, b"key")
        with server.accept()[0] as connection, pytest.raises((OSError, RelightError)):
            take(PartnerLine(connection, b"key", caller=False, within_s=10), partner, 10**7)
        assert isinstance(sent.exception(), OSError)
    disk.mend()
    assert [path for path in partner.rglob("*") if path.is_file()] == []

    disk.drop_caches()
    disk.fail("READ", errno.EIO, after=1)
    checkpoints = rank.start(manifest)
    restored = checkpoints.restore(lambda: Needs(pieces={}))
    disk.mend()
    assert restored is not None
    assert np.array_equal(np.asarray(restored.state["w"]), VALUES)
    assert (checkpoints.near, rank.said()) == (False, ["tier_failed"])


def test_a_node_that_cannot_compress_saves_as_it_is_and_says_what_it_cannot_read(
    rank: Rank, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Here:
        """What the process that copies does, without another one."""

        pid = 0

        def __init__(self, module: str, arguments: list[str]) -> None:
            monkeypatch.setattr("sys.argv", [module, *arguments])
            drain_module.main()
            self._answer = json.loads(given(capsys.readouterr().out.encode()) or "")

        def look(self) -> object:
            return self._answer

    monkeypatch.setattr("relight.storage.drain.end_with_parent", lambda: None)
    monkeypatch.setattr("os.nice", lambda _: 0)
    monkeypatch.setattr("relight.resilience.worker.drains.Errand", Here)
    drains = Drains(set())
    drains.obey({"RELIGHT_CHECKPOINT_COMPRESS": "1"})

    def copied(step: int) -> Manifest:
        assert rank.start().save(step, {"w": VALUES + step}, Notes())
        drains.add(1, rank.words.pop())
        assert drains.look() is None
        _, word = drains.look() or (0, {})
        rank.copied.set()
        receipt = Receipt.from_json(str(word["receipt"]))
        return commit(rank.directory, step, ONE, rank.epoch, [receipt], {})

    compressed = copied(1)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert copied(2).receipts[0].copied_from is None
    assert "as it is: Compressed checkpoints need" in capsys.readouterr().err
    assert copied(3) == newest_valid(rank.directory)
    assert capsys.readouterr().err == "", "that is told once"
    assert compressed.receipts[0].copied_from is not None
    checkpoints = rank.start(str(manifest_path(rank.directory, 1)))
    with pytest.raises(SystemExit):
        checkpoints.restore(lambda: Needs(pieces={}))
    (word,) = rank.words
    assert (word["type"], word["step"]) == ("restore_failed", 1)
    assert "pip install 'relight[compress]'" in str(word["reason"])
