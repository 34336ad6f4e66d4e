"""What follows when no supervisor of an attempt lives for long: other nodes, or a told end."""

from __future__ import annotations

from typing import Final

from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.exit_codes import EXIT_RESTART, EXIT_STOP
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import Cluster, ClusterUnavailable, RestartRefused
from relight.resilience.supervise.journal import read_journals
from relight.resilience.supervise.last_word import leave_verdict
from relight.resilience.supervise.standing import read_verdict

from .job_output import tell

_ENDED: Final = "its supervisors were ended again and again"


def newest_commit(config: RunConfig) -> object:
    """The newest step that was committed, as the journals have it: a sign of progress."""
    records = read_journals(RunFolder(config.run_dir).journals)
    steps = [record.data["step"] for record in records if record.name == "CheckpointCommitted"]
    return steps[-1] if steps else None


def leave(config: RunConfig, cluster: Cluster) -> int:
    """The exit code of an attempt whose supervisors came to nothing, and what it stands for.

    The run goes on in a new allocation, which is counted against its budget by the journal. Where
    no supervisor could even begin one would follow the other for ever: there the run stops.
    """
    folder = RunFolder(config.run_dir)
    ended = read_verdict(folder)
    if ended is not None:
        return ended.exit_code
    attempt = cluster.allocation().attempt
    records = read_journals(folder.journals)
    if folder.cancelled.exists():
        return _stop(folder, Outcome.CANCELLED, "cancelled while no supervisor lived")
    if not any((r.attempt, r.name) == (attempt, "AttemptStarted") for r in records):
        return _stop(folder, Outcome.STOPPED, "no supervisor of this attempt could begin")
    if config.restart.mode == "never":
        return _stop(folder, Outcome.STOPPED, f"{_ENDED}; restart.mode is never")
    excluded = {str(r.data["node"]): None for r in records if r.name == "ExcludeNode"}
    try:
        restart = cluster.new_allocation(tuple(excluded), config.restart.mode)
    except (RestartRefused, ClusterUnavailable) as error:
        return _stop(folder, Outcome.STOPPED, f"{_ENDED}; there are no new nodes: {error}")
    tell(f"the run goes on as job {restart.job_id} ({restart.mode})")
    return EXIT_RESTART


def _stop(folder: RunFolder, outcome: Outcome, reason: str) -> int:
    tell(f"{outcome.value}: {reason}")
    order = Finish(outcome=outcome, exit_code=EXIT_STOP, cause="supervisor", reason=reason)
    leave_verdict(folder, order)
    return order.exit_code
