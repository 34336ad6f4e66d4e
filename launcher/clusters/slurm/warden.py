"""Looks after a run whose batch host may die: ``python -m ... RUN_DIR ATTEMPT [setup]``.

With ``--no-kill``, Slurm (seen on 22.05) neither ends nor requeues a job that loses its batch host:
it takes the node away and leaves the job RUNNING on the others, without a batch script, until its
time limit. So wardens on some other nodes watch the supervisor's progress file. When that does not
change any more they ask Slurm, and only when Slurm says that the batch host is gone one of them
arranges the run's next job and ends this one.

Wardens ``setup`` stay until there is a supervisor (:mod:`.wardens_of_setup`).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from relight.errors import RelightError
from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.exit_codes import EXIT_STOP
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import (
    Allocation,
    Command,
    Restart,
    RestartRefused,
    StepRequest,
)
from relight.resilience.supervise.journal import read_journals
from relight.resilience.supervise.standing import write_verdict

from ...stored_plan import read_plan
from .client import SlurmClient, SlurmRefused
from .cluster import SlurmCluster
from .orphan import Claim, Pulse, mark_path
from .parse import JobFacts, JobState
from .restart import Rearrangement
from .size import next_size

_WARDENS: Final = 4
_MOST: Final = 16
_LOOK_S: Final = 2.0
_QUICK_S: Final = 3.0
_END_S: Final = 1.0  # for srun to end its step, which it cannot where a node is gone
_ENOUGH: Final = signal.SIGUSR2  # a step is sent SIGTERM by Slurm too, when its job may go on
OF_SETUP: Final = "setup"
_STALE_S: Final = 10.0  # the supervisor writes every second; Slurm has the last word anyway


@contextmanager
def wardens(cluster: SlurmCluster) -> Iterator[None]:
    """Keeps wardens on other nodes while the body runs; on a single node Slurm does it itself."""
    command = warden_step(cluster)
    if command is None:
        yield
        return
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
    step.send_signal(_ENOUGH)
    try:
        step.wait(_END_S)
    except subprocess.TimeoutExpired:
        step.kill()
        step.wait()


def posts(allocation: Allocation, may_be_lost: int) -> tuple[str, ...]:
    """Where wardens stand: as many nodes as the attempt may lose one by one, and some more.

    Evenly over the list, so that no rack holds all of them (pure).
    """
    others = [node for node in allocation.nodes if node != allocation.batch_node]
    wanted = min(len(others), _WARDENS + may_be_lost, _MOST)
    return tuple(others[number * len(others) // wanted] for number in range(wanted))


def warden_step(cluster: SlurmCluster, *more: str) -> Command | None:
    """The step of an attempt's wardens; None without a node for them."""
    allocation, config = cluster.allocation(), cluster.config
    nodes = posts(allocation, len(allocation.nodes) - (config.min_nodes or config.nodes))
    return cluster.step_command(_request(config, allocation, nodes, more)) if nodes else None


def _request(
    config: RunConfig, allocation: Allocation, nodes: tuple[str, ...], more: tuple[str, ...]
) -> StepRequest:
    folder = RunFolder(config.run_dir).attempt(allocation.attempt)
    folder.mkdir(parents=True, exist_ok=True)
    return StepRequest(
        name="warden",
        nodes=nodes,
        tasks_per_node=1,
        cpus_per_task=1,
        argv=(sys.executable, "-P", "-m", __name__, str(config.run_dir), allocation.attempt, *more),
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
    of_setup: bool = False  # until there is a supervisor
    _pulse: Pulse = field(init=False)
    _claim: Claim = field(init=False)

    def __post_init__(self) -> None:
        folder = RunFolder(self.config.run_dir)
        self._pulse = Pulse(folder.progress, self.clock)
        self._claim = Claim(mark_path(folder, self.attempt), self.owner, self.clock)

    def look(self) -> bool:
        """Looks once, and acts where it must; whether the attempt needs no warden any more."""
        folder = RunFolder(self.config.run_dir)
        if self.of_setup and folder.journal(self.attempt).exists():
            return True
        if self._pulse.silence_s() < _STALE_S:
            return False
        job_id, _, restart_count = self.attempt.rpartition(".")
        job = self.client.job(job_id)
        if not job.state.live or job.restarts > int(restart_count) or folder.verdict.exists():
            return True
        if not batch_host_is_gone(job, self.client.node_states([job.batch_host])):
            self._pulse.restart()
            return False
        if not self._claim.take():
            return False  # another one acts; should it vanish, it is our turn
        self._go_on(folder, job)
        return True

    def job_runs(self) -> bool:
        """Whether the job goes on after a SIGTERM; when Slurm is silent it does not."""
        job_id, _, restart_count = self.attempt.rpartition(".")
        try:
            job = replace(self.client, timeout_s=_QUICK_S, pauses_s=()).job(job_id)
        except RelightError:
            return False
        return job.state is JobState.RUNNING and job.restarts <= int(restart_count)

    def _go_on(self, folder: RunFolder, job: JobFacts) -> None:
        if folder.cancelled.exists():
            self.client.cancel([job.job_id])
            return
        try:
            if self.config.restart.mode == "never":
                raise RestartRefused("restart.mode is never")
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
            size=next_size(self.config),
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
    owner = f"{socket.gethostname()}.{os.getpid()}"
    of_setup = sys.argv[3:] == [OF_SETUP]
    warden = Warden(read_plan(Path(sys.argv[1])).config, sys.argv[2], owner, of_setup=of_setup)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    sys.stderr.write(f"{owner} watches over {warden.attempt}\n")
    while True:
        told = signal.sigtimedwait({signal.SIGTERM}, _LOOK_S)
        if told is not None and not warden.job_runs():
            return 0
        try:
            if warden.look():
                return 0
        except (RelightError, OSError) as error:
            sys.stderr.write(f"{error}\n")


if __name__ == "__main__":
    sys.exit(main())
