"""What records mean for a node at a given time (pure): whether it is avoided, and until when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from relight.counted import counted

from .faults import DAY_S, HOUR_S, Fault
from .record import CLOCK_ERROR_S, MAX_RELEASED, MAX_TTL_S, Evidence, Identity, Record, Release

HALF_LIFE_S: Final = 7 * DAY_S
LEMON_RUNS: Final = 3
ONE_EVENT_S: Final = HOUR_S
LEMON_WINDOW_S: Final = 28 * DAY_S
ENOUGH: Final = 1.0  # this much unexpired weight is enough to avoid a node


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is held against a node: ``evidence`` is what still counts, newest first.

    ``score`` decays with a half-life of a week and orders nodes; whether one is avoided is decided
    by unexpired evidence, or by being a lemon: three independent runs in 28 days. People are no
    ``runs``.
    """

    cluster: str
    node: str
    avoided: bool
    lemon: bool
    score: float
    until: float | None  # Unix time; None when it is not avoided
    runs: tuple[str, ...]
    evidence: tuple[Evidence, ...]


def standings(records: Iterable[Record], now: float) -> list[Standing]:
    """Each node against which something counts, worst first."""
    by_node: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        by_node.setdefault((record.cluster, record.node), []).append(record)
    found = [_standing(cluster, node, of, now) for (cluster, node), of in by_node.items()]
    return sorted(
        (one for one in found if one.evidence), key=lambda one: (-one.score, one.cluster, one.node)
    )


def seen_by(standing: Standing) -> str:
    """By how many runs, or by whom, a node is accused."""
    people = {one.run_id for one in standing.evidence if one.fault is Fault.HAND}
    runs = [counted(len(standing.runs), "run")] if standing.runs else []
    return ", ".join([*runs, *sorted(people)])


def changed_hardware(then: Identity, now: Identity) -> bool:
    """Whether the node has been rebooted with other GPUs since: it is another machine.

    A job may be given a part of the boards: one must be new, and one gone though no fewer are seen.
    """
    known = bool(then.boot_id and now.boot_id and then.gpus and now.gpus)
    if not known or then.boot_id == now.boot_id or len(now.gpus) < len(then.gpus):
        return False
    return bool(set(now.gpus) - set(then.gpus)) and bool(set(then.gpus) - set(now.gpus))


def release_of(
    standing: Standing, reason: str, now: float, faults: tuple[Fault, ...] = ()
) -> Release:
    """What lets all that counts, or these faults, count no more: the newest of them, if many."""
    seen = [one for one in standing.evidence if not faults or one.fault in faults]
    return Release(
        cluster=standing.cluster,
        node=standing.node,
        time=now,
        reason=reason,
        faults=faults,
        released=tuple((one.file_name, one.last_seen) for one in seen[:MAX_RELEASED]),
    )


def is_over(record: Record, now: float) -> bool:
    """Whether a record can never count again, so that its file may go."""
    if isinstance(record, Release):  # what it lets go may be a person's word for that long
        return record.time + MAX_TTL_S < now
    return max(record.expires, record.last_seen + LEMON_WINDOW_S) < now


def _standing(cluster: str, node: str, records: list[Record], now: float) -> Standing:
    latest = now + CLOCK_ERROR_S
    releases = [
        one for one in records if isinstance(one, Release) and (one.released or one.time <= latest)
    ]
    held = sorted(
        (
            record
            for record in records
            if isinstance(record, Evidence)
            and record.last_seen <= latest
            and not is_over(record, now)
            and not any(release.covers(record) for release in releases)
        ),
        key=lambda evidence: -evidence.last_seen,
    )
    unexpired = [evidence for evidence in held if now < evidence.expires]
    until = _until(unexpired)
    lemon_until = _lemon_until(held)
    lemon = lemon_until is not None and now <= lemon_until
    ends = [end for end in (until, lemon_until if lemon else None) if end is not None]
    return Standing(
        cluster=cluster,
        node=node,
        avoided=bool(ends),
        lemon=lemon,
        score=sum(_decayed(evidence, now) for evidence in held),
        until=max(ends, default=None),
        runs=tuple(dict.fromkeys(one.run_id for one in held if one.fault is not Fault.HAND)),
        evidence=tuple(held),
    )


def _until(unexpired: list[Evidence]) -> float | None:
    """When what is left no longer weighs enough; None where it does not even now."""
    weight = 0.0
    for evidence in sorted(unexpired, key=lambda one: -one.expires):
        weight += evidence.weight
        if weight >= ENOUGH:
            return evidence.expires
    return None


def _decayed(evidence: Evidence, now: float) -> float:
    age_s = max(now - evidence.last_seen, 0.0)
    return float(evidence.weight * 0.5 ** (age_s / HALF_LIFE_S))


def _lemon_until(newest_first: list[Evidence]) -> float | None:
    """When the third newest run leaves the window; None with fewer runs. What several runs saw
    within an hour was one event.

    Evidence that alone would not be enough says nothing, however often it comes: it is most often
    one program's fault. A person's word is not a run's.
    """
    newest: dict[str, float] = {}
    for evidence in newest_first:
        if evidence.weight >= ENOUGH and evidence.fault is not Fault.HAND:
            newest.setdefault(evidence.run_id, evidence.last_seen)
    apart: list[float] = []
    for seen in sorted(newest.values(), reverse=True):
        if not apart or apart[-1] - seen >= ONE_EVENT_S:
            apart.append(seen)
    return apart[LEMON_RUNS - 1] + LEMON_WINDOW_S if len(apart) >= LEMON_RUNS else None
