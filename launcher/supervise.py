"""What the batch script becomes: ``python -m relight.launcher.supervise RUN_DIR``.

Imports stay light: every attempt of every job starts here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from relight.errors import RelightError
from relight.resilience.config import RunConfig
from relight.resilience.supervise.cluster import Cluster

from .stored_plan import StoredPlan, read_plan


def cluster_of(plan: StoredPlan) -> Cluster:
    """The place where this process runs."""
    if plan.cluster == "slurm":
        from .clusters.slurm.cluster import SlurmCluster

        return SlurmCluster(plan.config)
    from .clusters.local import LocalCluster

    return LocalCluster(plan.config)


def run(config: RunConfig, cluster: Cluster) -> int:
    """One attempt, from its first check to its verdict."""
    from relight.resilience.supervise.supervisor import supervise

    return supervise(config, cluster)


def main() -> int:
    """Supervise the run in the folder named on the command line."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m relight.launcher.supervise RUN_DIR\n")
        return 2
    try:
        plan = read_plan(Path(sys.argv[1]))
        return run(plan.config, cluster_of(plan))
    except RelightError as error:
        sys.stderr.write(f"relight: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
