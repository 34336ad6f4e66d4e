"""The reports of all nodes, as far as they have come."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from .result import NodeReport, ReportDamaged


def read_reports(out_dir: Path, nodes: Iterable[str]) -> dict[str, NodeReport | None]:
    """Each node's report; None where there is none that can be read and is that node's own."""
    return {node: _read(out_dir / f"{node}.json", node) for node in nodes}


def _read(path: Path, node: str) -> NodeReport | None:
    try:
        report = NodeReport.from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError, ReportDamaged):
        return None
    return report if report.node == node else None
