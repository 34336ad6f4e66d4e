"""What a check is: a question about a node, and how it is asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..config import RunConfig
from ..ledger.faults import Fault
from .result import Outcome


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that is to carry a run.

    ``clock_offset_s`` is the node's time when its program began, less the supervisor's time when it
    asked for that: how far the clocks are apart, plus what the start took.
    """

    node: str
    config: RunConfig
    clock_offset_s: float


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check has to say; who asked and how long it took is added outside.

    Raises:
        ValueError: the value is no finite number, which JSON cannot hold.
    """

    outcome: Outcome
    evidence: str
    value: float | None = None
    unit: str | None = None
    fault: Fault | None = None  # None: the one that the check declares

    def __post_init__(self) -> None:
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"{self.evidence}: the value is {self.value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check, as it is listed and run.

    ``run`` is called in a process of its own, which is killed after ``timeout_s``. What it raises
    means that the check could not be carried out, never that the node is bad.
    """

    name: str
    reads: str
    threshold: str
    worst: Outcome
    fault: Fault = Fault.CONDITION
    typical_s: float
    timeout_s: float
    run: Callable[[Candidate], Finding]
