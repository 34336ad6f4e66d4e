"""The fingerprints of every reason to stop, and of a lost batch host."""

from __future__ import annotations

import dataclasses

import pytest

from relight.launcher.clusters.slurm.parse import JobFacts, JobState
from relight.launcher.clusters.slurm.stop import AttemptStart, judge_stop
from relight.launcher.clusters.slurm.warden import batch_host_is_gone
from relight.resilience.supervise.cluster import StopCause, StopNotice

NOW = 1_000_000.0
START = AttemptStart(restarts=1, end_time=NOW + 3600, kill_wait_s=30, lead_s=60)
JOB = JobFacts(
    job_id="7",
    state=JobState.RUNNING,
    reason="None",
    restarts=1,
    requeue=True,
    end_time=NOW + 3600,
    preempt_time=None,
    time_limit="01:00:00",
    partition="low",
    nodes=("n1", "n2"),
    batch_host="n1",
    excluded=(),
    required=(),
)


def judge(
    job: JobFacts = JOB,
    *,
    signal_name: str = "SIGTERM",
    to_supervisor: bool = True,
    log: str = "",
    start: AttemptStart = START,
) -> StopNotice:
    return judge_stop(
        start, job, signal_name=signal_name, to_supervisor=to_supervisor, log=log, now=NOW
    )


def change(**values: object) -> JobFacts:
    return dataclasses.replace(JOB, **values)  # type: ignore[arg-type]


def due_to(cause: str) -> str:
    return f"slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-29T23:13:16 {cause}***\n"


def test_start_of_grace_moves_the_end() -> None:
    notice = judge(change(end_time=NOW + 20), to_supervisor=False)
    assert (notice.cause, notice.kill_at) == (StopCause.PREEMPTED, NOW + 20)


def test_start_of_grace_in_an_unlimited_job() -> None:
    notice = judge(change(end_time=NOW + 20), start=dataclasses.replace(START, end_time=None))
    assert notice.cause is StopCause.PREEMPTED


def test_preempt_time_says_it_all() -> None:
    """The grace may be longer than what is left, so that EndTime does not move."""
    notice = judge(change(preempt_time=NOW))
    assert (notice.cause, notice.kill_at) == (StopCause.PREEMPTED, NOW + 3600)


@pytest.mark.parametrize(("left_s", "cause"), [(100, "time limit"), (1000, "signalled")])
def test_warning_before_the_limit(left_s: float, cause: str) -> None:
    end = NOW + left_s
    notice = judge(
        change(end_time=end),
        signal_name="SIGUSR1",
        start=dataclasses.replace(START, end_time=end),
    )
    assert notice.cause == cause


def test_a_signal_to_a_rank_of_a_job_that_runs_on() -> None:
    notice = judge(to_supervisor=False)
    assert (notice.cause, notice.kill_at) == (StopCause.SIGNALLED, None)


@pytest.mark.parametrize(
    ("job", "log", "cause"),
    [
        (change(state=JobState.COMPLETING, reason="TimeLimit"), "", StopCause.TIME_LIMIT),
        (change(state=JobState.TIMEOUT), "", StopCause.TIME_LIMIT),
        (change(state=JobState.COMPLETING, restarts=2), "", StopCause.REQUEUED),
        (change(state=JobState.PENDING, restarts=2), "", StopCause.REQUEUED),
        (
            change(state=JobState.COMPLETING, restarts=2),
            due_to("DUE TO PREEMPTION "),
            StopCause.PREEMPTED,
        ),
        (change(state=JobState.PREEMPTED), "", StopCause.PREEMPTED),
        (change(state=JobState.COMPLETING), due_to("DUE TO PREEMPTION "), StopCause.PREEMPTED),
        (change(state=JobState.COMPLETING), due_to("DUE TO TIME LIMIT "), StopCause.TIME_LIMIT),
        (change(state=JobState.COMPLETING), due_to(""), StopCause.CANCELLED),
        (change(state=JobState.COMPLETING), "", StopCause.CANCELLED),
        (change(state=JobState.CANCELLED), "", StopCause.CANCELLED),
        (change(state=JobState.UNKNOWN), "", StopCause.UNKNOWN),
        (change(state=JobState.SUSPENDED), "", StopCause.UNKNOWN),
    ],
)
def test_while_processes_are_killed(job: JobFacts, log: str, cause: StopCause) -> None:
    notice = judge(job, log=log)
    assert (notice.cause, notice.kill_at) == (cause, NOW + 30)


@pytest.mark.parametrize("state", [JobState.COMPLETING, JobState.CANCELLED])
def test_a_cancel_of_one_component_is_no_preemption(state: JobState) -> None:
    """Slurm gives the end of that component, which is the first of any."""
    torn = change(end_time=NOW, others=(change(state=state, end_time=NOW),))
    notice = judge(torn, to_supervisor=False)
    assert (notice.cause, notice.kill_at) == (StopCause.CANCELLED, NOW + 30)


@pytest.mark.parametrize(
    ("job", "states", "gone"),
    [
        (JOB, {"n1": "allocated"}, False),
        (JOB, {}, False),
        (JOB, {"n1": "allocated*"}, False),
        (JOB, {"n1": "down*"}, True),
        (JOB, {"n1": "fail*"}, False),
        (JOB, {"n1": "failing"}, False),
        (change(nodes=("n2",)), {"n1": "idle"}, True),
        (change(nodes=()), {"n1": "idle"}, False),
        (change(state=JobState.COMPLETING, nodes=("n2",)), {"n1": "down"}, False),
    ],
)
def test_the_batch_host_is_gone_only_when_slurm_says_so(
    job: JobFacts, states: dict[str, str], gone: bool
) -> None:
    assert batch_host_is_gone(job, states) is gone


def test_without_a_signal_only_slurms_own_word_counts() -> None:
    """Its user may have shortened the time limit."""
    ask = "asked before ranks start"
    shorter = change(end_time=NOW + 20)
    assert judge(shorter, signal_name=ask).cause is StopCause.SIGNALLED
    unknown = dataclasses.replace(START, end_time=None)
    assert judge(shorter, signal_name=ask, start=unknown).cause is StopCause.SIGNALLED
    notice = judge(change(end_time=NOW + 20, preempt_time=NOW), signal_name=ask)
    assert (notice.cause, notice.kill_at) == (StopCause.PREEMPTED, NOW + 20)


def test_an_end_by_scancel_is_told_in_words() -> None:
    notice = judge(change(state=JobState.COMPLETING))
    assert notice.cause is StopCause.CANCELLED
    assert notice.evidence.startswith("scancel ended the job")


def test_a_requeue_names_the_node_that_srun_has_lost() -> None:
    requeued = change(restarts=START.restarts + 1)
    log = "srun: error: Node failure on n2\nsrun: error: Node failure on n2\n"
    assert judge(requeued, log=log).evidence.endswith(" after the failure of n2")
    assert judge(requeued).evidence == "Slurm has requeued the job (Restarts was 1 and is 2)"
