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
from ..ledger.record import Evidence, Release
from ..ledger.score import Standing, changed_hardware, release_of, standings
from .active import gpu_product
from .catalogue import ACTIVE
from .gpu import present
from .result import NodeReport, Outcome

_log: Final = logging.getLogger(__name__)
# A matrix product says nothing of a network, a disk or a word of people, nor of what may grow.
_DISPROVED: Final = (Fault.HARDWARE, Fault.SLOW, Fault.PROGRAM)
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
    """The releases that follow from compared reports (pure): of the faults in ``_DISPROVED``.

    Only what the tests could have seen is released by them: a node with GPUs must have used them.
    """
    found = []
    for one in held:
        report = reports.get(one.node)
        accused = [evidence for evidence in one.evidence if evidence.fault in _DISPROVED]
        if report is None or not accused:
            continue
        reason = None
        if all(changed_hardware(evidence.identity, report.identity) for evidence in accused):
            reason = "other GPUs after a boot"
        elif _passed(report, with_gpus=any(map(_is_of_gpus, accused))):
            reason = f"passed the active tests of run {run_id}"
        if reason is not None:
            found.append(release_of(one, reason, now, _DISPROVED))
    return found


def _is_of_gpus(evidence: Evidence) -> bool:
    return bool(evidence.identity.gpus) or any(line.startswith("gpu_") for line in evidence.lines)


def _passed(report: NodeReport, with_gpus: bool) -> bool:
    if any(result.outcome is Outcome.FAIL_NODE for result in report.results):
        return False
    measured = {
        result.check
        for result in report.results
        if result.check in _TESTS and result.outcome is Outcome.PASS and result.value is not None
    }
    # A node that cannot count its GPUs may have some.
    uncounted = any(
        result.check == present.CHECK.name and result.outcome is not Outcome.PASS
        for result in report.results
    )
    if with_gpus or report.identity.gpus or uncounted:
        return gpu_product.CHECK.name in measured
    return bool(measured)


def _held_here() -> list[Standing]:
    cluster = os.environ.get("SLURM_CLUSTER_NAME")
    if not cluster:
        return []
    found = standings(default_ledger().records(), time.time())
    return [one for one in found if one.cluster == cluster]
