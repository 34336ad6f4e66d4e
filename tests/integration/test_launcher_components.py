"""Components without a cluster, and what Slurm is told of them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from stage.local import Run

from relight.launcher.clusters.slurm.client import SlurmClient
from relight.launcher.clusters.slurm.cluster import SlurmCluster
from relight.launcher.clusters.slurm.restart import Rearrangement
from relight.launcher.torn_job import leave_torn
from relight.resilience.config import ProgramKind, RunConfig
from relight.resilience.exit_codes import EXIT_RESTART
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import Restart, StepRequest
from relight.resilience.supervise.journal import Entry, JournalWriter

DATA = Path(__file__).parents[1] / "data" / "slurm"
BATCH = {
    "SLURM_JOB_ID": "5",
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "n1",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]",
}
SPEC = """\
name: pair
command: [sh, -c, 'echo $RELIGHT_COMPONENT $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE']
resources:
  components:
    - {name: head, command: [sh, -c, 'echo I am $RELIGHT_COMPONENT $RANK of $WORLD_SIZE']}
    - {name: rest, nodes: 2, tasks_per_node: 2}
"""


def test_all_components_on_one_machine(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(SPEC)
    run = Run(tmp_path / "home", str(path))
    code, records = run.end()
    assert code == 0, records
    logs = [*run.folder.glob("attempts/*/logs/1/*.log")]
    assert sorted(log.read_text().strip() for log in logs) == [
        "I am head 0 of 5",
        *("rest 1 of 5, 0 of 2", "rest 2 of 5, 1 of 2"),
        *("rest 3 of 5, 0 of 2", "rest 4 of 5, 1 of 2"),
    ]


@pytest.mark.parametrize("program", ["ranks", "script"])
def test_a_step_knows_of_the_components_and_not_how_many_nodes_the_first_has(
    run_config: RunConfig, fake: Path, program: ProgramKind
) -> None:
    """Else srun takes all nodes for those of the first, and that of 20.11 refuses the second."""
    env = {**BATCH, "SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1"}
    cluster = SlurmCluster(replace(run_config, program=program), env)
    nodes = cluster.allocation().nodes
    assert nodes == ("n1", "n2", "n3")
    request = StepRequest(
        name="x", nodes=nodes, tasks_per_node=1, cpus_per_task=1, argv=("true",), env={}
    )
    command = cluster.step_command(request)
    assert command.env["SLURM_HET_SIZE"] == "2"
    assert "SLURM_JOB_NUM_NODES" not in command.env
    assert ("SLURM_NTASKS" in command.env) is (program == "ranks")
    assert [word for word in command.argv if word.startswith("--nodelist")] == [
        *("--nodelist=n1", "--nodelist=n2,n3")
    ]


def rearrangement(keep_id: bool) -> Rearrangement:
    return Rearrangement(
        client=SlurmClient(pauses_s=()),
        job_id="5",
        restart_count=0,
        run_id="pair-1",
        script=Path("job.sh"),
        nodes_needed=3,
        of_components=(1, 2),
        keep_id=keep_id,
    )


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The second component has its own list of nodes to leave out."""
    monkeypatch.setenv("FAKE_SLURM", str(tmp_path))
    monkeypatch.setenv("PATH", f"{DATA / 'fake' / 'bin'}:{os.environ['PATH']}")
    recorded = (DATA / "22.05" / "scontrol-show-job-heterogeneous.txt").read_text()
    first, second = recorded.splitlines()
    second = second.replace("ExcNodeList=(null)", "ExcNodeList=n[3,6]")
    (tmp_path / "scontrol.out").write_text(
        f"{first.replace('ExcNodeList=(null)', 'ExcNodeList=n3')}\n{second}\n"
    )
    (tmp_path / "sinfo.out").write_text("".join(f"n{number}|idle\n" for number in range(1, 9)))
    (tmp_path / "sbatch.out").write_text("9\n")
    return tmp_path


def calls(fake: Path) -> list[str]:
    return (fake / "calls").read_text().replace("\t", " ").splitlines()


def test_a_requeued_job_leaves_a_node_out_of_each_component(fake: Path) -> None:
    assert rearrangement(keep_id=True).arrange(["n3"], "auto") == Restart("requeue", "5")
    orders = [call for call in calls(fake) if "--oneliner" not in call and "sinfo" not in call]
    assert orders == [
        "scontrol requeue 5",
        "scontrol update JobId=5+0 ExcNodeList=n3",
        "scontrol update JobId=5+1 ExcNodeList=n6,n3",
    ]


def test_a_successor_leaves_it_out_of_all(fake: Path) -> None:
    (fake / "squeue.out").write_text("")
    assert rearrangement(keep_id=False).arrange(["n3"], "successor") == Restart("successor", "9")
    assert "sbatch --parsable --dependency=afterany:5 --exclude=n3 job.sh" in calls(fake)


def test_a_job_that_slurm_restarted_in_part_is_left_for_a_whole_one(
    run_config: RunConfig, fake: Path
) -> None:
    told = (fake / "scontrol.out").read_text()
    leader, follower = told.replace("Requeue=1", "Requeue=0").splitlines()
    leader = leader.replace("Restarts=0", "Restarts=1").replace(
        "StartTime=2026-11-30T10:04:33", "StartTime=2026-11-30T10:06:00"
    )
    (fake / "scontrol.out").write_text(f"{leader}\n{follower}\n")
    (fake / "squeue.out").write_text("")
    env = {**BATCH, "SLURM_RESTART_COUNT": "1"}
    run_config.run_dir.mkdir(parents=True, exist_ok=True)
    journal = JournalWriter(RunFolder(run_config.run_dir).journal("5.0"))
    journal.write([Entry(0.0, "event", "AttemptStarted", {"batch_node": "n1"})])
    journal.close()
    assert leave_torn(run_config, SlurmCluster(run_config, env)) == EXIT_RESTART
    (sent,) = [call for call in calls(fake) if call.startswith("sbatch")]
    assert "afterany:5" in sent
    assert "--exclude=n3,n1 " in sent, "the lost batch host, though it is up again"
    (fake / "scontrol.out").write_text(told)
    assert leave_torn(run_config, SlurmCluster(run_config, env)) is None


def test_as_many_nodes_stay_as_all_components_of_a_partition_need(fake: Path) -> None:
    (fake / "sinfo.out").write_text("n1|idle\nn2|idle\nn3|idle\n")
    rearrangement(keep_id=False).arrange(["n3"], "successor")
    assert "sbatch --parsable --dependency=afterany:5 job.sh" in calls(fake)
