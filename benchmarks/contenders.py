"""One small DDP job on the mini cluster, as relight and as others keep it alive.

2 nodes with 2 ranks each, a checkpoint every 10 steps of 0.1 s; all contenders run the same steps.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import yaml
from stage.site import PYTHON, RELIGHT, REPOSITORY, Site

JOBS = REPOSITORY / "benchmarks" / "recovery_jobs"
JOB = JOBS / "ddp_job.py"
STEP_TIME_S = 0.1


@dataclass(frozen=True, slots=True)
class Trial:
    """One job under one contender; ``trace`` holds a line for each step of rank 0."""

    site: Site
    folder: Path

    @property
    def trace(self) -> Path:
        return self.folder / "trace.jsonl"

    def steps(self) -> list[dict[str, float]]:
        if not self.trace.exists():
            return []
        return [json.loads(line) for line in self.trace.read_text().splitlines() if line]

    def submit_script(self, body: str, *options: str) -> str:
        script = self.folder / "job.sh"
        script.write_text(f"#!/bin/bash\n{body}\n")
        script.chmod(0o755)
        return self.site.user(
            "sbatch", "--parsable", "-N2", "--ntasks-per-node=2", "--requeue", "--open-mode=append",
            f"--output={self.folder}/out", *options, str(script),
        ).strip()  # fmt: skip

    def rank_command(self, save: str) -> list[str]:
        own = ["--checkpoint", str(self.folder / "own.pt")] if save == "own" else []
        return [str(PYTHON), str(JOB), "--save", save, "--trace", str(self.trace), *own]


def start_relight(trial: Trial, *, warm: bool = True, spares: int = 0) -> None:
    spec = trial.folder / "job.yaml"
    spec.write_text(
        yaml.safe_dump(
            {
                "name": "bench",
                "command": trial.rank_command("relight"),
                "resources": {
                    "nodes": 2,
                    "spares": spares,
                    "tasks_per_node": 2,
                    "time": "0:20:00",
                },
                "env": {"OMP_NUM_THREADS": "1"},
                "checkpoint": {"interval": "10 steps"},
                "restart": {"warm": warm},
            }
        )
    )
    spec.chmod(0o644)
    trial.site.user(str(RELIGHT), "submit", str(spec))


def start_torchrun(trial: Trial) -> None:
    """Elastic agents on both nodes; the script requeues itself when they give up."""
    torchrun = [str(PYTHON), "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
    torchrun += ["--max-restarts=9", "--rdzv-backend=c10d", "--rdzv-id=$SLURM_JOB_ID"]
    torchrun += ["--rdzv-endpoint=$head:29517"]
    command = shlex.join(trial.rank_command("own")[1:])
    trial.submit_script(
        "export OMP_NUM_THREADS=1\nhead=$(scontrol show hostnames | head -n1)\n"
        f"srun -N2 -n2 --ntasks-per-node=1 {' '.join(torchrun)} {command}"
        " || scontrol requeue $SLURM_JOB_ID"
    )


def start_requeue(trial: Trial) -> None:
    """What people write: srun ends the step when a rank fails, and the script requeues itself."""
    command = shlex.join(trial.rank_command("own"))
    ranks = "export RANK=$SLURM_PROCID WORLD_SIZE=4 MASTER_ADDR=$head MASTER_PORT=29518"
    trial.submit_script(
        "export OMP_NUM_THREADS=1\nexport head=$(scontrol show hostnames | head -n1)\n"
        f"srun --kill-on-bad-exit=1 bash -c {shlex.quote(f'{ranks}; exec {command}')}"
        " || scontrol requeue $SLURM_JOB_ID"
    )


def start_submitit(trial: Trial) -> None:
    """submitit's checkpointing: the job keeps its own file, submitit requeues on its signal."""
    program = str(JOBS / "submitit_job.py")
    own = trial.rank_command("own")[2:]
    trial.site.user(str(PYTHON), program, str(trial.folder), *own)


CONTENDERS: dict[str, Callable[[Trial], None]] = {
    "relight": start_relight,
    "relight, cold": partial(start_relight, warm=False),
    "relight, hot spare": partial(start_relight, spares=1),
    "torchrun": start_torchrun,
    "submitit": start_submitit,
    "requeue script": start_requeue,
}

# What a contender is there for: a spare is of use only where a host is lost.
ONLY: dict[str, tuple[str, ...]] = {"relight, hot spare": ("loss of a host",)}
