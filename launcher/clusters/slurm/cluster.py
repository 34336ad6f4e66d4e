"""The ``Cluster`` of a batch script that runs under Slurm."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Final

from relight.errors import RelightError
from relight.resilience.config import RunConfig
from relight.resilience.environ import initial_environment
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import (
    Allocation,
    ClusterUnavailable,
    Command,
    NodeCondition,
    Restart,
    RestartRefused,
    StepRequest,
    StopCause,
    StopNotice,
)

from . import commands
from .client import SlurmClient, SlurmMissing, SlurmRefused
from .components import held_components
from .components import step as components_step
from .dependents import move_dependents
from .hostlist import expand_nodes
from .orphan import mark_path, read_mark
from .parse import JobFacts, JobState, node_condition, parse_seconds
from .restart import Rearrangement, withdraw
from .size import next_size
from .stop import AttemptStart, judge_stop

_log = logging.getLogger(__name__)
_KILL_WAIT_S: Final = 30.0  # Slurm's default
_GIVE_BACK_S: Final = 5.0
_AT_ONCE_S: Final = 2.0  # for an answer that ranks wait for, and need not have
_LOG_TAIL_BYTES: Final = 16 * 1024
# The batch script's own options, which srun would take as its own: 23.11 and later refuse
# --cpus-per-task beside SLURM_TRES_PER_TASK, and a CPU binding of the outer job slows the ranks.
_NOT_FOR_STEPS: Final = ("SLURM_TRES_PER_TASK", "SLURM_CPU_BIND", "SLURM_DISTRIBUTION")
# 20.11 takes that of the first component for the nodes of a whole step, and refuses the second.
_NOT_OVER_COMPONENTS: Final = "SLURM_JOB_NUM_NODES"


class NotInJob(RelightError):
    """Raised when the process is not a Slurm batch script."""

    exit_code = 2


@dataclass(slots=True)
class SlurmCluster:
    """One attempt under Slurm, from the ``SLURM_*`` variables of its batch script.

    ``log_start_bytes`` is what the job's output held when the attempt began, None when that is now.
    """

    config: RunConfig
    env: Mapping[str, str] = field(default_factory=initial_environment)
    client: SlurmClient = field(default_factory=SlurmClient)
    log_start_bytes: int | None = None
    begun: float = field(default_factory=time.time)
    _allocation: Allocation | None = None
    _start: AttemptStart | None = None
    _restart: Restart | None = None
    _hostfiles: Iterator[int] = field(default_factory=lambda: count(1))

    def allocation(self) -> Allocation:
        if self._allocation is None:
            self._allocation = _allocation(self.env)
            if self.log_start_bytes is None:
                self.log_start_bytes = self._log_size_bytes()
            self._start = self._attempt_start(self._allocation)
        return self._allocation

    def node_address(self, node: str) -> str:
        return node

    def end_time(self) -> float | None:
        return self._job(self.allocation()).end_time

    def step_command(self, request: StepRequest) -> Command:
        env = {**self._env_for_steps(), **request.env}
        if components := held_components(self.env):
            env.pop(_NOT_OVER_COMPONENTS, None)
            return Command(components_step(request, components), env)
        allocated = self.allocation().nodes
        in_order = tuple(node for node in allocated if node in request.nodes)
        if in_order == request.nodes:
            return Command(commands.step(request, None), env)
        hostfile = RunFolder(self.config.run_dir).attempt(self.allocation().attempt)
        hostfile.mkdir(parents=True, exist_ok=True)
        hostfile /= f"hosts-{next(self._hostfiles)}"
        lines = [node for node in request.nodes for _ in range(request.tasks_per_node)]
        hostfile.write_text("\n".join(lines) + "\n")
        return Command(commands.step(request, hostfile), {**env, "SLURM_HOSTFILE": str(hostfile)})

    def stop_notice(self, signal_name: str, *, to_supervisor: bool) -> StopNotice:
        allocation = self.allocation()
        quick = SlurmClient(timeout_s=5.0, pauses_s=(0.5,))
        try:
            job = quick.job(self._slurm_job(allocation))
        except RelightError as error:
            return StopNotice(cause=StopCause.UNKNOWN, kill_at=None, evidence=str(error))
        assert self._start is not None  # set with the allocation
        return judge_stop(
            self._start,
            job,
            signal_name=signal_name,
            to_supervisor=to_supervisor,
            log=self._log_tail(),
            now=time.time(),
        )

    def node_conditions(self, nodes: Sequence[str]) -> Mapping[str, NodeCondition]:
        """A node that Slurm has taken out of the job is lost for it, even if it is up again."""
        try:
            states = self.client.node_states(nodes)
            lost = self._taken_out()
        except RelightError as error:
            _log.warning("the state of nodes is not known: %s", error)
            return dict.fromkeys(nodes, "unknown")
        return {
            node: "down" if node in lost else node_condition(states.get(node, "")) for node in nodes
        }

    def rebooted(self, nodes: Sequence[str]) -> tuple[str, ...]:
        try:
            booted = SlurmClient(timeout_s=_AT_ONCE_S, pauses_s=()).boot_times(nodes)
        except RelightError as error:
            _log.info("when nodes have booted is not known: %s", error)
            return ()
        return tuple(node for node in nodes if booted.get(node, 0.0) > self.begun)

    def _taken_out(self) -> frozenset[str]:
        """What this attempt has been given and the job does not hold any more."""
        allocation = self.allocation()
        job = self._job(allocation)
        ours = job.state is JobState.RUNNING and job.restarts == allocation.restart_count
        return frozenset(allocation.nodes) - {*job.all_nodes} if ours and job.nodes else frozenset()

    def new_allocation(self, exclude: Sequence[str], mode: str) -> Restart:
        if self._restart is not None:  # more nodes had to be left since
            self._restart = self._rearrangement().avoid(self._restart, exclude)
            return self._restart
        self._restart = self._taken_over()
        if self._restart is None:
            try:
                self._restart = self._rearrangement().arrange(exclude, mode)
            except SlurmRefused as refusal:
                raise RestartRefused(f"no new allocation: {refusal}") from refusal
            except SlurmMissing as error:
                raise ClusterUnavailable(str(error)) from error
            own, folder = self.allocation().job_id, RunFolder(self.config.run_dir)
            move_dependents(self.client, folder, own, self._restart.job_id)
        return self._restart

    def _nodes_needed(self, allocation: Allocation) -> int:
        if self.config.program == "script":
            return len(allocation.nodes)
        return self.config.nodes_needed

    def _env_for_steps(self) -> dict[str, str]:
        """A script's own options for its steps, such as SLURM_GPU_BIND, are not for ours."""
        if self.config.program == "script":
            # Without it srun takes all nodes of a heterogeneous job for those of one component.
            kept = ("SLURM_JOB_ID", "SLURM_HET_SIZE", "SLURM_CONF")
            return {
                name: value
                for name, value in self.env.items()
                if not name.startswith(("SLURM_", "SRUN_")) or name in kept
            }
        return {name: value for name, value in self.env.items() if name not in _NOT_FOR_STEPS}

    def withdraw(self, restart: Restart) -> None:
        try:
            withdraw(self.client, restart)
        except SlurmMissing as error:
            raise ClusterUnavailable(str(error)) from error

    def give_back(self, nodes: Sequence[str]) -> None:
        """A job that has ended is COMPLETING, and its successor waits, until Slurm holds a node
        that is gone for down: five minutes, by default."""
        allocation = self.allocation()
        rest = [node for node in allocation.nodes if node not in nodes]
        if self.config.program == "script" or allocation.components or not set(nodes):
            return
        if self._restart is not None and self._restart.mode != "successor":
            return  # the job itself starts again, as large as it is now
        try:
            replace(self.client, timeout_s=_GIVE_BACK_S).shrink(allocation.job_id, rest)
        except (RelightError, OSError) as error:
            _log.info("the end of this job may wait for %s: %s", ", ".join(nodes), error)

    def _rearrangement(self) -> Rearrangement:
        allocation = self.allocation()
        return Rearrangement(
            client=self.client,
            job_id=allocation.job_id,
            restart_count=allocation.restart_count,
            run_id=self.config.run_id,
            script=RunFolder(self.config.run_dir).script,
            nodes_needed=self._nodes_needed(allocation),
            size=next_size(self.config),
            of_components=tuple(map(len, allocation.components)),
            held=RunFolder(self.config.run_dir).held.exists(),
            keep_id=self.config.program == "script",
        )

    def _taken_over(self) -> Restart | None:
        """What a warden has arranged: it took this host for dead, and is in charge since then."""
        allocation = self.allocation()
        mark = read_mark(mark_path(RunFolder(self.config.run_dir), allocation.attempt))
        if mark is None:
            return None
        _log.warning("%s has taken over: nothing is arranged here", mark.owner)
        # While it is at it the outcome is open, but the run goes on, and not by our doing.
        return mark.restart or Restart("requeue", allocation.job_id)

    def _slurm_job(self, allocation: Allocation) -> str:
        return allocation.job_id

    def _job(self, allocation: Allocation) -> JobFacts:
        try:
            return self.client.job(self._slurm_job(allocation))
        except SlurmMissing as error:  # inside a job it is a file system that does not answer
            raise ClusterUnavailable(str(error)) from error

    def _attempt_start(self, allocation: Allocation) -> AttemptStart:
        """The job as it is now; a controller that is silent at the start costs only accuracy."""
        end_time, kill_wait_s = None, _KILL_WAIT_S
        try:
            end_time = self._job(allocation).end_time
            kill_wait_s = parse_seconds(self.client.config().get("KillWait")) or _KILL_WAIT_S
        except ClusterUnavailable as error:
            _log.warning("Slurm does not say when this job ends: %s", error)
        return AttemptStart(
            restarts=allocation.restart_count,
            end_time=end_time,
            kill_wait_s=kill_wait_s,
            lead_s=self.config.checkpoint.lead_s,
        )

    def _log_size_bytes(self) -> int:
        try:
            return self._log_path().stat().st_size
        except OSError:
            return 0

    def _log_tail(self) -> str:
        """What this attempt's batch output has gained: a requeued job appends to the same file."""
        try:
            with self._log_path().open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self.log_start_bytes or 0, size - _LOG_TAIL_BYTES))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def _log_path(self) -> Path:
        assert self._allocation is not None
        if self.config.program == "script":  # whose output goes where the user wants it
            return Path("/proc/self/fd/2")
        return RunFolder(self.config.run_dir).attempts / f"{self._allocation.job_id}.out"


def _allocation(env: Mapping[str, str]) -> Allocation:
    try:
        components = held_components(env)
        nodes = tuple(chain(*components)) or expand_nodes(env["SLURM_JOB_NODELIST"])
        job_id = env["SLURM_JOB_ID"]
        if "SLURM_ARRAY_TASK_ID" in env:  # the id of an array's last task names all of them
            job_id = f"{env['SLURM_ARRAY_JOB_ID']}_{env['SLURM_ARRAY_TASK_ID']}"
    except (KeyError, ValueError) as error:
        raise NotInJob(f"this is not the batch script of a Slurm job: {error}") from error
    batch_node = env.get("SLURMD_NODENAME", nodes[0])
    return Allocation(
        job_id=job_id,
        # Unset on the first run, up to and including 25.11.
        restart_count=int(env.get("SLURM_RESTART_COUNT") or 0),
        nodes=nodes,
        components=components,
        batch_node=batch_node,
        supervisor_host=reachable_name(batch_node, otherwise=socket.gethostname()),
    )


def reachable_name(node: str, otherwise: str) -> str:
    """The node's Slurm name where it resolves: sites may make it differ from the host's own."""
    try:
        socket.getaddrinfo(node, None)
    except OSError:
        return otherwise
    return node
