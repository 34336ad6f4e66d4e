"""Records of the ledger and their form in files (pure)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from relight.errors import RelightError, UsageError

from ..one_line import one_line
from .faults import DAY_S, RULES, Fault

MAX_WEIGHT: Final = 1.0
MAX_TTL_S: Final = 90 * DAY_S  # so that no one accuses a node for ever
CLOCK_ERROR_S: Final = DAY_S  # a record from further in the future has a wrong clock
MAX_RELEASED: Final = 5000  # some 300 KB: a file may be larger
MAX_LINES: Final = 20
MAX_LINE_CHARS: Final = 500
MAX_GPUS: Final = 128  # parts of boards count, and have names of their own
_LARGEST: Final = 2.0**53  # no whole number of JSON is too large, and not every one is a time
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class RecordDamaged(RelightError):
    """A file of the ledger was written by something else."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which machine bears the node's name: its boot, and the serials or UUIDs of its GPUs."""

    boot_id: str = ""
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one run has seen against a node. Times are Unix seconds."""

    cluster: str
    node: str
    fault: Fault
    lines: tuple[str, ...]
    weight: float
    ttl_s: float
    first_seen: float
    last_seen: float
    run_id: str
    identity: Identity = Identity()

    @property
    def expires(self) -> float:
        return self.last_seen + self.ttl_s

    @property
    def file_name(self) -> str:
        """The same for everything that one run sees of one kind: it is one record."""
        return _file_name(self.cluster, self.node, f"evidence {self.run_id} {self.fault}")

    def later(self, seen: Evidence) -> Evidence:
        """This record after the same fault was seen once more.

        What counters tell adds up, as far as a run's trends may weigh. The date is that of now,
        also after one that a clock ahead has given: whoever released that one did not mean this.
        A record that a wrong clock has dated is left out.
        """
        if self.last_seen > seen.last_seen + CLOCK_ERROR_S:
            return seen
        before = (line for line in self.lines if line not in seen.lines)
        lines = tuple(dict.fromkeys((*before, *seen.lines)))[-MAX_LINES:]
        return dataclasses.replace(
            seen,
            lines=lines,
            first_seen=min(self.first_seen, seen.first_seen),
            weight=self._weight_with(seen),
        )

    def _weight_with(self, seen: Evidence) -> float:
        if self.fault is Fault.TREND and not set(self.counters) & set(seen.counters):
            return min(self.weight + seen.weight, RULES[Fault.TREND].weight)
        return max(self.weight, seen.weight)

    @property
    def newest(self) -> str:
        """What was seen last."""
        return self.lines[-1]

    @property
    def counters(self) -> tuple[str, ...]:
        """What the lines of a trend begin with."""
        return tuple(dict.fromkeys(line.partition(":")[0] for line in self.lines))

    def cut(self) -> Evidence:
        """This record as long as one may be."""
        gpus = tuple(_cut(gpu) for gpu in self.identity.gpus[:MAX_GPUS])
        return dataclasses.replace(
            self,
            lines=tuple(_cut(line) for line in self.lines[-MAX_LINES:]),
            identity=Identity(_cut(self.identity.boot_id), gpus),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What was seen against a node counts no more: only these faults, if any.

    That are the records in ``released``, by file name, with their dates: whatever clocks say, what
    is seen later counts. Earlier releases of relight named none, and meant all up to ``time``.
    """

    cluster: str
    node: str
    time: float
    reason: str
    faults: tuple[Fault, ...] = ()
    released: tuple[tuple[str, float], ...] = ()

    @property
    def file_name(self) -> str:
        """Of its own for each choice of faults, and for each form: none takes another's place."""
        form = "released" if self.released else "release"
        return _file_name(self.cluster, self.node, " ".join((form, *self.faults)))

    def covers(self, evidence: Evidence) -> bool:
        """Whether this evidence counts no more."""
        if self.faults and evidence.fault not in self.faults:
            return False
        if self.released:
            return (evidence.file_name, evidence.last_seen) in self.released
        return evidence.last_seen <= self.time

    def later(self, again: Release) -> Release:
        """The later of both, unless a wrong clock has dated this one; it names what both do."""
        newest = self if again.time < self.time <= again.time + CLOCK_ERROR_S else again
        known = sorted({*self.released, *again.released}, key=lambda one: one[1])
        return dataclasses.replace(newest, released=tuple(known[-MAX_RELEASED:]))


