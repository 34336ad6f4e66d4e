"""A heterogeneous job of which Slurm has restarted a part alone, and how the run gets out of it.

When a batch host is lost that is the only node of its component, Slurm (seen on 22.05 and 24.11)
requeues that component and forgets the others: they run on since their first life, with steps of
it, and the component may be given one of their nodes. Steps over all of them do not start then.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from relight.errors import RelightError
from relight.resilience.config import RunConfig
from relight.resilience.exit_codes import EXIT_RESTART
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import Cluster
from relight.resilience.supervise.journal import Record, read_journals
from relight.resilience.supervise.standing import read_verdict

from .clusters.slurm.client import SlurmClient
from .clusters.slurm.parse import JobFacts
from .runs import add_job

_TOGETHER_S: Final = 5.0  # components start within the same moment


def leave_torn(config: RunConfig, cluster: Cluster) -> int | None:
    """The exit code of this job when it is torn and the run goes on in a whole one; else None.

    Where nobody answers, or there is no other job to be had, the run goes on with what it has.
    """
    folder, job_id = RunFolder(config.run_dir), cluster.allocation().job_id
    if folder.cancelled.exists() or read_verdict(folder) is not None:
        return None  # the supervisor knows what to do then
    try:
        if config.restart.mode == "never" or not is_torn(SlurmClient().job(job_id)):
            return None
        left = nodes_to_leave(read_journals(folder.journals))
        restart = cluster.new_allocation(left, config.restart.mode)
    except RelightError as error:
        sys.stderr.write(f"relight: job {job_id} may lack a component: {error}\n")
        return None
    with suppress(OSError):  # the run is found by its name, too
        add_job(folder, restart.job_id)
    sys.stderr.write(
        f"relight: Slurm has restarted a part of job {job_id} alone; the run goes on as job "
        f"{restart.job_id} ({restart.mode})\n"
    )
    return EXIT_RESTART


def nodes_to_leave(records: Sequence[Record]) -> tuple[str, ...]:
    """The excluded ones, and the batch host whose loss has torn the job: it may be up again, and
    nobody of ours was left to say a word against it."""
    left = {str(record.data["node"]): None for record in records if record.name == "ExcludeNode"}
    for record in reversed(records):
        if record.name == "Finish":  # of what it says, people may be told after it
            break
        if record.name == "AttemptStarted":
            left[str(record.data["batch_node"])] = None
            break
    return tuple(left)


def is_torn(job: JobFacts) -> bool:
    """Whether a component has missed the last restart of the first, and runs since before it."""
    return job.start_time is not None and any(
        one.restarts < job.restarts
        and one.start_time is not None
        and one.start_time < job.start_time - _TOGETHER_S
        for one in job.others
    )
