"""Commands that start ranks of their own: run once per node, or refused, with what to write."""

from __future__ import annotations

import pytest

from relight.launcher.spec_faults import SpecError
from relight.launcher.spec_file import parse_spec
from relight.launcher.spec_starters import command_per

TWO = "resources: {nodes: 2, tasks_per_node: 4, gpus_per_node: 4}"


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("torchrun --nnodes=2 --nproc_per_node 4 train.py --nproc-per-node 3", TWO),
        ("/opt/env/bin/torchrun --nproc-per-node=gpu -m lm --max-restarts 3", TWO),
        ("python3 -u -m torch.distributed.run --max-restarts 0 a.py 'b c'", TWO),
        ("torchrun --standalone --nproc-per-node 4 a.py", "resources: {tasks_per_node: 4}"),
        ("torchrun a.py", "resources: {nodes: {min: 1, max: 4}, tasks_per_node: 4}"),
        ("env LR=1 OMP_NUM_THREADS=2 torchrun a.py", TWO),
        ("uv run torchrun a.py", TWO),
        ("/opt/bin/uv run --no-sync --env-file .env torchrun -r1 -t 3 a.py", TWO),
        ("uv run --with=rich -m torch.distributed.run a.py", TWO),
        ("env -u PET_NNODES LR=1 conda run -n env torchrun --redirects 0:1,1:0 a.py", TWO),
        ("[bash, -c, 'torchrun a.py']", f"command_per: node\n{TWO}"),
        ("torchrun train.py", f"command_per: node\ncheckpoint: {{signal: USR1}}\n{TWO}"),
    ],
)
def test_torchrun_is_run_once_on_each_node(command: str, more: str) -> None:
    assert command_per(parse_spec(f"command: {command}\n{more}", "job.yaml")) == "node"


@pytest.mark.parametrize(
    "spec",
    [
        "command: torchrun train.py\ncheckpoint: {signal: USR1}",
        "command: torchrun train.py\ncheckpoint: {done: 'state/*'}",
        "command: torchrun --max-restarts 3 train.py\nresume: torchrun train.py --resume",
        "command: python torchrun.py",
        "command: uv run --no-sync train.py --by torchrun",
        "command: env -u PET_NNODES python train.py torchrun",
        "command: env",
        "command: python -m torch.distributed",
        "command: accelerate env",
        "command: [bash, -c, 'torchrun train.py']",
    ],
)
def test_others_are_run_once_per_task(spec: str) -> None:
    assert command_per(parse_spec(spec, "job.yaml")) == "task"


@pytest.mark.parametrize(
    ("command", "more", "message"),
    [
        (
            "torchrun --nproc-per-node 8 train.py",
            "",
            "--nproc-per-node=8, and resources.tasks_per_node is 1: write 8 there",
        ),
        ("torchrun --nproc_per_node=gpu a.py", "", "tasks_per_node is 1: write their number"),
        ("torchrun --nproc 2 a.py", TWO, "--nproc-per-node=2, and resources.tasks_per_node is 4"),
        ("torchrun --max_restart 2 a.py", TWO, "--max-restarts=2: ranks are started again by"),
        ("torchrun -r3 --log-dir d a.py", TWO, "--redirects=3: the cause of a rank's end is"),
        ("torchrun --redirects=0:2 a.py", TWO, "write --tee=0:2, which fills the same files"),
        (
            "torchrun a.py",
            f"resume: uv run --no-sync torchrun --standalone a.py\ncommand_per: node\n{TWO}",
            "torchrun is told --standalone",
        ),
        ("torchrun --nnodes 3 a.py", TWO, "--nnodes=3, and resources.nodes is 2: write the number"),
        (
            "torchrun --nnodes 1:2 a.py",
            "resources: {nodes: {min: 1, max: 2}}",
            "--nnodes=1:2, and resources.nodes is 1 to 2",
        ),
        ("torchrun --max-restarts=3 a.py", TWO, "ranks are started again by relight; leave it"),
        ("torchrun --signals-to-handle SIGTERM a.py", TWO, "told by relight to save; leave it"),
        ("torchrun --rdzv-endpoint=n1:29500 a.py", TWO, "where ranks meet relight says"),
        ("torchrun --standalone a.py", TWO, "torchrun is told --standalone: where ranks meet"),
        ("torchrun a.py", f"command_per: task\n{TWO}", "leave this out, or write node"),
        ("torchrun a.py", f"mpi: pmix\n{TWO}", "Write `command: python a.py` with"),
        ("./x", "command_per: node\nmpi: pmix", "mpi: it starts each rank; leave one of both out"),
        (
            "accelerate launch --num_machines 2 --num_processes 16 --mixed_precision bf16 t.py",
            "",
            "Write `command: python t.py` with `resources: {nodes: 2, tasks_per_node: 8}`",
        ),
    ],
)
def test_what_makes_another_world_is_refused(command: str, more: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(f"name: lm\ncommand: {command}\n{more}", "job.yaml")
    (fault,) = caught.value.faults
    assert message in fault.message
    assert fault.line in (2, 3)  # of the command, of what follows it
