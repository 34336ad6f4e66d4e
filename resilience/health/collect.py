"""The reports of all nodes, as far as they have come."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from .result import NodeReport, ReportDamaged

Stamp = tuple[int, int]  # of a file: another one is there once it differs
_MOST_BYTES = 4 * 1024**2  # a thousand times what the checks say
_NONE: Mapping[str, Stamp] = {}


def read_reports(
    out_dir: Path, nodes: Iterable[str], known: Mapping[str, Stamp] = _NONE
) -> dict[str, NodeReport | None]:
    """Each node's report; None where there is none that can be read and is that node's own.

    One whose stamp is ``known`` is an answer to an earlier question, and counts for none.
    """
    return {node: _read(_path(out_dir, node), node, known.get(node)) for node in nodes}


def arrived(out_dir: Path, nodes: Iterable[str]) -> list[str]:
    """The nodes of which a report is there: one look at the folder, however many they are."""
    try:
        there = {path.name for path in out_dir.iterdir()}
    except OSError:
        return []
    return [node for node in nodes if _path(out_dir, node).name in there]


def stamps(out_dir: Path, nodes: Iterable[str]) -> dict[str, Stamp]:
    """Of the reports that are there before a question is asked. Raises OSError."""
    found = {}
    for node in nodes:
        try:
            found[node] = _stamp(_path(out_dir, node).stat())
        except FileNotFoundError:
            continue
    return found


def _path(out_dir: Path, node: str) -> Path:
    return out_dir / f"{node}.json"


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_mtime_ns, status.st_ino


def _read(path: Path, node: str, known: Stamp | None) -> NodeReport | None:
    try:
        # Not path.open(): a pipe in its place would be waited for.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or _stamp(status) == known:
                return None
            report = NodeReport.from_json(json.loads(file.read(_MOST_BYTES)))
    except (OSError, ValueError, RecursionError, ReportDamaged):
        return None
    return report if report.node == node else None
