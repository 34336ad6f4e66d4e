"""What is known against a node as text that administrators can act on (pure)."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

from relight.counted import counted

from .faults import Fault
from .score import Standing


def ticket(standing: Standing) -> str:
    """A ticket about one node: what was seen, when, by which runs, on which machine. Times are UTC.

    It proposes the command that drains the node and does not run it.
    """
    newest = standing.evidence[0]
    boots = list(dict.fromkeys(e.identity.boot_id for e in standing.evidence if e.identity.boot_id))
    gpus = list(dict.fromkeys(gpu for e in standing.evidence for gpu in e.identity.gpus))
    first = min(evidence.first_seen for evidence in standing.evidence)
    by_hand = newest.fault is Fault.HAND
    what = "excluded by hand" if by_hand else f"{newest.fault} fault"
    runs = f"{counted(len(standing.runs), 'independent run')}: {', '.join(standing.runs)}"
    by = f" by {runs}" if standing.runs else ""
    lines = [
        f"Node {standing.node} ({standing.cluster}): {what}",
        f"Seen from {_utc(first)} to {_utc(newest.last_seen)}{by}",
        *([f"Boot: {', '.join(boots)}"] if boots else []),
        *([f"GPUs: {', '.join(gpus)}"] if gpus else []),
        "Evidence, newest first:",
    ]
    for evidence in standing.evidence:
        lines += [
            f"- {_utc(evidence.last_seen)} {evidence.run_id}: {x}" for x in reversed(evidence.lines)
        ]
    why = newest.newest if by_hand else what
    lines += [
        "Slurm was told nothing. To keep jobs away until it is repaired:",
        f"  scontrol update NodeName={standing.node} State=DRAIN Reason={shlex.quote(why)}",
    ]
    return "\n".join(lines) + "\n"


def _utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
