"""What a checkpoint tells beside its values, for people and for retention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .sealed import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Of rank 0; the other ranks have none.

    Attributes:
        metrics: the newest numbers that the program has logged; finite ones.
        provenance: code, packages, job and what else the state came from.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, Json] = field(default_factory=dict)
