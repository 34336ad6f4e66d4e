"""What Slurm of several versions has really answered is understood alike."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

import pytest

from relight.launcher.clusters.slurm.client import is_no_answer
from relight.launcher.clusters.slurm.parse import (
    JobFacts,
    JobState,
    UserLimits,
    job_state,
    node_condition,
    parse_config,
    parse_job,
    parse_limits,
    parse_node_states,
    parse_partitions,
    parse_queue,
)
from relight.launcher.clusters.slurm.room import full_queue
from relight.launcher.site import site_of

RECORDED = Path(__file__).parents[1] / "data" / "slurm"
VERSIONS = [folder.name for folder in sorted(RECORDED.glob("2*"))]
ALL = ("n1", "n2", "n3")

pytestmark = pytest.mark.parametrize("version", VERSIONS)


def recorded(version: str, name: str) -> str:
    return (RECORDED / version / f"{name}.txt").read_text()


def job(version: str, name: str) -> JobFacts:
    found = parse_job(recorded(version, f"scontrol-show-job-{name}"))
    assert found is not None
    return found


def test_a_job_through_its_preemption(version: str) -> None:
    running, graced = job(version, "running"), job(version, "preempted-in-grace")
    for one in (running, graced):
        assert (one.state, one.nodes, one.batch_host) == (JobState.RUNNING, ALL, "n1")
        assert (one.reason, one.restarts, one.time_limit) == ("None", 0, "00:10:00")
        assert (one.partition, one.excluded, one.required) == ("low", (), ())
    assert running.preempt_time is None
    assert running.end_time is not None
    assert graced.end_time is not None
    assert graced.preempt_time is not None
    assert 0 < graced.end_time - graced.preempt_time <= 20, "the end has moved to that of the grace"


def test_a_requeued_job_with_an_exclusion(version: str) -> None:
    found = job(version, "requeued")
    assert (found.state, found.restarts, found.requeue) == (JobState.PENDING, 1, True)
    assert (found.excluded, found.nodes) == (("n2",), ())


def test_user_text_is_no_field(version: str) -> None:
    """SubmitLine (26.05) and Comment may hold anything; PreemptTime is not there while it waits."""
    text = recorded(version, "scontrol-show-job-requeued")
    text += " SubmitLine=sbatch --wrap PreemptTime=2020-01-01T00:00:00 BatchHost=n9 Comment=x"
    found = parse_job(text)
    assert found == job(version, "requeued")


def test_the_queue(version: str) -> None:
    array, running = parse_queue(recorded(version, "squeue-of-user"))
    assert (array.job_id.partition("_")[2], array.state) == ("[0-9]", JobState.PENDING)
    assert (array.reason, array.start_time) == ("JobHeldUser", None)
    assert running.state is JobState.RUNNING
    assert isinstance(running.start_time, float)
    assert datetime.fromtimestamp(running.start_time).year == 2026
    assert running.command.endswith("/home/job.sh")
    (graced,) = parse_queue(recorded(version, "squeue-in-grace"))
    assert graced.state is JobState.RUNNING


def test_what_a_user_may_have_and_the_refusal_of_more(version: str) -> None:
    limits = parse_limits(recorded(version, "sacctmgr-show-limits"))
    assert limits == [UserLimits("abc", "", running=1, queued=2)]
    refused = recorded(version, "sbatch-refused-submit-limit")
    assert full_queue(refused) == "AssocMaxSubmitJobLimit"
    assert not is_no_answer(refused)
    assert full_queue(recorded(version, "sbatch-refused-partition")) is None


def test_the_site(version: str) -> None:
    config = parse_config(recorded(version, "scontrol-show-config"))
    partitions = parse_partitions(recorded(version, "scontrol-show-partition"))
    site = site_of(config, partitions)
    assert site.version.startswith(version)
    assert site.job_requeue
    low, high = site.partitions
    assert (low.name, low.grace_s, low.preempt_mode, low.default) == ("low", 5, "REQUEUE", True)
    assert (high.preempt_mode, high.state) == ("OFF", "UP")
    states = parse_node_states(recorded(version, "sinfo-nodes"))
    assert set(ALL) <= set(states)
    assert {node_condition(state) for state in states.values()} == {"up"}


def test_accounting_tells_the_last_life_last(version: str) -> None:
    lives = recorded(version, "sacct-state-of-all-lives").splitlines()
    assert [job_state(line) for line in lives] == [JobState.PREEMPTED, JobState.CANCELLED]
    assert job_state(recorded(version, "sacct-state")) is JobState.CANCELLED


def test_refusals_are_no_silence(version: str) -> None:
    for name in ("partition", "array", "option"):
        assert not is_no_answer(recorded(version, f"sbatch-refused-{name}"))
    assert not is_no_answer(recorded(version, "scontrol-requeue-refused"))
    assert "Invalid job id" in recorded(version, "scontrol-no-such-job")


def test_a_word_of_a_later_slurm_is_unknown_and_said_once(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = recorded(version, "squeue-by-name").replace("RUNNING", f"LEVITATING{version}")
    with caplog.at_level(logging.WARNING):
        found = [job.state for _ in range(2) for job in parse_queue(text)]
        assert job_state("REQUEUE_HOLD") is JobState.UNKNOWN
    assert found == [JobState.UNKNOWN, JobState.UNKNOWN]
    assert len(caplog.records) == 1
    assert "LEVITATING" in caplog.text
