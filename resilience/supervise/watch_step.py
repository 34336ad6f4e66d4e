"""The step that looks at nodes while ranks run, begun anew when it ends; and who is not watched."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..config import RunConfig
from ..health.collect import Stamp, stamps
from ..health.watch import LOOK_S
from . import processes
from .cluster import Cluster, StepRequest

_PATIENCE_S: Final = LOOK_S + 15.0  # a look, and the step's start
_NAMED: Final = 4
_END_S: Final = 1.0  # with a node that is gone the step does not end, and nothing is lost with it


class WatchStep:
    """One sleeping process on each healthy node, which writes a report once it has looked."""

    def __init__(
        self,
        config: RunConfig,
        cluster: Cluster,
        out_dir: Path,
        healthy: Callable[[], tuple[str, ...]],
    ) -> None:
        self._run_dir = config.run_dir
        self._every_s = config.health.during_s
        self._cluster = cluster
        self._out_dir = out_dir
        self._healthy = healthy
        self._process: asyncio.subprocess.Process | None = None
        self._started = 0.0
        self._over = False
        # Those that have written no report since the step began, or an earlier one: since when.
        self._silent: dict[str, float] = {}
        self._before: dict[str, Stamp] = {}

    @property
    def begun(self) -> bool:
        return self._process is not None

    async def keep(self) -> None:
        """One that ended, with a node or by somebody's hand, is there again an interval later.

        One that dies on its node would leave that unwatched: all end, and begin anew. After a step
        that ended before all had looked they do not: a node on which it dies at once would end the
        others' first look each time. Raises OSError.
        """
        if self._over:
            return
        await asyncio.to_thread(self._listen)
        running = self._process is not None and self._process.returncode is None
        if running or time.monotonic() - self._started < self._every_s:
            return
        nodes, self._started = self._healthy(), time.monotonic()
        again = any(node in self._silent for node in nodes)
        self._silent = {node: self._silent.get(node, self._started) for node in nodes}
        await asyncio.to_thread(self._out_dir.mkdir, parents=True, exist_ok=True)
        self._before = await asyncio.to_thread(stamps, self._out_dir, nodes)
        program = (sys.executable, "-P", "-m", "relight.resilience.health.watch")
        request = StepRequest(
            name="watch",
            nodes=nodes,
            tasks_per_node=1,
            cpus_per_task=1,
            argv=(*program, str(self._run_dir), str(self._out_dir), f"{self._every_s:g}"),
            env={},
            output=self._out_dir / "step.log",
            options=(f"--kill-on-bad-exit={int(not again)}",),
        )
        command = await asyncio.to_thread(self._cluster.step_command, request)
        self._process = await processes.start_tied(command, self._out_dir / "step.log")

    def unwatched(self) -> str | None:
        """For people: the nodes of which a look is overdue."""
        healthy, latest = set(self._healthy()), time.monotonic() - _PATIENCE_S
        late = (node for node, since in self._silent.items() if since < latest)
        silent = [node for node in late if node in healthy]
        if not silent:
            return None
        more = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
        named = ", ".join(silent[:_NAMED])
        return f"not watched, no look there has ended: {named}{more}; see {self._out_dir}/step.log"

    async def end(self) -> None:
        """End it for good."""
        self._over = True
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await processes.end(self._process, patience_s=_END_S)

    def _listen(self) -> None:
        found = stamps(self._out_dir, self._silent)
        for node, stamp in found.items():
            if stamp != self._before.get(node):
                del self._silent[node]
