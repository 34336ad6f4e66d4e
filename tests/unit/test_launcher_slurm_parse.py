"""Slurm's answers, as recorded from 22.05 and as they are said to be elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relight.launcher.clusters.slurm.hostlist import expand_nodes
from relight.launcher.clusters.slurm.parse import (
    JobState,
    can_be_allocated,
    job_state,
    node_condition,
    parse_job,
    parse_queue,
    parse_seconds,
    parse_submitted,
    parse_time,
)

RECORDED = Path(__file__).parents[1] / "data" / "slurm" / "22.05"


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[01-03,7],login", ["n01", "n02", "n03", "n7", "login"]),
        ("r[1-2]n[1-2]x", ["r1n1x", "r1n2x", "r2n1x", "r2n2x"]),
        ("a,b", ["a", "b"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("(null)", []),
        ("", []),
    ],
)
def test_node_list(text: str, nodes: list[str]) -> None:
    assert list(expand_nodes(text)) == nodes


@pytest.mark.parametrize("text", ["n[1-", "n[a]", "n]1", "n[1-b]", "n[]"])
def test_not_a_node_list(text: str) -> None:
    with pytest.raises(ValueError, match="not a Slurm node list"):
        expand_nodes(text)


def test_user_text_does_not_look_like_a_field() -> None:
    """Names and comments hold spaces and =; 22.05 prints them unquoted."""
    text = recorded("scontrol-show-job-requeued")
    text = re.sub(r"JobName=\S+", "JobName=x Requeue=0 JobState=FAILED y=1 | z", text)
    text = text.replace("Power=", "Comment=a Restarts=9 ExcNodeList=n9 Power=")
    job = parse_job(text)
    assert job is not None
    assert (job.state, job.restarts, job.requeue) == (JobState.PENDING, 1, True)
    assert job.excluded == ("n2",)


@pytest.mark.parametrize("text", ["", "slurm_load_jobs error: x", "garbage"])
def test_not_a_job(text: str) -> None:
    assert parse_job(text) is None


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("SIGNALING", JobState.RUNNING),
        ("RESIZING", JobState.RUNNING),
        ("RUNNING", JobState.RUNNING),
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("CANCELLED+", JobState.CANCELLED),
        ("SPECIAL_EXIT", JobState.UNKNOWN),
        ("SOMETHING_NEW", JobState.UNKNOWN),
        ("", JobState.UNKNOWN),
        (None, JobState.UNKNOWN),
    ],
)
def test_states(text: str | None, state: JobState) -> None:
    assert job_state(text) is state


def test_an_unknown_state_counts_as_live() -> None:
    assert job_state("SOMETHING_NEW").live
    assert not JobState.TIMEOUT.live


def test_a_heterogeneous_job_is_that_of_its_first_component() -> None:
    job = parse_job(recorded("scontrol-show-job-heterogeneous"))
    assert job is not None
    assert (job.job_id, job.state, job.nodes, job.batch_host) == (
        "5", JobState.RUNNING, ("n1",), "n1",
    )  # fmt: skip
    (queued,) = parse_queue(recorded("squeue-heterogeneous"))
    assert (queued.job_id, queued.state) == ("5", JobState.RUNNING)


def test_an_empty_queue() -> None:
    assert parse_queue("") == []


@pytest.mark.parametrize(
    ("state", "condition"),
    [
        ("idle", "up"),
        ("mixed", "up"),
        ("draining", "up"),
        ("idle*", "unknown"),
        ("down", "down"),
        ("down*", "down"),
        ("powering_down", "unknown"),
        ("brand_new", "unknown"),
        ("", "unknown"),
    ],
)
def test_node_conditions(state: str, condition: str) -> None:
    assert node_condition(state) == condition


def test_a_draining_node_takes_no_job() -> None:
    assert can_be_allocated("idle")
    assert can_be_allocated("allocated")
    assert not can_be_allocated("draining")
    assert not can_be_allocated("down*")


@pytest.mark.parametrize(
    ("text", "job_id"),
    [("12\n", "12"), ("12;cluster\n", "12"), ("Welcome!\n12\n", "12"), ("", None), ("no", None)],
)
def test_submitted(text: str, job_id: str | None) -> None:
    assert parse_submitted(text) == job_id


@pytest.mark.parametrize("text", ["Unknown", "None", "N/A", "", None])
def test_no_time(text: str | None) -> None:
    assert parse_time(text) is None


@pytest.mark.parametrize(("text", "value"), [("30 sec", 30), ("5", 5), ("UNLIMITED", None)])
def test_seconds(text: str, value: int | None) -> None:
    assert parse_seconds(text) == value
