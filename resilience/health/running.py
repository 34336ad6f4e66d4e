"""What reports mean while ranks run: pure.

Memory that is short and disks that fill up are most often the ranks' own doing, and another node
would not help: what is not about hardware or the network only warns. What could not be carried out
says nothing, since ranks may have left no time for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from ..ledger.faults import Fault
from ..ledger.record import Identity
from .result import CheckResult, NodeReport, Outcome
from .verdict import Judgement, judge

_NODES_OWN: Final = frozenset({Fault.HARDWARE, Fault.NETWORK})


def judge_running(reports: Mapping[str, NodeReport | None]) -> Judgement:
    """Weigh the reports; a node without one has had nothing to say; no job is at fault."""
    softened = {
        node: NodeReport(node=node, results=(), identity=Identity(), started=0.0, seconds=0.0)
        if report is None
        else softer(report)
        for node, report in reports.items()
    }
    return judge(softened, "warn")


def softer(report: NodeReport) -> NodeReport:
    """The report as it counts while ranks run."""
    results = tuple(
        _softer(result) for result in report.results if result.outcome is not Outcome.UNKNOWN
    )
    return dataclasses.replace(report, results=results)


def _softer(result: CheckResult) -> CheckResult:
    bad = result.outcome in (Outcome.FAIL_NODE, Outcome.FAIL_JOB)
    if not bad or (result.outcome is Outcome.FAIL_NODE and result.fault in _NODES_OWN):
        return result
    return dataclasses.replace(result, outcome=Outcome.WARN)
