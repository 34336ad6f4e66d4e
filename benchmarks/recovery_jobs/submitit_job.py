"""Submit the DDP job through submitit: ``submitit_job.py FOLDER ARGUMENTS``.

submitit starts the callable on every task, calls `checkpoint` when its signal comes, and requeues.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import submitit
from submitit.helpers import DelayedSubmission

JOB = Path(__file__).with_name("ddp_job.py")


class Training:
    """The job on one task, in submitit's own process, as people use it."""

    def __init__(self, arguments: list[str]) -> None:
        self.arguments = arguments

    def __call__(self) -> None:
        env = submitit.JobEnvironment()
        world = {
            "RANK": str(env.global_rank),
            "WORLD_SIZE": str(env.num_tasks),
            "MASTER_ADDR": env.hostnames[0],
            "MASTER_PORT": "29519",
            "OMP_NUM_THREADS": "1",
        }
        os.environ |= world
        sys.argv = [str(JOB), *self.arguments]
        runpy.run_path(str(JOB), run_name="__main__")

    def checkpoint(self) -> DelayedSubmission:
        return DelayedSubmission(Training(self.arguments))  # the job reads its own newest file


def main() -> None:
    folder, *arguments = sys.argv[1:]
    executor = submitit.AutoExecutor(folder=Path(folder) / "submitit")
    executor.update_parameters(
        nodes=2, tasks_per_node=2, timeout_min=20, slurm_additional_parameters={"requeue": True}
    )
    print(executor.submit(Training(arguments)).job_id)


if __name__ == "__main__":
    main()
