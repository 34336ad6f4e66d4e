"""Commands that start ranks of their own: refused, with what to write in their place."""

from __future__ import annotations

import pytest

from relight.launcher.spec_faults import SpecError
from relight.launcher.spec_file import parse_spec

TRAIN = "python train.py --nproc-per-node 3"


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (
            "torchrun --nnodes=2 --nproc-per-node 8 train.py --nproc-per-node 3",
            f"command: {TRAIN}` with `resources: {{nodes: 2, tasks_per_node: 8}}",
        ),
        (
            "/opt/env/bin/torchrun --standalone --nproc_per_node=gpu -m lm --lr 1",
            "command: python -m lm --lr 1` with `resources: {tasks_per_node: <GPUs of a node>}",
        ),
        (
            "python3 -u -m torch.distributed.run --nproc-per-node=4 a.py 'b c'",
            "command: python a.py 'b c'` with `resources: {tasks_per_node: 4}",
        ),
        (
            "accelerate launch --num_machines 2 --num_processes 16 --mixed_precision bf16 t.py",
            "command: python t.py` with `resources: {nodes: 2, tasks_per_node: 8}",
        ),
        ("torchrun", "command: <program>` with `resources: {tasks_per_node: 1}"),
        (
            "torchrun --no-python ./train",
            "command: <program>` with `resources: {tasks_per_node: 1}",
        ),
    ],
)
def test_the_spec_that_does_the_same_is_told(command: str, instead: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(f"name: lm\ncommand: {command}", "job.yaml")
    (fault,) = caught.value.faults
    assert fault.line == 2
    assert f"Write `{instead}`" in fault.message


@pytest.mark.parametrize(
    "spec",
    [
        "command: torchrun train.py\ncheckpoint: {signal: USR1}",
        "command: torchrun train.py\ncheckpoint: {done: 'state/*'}",
        "command: torchrun train.py\nresume: torchrun train.py --resume",
        "command: python torchrun.py",
        "command: python -m torch.distributed",
        "command: accelerate env",
        "command: [bash, -c, 'torchrun train.py']",
    ],
)
def test_others_are_left_alone(spec: str) -> None:
    parse_spec(spec, "job.yaml")
