"""The head node's part for 1000 nodes: read, compare and judge their reports, and see trends.

``python -m health.thousand FOLDER``; prints seconds and the largest memory in bytes as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from relight.resilience.health.catalogue import ACTIVE, CHECKS
from relight.resilience.health.collect import read_reports
from relight.resilience.health.compare import compare
from relight.resilience.health.result import CheckResult, NodeReport, Outcome
from relight.resilience.health.running import judge_running
from relight.resilience.health.trends import SIGNS, Sample, trends
from relight.resilience.health.verdict import judge
from relight.resilience.ledger.record import Identity

NODES = 1000
FACTS = {"gpu driver": "570.1", "kernel": "6.1", "infiniband ports": "8 active, 400 Gb/sec"}


def report(node: str, slow: bool) -> NodeReport:
    results = tuple(
        CheckResult(
            check=check.name,
            outcome=Outcome.PASS,
            evidence="as it should be, said in a line of usual length",
            value=(50.0 if slow else 100.0) if check.of_median else 1.0,
            unit="things",
            seconds=0.1,
            fault=check.fault,
            facts=FACTS if check.name == "gpu_present" else {},
            counts=dict.fromkeys(SIGNS, 10**6 if slow else 3) if check.name == "gpu_ecc" else {},
        )
        for check in (*CHECKS, *ACTIVE)
    )
    gpus = tuple(f"{node}-{number}" for number in range(8))
    return NodeReport(
        node=node, results=results, identity=Identity("boot", gpus), started=0.0, seconds=1.0
    )


def main(folder: Path) -> None:
    names = [f"n{number}" for number in range(NODES)]
    for name in names:
        content = json.dumps(report(name, slow=name == "n7").to_json())
        (folder / f"{name}.json").write_text(content)
    started = time.monotonic()
    reports = compare(read_reports(folder, names))
    bad = list(judge(reports, "warn").bad)
    bad += list(judge_running(reports).bad)
    known = {name: one for name, one in reports.items() if one is not None}
    first = {name: Sample(0.0, dict.fromkeys(SIGNS, 0)) for name in known}
    seen = trends(first, {name: Sample(3600.0, one.counts) for name, one in known.items()})
    seconds = time.monotonic() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert (set(bad), {trend.node for trend in seen}) == ({"n7"}, {"n7"}), (bad, seen)
    print(json.dumps({"seconds": seconds, "peak_bytes": peak}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
