"""The small rules of supervision: agreement on a step, deadlines, the world of a generation."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.launcher.rank_logs import rank_logs
from relight.launcher.runs import job_ids
from relight.resilience.config import ConfigDamaged, RunConfig
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.common_step import CommonStep
from relight.resilience.supervise.deadline import Deadline
from relight.resilience.supervise.journal import Entry, JournalTaken, JournalWriter, read_journals
from relight.resilience.supervise.rendezvous import Rendezvous
from relight.resilience.supervise.standing import VerdictDamaged, read_verdict, write_verdict


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 1000), min_size=1))
def test_every_rank_can_still_reach_the_agreed_step_and_none_is_past_it(
    steps_done: dict[int, int],
) -> None:
    agreement = CommonStep(1, frozenset(steps_done))
    for rank, done in steps_done.items():
        agreement.answer(rank, done)
    assert agreement.step is not None
    assert all(done < agreement.step for done in steps_done.values())
    furthest = max(done + 1 for done in steps_done.values())  # the promise: not past d + 1
    assert agreement.step >= furthest


def test_no_step_is_agreed_while_a_rank_is_silent() -> None:
    agreement = CommonStep(1, frozenset({0, 1}))
    assert agreement.answer(0, 7) is None
    assert agreement.answer(5, 9) is None, "a rank that was not asked has no say"
    assert agreement.missing == (1,)
    assert agreement.answer(1, 6) == 8


def test_the_ranks_do_not_get_the_time_that_the_commit_needs() -> None:
    deadline = Deadline(130.0, None)
    assert deadline.left_s(100.0) == 28.0
    assert deadline.left_s(129.0) == 0.75
    assert deadline.left_s(140.0) == 0.0
    assert deadline.answer_limit_s(100.0) == 14.0


def test_ranks_are_numbered_node_by_node(run_config: RunConfig) -> None:
    config = replace(run_config, nodes=2, tasks_per_node=2, env={"COLOUR": "blue"})
    rendezvous = Rendezvous(
        attempt="7.0",
        generation=3,
        nodes=("a", "b"),
        master_address="a",
        master_port=1234,
        restore=None,
    )
    env = rendezvous.environment(config, task=3)
    wanted = {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "1",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "1234",
        "RELIGHT_GENERATION": "3",
        "RELIGHT_WORLD_SIZE": "4",
        "RELIGHT_RESTORE": "",
        "COLOUR": "blue",
    }
    assert {name: env[name] for name in wanted} == wanted


def test_the_configuration_survives_its_file(run_config: RunConfig) -> None:
    assert RunConfig.from_json(run_config.to_json()) == run_config


@pytest.mark.parametrize("key", ["command", "checkpoint", "run_dir"])
def test_a_damaged_configuration_is_refused(run_config: RunConfig, key: str) -> None:
    stored = run_config.to_json()
    del stored[key]
    with pytest.raises(ConfigDamaged, match=key):
        RunConfig.from_json(stored)


def test_a_journal_has_one_writer_and_a_torn_line_ends_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    writer = JournalWriter(folder.journal("7.0"))
    writer.write([Entry(1.0, "event", "RanksStopped", {"generation": 1})])
    with pytest.raises(JournalTaken):
        JournalWriter(folder.journal("7.0"))
    writer.write([Entry(2.0, "event", "RanksStopped", {"generation": 2})])
    writer.close()
    with folder.journal("7.0").open("ab") as file:
        file.write(b'{"time": 3.0, "kind": "ev')
    assert [record.data["generation"] for record in read_journals(folder.journals)] == [1, 2]
    again = JournalWriter(folder.journal("7.0"), go_on=True)
    again.write([Entry(4.0, "event", "RanksStopped", {"generation": 3})])
    again.close()
    assert [record.data["generation"] for record in read_journals(folder.journals)] == [1, 2, 3]


def test_attempts_are_in_their_order_though_a_clock_was_ahead(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    attempts = [f"7.{number}" for number in range(11)] + ["5.0"]  # ids of jobs can begin anew
    for number, attempt in enumerate(attempts):
        time_s = 9e9 if number == 0 else float(100 - number)
        writer = JournalWriter(folder.journal(attempt))
        if number > 0:  # the first one's supervisor was killed before it could write
            writer.write([Entry(time_s, "event", "AttemptStarted", {})])
        writer.close()
        if number == 0:
            writer = JournalWriter(folder.journal(attempt), go_on=True)
            writer.write([Entry(time_s, "event", "AttemptStarted", {})])
            writer.close()
        log = folder.rank_log(attempt, 1, 0)
        log.parent.mkdir(parents=True)
        log.touch()
    again = JournalWriter(folder.journal("7.1"), go_on=True)
    again.write([Entry(9e9, "event", "AttemptStarted", {})])
    again.close()
    read = [record.attempt for record in read_journals(folder.journals)]
    assert list(dict.fromkeys(read)) == attempts
    assert [log.attempt for log in rank_logs(folder)] == attempts
    assert job_ids(folder) == ["7", "5"]


def test_journals_of_an_older_relight_come_first_by_their_times(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.journals.mkdir()
    for attempt, time_s in (("7.1", 2.0), ("7.0", 1.0)):
        line = {"time": time_s, "kind": "event", "name": "AttemptStarted", "data": {}}
        folder.journal(attempt).write_text(json.dumps(line) + "\n")
    writer = JournalWriter(folder.journal("7.2"))
    writer.write([Entry(0.5, "event", "AttemptStarted", {})])
    writer.close()
    assert [record.attempt for record in read_journals(folder.journals)] == ["7.0", "7.1", "7.2"]


def test_the_verdict_is_read_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert read_verdict(folder) is None
    order = Finish(
        outcome=Outcome.FAILED, exit_code=1, cause="exited", reason="code 3", tail=("last words",)
    )
    write_verdict(folder, order, now=5.0)
    verdict = read_verdict(folder)
    assert verdict is not None
    assert (verdict.state, verdict.exit_code, verdict.tail) == ("FAILED", 1, ("last words",))


@pytest.mark.parametrize("content", ["", '{"state": "FAI', "{}", "[]", "null"])
def test_a_damaged_verdict_is_named(tmp_path: Path, content: str) -> None:
    folder = RunFolder(tmp_path)
    folder.verdict.write_text(content)
    with pytest.raises(VerdictDamaged, match=f"{folder.verdict} is damaged"):
        read_verdict(folder)


def test_a_full_disk_costs_the_journal_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = RunFolder(tmp_path).journal("7.0")
    writer = JournalWriter(path)
    writer.write([Entry(1.0, "event", "RanksStopped", {"generation": 1})])
    write, full = os.write, True

    def write_half(fd: int, content: bytes) -> int:
        return write(fd, content[: len(content) // 2] if full else content)

    monkeypatch.setattr(os, "write", write_half)
    writer.write([Entry(2.0, "event", "RanksStopped", {"generation": 2})])
    assert len(read_journals(path.parent)) == 1
    full = False
    writer.write([Entry(3.0, "event", "RanksStopped", {"generation": 3})])
    writer.close()
    assert [record.data["generation"] for record in read_journals(path.parent)] == [1, 2, 3]
