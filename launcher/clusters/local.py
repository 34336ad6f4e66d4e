"""The ``local`` cluster: pretend nodes on this machine, for runs without Slurm.

The front process (:mod:`.local_front`) tells each attempt its facts in ``RELIGHT_LOCAL_*``; the
attempt leaves its wish for a next one in a file that the front reads.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from relight.errors import RelightError
from relight.resilience.config import RunConfig
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import (
    Allocation,
    Command,
    NodeCondition,
    Restart,
    RestartRefused,
    StepRequest,
    StopCause,
    StopNotice,
)
from relight.resilience.supervise.standing import write_whole

JOB_ID: Final = "RELIGHT_LOCAL_JOB_ID"
RESTART: Final = "RELIGHT_LOCAL_RESTART"
NODES: Final = "RELIGHT_LOCAL_NODES"
RESUMED: Final = "RELIGHT_LOCAL_RESUMED"
HELD: Final = "RELIGHT_LOCAL_ALLOCATION"  # the Slurm job whose nodes these are
GRACE_S: Final = 30.0  # how long a stopped attempt may take; then the front kills it


class NotStarted(RelightError):
    """Raised when the process was not started by ``relight run``."""

    exit_code = 2


def wish_path(folder: RunFolder, attempt: str) -> Path:
    """Where an attempt says which nodes the next one must avoid."""
    return folder.attempt(attempt) / "next.json"


def read_wishes(
    folder: RunFolder, attempts: Sequence[str], complain: Callable[[str], object]
) -> frozenset[str]:
    """The nodes that whatever follows these attempts must avoid; a damaged wish is none."""
    avoided: set[str] = set()
    for attempt in attempts:
        path = wish_path(folder, attempt)
        try:
            avoided.update(json.loads(path.read_text())["exclude"])
        except FileNotFoundError:
            continue  # it wished for nothing
        except (ValueError, KeyError, TypeError) as error:
            complain(f"{path} is damaged ({error}): the nodes that it named are not avoided")
    return frozenset(avoided)


def tasks_on_each(request: StepRequest) -> list[int]:
    """How many tasks each node of a step carries."""
    if not request.components:
        return [request.tasks_per_node] * len(request.nodes)
    return [one.tasks_per_node for one in request.components for _ in range(one.nodes)]


def told_path(folder: RunFolder) -> Path:
    """Where the front says why the run shall stop and wait for a person; absent else."""
    return folder.root / "TOLD_TO_WAIT"


def _read_told(run_dir: Path) -> str | None:
    try:
        return told_path(RunFolder(run_dir)).read_text()
    except OSError:  # none was left, or the run folder is away
        return None


@dataclass(slots=True)
class LocalCluster:
    """One attempt on this machine."""

    config: RunConfig
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def allocation(self) -> Allocation:
        try:
            nodes = tuple(self.env[NODES].split(","))
            job_id, restart_count = self.env[JOB_ID], int(self.env[RESTART])
        except KeyError as error:
            raise NotStarted(
                f"{error.args[0]} is not set: start this with `relight run`"
            ) from error
        return Allocation(
            job_id=job_id,
            restart_count=restart_count,
            nodes=nodes,
            batch_node=nodes[0],
            supervisor_host="127.0.0.1",
            resumed=self.env.get(RESUMED) == "1",
        )

    def node_address(self, node: str) -> str:
        return "127.0.0.1"

    def end_time(self) -> float | None:
        return None

    def step_command(self, request: StepRequest) -> Command:
        output = [] if request.output is None else [f"--output={request.output}"]
        argv = (
            sys.executable,
            "-P",
            "-m",
            "relight.launcher.clusters.local_step",
            f"--nodes={','.join(request.nodes)}",
            f"--tasks-per-node={','.join(map(str, tasks_on_each(request)))}",
            *output,
            "--",
            *request.argv,
        )
        return Command(argv, {**self.env, **request.env})

    def stop_notice(self, signal_name: str, *, to_supervisor: bool) -> StopNotice:
        if not to_supervisor:
            evidence = "a process of this run was sent a signal; the run goes on"
            return StopNotice(cause=StopCause.SIGNALLED, kill_at=None, evidence=evidence)
        evidence = f"the supervisor was sent {signal_name}"
        match signal_name:
            case "SIGTERM" if (told := _read_told(self.config.run_dir)) is not None:
                cause, evidence = StopCause.HELD, told
            case "SIGTERM":
                cause = StopCause.PREEMPTED
            case "SIGINT":
                cause = StopCause.CANCELLED
            case _:
                return StopNotice(cause=StopCause.SIGNALLED, kill_at=None, evidence=evidence)
        return StopNotice(cause=cause, kill_at=time.time() + GRACE_S, evidence=evidence)

    def node_conditions(self, nodes: Sequence[str]) -> Mapping[str, NodeCondition]:
        return dict.fromkeys(nodes, "up")

    def rebooted(self, nodes: Sequence[str]) -> tuple[str, ...]:
        return ()

    def new_allocation(self, exclude: Sequence[str], mode: str) -> Restart:
        allocation, folder = self.allocation(), RunFolder(self.config.run_dir)
        path = wish_path(folder, allocation.attempt)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, {"exclude": list(exclude)}, durable=True)
            waits = folder.held.exists() or told_path(folder).exists()
        except OSError as error:
            raise RestartRefused(
                f"{path} cannot be written: {error.strerror}; when that is mended, "
                f"`relight run --resume {self.config.run_id}` goes on"
            ) from error
        return Restart("by hand" if waits else "here", allocation.job_id)

    def give_back(self, nodes: Sequence[str]) -> None:
        """Pretend nodes keep nobody."""

    def withdraw(self, restart: Restart) -> None:
        allocation = self.allocation()
        wish_path(RunFolder(self.config.run_dir), allocation.attempt).unlink(missing_ok=True)
