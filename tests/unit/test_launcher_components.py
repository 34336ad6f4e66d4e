"""A job of nodes of several kinds: its script, its world, and its steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from relight.launcher.clusters.slurm.components import held_components, step
from relight.launcher.clusters.slurm.parse import parse_job
from relight.launcher.launch_plan import LaunchPlan, Submitter
from relight.launcher.plan import plan
from relight.launcher.spec_faults import SpecError
from relight.launcher.spec_file import parse_spec
from relight.launcher.torn_job import is_torn, nodes_to_leave
from relight.resilience.config import RunConfig
from relight.resilience.supervise.begin import policy_of
from relight.resilience.supervise.cluster import StepRequest
from relight.resilience.supervise.journal import Record
from relight.resilience.supervise.rendezvous import Rendezvous

RECORDED = Path(__file__).parents[1] / "data/slurm/22.05/scontrol-show-job-heterogeneous.txt"
SPEC = """\
name: rl
command: python train.py
resources:
  time: 1:00:00
  memory: 8GB
  cpus_per_task: 2
  components:
    - {name: env, partition: cpu, memory: 2GB, command: python env.py, sbatch: {constraint: big}}
    - {name: train, nodes: 2, tasks_per_node: 2, cpus_per_task: 4, gpus_per_node: 2}
