"""The commit record: it exists, parses and matches its digest, or there is no checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from datetime import datetime

from .errors import FormatUnknown
from .errors import ManifestDamaged as ManifestDamaged
from .layout import Incarnation
from .receipt import Receipt
from .sealed import Json, field, only, seal, unseal

FORMAT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One committed step.

    Attributes:
        epoch: the claim under which it was committed.
        receipts: one per rank, in rank order.
        created: ISO 8601 with time zone, for people; order comes from `order`.
        details: whatever the committer wants to remember, JSON.
    """

    step: int
    incarnation: Incarnation
    epoch: int
    world_size: int
    receipts: tuple[Receipt, ...]
    created: str
    details: Mapping[str, Json] = attribute(default_factory=dict)

    @property
    def format(self) -> int:
        """The lowest that says all of it, so that older readers understand what they can."""
        if any(receipt.copied_from for receipt in self.receipts):
            return 3
        return 2 if any(receipt.bases for receipt in self.receipts) else 1

    @property
    def order(self) -> tuple[int, int, str]:
        """Newer checkpoints compare greater: by step, then in the order of their commits."""
        return (self.step, self.epoch, self.created)

    @property
    def payload_bytes(self) -> int:
        return sum(receipt.payload_bytes for receipt in self.receipts)

    @property
    def created_s(self) -> float:
        """Seconds since 1970; 0 where `created` does not say."""
        try:
            return datetime.fromisoformat(self.created).timestamp()
        except ValueError:
            return 0.0

    @property
    def metrics(self) -> Mapping[str, float]:
        """The newest numbers that rank 0 had logged when it saved."""
        return self.receipts[0].notes.metrics

    @property
    def provenance(self) -> Mapping[str, Json]:
        """What rank 0 knew of code, packages and job when it saved."""
        return self.receipts[0].notes.provenance

    def to_bytes(self) -> bytes:
        """Raises TypeError or ValueError when `details` is not JSON."""
        return seal(self.to_body())

    def to_body(self) -> dict[str, Json]:
        return {
            "format": self.format,
            "step": self.step,
            "attempt": self.incarnation.attempt,
            "generation": self.incarnation.generation,
            "epoch": self.epoch,
            "world_size": self.world_size,
            "receipts": [receipt.to_body() for receipt in self.receipts],
            "created": self.created,
            "details": dict(self.details),
        }

    @classmethod
    def parse(cls, data: bytes) -> Manifest:
        """Raises ManifestDamaged, or FormatUnknown for a sound manifest of a later version."""
        try:
            body = unseal(data)
            if body.get("format") not in range(1, FORMAT + 1):
                raise FormatUnknown("manifest", body.get("format"), FORMAT)
            return cls._from_body(body)
        except ValueError as error:
            raise ManifestDamaged(str(error)) from error

    @classmethod
    def _from_body(cls, body: Mapping[str, Json]) -> Manifest:
        manifest = cls(
            step=field(body, "step", int),
            incarnation=Incarnation(field(body, "attempt", str), field(body, "generation", int)),
            epoch=field(body, "epoch", int),
            world_size=field(body, "world_size", int),
            receipts=tuple(_receipt(item) for item in field(body, "receipts", list)),
            created=field(body, "created", str),
            details=field(body, "details", dict),
        )
        only(body, manifest.to_body())
        manifest.check()
        return manifest

    def check(self) -> None:
        """Raises ValueError unless every rank of this step and incarnation is there once."""
        ranks = [receipt.rank for receipt in self.receipts]
        if ranks != list(range(self.world_size)) or not ranks:
            missing = sorted(set(range(self.world_size)) - set(ranks))
            raise ValueError(
                f"receipts of ranks {_shorten(missing)} are missing"
                if missing
                else f"its receipts are not those of ranks 0 to {self.world_size - 1}, each once"
            )
        for receipt in self.receipts:
            found = (receipt.step, receipt.incarnation, receipt.world_size)
            if found != (self.step, self.incarnation, self.world_size):
                raise ValueError(f"the receipt of rank {receipt.rank} belongs to another save")
            if receipt.shares_digest != self.receipts[0].shares_digest:
                raise ValueError(
                    f"ranks 0 and {receipt.rank} have different replicated arrays in their states"
                )


def _receipt(item: Json) -> Receipt:
    if not isinstance(item, dict):
        raise ValueError(f"receipt {item!r:.80} is no record")
    return Receipt.from_body(item)


def _shorten(ranks: list[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
