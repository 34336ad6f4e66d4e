"""What a job waits for, in words, and which jobs of the queue belong to a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from relight.errors import RelightError
from relight.launcher.clusters.slurm.parse import JobState, QueuedJob, parse_queue
from relight.launcher.presence import read_facts
from relight.launcher.queue import Queue, belonging
from relight.launcher.runs import StoredRun, submitted_job
from relight.launcher.status import Presence
from relight.launcher.stored_plan import StoredPlan
from relight.launcher.waiting import waits_for
from relight.resilience.config import RunConfig
from relight.resilience.run_folder import RunFolder

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("reason", "part"),
    [
        ("Resources", "once enough nodes are free (Resources)"),
        ("JobHeldUser", "relight release"),
        ("job requeued in held state", "relight release"),
        ("QOSMaxCpuPerUserLimit", "limit of its quality of service is reached (QOSMaxCpu"),
        ("AssocGrpGRES", "limit of its account"),
        ("ReqNodeNotAvail, UnavailableNodes:n3", "not available"),
        ("PartitionConfig", "does not start like this; cancel it"),
        ("OfALaterSlurm", "does not know (OfALaterSlurm)"),
    ],
)
def test_reasons(reason: str, part: str) -> None:
    assert part in (waits_for(QueuedJob("7", JobState.PENDING, reason), NOW, began=False) or "")


def test_a_job_that_has_run_was_requeued_and_does_not_wait_for_its_users_time() -> None:
    job = QueuedJob("7", JobState.PENDING, "BeginTime")
    first, again = (waits_for(job, NOW, began=began) or "" for began in (False, True))
    assert ("--begin" in first, "requeued" in first) == (True, False)
    assert ("--begin" in again, "requeued" in again) == (False, True)


def test_the_expected_start_is_told() -> None:
    job = QueuedJob("7", JobState.PENDING, "Priority", NOW + 5 * 86400)
    assert "expected start: 2027-01-2" in (waits_for(job, NOW, began=False) or "")


def test_a_job_that_runs_waits_for_nothing() -> None:
    assert waits_for(QueuedJob("7", JobState.RUNNING, "None"), NOW, began=False) is None


def test_one_question_for_ten_seconds() -> None:
    now, asked = [0.0], []

    def ask() -> Sequence[QueuedJob]:
        asked.append(now[0])
        if len(asked) == 2:
            raise RelightError("silence")
        return []

    queue = Queue(ask, lambda: now[0])
    assert [queue.answer().jobs, queue.answer().jobs] == [[], []]
    now[0] = 9.9
    assert queue.answer().jobs == []
    now[0] = 10.0
    assert queue.answer().jobs is None, "silence is no empty queue"
    assert queue.answer().jobs is None
    assert asked == [0.0, 10.0]


def test_an_answer_from_before_the_submission_does_not_know_of_the_job(
    run_config: RunConfig,
) -> None:
    run = stored(run_config, "7")
    sent = submitted_job(run.folder).stat().st_mtime
    before, after = Queue(list, lambda: sent - 3), Queue(list, lambda: sent + 3)
    assert read_facts(run, before, alone=False).presence is Presence.WAITING
    assert read_facts(run, after, alone=False).presence is Presence.ABSENT


def test_of_one_run_slurm_is_asked_once_in_ten_seconds() -> None:
    now = [0.0]
    queue = Queue(list, lambda: now[0])
    assert [queue.may_ask_of("a"), queue.may_ask_of("a"), queue.may_ask_of("b")] == [
        True, False, True,
    ]  # fmt: skip
    now[0] = 10.0
    assert queue.may_ask_of("a")


def stored(config: RunConfig, job_id: str) -> StoredRun:
    folder = RunFolder(config.run_dir)
    folder.root.mkdir()
    submitted_job(folder).write_text(job_id + "\n")
    plan = StoredPlan(cluster="slurm", config=config, submitted_by="me", created=0.0)
    return StoredRun(folder, plan)


def test_a_successor_belongs_to_its_run_by_its_script(run_config: RunConfig) -> None:
    run = stored(run_config, "7")
    script = run_config.run_dir / "job.sh"
    jobs = parse_queue(
        f"9|PENDING|Dependency|N/A|{script}\n"
        f"8|PENDING|Priority|2026-11-30T10:00:00|/other|{script}\n"
        "7|RUNNING|None|2026-11-30T09:00:00|/moved/job.sh\n"
    )
    assert [job.job_id for job in belonging(run, jobs)] == ["9", "7"]


@pytest.mark.parametrize(
    ("job_id", "listed", "mine"),
    [
        ("7", "7_3", True),
        ("7", "7_[4-9]", True),
        ("7_3", "7_3", True),
        ("7_3", "7_[1-2,5]", False),
        ("7_3", "7_[1-9:2]", True),
        ("7_4", "7_[1-9:2]", False),
        ("7", "71", False),
        ("7_3", "8_3", False),
    ],
)
def test_tasks_of_an_array(run_config: RunConfig, job_id: str, listed: str, mine: bool) -> None:
    run = stored(replace(run_config, program="script"), job_id)
    found = belonging(run, [QueuedJob(listed, JobState.PENDING, "None")])
    assert bool(found) is mine
    if mine and "_" in job_id:
        assert found[0].job_id == job_id, "never the others that wait with it"
