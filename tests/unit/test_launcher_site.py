"""What a site's Slurm means for a job that is submitted to it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from relight.launcher.clusters.slurm.parse import parse_partitions
from relight.launcher.former_runs import FormerRuns, former_runs
from relight.launcher.site import (
    components_warnings,
    preemption_warning,
    site_of,
    size_warnings,
)
from relight.launcher.spec import Component, NodeRange, Resources
from relight.resilience.run_folder import RunFolder
from relight.storage.checkpointer import save_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.layout import Incarnation

PARTITIONS = Path(__file__).parents[1] / "data/slurm/22.05/scontrol-show-partition.txt"
SITE = site_of({"KillWait": "10 sec"}, parse_partitions(PARTITIONS.read_text()))


@pytest.mark.parametrize(
    ("former", "said"),
    [
        (FormerRuns(), "15 s (GraceTime 5 s, KillWait 10 s): no save of this job was measured yet"),
        (FormerRuns(any=True), ""),
        (FormerRuns(any=True, save_s=0.2), ""),
        (FormerRuns(any=True, save_s=40.0), "a save of this job took 40 s before"),
    ],
)
def test_a_short_notice_is_said_once_or_with_a_measured_save(former: FormerRuns, said: str) -> None:
    warning = preemption_warning(SITE, None, lambda: former)
    assert (warning is None) is (said == "")
    assert said in (warning or "")
    for elsewhere in ("high", "nowhere"):
        assert preemption_warning(SITE, elsewhere, nobody_asks) is None


def nobody_asks() -> FormerRuns:
    raise AssertionError("nothing is known here that could be wanted")


def test_a_long_notice_is_no_news_unless_a_save_took_longer() -> None:
    site = site_of({"KillWait": "300 sec"}, parse_partitions(PARTITIONS.read_text()))
    assert preemption_warning(site, None, FormerRuns) is None
    long = FormerRuns(any=True, save_s=400.0)
    assert preemption_warning(site, None, lambda: long) is not None


def test_a_job_that_its_partition_is_too_small_for() -> None:
    assert size_warnings(SITE, Resources(nodes=2, spares=1)) == []
    assert size_warnings(SITE, Resources(nodes=NodeRange(min=3, max=99))) == []
    (warning,) = size_warnings(SITE, Resources(nodes=99, spares=1))
    assert warning is not None
    assert "needs 100 nodes, 1 of them spare, and partition low has 3 in all" in warning


@pytest.mark.parametrize("word", ["disable_hetjob_steps", "Disable_Hetero_Steps"])
def test_components_that_no_step_may_be_over(word: str) -> None:
    two = Resources(components=[Component(name="a"), Component(name="b")])
    forbids = site_of({"SchedulerParameters": f"bf_interval=2,{word}"}, [])
    (warning,) = components_warnings(forbids, two)
    assert "does not start" in warning
    assert components_warnings(forbids, Resources()) == []
    assert components_warnings(SITE, two) == []


def test_the_longest_save_of_the_newest_run_that_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path))
    nowhere = tmp_path / "nowhere"
    assert former_runs("a", "a-3", nowhere) == FormerRuns()
    for run_id, seconds in (("a-1", [2.0, 9.0]), ("a-2", []), ("a-b-1", [50.0]), ("a-3", [70.0])):
        folder = RunFolder(tmp_path / "runs" / run_id)
        folder.journals.mkdir(parents=True)
        folder.journal("1.0").write_text(
            "".join(
                json.dumps({"time": 0, "kind": "event", "name": name, "data": {"seconds": one}})
                + "\n"
                for one in seconds
                for name in ("CheckpointCommitted", "SaveFailed")
            )
        )
    assert former_runs("a", "a-3", nowhere) == FormerRuns(any=True, save_s=9.0)


def test_the_newest_checkpoint_of_the_directory_tells_more_than_any_run(tmp_path: Path) -> None:
    one = Incarnation("1.0", 0)
    for step, seconds in ((1, 90.0), (2, 40.0)):
        receipt = replace(save_shard(tmp_path, step, one, 0, 1, {}), seconds=seconds)
        commit(tmp_path, step, one, claim_epoch(tmp_path, one), [receipt], {})
    former = former_runs("another", "another-1", tmp_path)
    assert former == FormerRuns(any=True, save_s=40.0)
    warning = preemption_warning(SITE, None, lambda: former)
    assert warning is not None
    assert "gives a preempted job 15 s" in warning
    assert "took 40 s before" in warning
