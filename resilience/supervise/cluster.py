"""What a supervisor needs from the place it runs in: Slurm, or this machine.

The two implementations live in ``launcher/clusters``; one contract test suite covers both.
Every call may block for a moment and is made from a worker thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from relight.errors import RelightError

from ..config import ComponentConfig
from ..decide.causes import RestartWay, StopCause

__all__ = [
    "Allocation",
    "Cluster",
    "ClusterUnavailable",
    "Command",
    "NodeCondition",
    "Restart",
    "RestartRefused",
    "StepRequest",
    "StopCause",
    "StopNotice",
]


class ClusterUnavailable(RelightError):
    """The scheduler did not answer, or not in time. It says nothing about the job."""

    transient = True


class RestartRefused(RelightError):
    """The scheduler said no to a new allocation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One attempt's nodes. ``attempt`` is ``<job_id>.<restart_count>``."""

    job_id: str
    restart_count: int
    nodes: tuple[str, ...]
    batch_node: str
    supervisor_host: str  # the name under which agents reach the supervisor
    resumed: bool = False  # a person has started the run again
    components: tuple[tuple[str, ...], ...] = ()  # of a heterogeneous job: the nodes of each

    @property
    def attempt(self) -> str:
        return f"{self.job_id}.{self.restart_count}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNotice:
    """The scheduler's account of a stop signal.

    ``kill_at`` is the Unix time at which processes will be killed, None when nobody will. A warning
    comes while the job still runs: there is time until something ends it.
    """

    cause: StopCause
    kill_at: float | None
    evidence: str
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """One process per task on each of ``nodes``, started by one command of this machine.

    With ``components`` the nodes are theirs, in their order, and carry the tasks that they say.
    """

    name: str
    nodes: tuple[str, ...]
    tasks_per_node: int
    cpus_per_task: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    mpi: str | None = None
    components: tuple[ComponentConfig, ...] = ()
    options: tuple[str, ...] = ()  # more of srun's; no other cluster knows them
    output: Path | None = None  # what the step's own processes print; None: thrown away


@dataclass(frozen=True, slots=True)
class Command:
    """A process to start: its arguments and its whole environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


NodeCondition = Literal["up", "down", "unknown"]


@dataclass(frozen=True, slots=True)
class Restart:
    """How the run goes on after this attempt.

    ``released``: nodes that were to be avoided and are not, as too few others would be left.
    """

    mode: RestartWay
    job_id: str
    released: tuple[str, ...] = ()


class Cluster(Protocol):
    """A place where a run can live."""

    def allocation(self) -> Allocation:
        """This attempt's nodes, read once at its start."""

    def node_address(self, node: str) -> str:
        """The name or address under which the other nodes reach ``node``."""

    def end_time(self) -> float | None:
        """Unix time at which the time limit ends this attempt; None without a limit.

        Raises:
            ClusterUnavailable: no answer.
        """

    def step_command(self, request: StepRequest) -> Command:
        """The command that starts a step; it ends when all its tasks have ended.

        The loss of one task or node must not end the others.
        """

    def stop_notice(self, signal_name: str, *, to_supervisor: bool) -> StopNotice:
        """What a signal that just arrived means. Never raises: no answer is ``UNKNOWN``.

        In place of a signal's name there may be words for what else gave a reason to ask.
        """

    def node_conditions(self, nodes: Sequence[str]) -> Mapping[str, NodeCondition]:
        """What the scheduler thinks of nodes; no answer is "unknown", never "down"."""

    def rebooted(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """Those that have booted since this attempt began, if the scheduler says so at once."""

    def new_allocation(self, exclude: Sequence[str], mode: str) -> Restart:
        """Arrange that the run goes on elsewhere once this attempt has ended, at most once.

        What is arranged already only hears of the nodes to avoid.

        ``mode`` is ``auto``, ``successor`` or ``requeue``.

        Raises:
            RestartRefused: the scheduler will not; nothing is pending.
            ClusterUnavailable: no answer after trying for a while.
        """

    def withdraw(self, restart: Restart) -> None:
        """Take a new allocation back, when the run was cancelled while it was arranged."""

    def give_back(self, nodes: Sequence[str]) -> None:
        """Leave nodes that are gone, so that the end of this attempt does not wait for them.

        Nothing is started any more. Never raises: without it the next attempt only begins later.
        """
