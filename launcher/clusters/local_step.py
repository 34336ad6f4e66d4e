"""A small stand-in for ``srun``: one process per task on each of some pretend nodes.

Each task runs in a process group of its own and finds its place in ``RELIGHT_NODE``,
``RELIGHT_TASK`` and ``RELIGHT_LOCAL_TASK``. The step ends when all tasks have ended, with the
highest of their exit codes; the end of one does not end the others. SIGTERM is passed on, and what
has not ended :data:`KILL_WAIT_S` later is killed. Nothing is left behind: processes that a task
leaves are adopted and killed at the end, tasks die with the step, and the step with its parent.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from .adoption import adopt_orphans, children, kill_adopted

KILL_WAIT_S: Final = 30.0
_TICK_S: Final = 0.05
_PR_SET_PDEATHSIG: Final = 1

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Task:
    """One process of the step: its number in all, its node, its number there."""

    number: int
    node: str
    local_number: int

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "RELIGHT_NODE": self.node,
            "RELIGHT_TASK": str(self.number),
            "RELIGHT_LOCAL_TASK": str(self.local_number),
        }


def tasks_of(nodes: Sequence[str], tasks_per_node: Sequence[int]) -> list[Task]:
    """The step's tasks, numbered node by node."""
    places = [
        (node, local)
        for node, tasks in zip(nodes, tasks_per_node, strict=True)
        for local in range(tasks)
    ]
    return [Task(number, node, local) for number, (node, local) in enumerate(places)]


def run_step(tasks: Sequence[Task], argv: Sequence[str], output: IO[bytes] | int) -> int:
    """Runs all tasks to their end; the highest exit code (128 + signal for a killed task)."""
    not_ours = adopt_orphans()
    parent = os.getppid()
    told_at: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: told_at.append(time.monotonic()))
    processes = [_start(task, argv, output) for task in tasks]
    told = False
    while any(process.poll() is None for process in processes):
        if told_at and not told:
            told = True
            _signal_all(processes, signal.SIGTERM)
        overdue = told_at and time.monotonic() - told_at[0] > KILL_WAIT_S
        if overdue or os.getppid() != parent:
            _signal_all(processes, signal.SIGKILL)
        _reap_strangers({process.pid for process in processes})
        time.sleep(_TICK_S)
    _signal_all(processes, signal.SIGKILL, even_ended=True)
    kill_adopted(not_ours)
    codes = [process.returncode for process in processes]
    return max(code if code >= 0 else 128 - code for code in codes)


def _start(task: Task, argv: Sequence[str], output: IO[bytes] | int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        env=task.env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        process_group=0,
        preexec_fn=_die_with_step,  # safe: this process has one thread
    )


def _die_with_step() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _signal_all(
    processes: Sequence[subprocess.Popen[bytes]], number: signal.Signals, even_ended: bool = False
) -> None:
    for process in processes:
        if even_ended or process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)


def _reap_strangers(own: set[int]) -> None:
    """Collects ended processes that a task left to us, so that they do not pile up."""
    for pid in children():
        if pid not in own:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def main() -> int:
    """The command line that ``LocalCluster.step_command`` builds."""
    parser = argparse.ArgumentParser(prog="local_step")
    parser.add_argument("--nodes", required=True)
    parser.add_argument("--tasks-per-node", required=True)  # of each node, by commas
    parser.add_argument("--output", type=Path)
    parser.add_argument("argv", nargs="+")
    options = parser.parse_args()
    tasks = tasks_of(
        options.nodes.split(","), [int(number) for number in options.tasks_per_node.split(",")]
    )
    if options.output is None:
        return run_step(tasks, options.argv, subprocess.DEVNULL)
    with options.output.open("ab") as output:
        return run_step(tasks, options.argv, output)


if __name__ == "__main__":
    sys.exit(main())
