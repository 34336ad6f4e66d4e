"""What a check is: a question about a node, and how it is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Final

from ..config import HealthConfig, RunConfig
from ..ledger.faults import Fault
from .result import Outcome


@dataclass(frozen=True, slots=True)
class Limit:
    """A threshold that a site or a run may set otherwise: ``health.checks.<check>.<name>``."""

    check: str
    name: str
    default: float
    unit: str
    most: float = math.inf

    def of(self, health: HealthConfig) -> float:
        """The threshold that counts with these settings."""
        return health.limits.get(self.check, {}).get(self.name, self.default)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that is to carry a run.

    ``clock_offset_s`` is the node's time when its program began, less the supervisor's time when it
    asked for that: how far the clocks are apart, plus what the start took. ``peers`` are all nodes
    that are looked at together. What the kernel says is read below ``root``.
    """

    node: str
    config: RunConfig
    clock_offset_s: float
    peers: tuple[str, ...] = ()
    root: Path = Path("/")

    def limit(self, limit: Limit) -> float:
        """The threshold that counts for this run."""
        return limit.of(self.config.health)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check has to say; who asked and how long it took is added outside.

    ``facts`` are compared between the nodes of a run; ``counts`` are counters whose growth is a
    sign of what is to come.

    Raises:
        ValueError: the value is no finite number, which JSON cannot hold.
    """

    outcome: Outcome
    evidence: str
    value: float | None = None
    unit: str | None = None
    fault: Fault | None = None  # None: the one that the check declares
    facts: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"{self.evidence}: the value is {self.value}")


NO_ANSWER_UNIT: Final = "no answer in the check's own time"  # the unit of what hangs


def not_judged(why: str) -> Finding:
    """Where there is nothing to look at, or nobody may look: no fault, and no doubt either."""
    return Finding(Outcome.PASS, f"not judged: {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check, as it is listed and run.

    ``run`` is called in a process of its own, which is killed after ``timeout_s``. What it raises
    means that the check could not be carried out, never that the node is bad; ``silence`` is the
    outcome when it has to be killed. It is run only where one of the paths exists that it
    ``needs``.
    """

    name: str
    reads: str
    threshold: str
    worst: Outcome
    typical_s: float
    timeout_s: float
    run: Callable[[Candidate], Finding]
    fault: Fault = Fault.CONDITION
    limits: tuple[Limit, ...] = ()
    silence: Outcome = Outcome.UNKNOWN
    needs: tuple[str, ...] = ()  # paths below the root
    repeated: bool = False  # while ranks run: it is cheap, and takes nothing from them
    of_median: float | None = None  # a value below this share of the nodes' median is a fault
    behind: Outcome = Outcome.FAIL_NODE  # what such a value means

    def __post_init__(self) -> None:
        """A package's check that is declared wrong is to spoil only itself. Raises TypeError."""
        right = {
            name: isinstance(getattr(self, name), kind)
            for kind, names in _KINDS.items()
            for name in names
        }
        right |= {"limits": _all_are(Limit, self.limits), "needs": _all_are(str, self.needs)}
        right["run"] = callable(self.run)
        for name in _KINDS[Real]:
            right[name] = right[name] and math.isfinite(getattr(self, name))
        for name in (name for name, is_right in right.items() if not is_right):
            raise TypeError(f"{name} of check {self.name!r} is {getattr(self, name)!r:.100}")


_KINDS: Final[Mapping[type, tuple[str, ...]]] = {
    str: ("name", "reads", "threshold"),
    Outcome: ("worst", "silence", "behind"),
    Fault: ("fault",),
    Real: ("typical_s", "timeout_s"),
}


def _all_are(kind: type, values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)
