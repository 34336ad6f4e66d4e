"""What a supervisor may rely on, whatever the cluster: one suite for both implementations."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from relight.launcher.clusters.local import JOB_ID, NODES, RESTART, LocalCluster
from relight.launcher.clusters.slurm.cluster import SlurmCluster
from relight.resilience.config import RunConfig
from relight.resilience.supervise.cluster import Cluster, StepRequest

DATA = Path(__file__).parents[1] / "data" / "slurm"


@dataclass
class Place:
    """A cluster under test, and a way to make its scheduler fall silent."""

    cluster: Cluster
    silence: Callable[[], None]


@pytest.fixture(params=["local", "slurm"])
def place(
    request: pytest.FixtureRequest,
    run_config: RunConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Place:
    config = replace(run_config, nodes=2, spares=1)
    if request.param == "local":
        env = {**os.environ, JOB_ID: "local-1", RESTART: "2", NODES: "n1,n2,n3"}
        return Place(LocalCluster(config, env), lambda: None)
    return _fake_slurm(config, tmp_path, monkeypatch)


def _fake_slurm(config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """srun is replaced by one that runs each task here; the rest answers what was recorded."""
    answers = tmp_path / "answers"
    answers.mkdir()
    monkeypatch.setenv("FAKE_SLURM", str(answers))
    monkeypatch.setenv("PATH", f"{DATA / 'fake' / 'bin'}:{os.environ['PATH']}")
    recorded = (DATA / "22.05" / "scontrol-show-job-running.txt").read_text()
    (answers / "scontrol.out").write_text(recorded.replace("Restarts=0", "Restarts=2"))
    (answers / "sinfo.out").write_text("n1|allocated\nn2|allocated\nn3|allocated\nn4|idle\n")
    (answers / "sbatch.out").write_text("99\n")

    def silence() -> None:
        for command in ("scontrol", "sinfo"):
            (answers / f"{command}.err").write_text("Invalid authentication credential")
            (answers / f"{command}.rc").write_text("1")

    env = {
        **os.environ,
        "SLURM_JOB_ID": "13",
        "SLURM_RESTART_COUNT": "2",
        "SLURM_JOB_NODELIST": "n[1-3]",
        "SLURMD_NODENAME": "n1",
    }
    return Place(SlurmCluster(config, env), silence)


def request_for(*nodes: str, argv: tuple[str, ...] = ("true",)) -> StepRequest:
    return StepRequest(
        name="x", nodes=nodes, tasks_per_node=2, cpus_per_task=1, argv=argv, env={"WORD": "a b"}
    )


def test_the_allocation_is_read_once(place: Place) -> None:
    allocation = place.cluster.allocation()
    assert allocation.nodes == ("n1", "n2", "n3")
    assert allocation.batch_node == "n1"
    assert allocation.attempt == f"{allocation.job_id}.2"
    assert place.cluster.allocation() == allocation


def test_a_step_is_one_command_with_its_environment(place: Place) -> None:
    command = place.cluster.step_command(request_for("n1", "n3", argv=("show", "a b", "$x")))
    assert command.argv[-3:] == ("show", "a b", "$x")
    assert command.env["WORD"] == "a b"
    assert command.env["PATH"] == os.environ["PATH"]


def test_every_node_has_an_address(place: Place) -> None:
    assert all(place.cluster.node_address(node) for node in ("n1", "n2", "n3"))


def test_node_conditions_name_every_node(place: Place) -> None:
    conditions = place.cluster.node_conditions(["n1", "n4"])
    assert conditions == {"n1": "up", "n4": "up"}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"])
@pytest.mark.parametrize("to_supervisor", [True, False])
@pytest.mark.parametrize("silent", [True, False])
def test_a_stop_notice_never_raises(
    place: Place, name: str, to_supervisor: bool, silent: bool
) -> None:
    place.cluster.allocation()
    if silent:
        place.silence()
    notice = place.cluster.stop_notice(name, to_supervisor=to_supervisor)
    assert notice.evidence


def test_silence_is_never_down(place: Place) -> None:
    place.cluster.allocation()
    place.silence()
    assert "down" not in place.cluster.node_conditions(["n1"]).values()


def test_a_new_allocation_is_arranged_once(place: Place) -> None:
    first = place.cluster.new_allocation(["n2"], "auto")
    assert place.cluster.new_allocation(["n2"], "auto") == first
    assert first.job_id
    place.cluster.withdraw(first)


def test_a_local_step_runs(run_config: RunConfig, tmp_path: Path) -> None:
    env = {**os.environ, JOB_ID: "local-1", RESTART: "0", NODES: "n1,n2"}
    cluster = LocalCluster(run_config, env)
    output = tmp_path / "out"
    request = replace(
        request_for("n1", "n2", argv=("bash", "-c", "echo $WORD $RELIGHT_TASK")), output=output
    )
    command = cluster.step_command(request)
    subprocess.run(command.argv, env=dict(command.env), check=True, timeout=120)
    assert sorted(output.read_text().splitlines()) == [f"a b {task}" for task in range(4)]
