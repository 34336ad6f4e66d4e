"""What speaks for a node again: passed active tests, and other hardware under the same name."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Final

from relight.errors import RelightError

from ..config import RunConfig
from ..ledger.apart import default_ledger
from ..ledger.faults import Fault
from ..ledger.record import Release
from ..ledger.score import Standing, changed_hardware, release_of, standings
from .active import gpu_product
from .catalogue import ACTIVE
from .result import NodeReport, Outcome

_log: Final = logging.getLogger(__name__)
_TESTS: Final = frozenset(test.name for test in ACTIVE)


def nodes_to_test(config: RunConfig, nodes: Sequence[str]) -> tuple[str, ...]:
    """The nodes that get active tests: all if the run wants that, else those in the ledger.

    May block for as long as a ledger may take, like :func:`record_releases`.
    """
    if config.health.active:
        return tuple(nodes)
    try:
        held = {one.node for one in _held_here()}
    except RelightError as error:
        _log.warning("no node is tested for the ledger's sake: %s", error)
        return ()
    return tuple(node for node in nodes if node in held)


def record_releases(run_id: str, reports: Mapping[str, NodeReport | None]) -> None:
    """Release the nodes for which their reports speak; a ledger that fails is only logged."""
    try:
        for release in releases(_held_here(), run_id, reports, time.time()):
            default_ledger().release(release)
            _log.info("%s is no longer held to be bad: %s", release.node, release.reason)
    except RelightError as error:
        _log.warning("no node is released: %s", error)


def releases(
    held: Sequence[Standing], run_id: str, reports: Mapping[str, NodeReport | None], now: float
) -> list[Release]:
    """The releases that follow from compared reports (pure).

    Only what the tests could have seen is released by them: a node with GPUs must have used them.
    """
    found = []
    for one in held:
        report = reports.get(one.node)
        if report is None:
            continue
        reason = None
        if all(changed_hardware(evidence.identity, report.identity) for evidence in one.evidence):
            reason = "other GPUs after a boot"
        elif _testable(one) and _passed(report):
            reason = f"passed the active tests of run {run_id}"
        if reason is not None:
            found.append(release_of(one, reason, now))
    return found


def _testable(one: Standing) -> bool:
    """Whether tests can disprove what counts: that a counter grows they cannot."""
    return any(evidence.fault is not Fault.TREND for evidence in one.evidence)


def _passed(report: NodeReport) -> bool:
    if any(result.outcome is Outcome.FAIL_NODE for result in report.results):
        return False
    measured = {
        result.check
        for result in report.results
        if result.check in _TESTS and result.outcome is Outcome.PASS and result.value is not None
    }
    return bool(measured) and (not report.identity.gpus or gpu_product.CHECK.name in measured)


def _held_here() -> list[Standing]:
    cluster = os.environ.get("SLURM_CLUSTER_NAME")
    if not cluster:
        return []
    found = standings(default_ledger().records(), time.time())
    return [one for one in found if one.cluster == cluster]