sbatch: {account: abc, constraint: ib}
setup: [module load cuda]
"""


def make(text: str = SPEC) -> LaunchPlan:
    submitter = Submitter(
        run_id="rl-0a1b2c",
        runs_dir=Path("/runs"),
        working_dir=Path("/work"),
        python="/python",
        version="0.1.0",
        made_by="relight plan job.yaml",
    )
    return plan(parse_spec(text, "job.yaml"), submitter, "slurm")


def test_the_script() -> None:
    lines = make().script.splitlines()
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    first, second = options[: options.index("hetjob")], options[options.index("hetjob") + 1 :]
    assert {"--nodes=1", "--cpus-per-task=2", "--mem=2048M", "--partition=cpu"} <= set(first)
    assert {"--time=01:00:00", "--requeue", "--account=abc", "--constraint=big"} <= set(first)
    assert second == [
        *("--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=4", "--gpus-per-node=2"),
        *("--mem=8192M", "--account=abc", "--constraint=ib"),
    ]
    assert "--no-kill" not in options, "Slurm would requeue one component, and end the others"
    assert not any("wardens" in line for line in lines), "Slurm requeues the job itself"


def test_the_world_goes_over_all_components() -> None:
    config = make().config
    assert RunConfig.from_json(config.to_json()) == config
    assert (config.nodes, config.world_size, policy_of(config, ()).ranks_on(3)) == (3, 5, 5)
    meeting = Rendezvous(
        attempt="1.0",
        generation=1,
        nodes=("c1", "g1", "g2"),
        master_address="c1",
        master_port=1,
        restore=None,
    )
    orders = [
        meeting.start_order(config, rank, config.command, Path("log"))
        for rank in range(config.world_size)
    ]
    assert [order["argv"] for order in orders] == [["python", "env.py"]] + 4 * [
        ["python", "train.py"]
    ]
    names = ("RANK", "NODE_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "RELIGHT_COMPONENT")
    found = []
    for order in orders:
        env = order["env"]
        assert isinstance(env, dict)
        assert (env["WORLD_SIZE"], env["RELIGHT_WORLD_SIZE"]) == ("5", "5")
        found.append(" ".join(env[name] for name in (*names, "RELIGHT_COMPONENT_RANK")))
    assert found == [
        "0 0 0 1 env 0",
        "1 1 0 2 train 0",
        "2 1 1 2 train 1",
        "3 2 0 2 train 2",
        "4 2 1 2 train 3",
    ]


def test_a_step_has_a_part_for_each_component_whose_nodes_it_is_on() -> None:
    held = held_components(
        {
            "SLURM_HET_SIZE": "2",
            "SLURM_JOB_NODELIST": "c1",
            "SLURM_JOB_NODELIST_HET_GROUP_0": "c1",
            "SLURM_JOB_NODELIST_HET_GROUP_1": "g[1-2]",
        }
    )
    assert held == (("c1",), ("g1", "g2"))
    assert held_components({"SLURM_JOB_NODELIST": "c1"}) == ()

    def parts(nodes: tuple[str, ...], config: RunConfig | None = None) -> list[str]:
        request = StepRequest(
            name="x",
            nodes=nodes,
            tasks_per_node=1,
            cpus_per_task=1,
            argv=("agent",),
            env={},
            components=() if config is None else config.components,
        )
        srun, *words = step(request, held)
        assert srun == "srun"
        kept = ("--ntasks=", "--cpus-per-task=", "--nodelist=", "--het-group=")
        return " ".join(w for w in words if w.startswith(kept) or w in (":", "agent")).split(" : ")

    assert parts(("c1", "g1", "g2"), make().config) == [
        "--ntasks=1 --cpus-per-task=2 --nodelist=c1 --het-group=0 agent",
        "--ntasks=4 --cpus-per-task=4 --nodelist=g1,g2 --het-group=1 agent",
    ]
    assert parts(("g2",)) == ["--ntasks=1 --cpus-per-task=1 --nodelist=g2 --het-group=1 agent"]


def test_what_slurm_says_of_all_components() -> None:
    text = RECORDED.read_text()
    sooner = text.replace("EndTime=2026-11-30T10:09:33", "EndTime=2026-11-30T10:05:00")
    leader, follower = text.splitlines()[0], sooner.splitlines()[1]
    job, before = parse_job(f"{leader}\n{follower}\n"), parse_job(text)
    assert job is not None
    assert before is not None
    assert (job.job_id, job.nodes, job.all_nodes) == ("5", ("n1",), ("n1", "n2", "n3"))
    assert [one.job_id for one in job.components] == ["5", "6"]
    assert job.end_time is not None
    assert before.end_time is not None
    assert job.end_time < before.end_time, "the preemption of any component ends the job"


def test_a_component_that_has_missed_a_restart() -> None:
    """It runs since before; after the next restart of all it still counts one less."""
    leader, follower = RECORDED.read_text().splitlines()
    again = leader.replace("Restarts=0", "Restarts=1")
    later = again.replace("StartTime=2026-11-30T10:04:33", "StartTime=2026-11-30T10:06:00")

    def torn(*lines: str) -> bool:
        job = parse_job("\n".join(lines))
        assert job is not None
        return is_torn(job)

    assert torn(later, follower)
    assert not torn(again, follower)
    assert not torn(leader, follower)


@pytest.mark.parametrize(
    ("after", "left"),
    [((), ("n3", "n1")), (("Finish",), ("n3",)), (("Finish", "Notified"), ("n3",))],
)
def test_the_batch_host_is_left_unless_its_attempt_has_come_to_an_end(
    after: tuple[str, ...], left: tuple[str, ...]
) -> None:
    names = ("AttemptStarted", "Finish", "ExcludeNode", "AttemptStarted", *after)
    nodes = {"AttemptStarted": {"batch_node": "n1"}, "ExcludeNode": {"node": "n3"}}
    records = [Record(0.0, "event", name, nodes.get(name, {}), "5.0") for name in names]
    assert nodes_to_leave(records) == left


ONE = "{name: a}"


@pytest.mark.parametrize(
    ("components", "more", "message"),
    [
        (ONE, "", "one alone is no component"),
        (f"{ONE}, {ONE}", "", "two are called 'a'"),
        (f"{ONE}, {{name: b, memory: 1GB}}", "", "b says its memory, so all have to"),
        (f"{ONE}, {{name: b, node: 1}}", "", "did you mean 'resources.components.1.nodes'?"),
        (
            f"{ONE}, {{name: b, sbatch: {{nodes: 1}}}}",
            "",
            "components.1.sbatch.nodes: .*use resources.components.nodes",
        ),
        (f"{ONE}, {{name: b, sbatch: {{no-kill: true}}}}", "", "end the other components"),
        (f"{ONE}, {{name: b, sbatch: {{exclude: n1}}}}", "", "one for all components"),
        (f"{ONE}, {ONE}", "sweep: {x: [1]}", "two are called 'a'.*no arrays of heterogeneous jobs"),
        (
            f"{ONE}, {{name: b, command: torchrun y}}",
            "",
            "job.yaml:2: resources.components.1.command",
        ),
        (f"{ONE}, {{name: b}}", "sweep: {x: [1]}", "no arrays of heterogeneous jobs"),
        (f"{ONE}, {{name: b, command: y}}", "resume: z", "b runs a command of its own"),
    ],
)
def test_what_components_cannot_do_is_refused(components: str, more: str, message: str) -> None:
    with pytest.raises(SpecError, match=f"(?s){message.replace('?', '[?]')}"):
        make(f"command: x\nresources: {{components: [{components}]}}\n{more}")
    with pytest.raises(SpecError, match=r"resources\.spares: components say how many"):
        make(f"command: x\nresources: {{spares: 1, components: [{ONE}, {{name: b}}]}}")