Record = Evidence | Release


def check_node_name(node: str) -> str:
    """The name, which may stand in a file name.

    Raises:
        UsageError: it is not the name of a node.
    """
    if not _NODE_NAME.fullmatch(node):
        raise UsageError(f"{node!r:.100} is not the name of a node")
    return node


def to_bytes(record: Record) -> bytes:
    """The content of the record's file; what nobody would read back is cut."""
    kept = record.cut() if isinstance(record, Evidence) else record
    content = {"kind": type(record).__name__.lower(), **dataclasses.asdict(kept)}
    return json.dumps(content, indent=1).encode() + b"\n"


def from_bytes(data: bytes) -> Record:
    """The inverse of :func:`to_bytes`.

    Raises:
        RecordDamaged: a key is missing or holds a value of the wrong kind.
    """
    try:
        values = json.loads(data)
        if not isinstance(values, dict):
            raise ValueError(f"{values!r:.100} is no object")
        return _evidence(values) if _text(values, "kind") == "evidence" else _release(values)
    except (ValueError, KeyError, UsageError, RecursionError) as error:
        raise RecordDamaged(f"not a record of the ledger: {error!r}") from error


def _evidence(values: Mapping[str, object]) -> Evidence:
    identity = values["identity"]
    if not isinstance(identity, dict):
        raise ValueError(f"identity is {identity!r:.100}")
    first_seen, last_seen = _number(values, "first_seen"), _number(values, "last_seen")
    if first_seen > last_seen:
        raise ValueError(f"first seen at {first_seen:g}, after it was last seen")
    return Evidence(
        cluster=_text(values, "cluster"),
        node=check_node_name(_text(values, "node")),
        fault=Fault(_text(values, "fault")),
        lines=_texts(values, "lines", MAX_LINES) or ("nothing is written down",),
        weight=_number(values, "weight", MAX_WEIGHT),
        ttl_s=_number(values, "ttl_s", MAX_TTL_S),
        first_seen=first_seen,
        last_seen=last_seen,
        run_id=_text(values, "run_id"),
        identity=Identity(_text(identity, "boot_id"), _texts(identity, "gpus", MAX_GPUS)),
    )


def _release(values: Mapping[str, object]) -> Release:
    if values["kind"] != "release":
        raise ValueError(f"kind is {values['kind']!r:.100}")
    return Release(
        cluster=_text(values, "cluster"),
        node=check_node_name(_text(values, "node")),
        time=_number(values, "time"),
        reason=_text(values, "reason"),
        # Earlier releases of relight wrote none, and meant all.
        faults=tuple(Fault(fault) for fault in _texts(values, "faults", len(Fault)))
        if "faults" in values
        else (),
        released=_released(values.get("released", [])),
    )


def _released(found: object) -> tuple[tuple[str, float], ...]:
    if not isinstance(found, list) or len(found) > MAX_RELEASED:
        raise ValueError(f"released is {found!r:.100}, not a list of at most {MAX_RELEASED}")
    if not all(isinstance(one, list) and len(one) == 2 for one in found):
        raise ValueError(f"released is {found!r:.100}, not names with their dates")
    pairs = [dict(zip(("name", "date"), one, strict=True)) for one in found]
    return tuple((_text(pair, "name"), _number(pair, "date")) for pair in pairs)


def _file_name(cluster: str, node: str, subject: str) -> str:
    digest = hashlib.sha256(f"{cluster} {subject}".encode()).hexdigest()[:16]
    return f"{check_node_name(node)}.{digest}.json"


def _text(values: Mapping[str, object], key: str) -> str:
    return _one_line(values[key], key)


def _texts(values: Mapping[str, object], key: str, most: int) -> tuple[str, ...]:
    found = values[key]
    if not isinstance(found, list) or len(found) > most:
        raise ValueError(f"{key} is {found!r:.100}, not a list of at most {most}")
    return tuple(_one_line(text, key) for text in found)


def _one_line(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r:.100}, not text")
    return _cut(value)


def _cut(text: str) -> str:
    """Other users wrote this, and it is shown on a terminal."""
    return one_line(text, MAX_LINE_CHARS)


def _number(values: Mapping[str, object], key: str, most: float = math.inf) -> float:
    value = values[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} is {value!r:.100}, not a number")
    if not 0 <= value <= min(most, _LARGEST):
        raise ValueError(f"{key} is {value}, not between 0 and {most:g}")
    return float(value)
