"""Every cause that can be made for real: what the journal calls it, what was done, and the end."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stage.faulty import MIB
from stage.memory import limited_memory, with_its_agent
from stage.run import Run, Spec, faulty, heat, with_resources
from stage.site import Site
from stage.whole import assert_survived, whole

Program = Callable[..., Spec]
Undisturbed = Callable[[Site, Program], str]


@pytest.fixture
def site(generous: Site) -> Iterator[Site]:
    yield from whole(generous)


def with_a_spare(spec: Spec) -> Spec:
    return with_resources(spec, spares=1)


def test_a_rank_that_crashes(site: Site, marker: Path, undisturbed: Undisturbed) -> None:
    digest = undisturbed(site, heat)
    run = Run.submit(site, faulty(heat(), "crash", marker=marker))
    assert_survived(run, digest)
    cause = "crashed (rule crash): rank 1 on n1 ended by SIGSEGV"
    assert cause in run.reasons("StartRanks")[1], run.story()
    assert len(run.data_of("RanksStarted")) == 2
    assert len(run.data_of("AttemptStarted")) == 1, "it goes on in place"


def test_a_rank_that_the_kernel_ends_for_lack_of_memory(
    site: Site, marker: Path, undisturbed: Undisturbed
) -> None:
    digest = undisturbed(site, heat)
    run = Run.submit(site, faulty(heat(), "memory", marker=marker))
    run.wait(marker.with_suffix(".begun").exists)
    with limited_memory(with_its_agent(run.pid(1)), 64 * MIB):
        marker.with_suffix(".limited").touch()
        assert_survived(run, digest)
    cause = "host out of memory (rule host-oom): rank 1 on n1 ended by SIGKILL"
    assert cause in run.reasons("StartRanks")[1], run.story()
    assert len(run.data_of("RanksStarted")) == 2
    assert len(run.data_of("AttemptStarted")) == 1, "it goes on in place"


def test_a_loss_that_is_no_number_any_more(
    site: Site, marker: Path, undisturbed: Undisturbed
) -> None:
    digest = undisturbed(site, heat)
    before = marker.with_name(f"before-{marker.name}")
    spec = faulty(heat(restart={"not_finite": "rollback"}), "nan", marker=marker)
    run = Run.submit(site, faulty(spec, "wait", marker=before))
    run.wait_until_it_stands(before)
    before.with_suffix(".go").touch()
    assert_survived(run, digest)
    (lost,) = run.data_of("LossNotFinite")
    assert (lost["rank"], lost["since"]) == (1, 25), run.story()
    (back,) = run.data_of("RollBack")
    assert back["step"] == 25
    assert "loss is nan since step 25" in run.reasons("StartRanks")[1]
    assert [data["restored_step"] for data in run.data_of("RanksStarted")] == [None, 20]
    assert len(run.data_of("AttemptStarted")) == 1


def test_an_error_of_all_ranks_before_anything_is_saved_is_not_tried_again(site: Site) -> None:
    run = Run.submit(site, faulty(heat(), "mistake", marker="always", rank="all", step=3))
    assert run.finish()["state"] == "FAILED", run.story()
    (end,) = run.data_of("Finish")
    assert end["cause"] == "user error"
    assert "all 4 ranks, on all nodes, failed alike" in str(end["reason"])
    assert len(run.data_of("RanksStarted")) == 1
    assert run.data_of("ExcludeNode") == []


def test_a_stopped_rank_is_named_and_replaced(
    site: Site, marker: Path, undisturbed: Undisturbed
) -> None:
    digest = undisturbed(site, heat)
    run = Run.submit(site, faulty(heat(restart={"hang": "13s"}), "wait", marker=marker, rank=2))
    run.wait_until_it_stands(marker)
    run.kill_rank(2, signal.SIGSTOP)
    assert_survived(run, digest)
    (hung,) = run.data_of("RanksHung")
    assert hung["ranks"] == [2], run.story()
    (stopped,) = run.data_of("StopRanks")
    assert stopped["stacks"] is True
    stacks = next(run.root.glob("attempts/*/logs/1/1.log")).read_text()
    assert "exchange_halos" in stacks, "where the others waited for it"
    assert len(run.data_of("AttemptStarted")) == 1


def test_a_cut_network_of_a_host(site: Site, marker: Path, undisturbed: Undisturbed) -> None:
    digest = undisturbed(site, heat)
    later = marker.with_name(f"later-{marker.name}")
    spec = faulty(with_a_spare(heat()), "wait", marker=marker)
    run = Run.submit(site, faulty(spec, "wait", marker=later, step=35))
    run.wait_until_it_stands(marker)
    victim = next(node for node in run.nodes() if node != run.batch_node())
    site.node("cut", victim)
    try:
        run.wait_for("NodesProbed")  # which the ranks on the spare do not end before
        later.with_suffix(".go").touch()
        assert_survived(run, digest)
        (excluded,) = run.data_of("ExcludeNode")
        assert (excluded["node"], excluded["cause"]) == (victim, "node down"), run.story()
        assert len(run.data_of("AttemptStarted")) == 1
        names = [record.name for record in run.records()]
        assert names.index("ProbeUnanswered") < names.index("NodesProbed")
        starts = [place for place, name in enumerate(names) if name == "StartRanks"]
        assert starts[1] < names.index("NodesProbed"), "the spare does not wait for its failure"
    finally:
        site.node("heal", victim)


def test_a_world_that_may_shrink_goes_on_with_the_nodes_that_are_left(
    site: Site, marker: Path, undisturbed: Undisturbed
) -> None:
    digest = undisturbed(site, heat)
    resources = {"nodes": {"min": 1, "max": 3}, "tasks_per_node": 2, "time": "0:10:00"}
    spec = faulty({**heat(), "resources": resources}, "wait", marker=marker)
    run = Run.submit(site, spec)
    run.wait_until_it_stands(marker)
    victim = next(node for node in run.nodes() if node != run.batch_node())
    site.node("kill", victim)
    try:
        assert_survived(run, digest)
        assert [data["world_size"] for data in run.data_of("RanksStarted")] == [6, 4], run.story()
        assert "on 2 of 3 nodes" in run.reasons("StartRanks")[1]
        assert len(run.data_of("AttemptStarted")) == 1, "in the same allocation"
    finally:
        site.node("start", victim)


def test_a_fault_while_the_controller_is_away(
    site: Site, marker: Path, undisturbed: Undisturbed
) -> None:
    digest = undisturbed(site, heat)
    run = Run.submit(site, faulty(heat(), "wait", marker=marker, rank=3))
    run.wait_until_it_stands(marker)
    site.controller("stop")
    try:
        run.kill_rank(3)
        run.wait_for("StartRanks", count=2)
        before = run.committed()
        assert run.data_of("Finish") == [], "silence of the scheduler ends nothing"
    finally:
        site.controller("start")
    assert_survived(run, digest)
    assert "killed (rule killed): rank 3" in run.reasons("StartRanks")[1], run.story()
    assert run.committed()[: len(before)] == before


def test_a_host_that_dies_during_a_save(site: Site, marker: Path, undisturbed: Undisturbed) -> None:
    digest = undisturbed(site, heat)
    stands, later = (marker.with_name(f"{word}-{marker.name}") for word in ("stands", "later"))
    spec = faulty(with_a_spare(heat()), "save", marker=marker, rank=3)
    spec = faulty(spec, "wait", marker=stands, step=35)
    run = Run.submit(site, faulty(spec, "wait", marker=later, step=45))
    run.wait_until_it_stands(stands)
    run.wait(marker.with_suffix(".begun").exists)
    victim = run.nodes()[1]
    assert victim != run.batch_node()
    site.node("kill", victim)
    try:
        run.wait_for("NodesProbed")  # which the ranks on the spare do not end before
        later.with_suffix(".go").touch()
        assert_survived(run, digest)
        excluded = [(data["node"], data["cause"]) for data in run.data_of("ExcludeNode")]
        assert excluded == [(victim, "node down")], run.story()
        restored = [data["restored_step"] for data in run.data_of("RanksStarted")]
        assert restored == [None, 20], "step 30 was never whole"
    finally:
        site.node("start", victim)


def test_a_host_that_dies_during_preflight(site: Site, undisturbed: Undisturbed) -> None:
    digest = undisturbed(site, heat)
    waiting = site.shared / "preflight-waits"
    check = f'test "$(hostname)" != n2 || {{ touch {waiting}; sleep 30; }}'
    run = Run.submit(site, with_a_spare(heat(health={"site_command": check, "budget": "10s"})))
    run.wait(waiting.exists)
    site.node("kill", "n2")
    try:
        assert_survived(run, digest)
        excluded = [(data["node"], data["cause"]) for data in run.data_of("ExcludeNode")]
        assert excluded == [("n2", "node down")], run.story()
    finally:
        site.node("start", "n2")


def test_an_executable_that_may_not_be_read(site: Site) -> None:
    forbidden = site.shared / "forbidden"
    forbidden.write_text("#!/bin/sh\n")
    forbidden.chmod(0o600)
    run = Run.submit(site, {**heat(), "command": [str(forbidden)]})
    assert run.finish()["state"] == "FAILED", run.story()
    (end,) = run.data_of("Finish")
    assert end["cause"] == "user error"
    assert "Permission denied" in str(end["tail"])
    assert run.data_of("ExcludeNode") == []


def on_a_small_disk(site: Site) -> Spec:
    """A run on n1 whose checkpoints go to a file system of its own."""
    mount = "mount -t tmpfs -o size=8m,mode=1777 tmpfs /mnt"
    site.on("n1", "sh", "-c", f"mountpoint -q /mnt || {mount}; rm -rf /mnt/*")
    spec = heat(
        checkpoint={"interval": "10 steps", "directory": "/mnt/checkpoints"},
        health={"min_free_disk": "1MB"},
        sbatch={"nodelist": "n1"},
    )
    return with_resources(spec, nodes=1)


def fill(site: Site) -> None:
    site.on("n1", "sh", "-c", "head -c 8m /dev/zero > /mnt/filler || true")


def test_a_full_disk_that_is_cleared(site: Site, marker: Path, undisturbed: Undisturbed) -> None:
    digest = undisturbed(site, heat)
    full = marker.with_name(f"full-{marker.name}")
    spec = faulty(on_a_small_disk(site), "wait", marker=marker)
    run = Run.submit(site, faulty(spec, "wait", marker=full, step=35))
    run.wait_until_it_stands(marker)
    fill(site)
    marker.with_suffix(".go").touch()
    run.wait_for("SaveFailed")
    site.on("n1", "rm", "/mnt/filler")
    full.with_suffix(".go").touch()
    assert_survived(run, digest)
    assert run.committed()[-1] == 120, run.story()
    assert {data["errno"] for data in run.data_of("SaveFailed")} == {errno.ENOSPC}
    assert run.data_of("StopRanks") == [], "the ranks went on"


def test_a_disk_that_stays_full(site: Site, marker: Path) -> None:
    run = Run.submit(site, faulty(on_a_small_disk(site), "wait", marker=marker))
    run.wait_until_it_stands(marker)
    fill(site)
    marker.with_suffix(".go").touch()
    assert run.finish()["state"] == "STOPPED", run.story()
    (end,) = run.data_of("Finish")
    assert end["cause"] == "disk full", run.story()
    assert "make room" in str(end["reason"])
    assert len(run.data_of("RanksStarted")) == 1, "nothing was done twice in vain"


def test_a_file_system_that_is_away_for_a_while(
    site: Site, marker: Path, undisturbed: Undisturbed
) -> None:
    digest = undisturbed(site, heat)
    run = Run.submit(site, faulty(on_a_small_disk(site), "wait", marker=marker))
    run.wait_until_it_stands(marker)  # and no file is open for writing
    site.on("n1", "mount", "-o", "remount,ro", "/mnt")
    try:
        run.kill_rank(1)
        run.wait_for("AwaitStorage")
    finally:
        site.on("n1", "mount", "-o", "remount,rw", "/mnt")
    assert_survived(run, digest)
    assert "Read-only file system" in run.reasons("AwaitStorage")[0], run.story()
    assert len(run.data_of("StorageAnswered")) == 1
    assert len(run.data_of("RanksStarted")) == 2
    assert len(run.data_of("AttemptStarted")) == 1
    assert run.data_of("ExcludeNode") == [], "no node is to blame"
