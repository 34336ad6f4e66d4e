"""All passive checks on this machine, as a run with all of its GPUs would ask them."""

from __future__ import annotations

import time
from pathlib import Path

from rows import folder, tell

from relight.resilience.config import CheckpointConfig, RunConfig
from relight.resilience.health.catalogue import CHECKS
from relight.resilience.health.check import Candidate
from relight.resilience.health.isolate import run_checks
from relight.resilience.health.preflight import examine, node_name

LIMIT_S = 25.0
GPUS = len(list(Path("/dev").glob("nvidia[0-9]*")))


def main() -> None:
    candidate = Candidate(node_name(), config(), 0.0)
    results = examine(candidate, time.time()).results
    # In containers the driver's folder may be hidden while its GPUs are there.
    done = {result.check for result in results}
    hidden = [check for check in CHECKS if check.name.startswith("gpu") and check.name not in done]
    tell(
        [
            (result.check, result.outcome.value, f"{result.evidence} ({result.seconds:.2f} s)")
            for result in (*results, *run_checks(hidden, candidate, LIMIT_S))
        ]
    )


def config() -> RunConfig:
    """A run that would save in the folder of results."""
    here = folder()
    return RunConfig(
        run_id="gpu-check",
        name="gpu-check",
        run_dir=here,
        command=("true",),
        working_dir=here,
        gpus_per_node=GPUS,
        checkpoint=CheckpointConfig(directory=here / "checkpoints"),
    )


if __name__ == "__main__":
    main()
