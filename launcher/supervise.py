"""What the batch script becomes: ``python -m relight.launcher.supervise RUN_DIR``.

The script that ``relight sbatch`` sends calls ``exit_with(main(...))`` itself.

Imports stay light: every attempt of every job starts here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from relight.errors import RelightError
from relight.resilience.config import RunConfig
from relight.resilience.supervise.cluster import Cluster
from relight.resilience.supervise.supervisor import supervise

from .array_task import folder_of
from .job_output import flush, tell
from .keeper import EXIT_CRASHED, keep
from .last_life import leave, newest_commit
from .run_folder_away import once_there
from .stored_plan import StoredPlan, read_plan


@contextmanager
def cluster_of(plan: StoredPlan) -> Iterator[Cluster]:
    """The place where this process runs, for as long as it does."""
    if plan.cluster == "slurm":
        from .clusters.slurm.cluster import SlurmCluster
        from .clusters.slurm.warden import wardens

        cluster = SlurmCluster(plan.config)
        # Without --no-kill Slurm itself ends a job that loses a node.
        if plan.config.program == "script" or plan.config.components:
            yield cluster
            return
        with wardens(cluster):
            yield cluster
    else:
        yield local_cluster(plan.config)


def local_cluster(config: RunConfig) -> Cluster:
    """What ``relight run`` has started this attempt on: this machine, or nodes that it holds."""
    from .clusters.local import HELD, LocalCluster

    if HELD not in os.environ:
        return LocalCluster(config)
    from .clusters.slurm.held import HeldCluster

    return HeldCluster(config)


def main(arguments: Sequence[str]) -> int:
    """Supervise the run in a folder, or that of a task of its array."""
    if not 1 <= len(arguments) <= 2:
        sys.stderr.write("usage: python -m relight.launcher.supervise RUN_DIR [FIRST_TASK]\n")
        return 2
    first = int(arguments[1]) if arguments[1:] else None
    try:
        root = Path(arguments[0])
        plan = once_there(root, lambda: read_plan(folder_of(root, os.environ, first)))
        if plan.config.after:
            from .too_early import go_back

            if (code := go_back(plan.config, os.environ)) is not None:
                return code
        with cluster_of(plan) as cluster:
            if plan.cluster == "slurm" and "SLURM_HET_SIZE" in os.environ:
                from .torn_job import leave_torn

                if (code := leave_torn(plan.config, cluster)) is not None:
                    return code
            if plan.config.program == "script":  # it would not outlive its supervisor
                return supervise(plan.config, cluster)
            config = plan.config
            return keep(
                lambda life: supervise_once(plan, cluster, life),
                lambda: once_there(config.run_dir, lambda: newest_commit(config)),
                lambda: once_there(config.run_dir, lambda: leave(config, cluster)),
            )
    except RelightError as error:
        return complain(error)


def supervise_once(plan: StoredPlan, cluster: Cluster, life: int) -> int:
    """One life of a supervisor; its exit code."""
    try:
        return supervise(plan.config, cluster, life=life)
    except RelightError as error:
        code = complain(error)
        return EXIT_CRASHED if error.transient else code  # the next life may have more luck


def complain(error: RelightError) -> int:
    """Says what went wrong in the job's output; the exit code."""
    tell(str(error))
    return error.exit_code


def exit_with(code: int) -> NoReturn:
    """End this process: Python itself would wait for threads that a file system holds."""
    flush()
    os._exit(code)


if __name__ == "__main__":
    exit_with(main(sys.argv[1:]))
