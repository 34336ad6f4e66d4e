"""The program of one node: carry out all checks, and write what they found.

``python -m relight.resilience.health.preflight RUN_DIR OUT_DIR REFERENCE_TIME NODE...``, once on
each node. REFERENCE_TIME is the supervisor's Unix time when it started the step; the nodes are all
that are looked at. The report is ``OUT_DIR/<node>.json``; when there is none, the node did not
answer.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from relight.errors import RelightError

from ..config import ConfigDamaged, RunConfig
from ..ledger.record import Identity
from ..run_folder import RunFolder
from .catalogue import ACTIVE, wanted_checks
from .check import Candidate, Check
from .gpu.present import SERIALS
from .isolate import run_checks
from .result import CheckResult, NodeReport

ACTIVE_NODES = "RELIGHT_ACTIVE_NODES"  # a variable: the nodes that get active tests too
ACTIVE_BUDGET_S = 180.0  # for those, on top of the run's budget
CHECKS_SHARE = 0.9  # of the budget; the rest is for the start of this program and its report
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def main(arguments: Sequence[str]) -> str | None:
    """Check this node; gives the reason when there is no report, and nothing otherwise."""
    started = time.time()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the checks are ended too
    run_dir, out_dir, reference_time, *peers = arguments
    try:
        config = read_config(Path(run_dir))
        offset_s = started - float(reference_time)
        candidate = Candidate(node_name(), config, offset_s, tuple(peers))
        active = candidate.node in os.environ.get(ACTIVE_NODES, "").split(",")
        write_report(Path(out_dir), examine(candidate, started, active=active))
    except (RelightError, OSError) as error:
        return f"preflight: {error}"
    return None


def examine(candidate: Candidate, started: float, *, active: bool = False) -> NodeReport:
    """Run the checks that this run asks for, within its budget; then active tests, one by one."""
    health = candidate.config.health
    checks = possible(wanted_checks(health), candidate)
    results = run_checks(checks, candidate, health.budget_s * CHECKS_SHARE)
    end = time.monotonic() + ACTIVE_BUDGET_S * CHECKS_SHARE
    for test in possible(ACTIVE, candidate) if active else ():
        if test.name not in health.skip:
            results += run_checks((test,), candidate, max(end - time.monotonic(), 0.0))
    return NodeReport(
        node=candidate.node,
        results=results,
        identity=Identity(BOOT_ID.read_text().strip(), boards(results)),
        started=started,
        seconds=time.time() - started,
    )


def possible(checks: Sequence[Check], candidate: Candidate) -> list[Check]:
    """Those for which there is something to look at."""
    return [
        check
        for check in checks
        if not check.needs or any((candidate.root / path).exists() for path in check.needs)
    ]


def boards(results: Sequence[CheckResult]) -> tuple[str, ...]:
    """The serials of the GPUs that were seen."""
    serials = (result.facts.get(SERIALS, "").split() for result in results)
    return tuple(serial for found in serials for serial in found)


def read_config(run_dir: Path) -> RunConfig:
    """The run that asks, from its folder.

    Raises:
        ConfigDamaged: the plan is no JSON object with a readable ``run``.
        OSError: it cannot be read at all.
    """
    path = RunFolder(run_dir).plan
    try:
        run = json.loads(path.read_bytes())["run"]
        if not isinstance(run, dict):
            raise TypeError(f"run is {run!r:.100}")
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigDamaged(f"{path} is not the plan of a run: {error!r}") from error
    return RunConfig.from_json(run)


def node_name() -> str:
    """The name under which the scheduler knows this node."""
    named = os.environ.get("RELIGHT_NODE") or os.environ.get("SLURMD_NODENAME")
    return named or socket.gethostname()


def write_report(out_dir: Path, report: NodeReport) -> None:
    """Let the report appear as a whole or not at all."""
    out_dir.mkdir(parents=True, exist_ok=True)
    whole = out_dir / f"{report.node}.json"
    part = out_dir / f".{report.node}.{os.getpid()}.part"
    with part.open("w", encoding="utf-8") as file:
        json.dump(report.to_json(), file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(whole)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
