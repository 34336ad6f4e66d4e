"""All-reduce between pairs of nodes that a run holds, by steps of two nodes each."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relight.resilience.health.active.exchange import result_file
from relight.resilience.health.pairs import Pair, Rates
from relight.resilience.supervise import tied
from relight.resilience.supervise.cluster import StepRequest

from .clusters.slurm import commands

LIMIT_S: Final = 90.0  # of a step; torch alone takes many seconds to import on a cold filesystem
AT_ONCE: Final = 32  # steps
END_S: Final = 10.0  # for a step that was told to end
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class PairSteps:
    """The pairs of one job, measured in passes; results go below ``out_dir``."""

    job_id: str
    out_dir: Path

    def measure(self, pairs: Sequence[Pair]) -> Rates:
        """Some pairs at once, since each step keeps the scheduler busy; one that has not ended
        after ``LIMIT_S`` has no rate."""
        rates: Rates = {}
        for start in range(0, len(pairs), AT_ONCE):
            rates = {**rates, **self._measured(pairs[start : start + AT_ONCE])}
        return rates

    def _measured(self, pairs: Sequence[Pair]) -> Rates:
        steps = [self._start(pair) for pair in pairs]
        deadline = time.monotonic() + LIMIT_S
        try:
            while any(step.poll() is None for step in steps) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        finally:
            end_all(steps)
        return {pair: self._rate(pair) for pair in pairs}

    def _start(self, pair: Pair) -> subprocess.Popen[bytes]:
        program = (sys.executable, "-P", "-m", "relight.resilience.health.active.exchange")
        request = StepRequest(
            name="pair",
            nodes=pair,
            tasks_per_node=1,
            cpus_per_task=1,
            argv=(*program, str(self.out_dir), *pair),
            env={},
            output=self.out_dir / f"{'+'.join(pair)}.log",
        )
        srun, *options = commands.step(request, None)
        nowhere = subprocess.DEVNULL
        argv = tied.to_me((srun, f"--jobid={self.job_id}", *options))
        return subprocess.Popen(argv, env=os.environ, stdin=nowhere, stdout=nowhere, stderr=nowhere)

    def _rate(self, pair: Pair) -> float | None:
        try:
            return float(result_file(self.out_dir, pair).read_text())
        except (OSError, ValueError):
            return None


def end_all(steps: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the steps; one that cannot be killed, as it waits for a dead disk, is left behind."""
    for end in (subprocess.Popen.terminate, subprocess.Popen.kill):
        for step in steps:
            if step.poll() is None:
                end(step)
        deadline = time.monotonic() + END_S
        while any(step.poll() is None for step in steps) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
