"""One supervisor and 10 000 ranks on 1 250 nodes: what it costs, and how soon they agree.

``.venv/bin/python benchmarks/scale.py``. The supervisor is the real one, with its channel, machine,
journal and saves; the nodes are pretended, and so are the agents (``scale_agents.py``), which speak
over real connections. Prints for each pace of the beats: the share of a core that the supervisor
takes while the ranks run, its memory, and the time from the question to the order that stops all
ranks at one step.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relight.resilience.config import CheckpointConfig, HealthConfig, RunConfig
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
from relight.resilience.supervise.supervisor import Supervisor

TARGETS = {"core_share": 0.10, "rss_mb": 300.0, "agree_s": 1.0}


class PretendedCluster:
    """Nodes that exist by name only; a step is one process that plays all agents."""

    def __init__(self, nodes: int, tasks_per_node: int, env: Mapping[str, str]) -> None:
        self._nodes = tuple(f"n{number:04}" for number in range(nodes))
        self._env = {"SCALE_NODES": str(nodes), "SCALE_TASKS": str(tasks_per_node), **env}

    def allocation(self) -> Allocation:
        return Allocation(
            job_id="1",
            restart_count=0,
            nodes=self._nodes,
            batch_node=self._nodes[0],
            supervisor_host="127.0.0.1",
        )

    def node_address(self, node: str) -> str:
        return "127.0.0.1"

    def end_time(self) -> float | None:
        return None

    def step_command(self, request: StepRequest) -> Command:
        script = str(Path(__file__).with_name("scale_agents.py"))
        return Command((sys.executable, script), {**os.environ, **request.env, **self._env})

    def stop_notice(self, signal_name: str, *, to_supervisor: bool) -> StopNotice:
        return StopNotice(cause=StopCause.UNKNOWN, kill_at=None, evidence="pretended")

    def node_conditions(self, nodes: Sequence[str]) -> Mapping[str, NodeCondition]:
        return dict.fromkeys(nodes, "up")

    def new_allocation(self, exclude: Sequence[str], mode: str) -> Restart:
        raise RestartRefused("pretended")

    def withdraw(self, restart: Restart) -> None:
        pass

    def give_back(self, nodes: Sequence[str]) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Result:
    """``agree_s``: from the question to the order; ``start_s``, ``end_s``: of all ranks.

    The agents play on the same machine: ``agree_cpu_s`` is the supervisor's own part of the time.
    """

    beats: str
    ranks: int
    core_share: float
    rss_mb: float
    agree_s: float
    agree_cpu_s: float
    start_s: float
    end_s: float
    journal_bytes: int


class Measured(Supervisor):
    """A supervisor that is watched from inside its loop while it works."""

    async def measure(self, folder: RunFolder, seconds: float, beats: str) -> Result:
        begun = time.monotonic()
        whole = asyncio.create_task(self.run())
        size = self._config.world_size
        while len(self._saves.steps) < size:
            await asyncio.sleep(0.2)
            if whole.done():
                raise SystemExit(f"the run ended early: {await whole}")
        started = time.monotonic()
        await asyncio.sleep(2)
        cpu, wall = time.process_time(), time.monotonic()
        await asyncio.sleep(seconds)
        share = (time.process_time() - cpu) / (time.monotonic() - wall)
        agreed = asyncio.create_task(self._time_of_agreement())
        told = time.monotonic()
        folder.cancelled.touch()
        await whole
        agree_s, agree_cpu_s = await agreed
        return Result(
            beats=beats,
            ranks=size,
            core_share=round(share, 3),
            rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            agree_s=round(agree_s, 2),
            agree_cpu_s=round(agree_cpu_s, 2),
            start_s=round(started - begun, 2),
            end_s=round(time.monotonic() - told, 2),
            journal_bytes=sum(file.stat().st_size for file in folder.journals.iterdir()),
        )

    async def _time_of_agreement(self) -> tuple[float, float]:
        while not self._saves._agreements:
            await asyncio.sleep(0.001)
        asked, cpu = time.monotonic(), time.process_time()
        while self._saves._agreements:
            await asyncio.sleep(0.001)
        return time.monotonic() - asked, time.process_time() - cpu


def one(arguments: argparse.Namespace) -> None:
    """A supervisor in this very process, so that its memory is its own."""
    root = Path(tempfile.mkdtemp(prefix="relight-scale-"))
    config = RunConfig(
        run_id="scale-000000",
        name="scale",
        run_dir=root / "run",
        command=("train",),
        working_dir=root,
        nodes=arguments.nodes,
        tasks_per_node=arguments.tasks,
        checkpoint=CheckpointConfig(directory=root / "checkpoints", interval="1000000 steps"),
        health=HealthConfig(preflight=False),
    )
    config.run_dir.mkdir()
    env = {} if arguments.beats == "scaled" else {"RELIGHT_BEAT_S": arguments.beats}
    env["SCALE_STEP_S"] = "0.5"
    cluster = PretendedCluster(arguments.nodes, arguments.tasks, env)
    try:
        supervisor = Measured(config, cluster, 1)
        measure = supervisor.measure(RunFolder(config.run_dir), arguments.seconds, arguments.beats)
        result = asyncio.run(measure)
    finally:
        shutil.rmtree(root)
    sys.stdout.write(json.dumps({name: getattr(result, name) for name in Result.__slots__}) + "\n")


def compare(arguments: argparse.Namespace) -> None:
    """One process for each pace of the beats."""
    rows = []
    for beats in ("1", "5", "scaled"):
        words = ["--one", f"--beats={beats}", f"--seconds={arguments.seconds}"]
        words += [f"--nodes={arguments.nodes}", f"--tasks={arguments.tasks}"]
        done = subprocess.run(
            [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, check=True
        )
        rows.append(json.loads(done.stdout))
    if arguments.json:
        print(json.dumps(rows))
        return
    names = list(Result.__slots__)
    print("  ".join(f"{name:>13}" for name in names))
    for row in rows:
        print("  ".join(f"{row[name]!s:>13}" for name in names))
    print("targets: " + ", ".join(f"{name} ≤ {limit}" for name, limit in TARGETS.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--beats", default="scaled")
    parser.add_argument("--one", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    one(given) if given.one else compare(given)
