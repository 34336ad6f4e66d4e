"""What the reports of all nodes mean for the run: pure.

Only what speaks against a node as such excludes it; so does what is called the job's fault, where
another node does not meet it. What more than a quarter of the nodes, and at
least two, fail alike is not the nodes' fault: it is a threshold, an update or a shared filesystem;
but what hardware has recorded of itself is its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..config import OnUnknown
from ..ledger.faults import Fault
from .check import NO_ANSWER_UNIT
from .disk import AWAY_UNIT
from .result import CheckResult, NodeReport, Outcome

ANSWERS = "answers"  # the check that a report passes by being there
NO_REPORT = "no report came from this node"
_NOT_NODES = "so many nodes fail alike that it is not the nodes, none is excluded: "
_SHOWN_NODES = 8
_LIKE_ANOTHER: Final = re.compile(r"; (?=[\w.-]+: )")  # in what a check says, such as a command
RECORDED: Final = frozenset(  # the checks that read what hardware keeps of its own faults
    {
        *("gpu_xid", "gpu_ecc", "gpu_remapping", "gpu_retired", "gpu_recovery"),
        *("memory_errors", "kernel_messages"),
    }
)
_DOUBTFUL: Final = 3

Findings = Mapping[str, Mapping[str, str]]  # check → node → evidence


@dataclass(frozen=True, slots=True)
class Judgement:
    """``bad`` holds the nodes to leave, with the evidence; with a ``job_fault`` no node helps.
    ``doubted`` ones fail what so many do that none is left for it.

    ``outage``: the checkpoints' filesystem is away on all nodes that could look at it, and may
    come back.
    ``silent`` are nodes that have sent no report, and are not bad for that alone.
    """

    bad: Mapping[str, str]
    doubted: Mapping[str, str]
    job_fault: str | None
    warnings: tuple[str, ...]
    silent: tuple[str, ...] = ()
    outage: str | None = None


def judge(reports: Mapping[str, NodeReport | None], on_unknown: OnUnknown) -> Judgement:
    """Weigh the reports; None stands for a node without one. Nodes count in the given order."""
    found = {outcome: _findings(reports, outcome) for outcome in Outcome}
    accused = dict(found[Outcome.FAIL_NODE])
    if on_unknown == "fail":
        for check, nodes in found[Outcome.UNKNOWN].items():
            accused[check] = {**nodes, **accused.get(check, {})}
    job = dict(found[Outcome.FAIL_JOB])
    for check in [check for check in job if found[Outcome.PASS].get(check)]:
        failing = {**job[check], **accused.get(check, {})}
        if not is_shared(len(failing), len(reports)):  # few do not meet it and another does
            accused[check] = failing
            del job[check]
    disks = _of_disk(reports)
    outage = None
    most_looked = len(disks) * 2 > len(reports)
    if most_looked and all(_is_away(result) for result in disks.values()):
        away = {node: result.evidence for node, result in disks.items()}
        (outage,) = _lines({"disk": away}, "")
        accused.pop("disk", None)
    proven = _recorded(reports)
    others = dict(_without(accused, proven))
    shared = {check for check, nodes in others.items() if is_shared(len(nodes), len(reports))}
    faults = _lines(job, "")
    all_fail = len(found[Outcome.FAIL_NODE].get("disk", {})) == len(disks)
    if outage is None and most_looked and all_fail and "disk" in shared:
        faults += _lines({"disk": others.pop("disk")}, "")
        shared.remove("disk")
    bad = _bad(
        {
            check: {**proven.get(check, {}), **({} if check in shared else others.get(check, {}))}
            for check in accused
        }
    )
    alike = {check: others[check] for check in others if check in shared}
    return Judgement(
        bad=bad,
        doubted={node: said for node, said in _bad(alike).items() if node not in bad},
        job_fault="; ".join(faults) or None,
        warnings=(
            *_lines(alike, _NOT_NODES),
            *_lines(found[Outcome.WARN], ""),
            *_lines(_without(found[Outcome.UNKNOWN], accused), "unclear: "),
        ),
        silent=tuple(node for node in reports if reports[node] is None and node not in bad),
        outage=outage,
    )


def _recorded(reports: Mapping[str, NodeReport | None]) -> Findings:
    """What boards and processors have recorded of faults of their own, which no other node shares.

    Only where most nodes, and at least three, say it a table or a driver may be wrong.
    """
    found: dict[str, dict[str, str]] = {}
    for node, report in reports.items():
        for result in report.results if report is not None else ():
            failed = result.outcome is Outcome.FAIL_NODE and result.fault is Fault.HARDWARE
            if failed and result.check in RECORDED:
                found.setdefault(result.check, {})[node] = result.evidence
    return {
        check: nodes
        for check, nodes in found.items()
        if len(nodes) < _DOUBTFUL or len(nodes) * 2 <= len(reports)
    }


def _of_disk(reports: Mapping[str, NodeReport | None]) -> dict[str, CheckResult]:
    """What nodes found of the checkpoints' filesystem; those that could not look are left out."""
    return {
        node: result
        for node, report in reports.items()
        for result in (report.results if report is not None else ())
        if result.check == "disk"
        and (result.outcome is not Outcome.UNKNOWN or result.unit == NO_ANSWER_UNIT)
    }


