"""What can happen to checkpoints beside their saves, and to the place where they are.

Facts in the past tense, as all of ``events``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAnswered:
    """The place of the checkpoints can be written and read, after so long."""

    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSilent:
    """It could not in all the time that was given."""

    waited_s: float
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDrilled:
    """A checkpoint was read again while ranks go on; ``damage`` is empty when it is whole."""

    step: int
    damage: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricMissing:
    """The first checkpoint has no value of the metric that the best are kept by."""

    metric: str
    logged: tuple[str, ...]  # the names that there are


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointArchived:
    """A checkpoint was copied to the archive, or with a ``failure`` it was not."""

    step: int
    size_bytes: int = 0
    seconds: float = 0.0
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFetched:
    """A checkpoint was brought back from the archive, for nothing newer was valid here."""

    step: int
    size_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFailed:
    """A rank does without the tier of its node: it is full, or a copy in it was damaged."""

    generation: int
    rank: int
    node: str | None
    reason: str
    partner: str | None = None  # the tier works, but no copy of what it saves gets to this node


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRestored:
    """All ranks go on from a checkpoint; ``seconds`` is what the slowest one took to read it."""

    generation: int
    step: int
    size_bytes: int
    seconds: float
    slowest_rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRead:
    """These ranks have restored from the tiers of their nodes, the others from the directory."""

    generation: int
    step: int
    ranks: tuple[int, ...]
    by_partner: tuple[int, ...] = ()  # of them: a copy of what they had saved on another node
