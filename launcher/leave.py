"""What the batch script asks while ``setup`` runs, when no supervisor is there yet.

``python -m relight.launcher.leave RUN_DIR WHY BYTES [FIRST_TASK]``: ``WHY`` is the signal that came
or ``failure`` of a setup line; the job's output held ``BYTES`` when the attempt began. When the job
goes on, so does its setup (exit code 0). Else a supervisor is told to stop at once: it arranges
what comes next, and its exit code is that of the script.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from relight.errors import RelightError
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import Cluster, StopCause

from .array_task import folder_of
from .stored_plan import StoredPlan, read_plan
from .supervise import complain, local_cluster, supervise_once

FAILURE: Final = "failure"


def main(arguments: Sequence[str]) -> int:
    why, output_bytes = arguments[1], int(arguments[2] or 0)
    first = int(arguments[3]) if arguments[3:] else None
    try:
        root = folder_of(Path(arguments[0]), os.environ, first)
        plan = read_plan(root)
        cluster = _cluster(plan, output_bytes)
        if _goes_on(RunFolder(root), cluster, why):
            return 0
    except RelightError as error:
        return complain(error)
    # It stays pending until the supervisor listens. The script lets it be ignored up to here.
    number = signal.SIGINT if why == "SIGINT" else signal.SIGTERM
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return supervise_once(plan, cluster, life=1)


def _cluster(plan: StoredPlan, output_bytes: int) -> Cluster:
    if plan.cluster == "slurm":
        from .clusters.slurm.cluster import SlurmCluster

        return SlurmCluster(plan.config, log_start_bytes=output_bytes)
    return local_cluster(plan.config)


def _goes_on(folder: RunFolder, cluster: Cluster, why: str) -> bool:
    if folder.cancelled.exists():
        return False
    cause = cluster.stop_notice(why, to_supervisor=True).cause
    # A line that failed while Slurm is silent has failed.
    return cause is StopCause.SIGNALLED or (cause is StopCause.UNKNOWN and why == FAILURE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
