"""The program that looks at one node while ranks run on it, again and again, unnoticed.

``python -m relight.resilience.health.watch RUN_DIR OUT_DIR EVERY_S``, once on each node; with 0 it
looks once, at a low priority: when the ranks have ended, or another node has turned bad. Else it
runs at the lowest one, one check after another. Silence is health: the report
``OUT_DIR/<node>.json`` is written when an answer has changed, and else the disk hears nothing.
"""

from __future__ import annotations

import dataclasses
import logging
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
LOW: Final = 10  # of a look that is waited for: beside busy ranks the lowest gets hardly anything
BUDGET_S: Final = 60.0  # for one look; most of it is waiting for ranks to leave some time
AGAIN_S: Final = 5.0  # a link that was down for a second is no reason to leave a node
LOOK_S: Final = 2 * BUDGET_S + AGAIN_S  # with a second look at what was found
LAST_BUDGET_S: Final = 20.0  # when no rank runs any more: then all checks are made at once
LAST_LOOK_S: Final = 2 * LAST_BUDGET_S + AGAIN_S  # with a second look at what was found
_log: Final = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> str | None:
    """Look until told to end; gives the reason when that cannot be done, and nothing otherwise."""
    run_dir, out_dir, every = arguments
    once = float(every) == 0
    os.nice(LOW if once else LOWEST)
    # It is waited for, so that the end never interrupts a look.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        candidate = Candidate(node_name(), read_config(Path(run_dir)), 0.0)
        if once:
            again_s = min(AGAIN_S, candidate.config.health.during_s)
            write_report(Path(out_dir), look(candidate, again_s, at_once=True))
        else:
            watch(candidate, Path(out_dir), float(every))
    except (RelightError, OSError) as error:
        return f"watch: {error}"
    return None


def watch(candidate: Candidate, out_dir: Path, every_s: float) -> None:
    """Look, say what has changed, wait; ends with SIGTERM, which must be blocked."""
    said: tuple[object, ...] = ()
    told, throttled = None, 0
    while told is None:
        try:
            report = look(candidate, min(AGAIN_S, every_s))
            report, throttled = _with_throttling(report, throttled)
            say = (*((result.check, result.outcome) for result in report.results), report.counts)
            if say != said:
                write_report(out_dir, report)
                said = say
        except OSError as error:  # the disk comes back, or processes are to be had again
            _log.warning("nothing could be told by this look: %s", error)
        told = signal.sigtimedwait({signal.SIGTERM}, every_s)


def look(candidate: Candidate, again_s: float = AGAIN_S, *, at_once: bool = False) -> NodeReport:
    """One look; a fault counts when it is there ``again_s`` later too.

    ``at_once`` all checks are made together, in ``LAST_LOOK_S`` at most.
    """
    started = time.time()
    ask = _at_once if at_once else _in_turn
    wanted = [check for check in wanted_checks(candidate.config.health) if check.repeated]
    checks = possible(wanted, candidate)
    results = ask(checks, candidate)
    faults = {result.check for result in results if result.outcome is Outcome.FAIL_NODE}
    if faults:
        time.sleep(again_s)
        once_more = [check for check in checks if check.name in faults]
        second = {result.check: result for result in ask(once_more, candidate)}
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


def _at_once(checks: Sequence[Check], candidate: Candidate) -> list[CheckResult]:
    return list(run_checks(checks, candidate, LAST_BUDGET_S))


def _in_turn(checks: Sequence[Check], candidate: Candidate) -> list[CheckResult]:
    """Not all at once: ranks would feel that."""
    end = time.monotonic() + BUDGET_S
    results: list[CheckResult] = []
    for check in checks:
        results += run_checks((check,), candidate, max(end - time.monotonic(), 0.0))
    return results


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