def _is_away(result: CheckResult) -> bool:
    """Whether the node says no more of it than that its server is away, or does not answer."""
    return result.unit in (AWAY_UNIT, NO_ANSWER_UNIT)


def unclear_nodes(reports: Mapping[str, NodeReport | None]) -> tuple[str, ...]:
    """The nodes to ask once more: few gave no clear answer, so it is not our tool."""
    unclear = tuple(
        node for node, report in reports.items() if report is None or _unclear(report, reports)
    )
    return () if is_shared(len(unclear), len(reports)) else unclear


def _unclear(report: NodeReport, reports: Mapping[str, NodeReport | None]) -> bool:
    alone = len(reports) == 1  # what one node cannot answer it will not answer the next time
    return not alone and any(result.outcome is Outcome.UNKNOWN for result in report.results)


def _findings(reports: Mapping[str, NodeReport | None], outcome: Outcome) -> Findings:
    found: dict[str, dict[str, str]] = {}
    for node, report in reports.items():
        if report is None:
            if outcome is Outcome.UNKNOWN:
                found.setdefault(ANSWERS, {})[node] = NO_REPORT
            continue
        for result in report.results:
            if result.outcome is outcome:
                found.setdefault(result.check, {})[node] = result.evidence
    return found


def is_shared(failing: int, nodes: int) -> bool:
    """Whether so many nodes fail alike that it is not the nodes."""
    return failing >= 2 and failing * 4 > nodes


def _bad(accused: Findings) -> dict[str, str]:
    evidence: dict[str, list[str]] = {}
    for check, nodes in accused.items():
        for node, text in nodes.items():
            alone = _LIKE_ANOTHER.sub(", ", text)
            evidence.setdefault(node, []).append(f"{check}: {alone}")
    return {node: "; ".join(texts) for node, texts in evidence.items()}


def _without(findings: Findings, others: Findings) -> Findings:
    """Only what is not already among the others."""
    left: dict[str, dict[str, str]] = {}
    for check, nodes in findings.items():
        rest = {n: text for n, text in nodes.items() if n not in others.get(check, {})}
        if rest:
            left[check] = rest
    return left


def _lines(findings: Findings, prefix: str) -> list[str]:
    """One line for each check, however many nodes there are."""
    lines = []
    for check, nodes in findings.items():
        names = list(nodes)
        more = f" and {len(names) - _SHOWN_NODES} more" if len(names) > _SHOWN_NODES else ""
        where = ", ".join(names[:_SHOWN_NODES]) + more
        lines.append(f"{prefix}{check}: {nodes[names[0]]} ({where})")
    return lines
