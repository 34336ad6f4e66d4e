"""What no node can say of itself: that it differs from the others, or is cut off (pure)."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Final

from ..ledger.faults import Fault
from .active.boards import BOARDS, MODEL
from .active.floors import floor
from .active.gpu_product import PRODUCT
from .catalogue import ACTIVE
from .check import Check
from .gpu.present import GIVEN, SERIALS
from .infiniband import PORTS, fewer_or_slower
from .lustre_targets import TARGETS, lost_more
from .peers import REACHED, UNREACHED
from .reachable import cut_off
from .result import CheckResult, NodeReport, Outcome

UNIFORM: Final = "uniform"
REACHABLE: Final = "reachable"
ABSENT: Final = "absent"
MIN_NODES: Final = 3  # with fewer there is no odd one out
_OWN: Final = frozenset({SERIALS, GIVEN, REACHED, UNREACHED})  # facts that differ by nature
GPU_DRIVER: Final = "gpu driver"
_OF_GPUS: Final = re.compile(r"gpu |cuda$|nvidia_peermem$")
# Ranks do not work together over different drivers, and the slowest network sets the pace.
_BAD: Final = {
    GPU_DRIVER: Fault.CONDITION,
    PORTS: Fault.NETWORK,
    PRODUCT: Fault.HARDWARE,
    TARGETS: Fault.NETWORK,
}

# Of these a difference speaks against a node only when the node has less than most.
_WORSE: Final[Mapping[str, Callable[[str, str], bool]]] = {
    PORTS: fewer_or_slower,
    TARGETS: lost_more,
}
_NOT_EVERYWHERE: Final = frozenset({PRODUCT, MODEL, BOARDS, TARGETS})  # tested, or mounted yet

Reports = Mapping[str, NodeReport | None]


def compare(reports: Reports) -> dict[str, NodeReport | None]:
    """The reports, with what only shows beside the others added."""
    added: dict[str, list[CheckResult]] = {}
    known = {node: report for node, report in reports.items() if report is not None}
    facts = {node: _facts(report) for node, report in known.items()}
    for node, result in (*_odd_ones(known), *_cut_off(facts), *_slow(known)):
        added.setdefault(node, []).append(result)
    return {
        node: report
        if report is None or node not in added
        else dataclasses.replace(report, results=(*report.results, *added[node]))
        for node, report in reports.items()
    }


def _facts(report: NodeReport) -> dict[str, str]:
    return {name: fact for result in report.results for name, fact in result.facts.items()}


def _odd_ones(reports: Mapping[str, NodeReport]) -> Iterator[tuple[str, CheckResult]]:
    """Nodes that differ where most agree; where no majority agrees nothing is said."""
    tellers: dict[str, set[str]] = {}  # the checks that tell a fact
    for report in reports.values():
        for result in report.results:
            for name in result.facts:
                tellers.setdefault(name, set()).add(result.check)
    with_gpus = {node: one for node, one in reports.items() if GIVEN in _facts(one)}
    for name in sorted(set(tellers) - _OWN):
        of_gpus = name not in _NOT_EVERYWHERE and _OF_GPUS.match(name) is not None
        unused = of_gpus and not with_gpus
        among = with_gpus if of_gpus and with_gpus else reports
        told = {node: _told(name, tellers[name], report) for node, report in among.items()}
        seen = {node: fact for node, fact in told.items() if fact is not None}
        if unused or name in _NOT_EVERYWHERE:
            seen = {node: fact for node, fact in seen.items() if fact != ABSENT}
        if len(seen) < MIN_NODES:
            continue
        usual, count = Counter(seen.values()).most_common(1)[0]
        if count * 2 <= len(seen):
            continue
        for node, fact in seen.items():
            if fact != usual:
                text = f"{name} is {fact}, on {count} of {len(seen)} nodes it is {usual}"
                bad = name in _BAD and not unused and _WORSE.get(name, _differs)(fact, usual)
                outcome = Outcome.FAIL_NODE if bad else Outcome.WARN
                yield node, _result(UNIFORM, outcome, text, _BAD.get(name, Fault.CONDITION))


def _differs(_fact: str, _usual: str) -> bool:
    return True


def _told(name: str, tellers: set[str], report: NodeReport) -> str | None:
    """The fact; None where the check that tells it found no answer, which says nothing of it."""
    answers = [result for result in report.results if result.check in tellers]
    for result in answers:
        if name in result.facts:
            return result.facts[name]
    silent = any(result.outcome not in (Outcome.PASS, Outcome.WARN) for result in answers)
    return None if silent else ABSENT


def _cut_off(facts: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, CheckResult]]:
    for one in cut_off(facts):
        outcome = Outcome.FAIL_NODE if one.proven else Outcome.WARN
        if one.node in facts:
            yield one.node, _result(REACHABLE, outcome, one.evidence, Fault.NETWORK)


def _slow(reports: Mapping[str, NodeReport]) -> Iterator[tuple[str, CheckResult]]:
    """Nodes behind the median of all in an active test, or behind the published floor."""
    for test in ACTIVE:
        slow = set()
        for node, result in _behind_median(test, reports):
            slow.add(node)
            yield node, result
        for node, report in reports.items():
            too_little = _below_floor(test.name, report)
            if too_little is not None and node not in slow:
                yield node, too_little


def _below_floor(test: str, report: NodeReport) -> CheckResult | None:
    least = floor(test, _facts(report))
    measured = _measured(test, report)
    if least is None or measured is None or measured[0] >= least:
        return None
    text = f"{_shown(*measured)}, below the floor of {least:.4g} for {_facts(report)[MODEL]}"
    return _result(test, Outcome.FAIL_NODE, text, Fault.SLOW)


def _behind_median(
    test: Check, reports: Mapping[str, NodeReport]
) -> Iterator[tuple[str, CheckResult]]:
    if test.of_median is None:
        return
    rates = {
        node: measured
        for node, report in reports.items()
        if (measured := _measured(test.name, report)) is not None
    }
    if len(rates) < MIN_NODES:
        return
    usual = median(rate for rate, _ in rates.values())
    for node, (rate, unit) in rates.items():
        if rate < test.of_median * usual:
            share = f"{rate / usual:.1%} of the nodes' median, at least {test.of_median:.0%}"
            text = f"{_shown(rate, unit)}, {share}"
            yield node, _result(test.name, test.behind, text, Fault.SLOW)


def _measured(test: str, report: NodeReport) -> tuple[float, str] | None:
    """The rate and its unit."""
    for result in report.results:
        if result.check == test and result.value is not None:
            return result.value, result.unit or ""
    return None


def _shown(rate: float, unit: str) -> str:
    return f"{rate:.4g} {unit}".strip()


def _result(check: str, outcome: Outcome, text: str, fault: Fault) -> CheckResult:
    return CheckResult(check=check, outcome=outcome, evidence=text, seconds=0.0, fault=fault)
