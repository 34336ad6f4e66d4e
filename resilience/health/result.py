"""What the checks of one node found, and its form in the file that the node writes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from relight.errors import RelightError

from ..ledger.faults import Fault
from ..ledger.record import Identity
from ..one_line import one_line

MAX_EVIDENCE_CHARS: Final = 1000
MAX_FACT_CHARS: Final = 10_000
MAX_NAME_CHARS: Final = 300  # of a check, a node, a unit, a fact, a board
MAX_COUNT: Final = 2**64


class ReportDamaged(RelightError):
    """A node's report is torn, or was written by something else."""


class Outcome(StrEnum):
    """What a check says; only ``FAIL_NODE`` is about the node as such."""

    PASS = "PASS"
    WARN = "WARN"  # people should know; the run goes on
    FAIL_NODE = "FAIL_NODE"  # this node would fail the run, another may not
    FAIL_JOB = "FAIL_JOB"  # the run would fail on every node
    UNKNOWN = "UNKNOWN"  # the check could not be carried out: it says nothing about the node


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The answer of one check; ``evidence`` is one line for people, ``value`` what was measured."""

    check: str
    outcome: Outcome
    evidence: str
    value: float | None = None
    unit: str | None = None
    seconds: float
    fault: Fault  # what is wrong with the node when the outcome speaks against it
    facts: Mapping[str, str] = field(default_factory=dict)  # compared between nodes
    counts: Mapping[str, int] = field(default_factory=dict)  # whose growth is a sign


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """All answers of one node. ``started`` is Unix time by the node's own clock."""

    node: str
    results: tuple[CheckResult, ...]
    identity: Identity
    started: float
    seconds: float

    @property
    def counts(self) -> dict[str, int]:
        """The counters of all checks."""
        return {name: count for result in self.results for name, count in result.counts.items()}

    def to_json(self) -> dict[str, object]:
        """The report as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: object) -> NodeReport:
        """The inverse of :meth:`to_json`.

        Raises:
            ReportDamaged: a key is missing, unknown, or holds a value of the wrong kind.
        """
        try:
            values = _exactly(data, {"node", "results", "identity", "started", "seconds"})
            results = values["results"]
            if not isinstance(results, list | tuple):
                raise ValueError(f"results is {results!r}, not a list")
            return cls(
                node=_text(values, "node"),
                results=tuple(result_from_json(entry) for entry in results),
                identity=_identity(values["identity"]),
                started=_number(values, "started"),
                seconds=_number(values, "seconds"),
            )
        except ValueError as error:
            raise ReportDamaged(f"not the report of a node: {error}") from error


def result_from_json(data: object) -> CheckResult:
    """One answer, as text that cannot steer a terminal.

    Raises:
        ValueError: a key is missing, unknown, or holds a value of the wrong kind.
    """
    values = _exactly(data, {field.name for field in dataclasses.fields(CheckResult)})
    return CheckResult(
        check=_text(values, "check"),
        outcome=Outcome(_text(values, "outcome")),
        evidence=_text(values, "evidence", MAX_EVIDENCE_CHARS),
        value=None if values["value"] is None else _number(values, "value"),
        unit=None if values["unit"] is None else _text(values, "unit"),
        seconds=_number(values, "seconds"),
        fault=Fault(_text(values, "fault")),
        facts=_facts(values["facts"]),
        counts=_counts(values["counts"]),
    )


def _facts(data: object) -> Mapping[str, str]:
    if not isinstance(data, dict) or not all(isinstance(value, str) for value in data.values()):
        raise ValueError(f"facts is {data!r:.200}, not names with text")
    return {
        one_line(name, MAX_NAME_CHARS): one_line(fact, MAX_FACT_CHARS)
        for name, fact in data.items()
    }


def _counts(data: object) -> Mapping[str, int]:
    if not isinstance(data, dict) or not all(
        type(value) is int and abs(value) < MAX_COUNT for value in data.values()
    ):
        raise ValueError(f"counts is {data!r:.200}, not names with whole numbers of 64 bits")
    return {one_line(name, MAX_NAME_CHARS): count for name, count in data.items()}


def _identity(data: object) -> Identity:
    values = _exactly(data, {"boot_id", "gpus"})
    gpus = values["gpus"]
    if not isinstance(gpus, list | tuple) or not all(isinstance(gpu, str) for gpu in gpus):
        raise ValueError(f"gpus is {gpus!r}, not a list of text")
    return Identity(_text(values, "boot_id"), tuple(one_line(gpu, MAX_NAME_CHARS) for gpu in gpus))


def _exactly(data: object, keys: set[str]) -> Mapping[str, object]:
    if not isinstance(data, dict) or set(data) != keys:
        raise ValueError(f"{data!r:.200} does not have exactly the keys {sorted(keys)}")
    return data


def _text(values: Mapping[str, object], key: str, most_chars: int = MAX_NAME_CHARS) -> str:
    value = values[key]
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r:.100}, not text")
    return one_line(value, most_chars)


def _number(values: Mapping[str, object], key: str) -> float:
    value = values[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
        raise ValueError(f"{key} is {value!r:.100}, not a number")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(f"{key} is a number of {len(str(value))} digits") from error
