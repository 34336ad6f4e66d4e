"""What is shown of saves and restores that go on: of all ranks, with the slowest of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace

import pytest

from relight.launcher.transfers import json_lines, plain_lines, sentence, transfer_of
from relight.resilience.messages import Message
from relight.resilience.supervise.transfers import Transfer, Transfers
from relight.storage.layout import Incarnation, shard_file
from relight.storage.receipt import Receipt

GB = 10**9
NODES = {0: "n1", 1: "n1", 2: "n2", 3: "n2"}
ONE = Incarnation("7.0", 1)


def moving(what: str, step: int, done_bytes: int, seconds: float) -> Message:
    about = {"what": what, "step": step, "total_bytes": 2 * GB}
    return {
        "type": "beat",
        "step": step,
        "moving": {**about, "done_bytes": done_bytes, "seconds": seconds},
    }


def receipt(step: int, rank: int) -> Receipt:
    return Receipt(
        step=step,
        rank=rank,
        world_size=4,
        incarnation=ONE,
        file=shard_file(ONE, rank),
        size_bytes=2 * GB,
        digest="0" * 32,
        payload_bytes=2 * GB,
        seconds=1.0,
        index_at=0,
        index_bytes=0,
        digests_at=0,
        digests_bytes=0,
    )


def told(transfers: Transfers, now: float, places: Mapping[int, str] = NODES) -> str | None:
    found = transfers.look(now, places)
    return None if found is None else sentence(found)


def test_a_save_is_the_sum_of_its_ranks_and_as_slow_as_the_slowest() -> None:
    transfers = Transfers()
    assert told(transfers, 100.0) is None
    for rank, done_bytes in enumerate((1 * GB, 1 * GB, GB // 5, 1 * GB)):
        transfers.on_word(rank, moving("save", 400, done_bytes, 2.0), 100.0)
    assert told(transfers, 100.0) == (
        "saving step 400: 3.2 of 8.0 GB, 1.6 GB/s, 18 s left, slowest rank 2 (n2)"
    )
    # Nothing is heard for a while: nothing is done.
    assert "800 MB/s, 36 s left, slowest rank 2" in str(told(transfers, 102.0))
    for rank in (0, 1, 3):
        transfers.saved(receipt(400, rank), 102.0, durable=True)
    transfers.on_word(2, moving("save", 400, 2 * GB, 8.0), 106.0)
    assert told(transfers, 106.0) == (
        "saving step 400: 8.0 of 8.0 GB, 1 GB/s, flushing, 3 of 4 ranks done, slowest rank 2 (n2)"
    )
    transfers.saved(receipt(400, 2), 107.0, durable=True)
    assert told(transfers, 107.0) is None


def test_ranks_that_fail_or_are_gone_are_not_waited_for() -> None:
    transfers = Transfers()
    for rank in (0, 1):
        transfers.on_word(rank, moving("save", 400, GB, 2.0), 100.0)
    transfers.on_word(0, {"type": "save_failed", "step": 400, "reason": "full"}, 100.0)
    assert told(transfers, 100.0) == "saving step 400: 1.0 of 2.0 GB, 500 MB/s, 2 s left"
    assert told(transfers, 100.0, places={0: "n1"}) is None
    transfers.begin()
    assert told(transfers, 100.0) is None


def test_a_restore_lasts_until_the_rank_begins() -> None:
    transfers = Transfers()
    transfers.on_word(0, moving("restore", 40, 0, 3.0), 100.0)
    assert told(transfers, 100.0) == "restoring step 40: 0.0 of 2.0 GB, 3 s so far"
    transfers.on_word(0, {"type": "restored", "step": 40}, 101.0)
    assert told(transfers, 101.0) is None


def test_what_lies_in_tiers_is_being_copied_until_it_is_durable() -> None:
    transfers = Transfers()
    for rank in NODES:
        transfers.saved(receipt(40, rank), 100.0, durable=False)
    assert told(transfers, 100.5) is None, "it may not take long"
    transfers.saved(receipt(40, 0), 102.0, durable=True)
    assert told(transfers, 104.0) == (
        "copying step 40 to the checkpoint directory: 2.0 of 8.0 GB, 500 MB/s, "
        "1 of 4 ranks done, slowest rank 1 (n1)"
    )
    transfers.on_word(3, moving("save", 50, GB, 2.0), 104.0)
    assert "saving step 50" in str(told(transfers, 104.0)), "what holds the ranks comes first"
    for rank in (1, 2, 3):
        transfers.saved(receipt(40, rank), 105.0, durable=True)
    assert "saving step 50" in str(told(transfers, 105.0)), "the end of a copy is not that of it"
    assert told(transfers, 105.0, places={}) is None


GOING = Transfer(
    what="save",
    step=4,
    done_bytes=GB,
    total_bytes=2 * GB,
    seconds=12.0,
    bytes_per_s=GB / 12,
    left_s=12.0,
    ranks=1,
    ranks_done=0,
    slowest_rank=None,
    slowest_node=None,
)


def test_a_log_has_a_line_of_long_ones_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    transfer: list[Transfer] = []

    def live() -> Mapping[str, object]:
        return {"time": now[0], "attempt": "7.0", "transfer": asdict(transfer[-1])}

    plain, as_json = plain_lines(live), json_lines(live)
    lines, records = [], []
    for second in range(31):
        now[0] = 1000.0 + second
        transfer.append(replace(GOING, seconds=float(second)))
        lines.append(plain.look())
        records.append(as_json.look())
    assert [second for second, line in enumerate(lines) if line] == [10, 20, 30]
    assert str(lines[10]).endswith("saving step 4: 1.0 of 2.0 GB, 83.3 MB/s, 12 s left")
    assert [second for second, record in enumerate(records) if record] == list(range(1, 31))
    assert '"name": "Transfer", "data": {"what": "save"' in str(records[2])


def test_what_another_version_or_another_attempt_has_left_is_not_shown() -> None:
    live = {"time": 5.0, "transfer": asdict(GOING)}
    assert transfer_of(live) == GOING
    assert transfer_of(live, since=6.0) is None
    assert transfer_of({**live, "transfer": {"what": "save"}}) is None
    assert transfer_of({**live, "transfer": None}) is None
    assert transfer_of({}) is None
