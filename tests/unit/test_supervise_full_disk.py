"""A journal that cannot be written for a while: training goes on, and orders wait for it."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from relight.resilience.decide.actions import Action, Outcome
from relight.resilience.decide.causes import FaultCause, StopCause
from relight.resilience.decide.events import (
    AllocationArranged,
    AttemptStarted,
    Event,
    RankExited,
    RanksStarted,
    RanksStopped,
    StopRequested,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.replay import replay
from relight.resilience.decide.state import State
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.decisions import Decisions
from relight.resilience.supervise.journal import Entry, JournalWriter, read_journals
from relight.resilience.supervise.last_word import give_room, keep_room
from relight.resilience.worker.rank_log import RankLog

POLICY = Policy(nodes=2, tasks_per_node=1, preflight=False, outage_s=60.0)
BEGIN = AttemptStarted(
    attempt="7.0", job_id="7", restart_count=0, nodes=("n1", "n2"), batch_node="n1"
)
RUNNING = (BEGIN, RanksStarted(generation=1, nodes=("n1", "n2"), world_size=2))
CRASH = RankExited(generation=1, rank=0, node="n1", code=3)
STOPPED = RanksStopped(generation=1)


def preempted(in_s: float) -> StopRequested:
    kill_at = time.time() + in_s
    return StopRequested(cause=StopCause.PREEMPTED, kill_at=kill_at, evidence="preempted")


@dataclass
class Disk:
    """Refuses what is written, half of it having been taken."""

    error: int | None = None
    needs_the_reserve: Path | None = None
    written: list[bytes] = field(default_factory=list)

    def write(self, fd: int, content: bytes, really: object = os.write) -> int:
        if self.needs_the_reserve is not None and not self.needs_the_reserve.exists():
            self.error = None
        if self.error is None or len(content) < 2:
            assert callable(really)
            return int(really(fd, content))
        if not self.written or self.written[-1] != content:  # a short write, then the refusal
            half = content[: len(content) // 2]
            self.written.append(content[len(half) :])
            assert callable(really)
            return int(really(fd, half))
        raise OSError(self.error, os.strerror(self.error))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "write", disk.write)
    return disk


class Supervised:
    """Decisions of a run in a folder."""

    def __init__(self, root: Path) -> None:
        self.folder = RunFolder(root)
        keep_room(self.folder)
        journal = JournalWriter(self.folder.journal("7.0"))
        self.decisions = Decisions(State(), POLICY, journal, lambda: give_room(self.folder))

    def on(self, *events: Event) -> list[str]:
        return names(asyncio.run(self.decisions.on(events)))

    def agrees(self) -> bool:
        """What the journal says is what was decided, and replay comes to the same."""
        records = read_journals(self.folder.journals)
        events = [(r.time, r.name, r.data) for r in records if r.kind == "event"]
        return replay(events, POLICY) == self.decisions.state

    def orders(self) -> list[str]:
        records = read_journals(self.folder.journals)
        return [record.name for record in records if record.kind == "action"]


def names(orders: Sequence[Action]) -> list[str]:
    return [type(order).__name__ for order in orders]


@pytest.fixture
def run(tmp_path: Path, disk: Disk) -> Supervised:
    return Supervised(tmp_path)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_orders_wait_for_their_record_and_are_carried_out_once(
    run: Supervised, disk: Disk, error: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert run.on(*RUNNING) == ["StartRanks"]
    disk.error = error
    assert run.on(CRASH) == ["StopRanks"], "it only ends ranks"
    assert (run.on(STOPPED), run.on(), run.decisions.unwritten) == ([], [], True)
    assert run.orders() == ["StartRanks"], "no torn line, no record of what was refused"
    disk.error = None
    assert (run.on(), run.on(), run.decisions.unwritten) == (["StartRanks"], [], False)
    assert run.orders() == ["StartRanks", "StopRanks", "StartRanks"]
    assert run.agrees()
    told = [line for line in caplog.messages if line.startswith("the journal")]
    assert len(told) == 2
    assert ("cannot be written" in told[0], "is written again" in told[1]) == (True, True)


def test_a_stop_does_not_pass_the_start_that_it_means(run: Supervised, disk: Disk) -> None:
    disk.error = errno.ENOSPC
    assert run.on(BEGIN) == []
    assert run.on(preempted(600.0)) == []
    disk.error = None
    assert run.on() == ["StartRanks", "StopRanks"]


def test_a_preemption_saves_at_once_and_the_request_waits_for_its_record(
    run: Supervised, disk: Disk
) -> None:
    run.on(*RUNNING)
    give_room(run.folder)  # others have taken what was kept
    disk.error = errno.EDQUOT
    assert run.on(preempted(600.0)) == ["SaveAndStop"]
    assert run.on(STOPPED) == []
    disk.error = None
    assert run.on() == ["RequestAllocation"]
    arranged = AllocationArranged(mode="requeue", job_id="7")
    assert run.on(arranged) == ["Finish"]
    assert run.orders().count("RequestAllocation") == 1
    assert run.agrees()


def test_the_room_that_was_kept_is_for_the_end(run: Supervised, disk: Disk) -> None:
    run.on(*RUNNING)
    disk.error, disk.needs_the_reserve = errno.ENOSPC, run.folder.reserve
    assert run.on(CRASH) == ["StopRanks"]
    assert run.folder.reserve.exists(), "not while the job goes on"
    assert run.on(preempted(600.0)) == ["RequestAllocation"], "with its record"
    assert not run.folder.reserve.exists()
    assert run.agrees()


def test_no_request_is_sent_without_its_record_and_the_end_comes_before_the_kill(
    run: Supervised, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.on(*RUNNING)
    disk.error = errno.ENOSPC
    assert run.on(preempted(600.0)) == ["SaveAndStop"]
    assert run.on(STOPPED) == []
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 596.0)  # the kill is near
    (end,) = asyncio.run(run.decisions.on(()))
    assert getattr(end, "outcome", None) is Outcome.INTERRUPTED
    assert "RequestAllocation" not in run.orders()


def test_ranks_that_run_are_not_ended_and_others_are_after_the_limit(
    run: Supervised, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.on(*RUNNING)
    disk.error = errno.EDQUOT
    clock, ahead_s = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock() + ahead_s[0])
    run.on(CRASH, STOPPED)
    assert run.on() == []
    ahead_s[0] = POLICY.outage_s + 1.0
    (end,) = asyncio.run(run.decisions.on(()))
    assert getattr(end, "outcome", None) is Outcome.STOPPED
    assert getattr(end, "cause", None) is FaultCause.QUOTA
    assert "ask for a larger quota" in str(getattr(end, "reason", None))


def test_a_journal_goes_on_where_its_descriptor_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "1.jsonl"
    journal = JournalWriter(path)
    (dead,) = descriptors_of(path)

    def fails(fd: int, value: object, really: Callable[..., object]) -> object:
        if fd == dead:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return really(fd, value)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", partial(fails, really=os.write))
        patch.setattr(os, "ftruncate", partial(fails, really=os.ftruncate))
        assert journal.write([Entry(1.0, "event", "First", {})]) is not None
        assert journal.write([Entry(2.0, "event", "Second", {})]) is None
    journal.close()
    assert [record.name for record in read_journals(tmp_path)] == ["First", "Second"]


def test_a_line_of_an_agent_leaves_no_log_open(tmp_path: Path) -> None:
    log = RankLog(tmp_path / "rank-0.log")
    log.say("relight: cannot start nonsense\n")
    assert (tmp_path / "rank-0.log").read_text() == "relight: cannot start nonsense\n"
    assert descriptors_of(tmp_path / "rank-0.log") == []


def descriptors_of(path: Path) -> list[int]:
    """Those of this process."""
    found = [(int(fd.name), os.path.realpath(fd)) for fd in Path("/proc/self/fd").iterdir()]
    return [fd for fd, target in found if target == os.path.realpath(path)]
