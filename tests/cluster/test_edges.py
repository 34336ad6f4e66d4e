"""Bad moments: while setup runs, during the preflight, and a host that Slurm has given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stage.run import Run, Spec, heat
from stage.site import Site
from stage.whole import assert_survived, whole

Program = Callable[..., Spec]
Undisturbed = Callable[[Site, Program], str]


@pytest.fixture
def site(strict: Site) -> Iterator[Site]:
    yield from whole(strict)


def _slow_once(marker: Path) -> str:
    """A setup line that is still at it when the first attempt is disturbed."""
    return f"test -e {marker} || {{ touch {marker}; sleep 120; }}"


def _in_setup(site: Site, name: str) -> Run:
    marker = site.shared / f"{name}-has-begun"
    run = Run.submit(site, heat(name=name, setup=[_slow_once(marker)]))
    run.wait(marker.exists)
    return run


def test_preemption_during_setup(site: Site, undisturbed: Undisturbed) -> None:
    digest = undisturbed(site, heat)
    run = _in_setup(site, "preempted")
    site.preempt(seconds=1)
    assert_survived(run, digest)
    assert run.cause_of_end() == "preempted", run.story()


def test_cancel_during_setup(site: Site) -> None:
    run = _in_setup(site, "cancelled")
    site.user("scancel", run.job_id)
    assert run.finish()["state"] == "CANCELLED", run.story()


def test_the_batch_host_is_lost_during_setup(site: Site, undisturbed: Undisturbed) -> None:
    digest = undisturbed(site, heat)
    run = _in_setup(site, "lost")
    victim = site.user("squeue", "-h", "-j", run.job_id, "-o", "%B").strip()
    warden = run.root / "attempts" / f"{run.job_id}.0" / "warden.log"
    # srun, on the host that dies, makes the file before a warden is there to say anything.
    run.wait(lambda: warden.exists() and warden.read_text() != "")
    site.node("kill", victim)
    try:
        assert_survived(run, digest)
        assert victim not in run.nodes()
    finally:
        site.node("start", victim)


def test_preemption_during_the_preflight(site: Site, undisturbed: Undisturbed) -> None:
    """The notice reaches the steps only: it ends the checks, and no rank is started after it."""
    digest = undisturbed(site, heat)
    begun = site.shared / "preflight-has-begun"
    check = {"site_command": f"test -e {begun} || {{ touch {begun}; sleep 60; }}"}
    run = Run.submit(site, heat(health=check))
    run.wait(begun.exists)
    site.preempt(seconds=1)
    assert_survived(run, digest)
    assert run.cause_of_end() == "preempted", run.story()
    assert len(run.data_of("RanksStarted")) == 1, run.story()


def test_scancel_of_a_successor_that_waits(site: Site) -> None:
    run = Run.submit(site, heat(steps=2000))
    run.wait_for_checkpoint(10)
    site.preempt(seconds=600)  # the successor has to wait
    run.wait_for("Finish")
    successor = str(run.data_of("AllocationArranged")[0]["job_id"])
    run.wait(lambda: "PENDING" in site.user("squeue", "-h", "-j", successor, "-o", "%T"))
    site.user("scancel", successor)
    run.wait(lambda: run.status()["state"] == "CANCELLED")
