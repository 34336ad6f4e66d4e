"""Looks after a run whose batch host may die: ``python -m ... RUN_DIR ATTEMPT``, on other nodes.

With ``--no-kill``, Slurm (seen on 22.05) neither ends nor requeues a job that loses its batch host:
it takes the node away and leaves the job RUNNING on the others, without a batch script, until its
time limit. So a warden on up to two other nodes watches the supervisor's progress file. When that
goes stale it asks Slurm, and only when Slurm says that the batch host is gone it arranges the run's
next job and ends this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from relight.errors import RelightError
from relight.resilience.config import RunConfig
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import Allocation, StepRequest
from relight.resilience.supervise.journal import read_journals

from ...stored_plan import read_plan
from .client import SlurmClient
from .cluster import SlurmCluster
from .parse import JobFacts, JobState, node_condition
from .restart import Rearrangement

_WARDENS: Final = 2
_LOOK_S: Final = 2.0
_STALE_S: Final = 10.0  # the supervisor writes every second; Slurm has the last word anyway


@contextmanager
def wardens(cluster: SlurmCluster) -> Iterator[None]:
    """Keeps wardens on other nodes while the body runs; on a single node Slurm does it itself."""
    allocation = cluster.allocation()
    others = tuple(node for node in allocation.nodes if node != allocation.batch_node)[:_WARDENS]
    if not others:
        yield
        return
    command = cluster.step_command(_request(cluster.config, allocation, others))
    step = subprocess.Popen(
        command.argv,
        env=command.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        step.terminate()
        step.wait()


def _request(config: RunConfig, allocation: Allocation, nodes: tuple[str, ...]) -> StepRequest:
    folder = RunFolder(config.run_dir).attempt(allocation.attempt)
    folder.mkdir(parents=True, exist_ok=True)
    return StepRequest(
        name="warden",
        nodes=nodes,
        tasks_per_node=1,
        cpus_per_task=1,
        argv=(sys.executable, "-m", __name__, str(config.run_dir), allocation.attempt),
        env={},
        output=folder / "warden.log",
    )


def batch_host_is_gone(job: JobFacts, node_states: Mapping[str, str]) -> bool:
    """Whether Slurm says so: it took the node out of the job, or holds it for down (pure)."""
    if job.state is not JobState.RUNNING:
        return False
    taken_out = bool(job.nodes) and job.batch_host not in job.nodes
    return taken_out or node_condition(node_states.get(job.batch_host, "")) == "down"


def watch(config: RunConfig, attempt: str, client: SlurmClient) -> None:
    """Returns when this attempt needs no warden any more, or after acting for it."""
    folder = RunFolder(config.run_dir)
    job_id, _, restart_count = attempt.rpartition(".")
    while True:
        time.sleep(_LOOK_S)
        if _is_fresh(folder, attempt):
            continue
        job = client.job(job_id)
        if not job.state.live or job.restarts > int(restart_count) or folder.verdict.exists():
            return
        if batch_host_is_gone(job, client.node_states([job.batch_host])):
            if _is_first(folder, attempt):
                _go_on(config, job, client)
            return


def _go_on(config: RunConfig, job: JobFacts, client: SlurmClient) -> None:
    folder = RunFolder(config.run_dir)
    if folder.cancelled.exists() or config.restart.mode == "never":
        client.cancel([job.job_id])
        return
    restart = Rearrangement(
        client=client,
        job_id=job.job_id,
        restart_count=job.restarts,
        run_id=config.run_id,
        script=folder.script,
        nodes_needed=config.nodes + config.spares,
    ).arrange([*_excluded(folder), job.batch_host], config.restart.mode)
    sys.stderr.write(f"{job.batch_host} is gone: the run goes on as {restart}\n")
    if restart.mode == "successor":
        client.cancel([job.job_id])  # it would stay RUNNING, with nobody in charge


def _excluded(folder: RunFolder) -> list[str]:
    records = read_journals(folder.journals)
    return [str(record.data["node"]) for record in records if record.name == "ExcludeNode"]


def _is_fresh(folder: RunFolder, attempt: str) -> bool:
    """Whether the supervisor wrote lately; before its first word it counts as alive."""
    try:
        progress = json.loads(folder.progress.read_text())
        of_this_attempt = progress["attempt"] == attempt
        age_s = time.time() - folder.progress.stat().st_mtime
    except (OSError, ValueError, KeyError):
        return True
    return not of_this_attempt or age_s < _STALE_S


def _is_first(folder: RunFolder, attempt: str) -> bool:
    """One of the wardens acts."""
    try:
        os.close(os.open(folder.attempt(attempt) / "orphaned", os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def main() -> int:
    """One warden; it outlives silence of Slurm."""
    root, attempt = Path(sys.argv[1]), sys.argv[2]
    config = read_plan(root).config
    while True:
        try:
            watch(config, attempt, SlurmClient())
        except RelightError as error:
            sys.stderr.write(f"{error}\n")
            time.sleep(_LOOK_S)
        else:
            return 0


if __name__ == "__main__":
    sys.exit(main())
