"""The ``Cluster`` of ``relight run`` inside an allocation that somebody holds, as by ``salloc``.

The front starts the attempts, as on one machine; their steps run on the allocation's nodes. Nothing
here ends the allocation or asks for another: it belongs to whoever made it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from relight.counted import counted
from relight.errors import UsageError
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import (
    Allocation,
    Restart,
    RestartRefused,
    StopNotice,
)

from ..local import HELD, LocalCluster
from .cluster import SlurmCluster, reachable_name
from .hostlist import expand_counts, expand_nodes

_KEPT: Final = ("SLURM_JOB_ID", "SLURM_CONF")


@dataclass(frozen=True, slots=True)
class HeldAllocation:
    """A job's id, nodes and CPUs on each, from the environment of a shell inside it; of the CPUs
    nothing where that does not say."""

    job_id: str
    nodes: tuple[str, ...]
    cpus: tuple[int, ...] = ()


def held_allocation(env: Mapping[str, str]) -> HeldAllocation | None:
    """The allocation that this process is in; None outside of any.

    Raises:
        UsageError: the environment names a job, and no readable list of its nodes.
    """
    job_id = env.get("SLURM_JOB_ID")
    if not job_id:
        return None
    try:
        nodes = expand_nodes(env["SLURM_JOB_NODELIST"])
        cpus = expand_counts(env.get("SLURM_JOB_CPUS_PER_NODE", ""))
        return HeldAllocation(job_id, nodes, cpus)
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"SLURM_JOB_ID is {job_id}, but the nodes of that job are not known ({error}): "
            "unset SLURM_JOB_ID to run on this machine"
        ) from error


@dataclass(slots=True)
class HeldCluster(SlurmCluster):
    """One attempt in an allocation that was there before, and stays."""

    def allocation(self) -> Allocation:
        if self._allocation is None:
            ours = LocalCluster(self.config, self.env).allocation()
            name = self.env.get("SLURMD_NODENAME") or socket.gethostname()
            host = reachable_name(name, otherwise=socket.gethostname())
            self._allocation = replace(ours, supervisor_host=host)
            self._start = self._attempt_start(self._allocation)
        return self._allocation

    def stop_notice(self, signal_name: str, *, to_supervisor: bool) -> StopNotice:
        """The front speaks to the supervisor, Slurm to the steps."""
        if to_supervisor and signal_name in ("SIGTERM", "SIGINT"):
            return LocalCluster(self.config, self.env).stop_notice(signal_name, to_supervisor=True)
        # Not super(): a dataclass with slots is another class than the one that it refers to.
        return SlurmCluster.stop_notice(self, signal_name, to_supervisor=to_supervisor)

    def new_allocation(self, exclude: Sequence[str], mode: str) -> Restart:
        """The same one again, without some of its nodes.

        Raises:
            RestartRefused: it is about to end, or has too few other nodes.
        """
        job_id = self.env[HELD]
        again = "; `relight run --resume` goes on in another one"
        end_time = self.end_time()
        if end_time is not None and end_time - time.time() < 2 * self.config.checkpoint.lead_s:
            raise RestartRefused(f"the allocation {job_id} is about to end{again}")
        left = set(expand_nodes(self.env["SLURM_JOB_NODELIST"])) - set(exclude)
        if len(left) < self.config.nodes:
            raise RestartRefused(
                f"the allocation {job_id} has {counted(len(left), 'node')} that may be used, and "
                f"{self.config.nodes} are needed{again}"
            )
        return LocalCluster(self.config, self.env).new_allocation(exclude, mode)

    def withdraw(self, restart: Restart) -> None:
        LocalCluster(self.config, self.env).withdraw(restart)

    def give_back(self, nodes: Sequence[str]) -> None:
        """The allocation is its user's."""

    def _slurm_job(self, allocation: Allocation) -> str:
        return self.env[HELD]

    def _env_for_steps(self) -> dict[str, str]:
        """What salloc was asked for is not what a step needs."""
        return {
            name: value
            for name, value in self.env.items()
            if not name.startswith(("SLURM_", "SRUN_")) or name in _KEPT
        }

    def _log_path(self) -> Path:
        return RunFolder(self.config.run_dir).attempts / f"{self.allocation().job_id}.out"
