"""``relight run`` inside an allocation: what it may use of it, and what it never asks for."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from relight.errors import UsageError
from relight.launcher.cli.run import check_place
from relight.launcher.clusters.local import HELD, JOB_ID, NODES, RESTART
from relight.launcher.clusters.slurm.client import SlurmClient
from relight.launcher.clusters.slurm.held import HeldAllocation, HeldCluster, held_allocation
from relight.launcher.clusters.slurm.parse import JobFacts, JobState
from relight.resilience.config import CheckpointConfig, RunConfig
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import RestartRefused, StepRequest, StopCause

THREE = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_NTASKS": "3"}


def config(tmp_path: Path, nodes: int = 2, mpi: str | None = None) -> RunConfig:
    return RunConfig(
        run_id="t-1",
        name="t",
        run_dir=tmp_path,
        command=("true",),
        working_dir=tmp_path,
        nodes=nodes,
        tasks_per_node=1,
        cpus_per_task=1,
        mpi=mpi,
        checkpoint=CheckpointConfig(directory=tmp_path / "checkpoints"),
    )


@dataclass(frozen=True, slots=True)
class Slurm(SlurmClient):
    """Says of the one job what a test wants."""

    left_s: float = 3600.0
    asked: list[str] = field(default_factory=list)

    def job(self, job_id: str) -> JobFacts:
        self.asked.append(job_id)
        return JobFacts(
            job_id=job_id, state=JobState.RUNNING, reason="None", restarts=0, requeue=False,
            end_time=time.time() + self.left_s, preempt_time=None, time_limit="1:00:00",
            partition="low", nodes=("n1", "n2", "n3"), batch_host="", excluded=(), required=(),
        )  # fmt: skip

    def config(self) -> dict[str, str]:
        return {"KillWait": "30 sec"}


def cluster(tmp_path: Path, client: SlurmClient, nodes: int = 2) -> HeldCluster:
    ours = {HELD: "7", JOB_ID: "local-1", RESTART: "0", NODES: "n1,n2"}
    return HeldCluster(config(tmp_path, nodes), env={**THREE, **ours}, client=client)


def test_an_allocation_is_known_by_its_variables() -> None:
    assert held_allocation({}) is None
    assert held_allocation(THREE) == HeldAllocation("7", ("n1", "n2", "n3"))
    for unreadable in ({"SLURM_JOB_ID": "7"}, {**THREE, "SLURM_JOB_CPUS_PER_NODE": "2(x"}):
        with pytest.raises(UsageError, match="unset SLURM_JOB_ID"):
            held_allocation(unreadable)


def test_a_run_must_fit_into_it(tmp_path: Path) -> None:
    held = held_allocation(THREE)
    check_place(config(tmp_path, nodes=3, mpi="pmix"), held)
    with pytest.raises(UsageError, match="has 3 nodes, and the job needs 4"):
        check_place(config(tmp_path, nodes=4), held)
    with pytest.raises(UsageError, match="inside of salloc"):
        check_place(config(tmp_path, mpi="pmix"), None)


@pytest.mark.parametrize(
    ("cpus", "refused"), [("2(x3)", ""), ("2(x2),1", ""), ("1(x3)", "n1"), ("2,1(x2)", "n2")]
)
def test_its_nodes_must_have_the_cpus(tmp_path: Path, cpus: str, refused: str) -> None:
    """Or srun refuses each step, attempt after attempt. The third node is not needed."""
    held = held_allocation({**THREE, "SLURM_JOB_CPUS_PER_NODE": cpus})
    wide = replace(config(tmp_path), tasks_per_node=2)
    if not refused:
        check_place(wide, held)
        return
    with pytest.raises(UsageError, match=f"has 1 of the 2 CPUs on {refused} that") as told:
        check_place(wide, held)
    assert "salloc --ntasks-per-node=2 --cpus-per-task=1" in str(told.value)


def test_steps_go_to_its_nodes_and_not_by_what_salloc_was_asked(tmp_path: Path) -> None:
    client = Slurm()
    one = cluster(tmp_path, client)
    assert one.allocation().attempt == "local-1.0"
    assert client.asked == ["7"], "Slurm knows the allocation, not the run"
    request = StepRequest(
        name="ranks", nodes=("n1", "n2"), tasks_per_node=1, cpus_per_task=1, argv=("true",), env={}
    )
    command = one.step_command(request)
    assert command.argv[0] == "srun"
    assert "--nodelist=n1,n2" in command.argv
    assert command.env["SLURM_JOB_ID"] == "7"
    assert "SLURM_NTASKS" not in command.env


def test_it_goes_on_there_while_it_can(tmp_path: Path) -> None:
    one = cluster(tmp_path, Slurm())
    assert one.new_allocation(["n1"], "auto").mode == "here"
    wish = RunFolder(tmp_path).attempt("local-1.0") / "next.json"
    assert json.loads(wish.read_text()) == {"exclude": ["n1"]}
    with pytest.raises(RestartRefused, match="has 1 node that may be used, and 2 are needed"):
        one.new_allocation(["n1", "n2"], "auto")
    with pytest.raises(RestartRefused, match="about to end"):
        cluster(tmp_path, Slurm(left_s=30)).new_allocation([], "auto")


def test_the_front_stops_it(tmp_path: Path) -> None:
    one = cluster(tmp_path, Slurm())
    one.allocation()
    assert one.stop_notice("SIGTERM", to_supervisor=True).cause is StopCause.PREEMPTED
    assert one.stop_notice("SIGINT", to_supervisor=True).cause is StopCause.CANCELLED
