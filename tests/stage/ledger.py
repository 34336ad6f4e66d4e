"""A record for a ledger, and where a user's own ones lie."""

from __future__ import annotations

import os
import time
from pathlib import Path

from relight.resilience.ledger.faults import DAY_S, Fault
from relight.resilience.ledger.record import Evidence
from relight.resilience.ledger.store import Ledger


def evidence(node: str = "n1", seen: float | None = None, run_id: str = "a") -> Evidence:
    now = time.time() if seen is None else seen
    return Evidence(
        cluster="mini",
        node=node,
        fault=Fault.HARDWARE,
        lines=("Xid 79",),
        weight=1.0,
        ttl_s=DAY_S,
        first_seen=now,
        last_seen=now,
        run_id=run_id,
    )


def own(ledger: Ledger) -> Path:
    return ledger.root / str(os.getuid())
