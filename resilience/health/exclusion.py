"""From one run's decision to leave a node to a record that other runs can read."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from relight.errors import RelightError

from ..config import RunConfig
from ..decide.actions import ExcludeNode
from ..decide.blame import PREFLIGHT
from ..decide.causes import FaultCause
from ..decide.degrade import DEGRADED
from ..ledger.apart import default_ledger
from ..ledger.faults import RULES, Fault, gravest
from ..ledger.record import Evidence, Identity
from ..run_folder import RunFolder
from .collect import read_reports
from .compare import compare
from .result import CheckResult, NodeReport, Outcome
from .running import softer
from .trends import Trend, evidence_of_slow_steps, evidence_of_trends

Reports = Mapping[str, NodeReport | None]

_log: Final = logging.getLogger(__name__)
UNCLEAR_WEIGHT: Final = 0.5
_FAULTS: Final[dict[str, Fault]] = {
    FaultCause.NODE_DOWN: Fault.LOST,
    FaultCause.GPU_HARDWARE: Fault.HARDWARE,
    FaultCause.GPU_LOST: Fault.HARDWARE,
    FaultCause.NETWORK: Fault.NETWORK,
    FaultCause.DISK_FULL: Fault.CONDITION,
    FaultCause.FILESYSTEM: Fault.CONDITION,
}


def record_exclusion(config: RunConfig, attempt: str, order: ExcludeNode, now: float) -> str | None:
    """Keep in the ledger that this run leaves a node, so that the next run avoids it; gives the
    reason why it could not be kept.

    Called once for each ``ExcludeNode``; reads reports, writes one small file, and
    may block as long as the run folder's filesystem does. It never raises: a run does not fail for
    its notes. Outside Slurm there is no other node to choose, and nothing is kept.
    """
    cluster = os.environ.get("SLURM_CLUSTER_NAME")
    if not cluster:
        return None
    try:
        folder = RunFolder(config.run_dir)
        watched = _watched(folder, attempt)
        report = watched.get(order.node)
        if order.cause == FaultCause.NODE_DOWN and report is not None and _failed(report):
            order = dataclasses.replace(order, cause=DEGRADED)  # it had said why
        before = order.cause != DEGRADED
        reports = compare(_all_reports(folder.preflight(attempt))) if before else watched
        default_ledger().add(evidence_of(cluster, config.run_id, order, reports, now))
    except (RelightError, OSError) as error:
        _log.warning("the exclusion of %s is not remembered: %s", order.node, error)
        return str(error)
    return None


def record_trends(run_id: str, seen: Sequence[Trend], identity: Identity, now: float) -> None:
    """Keep the trends of one node in the ledger; like :func:`record_exclusion` it never raises."""
    cluster = os.environ.get("SLURM_CLUSTER_NAME")
    if not cluster:
        return
    try:
        default_ledger().add(evidence_of_trends(cluster, run_id, seen, identity, now))
    except RelightError as error:
        _log.warning("the trends of %s are not remembered: %s", seen[0].node, error)


def record_slow_steps(run_id: str, node: str, detail: str, now: float) -> None:
    """Likewise of a node that makes its ranks slow."""
    cluster = os.environ.get("SLURM_CLUSTER_NAME")
    if not cluster:
        return
    try:
        default_ledger().add(evidence_of_slow_steps(cluster, run_id, node, detail, now))
    except RelightError as error:
        _log.warning("the slow steps of %s are not remembered: %s", node, error)


def evidence_of(
    cluster: str, run_id: str, order: ExcludeNode, reports: Reports, now: float
) -> Evidence:
    """The record of an exclusion (pure); ``reports`` are those of all nodes asked together.

    A node that merely gave no clear answer, or whose part in a failure is not proven, is half
    suspected: that alone keeps no other run away. So is one in a bad condition (a full disk) that
    no other node was seen without, for it may be the run's own directory.
    """
    report = reports.get(order.node)
    failed = () if report is None else _failed(report)
    seen = order.cause in (PREFLIGHT, DEGRADED)
    if seen:
        fault = gravest([result.fault for result in failed])
    else:
        fault = _FAULTS.get(order.cause, Fault.PROGRAM)
    rule = RULES[fault]
    half = not failed or (fault is Fault.CONDITION and not _passed_elsewhere(failed, reports))
    said = tuple(f"{result.check}: {result.evidence}" for result in failed if seen)
    return Evidence(
        cluster=cluster,
        node=order.node,
        fault=fault,
        lines=said or (order.reason,),
        weight=UNCLEAR_WEIGHT if seen and half else rule.weight,
        ttl_s=rule.ttl_s,
        first_seen=now,
        last_seen=now,
        run_id=run_id,
        identity=Identity() if report is None else report.identity,
    )


def _watched(folder: RunFolder, attempt: str) -> Reports:
    """What nodes said while ranks ran, by themselves or when asked: a fault comes before none."""
    found = (_all_reports(folder.look(attempt)), _all_reports(folder.watch(attempt)))
    looked, said = (
        {node: softer(report) for node, report in reports.items() if report} for reports in found
    )
    failed = {node: report for node, report in looked.items() if _failed(report)}
    return looked | said | failed


def _all_reports(out_dir: Path) -> Reports:
    return read_reports(out_dir, [path.stem for path in out_dir.glob("[!.]*.json")])


def _passed_elsewhere(failed: Sequence[CheckResult], reports: Reports) -> bool:
    """Whether any node passes a check that this one fails."""
    checks = {result.check for result in failed}
    results = (result for report in reports.values() if report for result in report.results)
    return any(r.check in checks and r.outcome is Outcome.PASS for r in results)


def _failed(report: NodeReport) -> tuple[CheckResult, ...]:
    return tuple(result for result in report.results if result.outcome is Outcome.FAIL_NODE)
