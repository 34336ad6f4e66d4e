"""A job that is requeued: what is still told of it, and for how long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from relight.launcher.clusters.slurm import restart as module
from relight.launcher.clusters.slurm.client import SlurmClient, SlurmRefused
from relight.launcher.clusters.slurm.parse import parse_job
from relight.launcher.clusters.slurm.restart import Rearrangement
from relight.launcher.clusters.slurm.size import Size
from relight.resilience.supervise.cluster import Restart

DATA = Path(__file__).parents[1] / "data" / "slurm" / "22.05"
RUNNING = (DATA / "scontrol-show-job-running.txt").read_text()
KILL_WAIT_S = 30.0  # a requeue kills the batch script that asked for it


def refuse(*_: object) -> None:
    raise SlurmRefused(("scontrol", "update"), "Access/permission denied")


@pytest.mark.parametrize("components", [(), (1, 1)])
def test_a_site_that_refuses_everything_is_given_up_before_the_job_is_killed(
    monkeypatch: pytest.MonkeyPatch, components: tuple[int, ...]
) -> None:
    now_s = 0.0

    def sleep(pause_s: float) -> None:
        nonlocal now_s
        now_s += pause_s

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    text = RUNNING.replace("JobState=RUNNING", "JobState=COMPLETING")
    job = parse_job(text)
    assert job is not None
    job = replace(job, others=(job,) if components else ())
    client = SimpleNamespace(
        job=lambda _: job,
        requeue=lambda *_, held: None,
        update=refuse,
        resize=refuse,
        nodes_of_partition=lambda _: {f"n{number}": "idle" for number in range(1, 7)},
    )
    arranging = Rearrangement(
        client=cast(SlurmClient, client),
        job_id="7",
        restart_count=0,
        run_id="lm",
        script=Path("job.sh"),
        nodes_needed=2,
        size=Size(least=2, most=3, cpus=2),
        of_components=components,
    )
    assert arranging.arrange(["n1"], "requeue") == Restart("requeue", "7")
    assert now_s < KILL_WAIT_S
