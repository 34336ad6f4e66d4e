"""Whatever happens to it, a run ends COMPLETED with the digest of an undisturbed one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stage.run import Run, Spec, faulty, gated, heat, lm, with_resources
from stage.site import Site
from stage.whole import assert_survived, whole

Program = Callable[..., Spec]
Undisturbed = Callable[[Site, Program], str]
PROGRAMS = pytest.mark.parametrize("program", [heat, lm], ids=["heat", "lm"])


@pytest.fixture
def site(generous: Site) -> Iterator[Site]:
    yield from whole(generous)


@PROGRAMS
def test_sigkill_of_one_rank(
    site: Site, program: Program, marker: Path, undisturbed: Undisturbed
) -> None:
    run = Run.submit(site, faulty(program(), "wait", marker=marker))
    run.wait_until_it_stands(marker)
    run.kill_rank(1)
    assert_survived(run, undisturbed(site, program))
    assert len(run.data_of("AttemptStarted")) == 1, "a restart in place keeps the allocation"
    assert len(run.data_of("RanksStarted")) == 2
    assert "killed (rule killed): rank 1" in run.reasons("StartRanks")[1], run.story()


def test_sigkill_of_the_supervisor(site: Site) -> None:
    gates = site.shared / "orphaned"
    site.user("sh", "-c", f"mkdir {gates} && touch {gates}/gate-15")
    spec = gated({"interval": "10 steps"}, gates)
    run = Run.submit(site, {**spec, "health": {"during": "1s"}})
    run.wait_for_checkpoint(20)

    def steps() -> set[str]:
        found = site.user("squeue", "-hs", "-j", run.job_id, "-o", "%i %j").splitlines()
        return {step for step in found if step.endswith((" ranks", " watch"))}

    run.wait(lambda: len(steps()) == 2)
    first = steps()
    run.kill_supervisor()
    run.wait(lambda: len(run.data_of("RanksStarted")) == 2 and not first & steps())
    assert run.data_of("Finish") == [], "its steps end with it, before the job does"
    site.user("touch", f"{gates}/gate-25")
    assert_survived(run, str(sum(range(40))))
    assert [data["attempt"] for data in run.data_of("AttemptStarted")] == 2 * [f"{run.job_id}.0"]
    assert len(run.data_of("StartRanks")) == 2, run.story()
    assert run.data_of("ExcludeNode") == run.data_of("RequestAllocation") == [], run.story()


@pytest.mark.parametrize(
    ("program", "mode"), [(heat, "successor"), (heat, "requeue"), (lm, "successor")]
)
def test_preemption(
    site: Site, program: Program, mode: str, marker: Path, undisturbed: Undisturbed
) -> None:
    digest = undisturbed(site, program)
    spec = program(restart={"mode": mode})
    run = Run.submit(site, faulty(spec, "wait", marker=marker, step=15))
    run.wait_for_checkpoint(10)
    high = run.preempt_at(marker)
    run.wait_for("Finish")
    assert run.cause_of_end() == "preempted", run.story()
    assert run.data_of("AllocationArranged")[0]["mode"] == mode
    assert_survived(run, digest)
    assert "high" in site.user("sacct", "-X", "-n", "-P", "-j", high, "-o", "Partition,State")


@PROGRAMS
def test_power_loss_of_a_host(
    site: Site, program: Program, marker: Path, undisturbed: Undisturbed
) -> None:
    digest = undisturbed(site, program)
    run = Run.submit(site, faulty(program(), "wait", marker=marker))
    run.wait_until_it_stands(marker)
    victim = next(node for node in run.nodes() if node != run.batch_node())
    site.node("kill", victim)
    try:
        assert_survived(run, digest)
        assert victim not in run.nodes()
        # Slurm may requeue the job while the victim is still asked: then it is left on suspicion.
        assert run.data_of("RequestAllocation")[0]["exclude"] == [victim], run.story()
        assert victim in run.history()
    finally:
        site.node("start", victim)


@PROGRAMS
def test_power_loss_of_the_batch_host(
    site: Site, program: Program, marker: Path, undisturbed: Undisturbed
) -> None:
    digest = undisturbed(site, program)
    run = Run.submit(site, faulty(program(), "wait", marker=marker))
    run.wait_until_it_stands(marker)
    victim = run.batch_node()
    site.node("kill", victim)
    try:
        assert_survived(run, digest)
        assert victim not in run.nodes()
        excluded = [(data["node"], data["cause"]) for data in run.data_of("ExcludeNode")]
        assert excluded == [(victim, "node down")], run.story()
    finally:
        site.node("start", victim)


def test_power_loss_of_a_host_of_the_second_component(
    site: Site, marker: Path, undisturbed: Undisturbed
) -> None:
    digest = undisturbed(site, heat)
    kinds = [{"name": "head", "tasks_per_node": 1}, {"name": "rest", "tasks_per_node": 3}]
    resources = {"memory": "1GB", "time": "0:20:00", "components": kinds}
    spec = faulty({**heat(), "resources": resources}, "wait", marker=marker)
    run = Run.submit(site, spec)
    run.wait_until_it_stands(marker)
    head, victim = run.nodes()
    assert head == run.batch_node()
    site.node("kill", victim)
    try:
        assert_survived(run, digest)
        assert victim not in run.nodes()
        assert len(run.data_of("AttemptStarted")) == 2, "all components come back together"
        # Slurm requeues such a job by itself, maybe while the victim is still asked.
        assert run.data_of("RequestAllocation")[0]["exclude"] == [victim], run.story()
    finally:
        site.node("start", victim)


def test_a_spare_has_nothing_in_its_tier_and_takes_the_place_of_a_lost_host(
    site: Site, marker: Path, undisturbed: Undisturbed
) -> None:
    again = marker.with_name(f"again-{marker.name}")
    tiers = {"interval": "10 steps", "tiers": {"node": "/dev/shm", "size": "64MB"}}
    spec = with_resources(heat(checkpoint=tiers), nodes=3, tasks_per_node=1, spares=1)
    spec = faulty(faulty(spec, "wait", marker=marker), "wait", marker=again, step=35)
    run = Run.submit(site, spec)
    run.wait_until_it_stands(marker)
    run.kill_rank(1)
    run.wait_until_it_stands(again, checkpoint=30)
    victim = next(node for node in run.nodes() if node != run.batch_node())
    site.node("kill", victim)
    try:
        assert_survived(run, undisturbed(site, heat))
        assert len(run.data_of("AttemptStarted")) == 1, run.story()
    finally:
        site.node("start", victim)
    _, before, after = [data["nodes"] for data in run.data_of("RanksStarted")]
    assert isinstance(before, list)
    assert isinstance(after, list)
    assert [before[0], before[2]] == [after[0], after[2]], "who goes on keeps its ranks"
    assert sorted(after) != after, "the spare has the place of the lost host"
    assert [data["ranks"] for data in run.data_of("TierRead")] == [[0, 1, 2], [0, 2]], run.story()
    assert run.data_of("SaveFailed") == run.data_of("TierFailed") == [], run.story()


def test_a_save_that_only_a_lost_host_had_comes_from_its_partner(site: Site) -> None:
    tiers = {"node": "/dev/shm", "size": "64MB", "partner": True}
    spec = gated({"interval": "10 steps", "tiers": tiers}, site.shared)
    run = Run.submit(site, with_resources(spec, spares=1))
    shard = run.root / "checkpoints" / "000000000020" / f"{run.job_id}.0.g1" / "shard-00001.h5"
    site.user("sh", "-c", f"mkdir -p {shard.parent} && mkfifo {shard}")  # a copy waits there
    site.user("touch", str(site.shared / "gate-15"))
    run.wait(lambda: len(run.processes(b"relight.storage.drain", b"20", b"1")) == 1)
    (drain,) = run.processes(b"relight.storage.drain", b"20", b"1")
    os.kill(drain, signal.SIGSTOP)
    site.user("rm", str(shard))
    partner, victim = run.nodes()
    place = f"/dev/shm/relight-{run.run_id}/{partner}/{shard.parent.parent.name}"
    receipt = f"/proc/{run.pid(0)}/root{place}/{shard.parent.name}/receipt-00001.json"
    run.wait(Path(receipt).exists)
    run.wait(lambda: run.committed() == [10])
    site.node("kill", victim)
    try:
        run.wait_for("RanksStopped")
        site.user("touch", str(site.shared / "gate-25"))
        assert_survived(run, str(sum(range(40))))
    finally:
        site.node("start", victim)
    assert run.data_of("RanksStarted")[1]["restored_step"] == 20, run.story()
    by_partner = {data["step"]: data["by_partner"] for data in run.data_of("CheckpointCommitted")}
    assert [by_partner[step] for step in (10, 20, 30)] == [[], [1], []], run.story()
    (read,) = run.data_of("TierRead")
    assert (read["ranks"], read["by_partner"]) == ([0, 1], [1]), run.story()
    assert run.data_of("SaveFailed") == run.data_of("TierFailed") == [], run.story()
    assert "rank 1 from a copy on another node" in run.history()
    steps = sorted(log.name for log in run.root.glob("attempts/*/logs/step-*.log"))
    assert steps == ["step-1.log", "step-2.log"], "the spare had agents, the others keep theirs"


@PROGRAMS
def test_a_second_sigterm_during_the_save(
    site: Site, program: Program, marker: Path, undisturbed: Undisturbed
) -> None:
    digest = undisturbed(site, program)
    run = Run.submit(site, faulty(program(), "wait", marker=marker, step=15))
    run.wait(marker.exists)
    site.user("scancel", "--batch", "--signal=TERM", run.job_id)
    run.wait_for("SaveAndStop")
    run.kill_rank(1, signal.SIGTERM)
    run.kill_rank(1, signal.SIGTERM)
    marker.with_suffix(".go").touch()
    assert_survived(run, digest)
    assert len(run.data_of("SaveAndStop")) == 1, run.story()


def test_a_node_that_fails_preflight(site: Site, undisturbed: Undisturbed) -> None:
    digest = undisturbed(site, heat)
    site.user("srun", "-N1", "-w", "n1", "touch", "/tmp/bad-memory")
    try:
        check = {"site_command": "test ! -e /tmp/bad-memory"}
        run = Run.submit(site, heat(health=check))
        run.wait_for("Finish")
        assert_survived(run, digest)
        history = run.history()
        assert "n1" in history
        assert "site_command" in history
    finally:
        site.user("srun", "-N1", "-w", "n1", "rm", "/tmp/bad-memory")
