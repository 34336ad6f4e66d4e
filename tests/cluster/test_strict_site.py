"""The same promises on a site that cancels, does not requeue by default, and keeps no accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stage.run import Run, Spec, faulty, heat, lm, with_resources
from stage.site import Site
from stage.whole import assert_survived, whole

Program = Callable[..., Spec]
Undisturbed = Callable[[Site, Program], str]


@pytest.fixture
def site(strict: Site) -> Iterator[Site]:
    yield from whole(strict)


@pytest.mark.parametrize("mode", ["successor", "requeue"])
def test_preemption_in_cancel_mode(
    site: Site, mode: str, marker: Path, undisturbed: Undisturbed
) -> None:
    digest = undisturbed(site, heat)
    spec = heat(restart={"mode": mode})
    run = Run.submit(site, faulty(spec, "wait", marker=marker, step=15))
    run.wait_for_checkpoint(10)
    run.preempt_at(marker)
    run.wait_for("Finish")
    assert run.cause_of_end() == "preempted", run.story()
    assert_survived(run, digest)
    assert run.data_of("AllocationArranged")[0]["mode"] == mode


def test_preemption_in_cancel_mode_of_a_torch_program(
    site: Site, marker: Path, undisturbed: Undisturbed
) -> None:
    digest = undisturbed(site, lm)
    run = Run.submit(site, faulty(lm(), "wait", marker=marker, step=15))
    run.wait_for_checkpoint(10)
    run.preempt_at(marker)
    assert_survived(run, digest)
    assert run.cause_of_end() == "preempted", run.story()


def test_power_loss_of_a_host(site: Site, marker: Path, undisturbed: Undisturbed) -> None:
    digest = undisturbed(site, heat)
    run = Run.submit(site, faulty(heat(), "wait", marker=marker))
    run.wait_until_it_stands(marker)
    victim = next(node for node in run.nodes() if node != run.batch_node())
    site.node("kill", victim)
    try:
        assert_survived(run, digest)
        assert victim not in run.nodes()
    finally:
        site.node("start", victim)


def test_power_loss_of_the_batch_host(site: Site, marker: Path, undisturbed: Undisturbed) -> None:
    digest = undisturbed(site, heat)
    run = Run.submit(site, faulty(heat(), "wait", marker=marker))
    run.wait_until_it_stands(marker)
    victim = run.batch_node()
    site.node("kill", victim)
    try:
        assert_survived(run, digest)
        assert victim not in run.nodes()
    finally:
        site.node("start", victim)


def test_time_limit_several_times_over(site: Site, undisturbed: Undisturbed) -> None:
    """One minute is the shortest limit that Slurm knows; a part of it is kept for the save."""
    digests = {program: undisturbed(site, program) for program in (heat, lm)}
    specs = {
        heat: heat(step_time_s=0.55, checkpoint={"interval": "10 steps", "lead": "30s"}),
        # On a busy machine torch needs 25 s to start.
        lm: lm(step_time_s=1.4, checkpoint={"interval": "10 steps", "lead": "15s"}),
    }
    runs = {
        program: Run.submit(site, with_resources(spec, time="0:01:00"))
        for program, spec in specs.items()
    }
    for program, run in runs.items():
        assert_survived(run, digests[program], limit_s=400)
        causes = [data["cause"] for data in run.data_of("Finish")]
        assert len(causes) >= (3 if program is heat else 2), run.story()
        assert set(causes[:-1]) == {"time limit"}, run.story()
