"""The program that looks at one node while ranks run on it, again and again, unnoticed.

``python -m relight.resilience.health.watch RUN_DIR OUT_DIR EVERY_S``, once on each node; with 0 it
looks once. It runs at the lowest priority, one check after another. Silence is health: the report
``OUT_DIR/<node>.json`` is written when an answer has changed, and else the disk hears nothing.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from relight.errors import RelightError

from ..ledger.record import Identity
from .catalogue import wanted_checks
from .check import Candidate, Check
from .gpu import throttling
from .isolate import run_checks
from .preflight import BOOT_ID, boards, node_name, possible, read_config, write_report
from .result import CheckResult, NodeReport, Outcome
from .trends import THROTTLED_LOOKS

LOWEST: Final = 19
BUDGET_S: Final = 60.0  # for one look; most of it is waiting for ranks to leave some time
AGAIN_S: Final = 5.0  # a link that was down for a second is no reason to leave a node


def main(arguments: Sequence[str]) -> str | None:
    """Look until told to end; gives the reason when that cannot be done, and nothing otherwise."""
    run_dir, out_dir, every = arguments
    os.nice(LOWEST)
    # It is waited for, so that the end never interrupts a look.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        candidate = Candidate(node_name(), read_config(Path(run_dir)), 0.0)
        watch(candidate, Path(out_dir), float(every))
    except (RelightError, OSError) as error:
        return f"watch: {error}"
    return None


def watch(candidate: Candidate, out_dir: Path, every_s: float) -> None:
    """Look, say what has changed, wait; ends with SIGTERM, which must be blocked."""
    said: tuple[object, ...] = ()
    told, throttled = None, 0
    while told is None:
        report, throttled = _with_throttling(
            look(candidate, min(AGAIN_S, every_s or AGAIN_S)), throttled
        )
        say = (*((result.check, result.outcome) for result in report.results), report.counts)
        if say != said:
            write_report(out_dir, report)
            said = say
        if every_s == 0:
            return
        told = signal.sigtimedwait({signal.SIGTERM}, every_s)


def look(candidate: Candidate, again_s: float = AGAIN_S) -> NodeReport:
    """One look, within its budget; a fault counts when it is there ``again_s`` later too."""
    started, end = time.time(), time.monotonic() + BUDGET_S
    wanted = [check for check in wanted_checks(candidate.config.health) if check.repeated]
    checks = possible(wanted, candidate)
    results = _in_turn(checks, candidate, end)
    faults = {result.check for result in results if result.outcome is Outcome.FAIL_NODE}
    if faults:
        time.sleep(again_s)
        once_more = [check for check in checks if check.name in faults]
        second = {result.check: result for result in _in_turn(once_more, candidate, end)}
        results = [second.get(result.check, result) for result in results]
    return NodeReport(
        node=candidate.node,
        results=tuple(results),
        identity=Identity(BOOT_ID.read_text().strip(), boards(results)),
        started=started,
        seconds=time.time() - started,
    )


def _with_throttling(report: NodeReport, before: int) -> tuple[NodeReport, int]:
    """The report with the number of looks that found a GPU throttled, which nobody else counts."""
    results, now = [], before
    for result in report.results:
        if result.check == throttling.CHECK.name:
            now += result.outcome is Outcome.WARN
            result = dataclasses.replace(result, counts={THROTTLED_LOOKS: now})
        results.append(result)
    return dataclasses.replace(report, results=tuple(results)), now


def _in_turn(checks: Sequence[Check], candidate: Candidate, end: float) -> list[CheckResult]:
    """Not all at once: ranks would feel that."""
    results: list[CheckResult] = []
    for check in checks:
        results += run_checks((check,), candidate, max(end - time.monotonic(), 0.0))
    return results


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
