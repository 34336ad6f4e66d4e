"""Looks after a run whose batch host may die: ``python -m ... RUN_DIR ATTEMPT``, on other nodes.

With ``--no-kill``, Slurm (seen on 22.05) neither ends nor requeues a job that loses its batch host:
it takes the node away and leaves the job RUNNING on the others, without a batch script, until its
time limit. So a warden on up to two other nodes watches the supervisor's progress file. When that
does not change any more it asks Slurm, and only when Slurm says that the batch host is gone it
arranges the run's next job and ends this one.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from relight.errors import RelightError
from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.exit_codes import EXIT_STOP
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import Allocation, Restart, RestartRefused, StepRequest
from relight.resilience.supervise.journal import read_journals
from relight.resilience.supervise.standing import write_verdict

from ...stored_plan import read_plan
from .client import SlurmClient, SlurmRefused
from .cluster import SlurmCluster
from .orphan import Claim, Pulse, mark_path
from .parse import JobFacts, JobState
from .restart import Rearrangement

_WARDENS: Final = 2
_LOOK_S: Final = 2.0
_END_S: Final = 10.0  # for srun to end its step
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
        _end(step)


def _end(step: subprocess.Popen[bytes]) -> None:
    """An srun that hangs must not keep the job: what is left of the step ends with the job."""
    step.terminate()
    try:
        step.wait(_END_S)
    except subprocess.TimeoutExpired:
        step.kill()
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
    # FAIL and FAILING only announce a failure: jobs run on there.
    return taken_out or node_states.get(job.batch_host, "").startswith("down")


@dataclass(slots=True)
class Warden:
    """One warden of an attempt."""

    config: RunConfig
    attempt: str
    owner: str  # unique among wardens
    client: SlurmClient = field(default_factory=SlurmClient)
    clock: Callable[[], float] = time.monotonic
    _pulse: Pulse = field(init=False)
    _claim: Claim = field(init=False)

    def __post_init__(self) -> None:
        folder = RunFolder(self.config.run_dir)
        self._pulse = Pulse(folder.progress, self.clock)
        self._claim = Claim(mark_path(folder, self.attempt), self.owner, self.clock)

    def look(self) -> bool:
        """Looks once, and acts where it must; whether the attempt needs no warden any more."""
        if self._pulse.silence_s() < _STALE_S:
            return False
        folder = RunFolder(self.config.run_dir)
        job_id, _, restart_count = self.attempt.rpartition(".")
        job = self.client.job(job_id)
        if not job.state.live or job.restarts > int(restart_count) or folder.verdict.exists():
            return True
        if not batch_host_is_gone(job, self.client.node_states([job.batch_host])):
            return False
        if not self._claim.take():
            return False  # another one acts; should it vanish, it is our turn
        self._go_on(folder, job)
        return True

    def _go_on(self, folder: RunFolder, job: JobFacts) -> None:
        if folder.cancelled.exists() or self.config.restart.mode == "never":
            self.client.cancel([job.job_id])
            return
        try:
            restart = self._arrange([*_excluded(folder), job.batch_host], job)
        except RestartRefused as refusal:
            write_verdict(folder, _stopped(job.batch_host, refusal), time.time())
            self.client.cancel([job.job_id])
            return
        self._claim.arranged(restart)
        sys.stderr.write(f"{job.batch_host} is gone: the run goes on as {restart}\n")
        if restart.mode == "successor":
            self.client.cancel([job.job_id])  # it would stay RUNNING, with nobody in charge

    def _arrange(self, exclude: Sequence[str], job: JobFacts) -> Restart:
        rearrangement = Rearrangement(
            client=self.client,
            job_id=job.job_id,
            restart_count=job.restarts,
            run_id=self.config.run_id,
            script=RunFolder(self.config.run_dir).script,
            nodes_needed=self.config.nodes_needed,
            held=RunFolder(self.config.run_dir).held.exists(),
        )
        try:
            return rearrangement.arrange(exclude, self.config.restart.mode)
        except SlurmRefused as refusal:
            raise RestartRefused(str(refusal)) from refusal


def _stopped(batch_host: str, refusal: RestartRefused) -> Finish:
    return Finish(
        outcome=Outcome.STOPPED,
        exit_code=EXIT_STOP,
        cause="node down",
        reason=f"{batch_host}, which ran the supervisor, is down, and {refusal}",
    )


def _excluded(folder: RunFolder) -> list[str]:
    records = read_journals(folder.journals)
    return [str(record.data["node"]) for record in records if record.name == "ExcludeNode"]


def main() -> int:
    """One warden; it outlives silence of Slurm."""
    root, attempt = Path(sys.argv[1]), sys.argv[2]
    warden = Warden(read_plan(root).config, attempt, f"{socket.gethostname()}.{os.getpid()}")
    while True:
        time.sleep(_LOOK_S)
        try:
            if warden.look():
                return 0
        except (RelightError, OSError) as error:
            sys.stderr.write(f"{error}\n")


if __name__ == "__main__":
    sys.exit(main())
